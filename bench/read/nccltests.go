package read

import (
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Formats are those of nccl-tests' src/common.cu and util.cu, v1.0.0 to a0b82b2 (July 2026). GB/s are 10^9 bytes, times
// µs; v1, whose first column is "bytes", has ms.
var (
	ncclTestsName = regexp.MustCompile(`\b([a-z_]+_perf)(?:_mpi)?\b`)
	ncclTestsType = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
)

type ncclTests struct {
	*sink
	name   string // of the program
	opened int    // line with the settings of a run; 0: none, or its average was printed
	header int
	names  []string
	before int // fields that a log puts before each line
	count  int // rows of that table
	half   half
}

// half is the beginning of a row into which NCCL has logged: the program prints size and type before it measures, and
// the figures after.
type half struct {
	number int // line; 0: none
	about  []string
}

var ncclTestsLogged = regexp.MustCompile(`\S*:\d+:\d+ \[\d+\] (?:[\d.]+ )?NCCL (?:INFO|WARN|TRACE|VERSION|CALL)\b`)

func newNCCLTests(s *sink) parser { return &ncclTests{sink: s} }

func (p *ncclTests) text(l line) {
	switch {
	case strings.Contains(l.text, "# nccl-tests version "), strings.Contains(l.text, "# nThread "):
		p.open(l.number)
	case strings.Contains(l.text, "# Collective test starting: "):
		_, name, _ := strings.Cut(l.text, "# Collective test starting: ")
		p.name = path.Base(strings.TrimSpace(name))
	case strings.Contains(l.text, "Avg bus bandwidth"):
		p.dropHalf()
		if p.header > 0 && p.count == 0 {
			p.fail(l.number, "nccl-tests: no rows in the table of line %d", p.header)
		}
		p.opened, p.header, p.name = 0, 0, ""
	case strings.Contains(l.text, "Test NCCL failure "), strings.Contains(l.text, "Test CUDA failure "),
		strings.Contains(l.text, "Test timeout ("):
		p.fail(l.number, "nccl-tests failed: %s", strings.TrimSpace(l.text))
		p.opened, p.header = 0, 0
	case strings.Contains(l.text, "algbw") && strings.Contains(l.text, "busbw") && p.columns(l.text):
		p.header, p.count = l.number, 0
	case p.header > 0:
		p.row(l)
	case strings.Contains(l.text, "Collective test concluded"):
	case strings.Contains(l.text, "_perf") && !strings.Contains(l.text, "NCCL "):
		if m := ncclTestsName.FindStringSubmatch(l.text); m != nil {
			p.name = m[1]
		}
	}
}

// open begins a run, which two lines do in newer versions.
func (p *ncclTests) open(number int) {
	if p.header > 0 {
		p.end()
	}
	if p.opened == 0 {
		p.opened = number
	}
}

func (p *ncclTests) columns(text string) bool {
	fields := strings.Fields(text)
	first := slices.IndexFunc(fields, func(f string) bool {
		f = strings.TrimLeft(f, "#")
		return f == "size" || f == "bytes"
	})
	if first < 0 || !slices.Contains(fields[first:], "type") {
		return false
	}
	p.names, p.before = fields[first:], first
	p.names[0] = strings.TrimLeft(p.names[0], "#")
	if first > 0 && strings.Trim(fields[first-1], "#") == "" {
		p.before--
	}
	return true
}

// row reads the columns from the right: those before the times may be empty.
func (p *ncclTests) row(l line) {
	if at := ncclTestsLogged.FindStringIndex(l.text); at != nil {
		p.logged(l, strings.Fields(l.text[:at[0]]))
		return
	}
	fields := strings.Fields(l.text)
	if p.half.number > 0 && len(fields) > 0 && p.rest(l, fields) {
		return
	}
	fields = fields[min(p.before, len(fields)):]
	if len(fields) < 2 && !l.cut || len(fields) == 0 || size(fields[0]) == nil ||
		len(fields) > 1 && size(fields[1]) == nil ||
		len(fields) > 2 && !ncclTestsType.MatchString(fields[2]) {
		return
	}
	if slices.Contains(p.names, "timestamp") && len(fields) > 4 { // of two fields
		fields = fields[:len(fields)-1]
	}
	times := slices.IndexFunc(p.names, func(n string) bool { return n == "time" || n == "cputime" })
	n := len(p.names) - max(times, 0)
	names := p.names[len(p.names)-n:]
	complete := times > 2 && len(fields) >= 3+n && len(fields) <= len(p.names)
	if !complete || !ncclTestsFigures(fields[len(fields)-n:], names) || l.cut && p.opened > 0 {
		p.fail(l.number, "nccl-tests: the row is cut, or does not match its header in line %d", p.header)
		return
	}
	p.addFields(l.number, fields[:len(fields)-n], fields[len(fields)-n:])
}

func ncclTestsFigures(fields, names []string) bool {
	for i, f := range fields {
		if !numeric(f) && names[i] != "timestamp" {
			return false
		}
	}
	return true
}

// addFields adds a row. Of columns that are there twice the first is out of place.
func (p *ncclTests) addFields(number int, about, fields []string) {
	figures := map[string]string{}
	for i, f := range fields {
		name := p.names[len(p.names)-len(fields)+i]
		if _, inPlace := figures[name]; !inPlace {
			figures[name] = f
		}
	}
	p.count++
	p.addRow(number, about, figures)
}

// logged keeps what stands before a message of NCCL, if that begins a row.
func (p *ncclTests) logged(l line, fields []string) {
	fields = fields[min(p.before, len(fields)):]
	if len(fields) < 3 || size(fields[0]) == nil || size(fields[1]) == nil || !ncclTestsType.MatchString(fields[2]) {
		return
	}
	p.dropHalf()
	p.half = half{l.number, fields}
}

// rest joins the figures of a row with its beginning.
func (p *ncclTests) rest(l line, fields []string) bool {
	times := slices.IndexFunc(p.names, func(n string) bool { return n == "time" || n == "cputime" })
	n := len(p.names) - max(times, 0)
	if times < 3 || len(fields) < n || len(fields) > n+p.before+1 {
		return false
	}
	fields = fields[len(fields)-n:]
	if !ncclTestsFigures(fields, p.names[times:]) {
		return false
	}
	p.addFields(p.half.number, p.half.about, fields)
	p.half = half{}
	return true
}

// dropHalf ends the wait for the rest of a row.
func (p *ncclTests) dropHalf() {
	if p.half.number > 0 {
		p.fail(p.half.number, "nccl-tests: the row is cut: NCCL has logged into it, and its figures are not there")
	}
	p.half = half{}
}

func (p *ncclTests) addRow(number int, about []string, figures map[string]string) {
	r := Result{Tool: "nccl-tests", Line: number, Bytes: size(about[0])}
	r.Test = ncclTestsTest(p.name, about[2], append(slices.Clone(about), "")[3])
	r.Rate = r.figure("algbw", figures["algbw"], 1e9)
	r.BusRate = r.figure("busbw", figures["busbw"], 1e9)
	unit := 1e-6
	if p.names[0] == "bytes" {
		unit = 1e-3
	}
	r.average(figures["time"]+figures["cputime"], unit)
	for name, to := range map[string]func(*Latency) **float64{
		"i_min": func(l *Latency) **float64 { return &l.Min },
		"i_p99": func(l *Latency) **float64 { return &l.P99 },
		"i_max": func(l *Latency) **float64 { return &l.Max },
	} {
		if text, ok := figures[name]; ok {
			*to(r.latency()) = r.figure(name, text, unit)
		}
	}
	if n, err := strconv.ParseFloat(figures["#wrong"], 64); err == nil && n > 0 {
		r.Marks = append(r.Marks, "wrong elements: "+figures["#wrong"])
	}
	p.add(r)
}

// ncclTestsTest is the program, with type and operation: "all_reduce_perf, float sum".
func ncclTestsTest(program, kind, operation string) string {
	if _, err := strconv.Atoi(operation); err != nil && operation != "none" && operation != "" {
		kind += " " + operation
	}
	if program == "" {
		return kind
	}
	return program + ", " + kind
}

func (p *ncclTests) end() {
	p.dropHalf()
	switch {
	case p.opened > 0 && p.header == 0:
		p.fail(p.opened, "nccl-tests: no table of results")
	case p.opened > 0:
		p.fail(p.header, "nccl-tests: the output is cut: no \"Avg bus bandwidth\" after the table")
	case p.header > 0 && p.count == 0:
		p.fail(p.header, "nccl-tests: no rows in the table")
	}
	p.opened, p.header, p.name = 0, 0, ""
}

// ncclTestsJSON is an element of the results of -J.
type ncclTestsJSON struct {
	Size      *int64 `json:"size"`
	Type      string `json:"type"`
	Operation string `json:"redop"`
	Out       *struct {
		Time  any `json:"time"` // a number, or the text nan
		CPU   any `json:"cpu_time"`
		Alg   any `json:"alg_bw"`
		Bus   any `json:"bus_bw"`
		Wrong any `json:"nwrong"`
	} `json:"out_of_place"`
	Each *struct {
		Min *float64 `json:"min_us"`
		P50 *float64 `json:"p50_us"`
		P99 *float64 `json:"p99_us"`
		Max *float64 `json:"max_us"`
	} `json:"out_of_place_per_iter"`
}

func (p *ncclTests) document(d *document) bool {
	results, ok := d.members["results"]
	if !d.has("nccl_version") && !d.has("config") || d.has("test_info") {
		return false
	}
	var args []string
	name := ""
	if d.get("args", &args) && len(args) > 0 {
		name = path.Base(args[0])
	}
	rows := 0
	err := results.list(func(object json.RawMessage, number int) error {
		var j ncclTestsJSON
		if err := json.Unmarshal(object, &j); err != nil {
			return err
		}
		rows++
		p.add(j.result(name, number))
		return nil
	})
	switch {
	case d.err != nil:
		p.fail(d.errorLine(), "nccl-tests: the JSON is cut: %v", d.err)
	case !ok:
		p.fail(d.line, "nccl-tests: no results in the JSON")
	case err != nil:
		p.fail(results.line, "nccl-tests: invalid results: %v", err)
	case rows == 0:
		p.fail(results.line, "nccl-tests: no results in the list")
	}
	return true
}

func (j *ncclTestsJSON) result(name string, number int) Result {
	r := Result{Tool: "nccl-tests", Line: number, Bytes: j.Size, Test: ncclTestsTest(name, j.Type, j.Operation)}
	if j.Out == nil {
		return r
	}
	any2 := func(what string, v any, unit float64) *float64 {
		switch v := v.(type) {
		case float64:
			return r.value(what, v, unit)
		case string:
			return r.figure(what, v, unit)
		}
		return nil
	}
	r.Rate = any2("alg_bw", j.Out.Alg, 1e9)
	r.BusRate = any2("bus_bw", j.Out.Bus, 1e9)
	average := any2("time", j.Out.Time, 1e-6)
	if average == nil {
		average = any2("cpu_time", j.Out.CPU, 1e-6)
	}
	if average != nil {
		r.latency().Avg, r.rounding = average, 0.5e-12
	}
	if e := j.Each; e != nil {
		for v, to := range map[*float64]**float64{e.Min: &r.latency().Min, e.P50: &r.latency().P50, e.P99: &r.latency().P99,
			e.Max: &r.latency().Max} {
			if v != nil {
				*to = r.value("time", *v, 1e-6)
			}
		}
	}
	if n, ok := j.Out.Wrong.(float64); ok && n > 0 {
		r.Marks = append(r.Marks, "wrong elements: "+strconv.FormatFloat(n, 'f', -1, 64))
	}
	return r
}
