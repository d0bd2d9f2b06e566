package read

import (
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Formats of nccl-tests' src/common.cu and util.cu, v1.0.0 to a0b82b2 (July 2026): 10^9 bytes/s and µs. In v1, whose
// first column is "bytes", times are in ms.
var (
	ncclTestsName = regexp.MustCompile(`\b([a-z_]+_perf)(?:_mpi)?\b`)
	ncclTestsType = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
)

type ncclTests struct {
	*sink
	name   string // name of the program
	opened int    // line with the settings of a run; 0 if there is none, or its average was printed
	header int
	names  []string
	before int // fields that a log puts before each line
	count  int // rows of the open table
	half   half
	runs   int    // open runs: settings without an average
	ranks  [2]int // number of listed ranks: all, and those with a number above 0
	failed bool   // the program has reported an error
}

// half is the beginning of a row that a message of NCCL interrupted: the program prints size and type before it
// measures, and the figures after.
type half struct {
	number int // line of the beginning; 0 if there is none
	about  []string
}

var (
	ncclTestsRank   = regexp.MustCompile(`^#? *Rank +(\d+)(?: Group +\d+)? Pid +\d+ on `)
	ncclTestsFailed = regexp.MustCompile(`\bFAILED\b`)
	ncclTestsBounds = regexp.MustCompile(`Out of bounds values\s*:.*\bFAILED\b`)
	ncclTestsError  = regexp.MustCompile(
		`Test (?:NCCL|CUDA) failure |Test timeout \(|: Test failure \S+:\d+|^# error: `)
)

var ncclTestsLogged = regexp.MustCompile(`\S*:\d+:\d+ \[\d+\] (?:[\d.]+ )?NCCL (?:INFO|WARN|TRACE|VERSION|CALL)\b`)

func newNCCLTests(s *sink) parser { return &ncclTests{sink: s} }

func (p *ncclTests) text(l line) {
	switch {
	case strings.Contains(l.text, "# nccl-tests version "):
		p.open(l.number)
	case strings.Contains(l.text, "# nThread "):
		p.open(l.number)
		p.runs++
		if p.runs == 2 {
			p.fail(l.number, "nccl-tests: this run begins before that of line %d has ended: it was cut, or several "+
				"print into one file (a program without MPI, started by mpirun)", p.opened)
		}
	case strings.Contains(l.text, "Rank ") && ncclTestsRank.MatchString(l.text):
		p.ranks[0]++
		if ncclTestsRank.FindStringSubmatch(l.text)[1] != "0" {
			p.ranks[1]++
		}
	case strings.Contains(l.text, "# Collective test starting: "):
		_, name, _ := strings.Cut(l.text, "# Collective test starting: ")
		name = path.Base(strings.TrimSpace(name))
		if p.runs > 1 && name != p.name {
			name = ""
		}
		p.name = name
	case strings.Contains(l.text, "Avg bus bandwidth"):
		p.dropHalf()
		if p.header > 0 && p.count == 0 {
			p.fail(l.number, "nccl-tests: no rows in the table of line %d", p.header)
		}
		if ncclTestsFailed.MatchString(l.text) {
			p.fail(l.number, "nccl-tests failed: below what was asked for: %s", strings.TrimSpace(l.text))
		}
		p.runs--
		if p.runs <= 0 {
			p.reset()
		}
	case strings.Contains(l.text, "Out of bounds ") && ncclTestsBounds.MatchString(l.text):
		p.fail(l.number, "nccl-tests failed: %s", strings.Trim(l.text, "# \t"))
	case has(l.text, " failure ", "Test timeout", "# error: ") && ncclTestsError.MatchString(l.text):
		if !p.failed { // the lines below have the details
			p.fail(l.number, "nccl-tests failed: %s", strings.TrimSpace(l.text))
		}
		p.reset()
		p.failed = true
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

// open starts a run. Newer versions print two such lines.
func (p *ncclTests) open(number int) {
	p.failed = false
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
	if slices.Contains(p.names, "timestamp") && len(fields) > 4 { // a timestamp has two fields
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

// addFields adds a row. Of columns that occur twice, the first is out of place.
func (p *ncclTests) addFields(number int, about, fields []string) {
	figures, inPlace := map[string]string{}, map[string]string{}
	for i, f := range fields {
		name := p.names[len(p.names)-len(fields)+i]
		if _, twice := figures[name]; twice {
			inPlace[name] = f
		} else {
			figures[name] = f
		}
	}
	p.count++
	p.addRow(number, about, figures, inPlace["#wrong"])
}

// logged keeps the text before a message of NCCL, if it begins a row.
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

// dropHalf stops waiting for the rest of a row.
func (p *ncclTests) dropHalf() {
	if p.half.number > 0 {
		p.fail(p.half.number, "nccl-tests: the row is cut: NCCL has logged into it, and its figures are not there")
	}
	p.half = half{}
}

func (p *ncclTests) addRow(number int, about []string, figures map[string]string, wrongInPlace string) {
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
	for half, wrong := range []string{figures["#wrong"], wrongInPlace} {
		if n, err := strconv.ParseFloat(wrong, 64); err == nil {
			r.wrong(half, n)
		}
	}
	r.alone(p.ranks[0] > 0 && p.ranks[1] == 0)
	if p.runs > 1 {
		r.fail(mixed)
	}
	p.add(r)
}

// wrong marks elements with wrong values, out of place (0) and in place (1).
func (r *Result) wrong(half int, n float64) {
	if n > 0 || math.IsNaN(n) {
		r.fail("wrong elements%s: %s", [...]string{"", " (in place)"}[half], strconv.FormatFloat(n, 'f', -1, 64))
	}
}

// alone marks a row whose data did not use a network.
func (r *Result) alone(oneRank bool) {
	if oneRank || r.BusRate != nil && *r.BusRate == 0 && r.Rate != nil && *r.Rate > 0 {
		r.Marks = append(r.Marks, "no network: one rank alone")
	}
}

// ncclTestsTest returns the name of a test, such as "all_reduce_perf, float sum".
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
	p.reset()
	p.failed = false
}

func (p *ncclTests) reset() { p.opened, p.header, p.name, p.runs, p.ranks = 0, 0, "", 0, [2]int{} }
