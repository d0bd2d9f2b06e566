package read

import (
	"math"
	"regexp"
	"strings"
)

// Names and formats are those of perftest's src/perftest_parameters.{h,c}, V4.1 to 26.04: from 24.07 on the header says
// MiB/sec for what was called MB/sec, and always was 2^20 bytes.
var (
	perftestColumns = regexp.MustCompile(`#bytes|#sl|#iterations|BW (?:peak|average|Port\d) ?\[[^\]]*\]|` +
		`MsgRate(?: Port\d)? ?\[[^\]]*\]|t_\w+\[\w+\]|[\d.]+% percentile\[\w+\]|tps average|CPU_Util\[%+\]`)
	perftestTitle = regexp.MustCompile(
		`\b(Send|RDMA_Write|RDMA_Read|Atomic)(?:_imm)?(?:[ _].*)?[ _](BW|Latency)[ _](?:\w+[ _])*Test\b`)
	perftestDevice = regexp.MustCompile(`\bDevice\s*: (\S+)`)
	perftestDual   = regexp.MustCompile(`\bDual-port\s*: ON`)
)

type perftest struct {
	*sink
	test  string
	rail  string
	lanes float64

	opened int // line of the title; 0: none, or its table has ended
	header int // line of the header of the open table; 0: none is open
	columns
	count int // rows of that table
}

func newPerftest(s *sink) parser { return &perftest{sink: s, lanes: 1} }

func (p *perftest) text(l line) {
	switch {
	case perftestTitle.MatchString(l.text):
		p.end()
		*p = perftest{sink: p.sink, opened: l.number, lanes: 1}
		p.title(l.text)
	case strings.Contains(l.text, "#bytes"):
		if c := header(l.text, perftestColumns); len(c.names) > 2 {
			p.endTable(p.opened > 0 && p.header > 0)
			p.columns, p.header, p.count = c, l.number, 0
		}
	case p.header > 0:
		p.row(l)
	case p.opened > 0:
		if m := perftestDevice.FindStringSubmatch(l.text); m != nil {
			p.rail = m[1]
		}
		if perftestDual.MatchString(l.text) {
			p.lanes *= 2
		}
	}
}

// title sets the test from "RDMA_Write Bidirectional BW Test", which JSON writes with underscores.
func (p *perftest) title(text string) {
	m := perftestTitle.FindStringSubmatch(text)
	if m == nil {
		return
	}
	p.test = map[string]string{"Send": "ib_send", "RDMA_Write": "ib_write", "RDMA_Read": "ib_read",
		"Atomic": "ib_atomic"}[m[1]] +
		map[string]string{"BW": "_bw", "Latency": "_lat"}[m[2]]
	if strings.Contains(text, "Bidirectional") {
		p.test += ", bidirectional"
		p.lanes *= 2
	}
}

func (p *perftest) row(l line) {
	cells, cut := p.columns.row(l)
	switch {
	case cut:
		p.fail(l.number, "perftest: the row has fewer columns than its header in line %d", p.header)
	case cells != nil && !(l.cut && p.opened > 0): // the end of the last figure may be missing
		p.count++
		p.addRow(l.number, cells)
	case strings.Count(l.text, "-") > 20 && strings.Trim(l.text[strings.Index(l.text, "---"):], "- ") == "":
		p.endTable(p.count == 0)
		p.opened = 0
	}
}

func (p *perftest) addRow(number int, cells map[string]string) {
	r := Result{Tool: "perftest", Test: p.test, Rail: p.rail, Line: number, Bytes: size(cells["#bytes"]), lanes: p.lanes}
	name := "latency"
	for _, column := range p.names {
		text := cells[column]
		switch what, rest, _ := strings.Cut(column, "["); {
		case strings.TrimSpace(what) == "BW average":
			name = "bandwidth"
			r.Rate = r.figure(column, text, perftestUnit(rest))
		case what == "t_avg":
			r.average(text, 1e-6)
		case what == "t_min":
			r.latency().Min = r.figure(column, text, 1e-6)
		case what == "t_max":
			r.latency().Max = r.figure(column, text, 1e-6)
		case what == "t_typical":
			r.latency().P50 = r.figure(column, text, 1e-6)
		case what == "99% percentile":
			r.latency().P99 = r.figure(column, text, 1e-6)
		}
	}
	if r.Test == "" {
		r.Test = name
	}
	p.add(r)
}

// perftestUnit is that of a rate in bytes per second.
func perftestUnit(name string) float64 {
	switch strings.ToLower(strings.TrimSuffix(name, "]")) {
	case "gb/sec":
		return 1e9 / 8
	case "gib/sec":
		return 1 << 30
	}
	return 1 << 20
}

// endTable ends the table, which is an error where rows are missing.
func (p *perftest) endTable(missing bool) {
	if p.header > 0 && missing {
		p.fail(p.header, "perftest: the table is cut: %d rows, and no line of dashes at its end", p.count)
	}
	p.header = 0
}

func (p *perftest) end() {
	switch {
	case p.header > 0:
		p.endTable(p.opened > 0 || p.count == 0)
	case p.opened > 0:
		p.fail(p.opened, "perftest: no results after the title")
	}
	p.opened = 0
}

// perftestJSON is the results of --out_json. Its rates have no unit: MiB/s, or with --report_gbits Gb/s.
type perftestJSON struct {
	Size    *int64   `json:"MsgSize"`
	Average *float64 `json:"BW_average"`
	Alone   *float64 `json:"bw_avg"` // with --output=bandwidth
	Message *float64 `json:"MsgRate"`
	Min     *float64 `json:"t_min"`
	Max     *float64 `json:"t_max"`
	Typical *float64 `json:"t_typical"`
	Mean    *float64 `json:"t_avg"`
	Latency *float64 `json:"avg_lat"` // with --output=latency
	P99     *float64 `json:"percentile_99"`
}

// Of --raw_qos, --output and figures without a value, perftest writes what is no JSON.
var (
	perftestBareKey = regexp.MustCompile(`(?m)^sl:`)
	perftestComma   = regexp.MustCompile(`,\s*\}`)
	perftestNoValue = regexp.MustCompile(`:\s*-?(?:nan|inf)\b`)
)

func (p *perftest) document(d *document) bool {
	if !d.has("test_info") {
		return false
	}
	if d.err != nil {
		text := perftestBareKey.ReplaceAll(d.text, []byte(`"sl":`))
		text = perftestNoValue.ReplaceAll(perftestComma.ReplaceAll(text, []byte("}")), []byte(": null"))
		d = newDocument(d.line, text)
	}
	var info struct {
		Test   string `json:"test"`
		Device string `json:"Device"`
		Dual   string `json:"Dual_port"`
	}
	d.get("test_info", &info)
	var j perftestJSON
	if !d.get("results", &j) || d.err != nil && !d.members["results"].whole {
		p.fail(d.errorLine(), "perftest: the JSON is cut, or has no results")
		return true
	}
	if d.err != nil {
		p.fail(d.errorLine(), "perftest: the JSON is cut: %v", d.err)
	}
	about := perftest{test: info.Test, lanes: 1}
	about.title(info.Test)
	if info.Dual == "ON" {
		about.lanes *= 2
	}
	r := Result{Tool: "perftest", Test: about.test, Rail: info.Device, Bytes: j.Size, Line: d.members["results"].line,
		lanes: about.lanes}
	j.rate(&r)
	j.latency(&r)
	p.add(r)
	return true
}

// rate sets the rate. Messages per second tell its unit; the units differ by 119.
func (j *perftestJSON) rate(r *Result) {
	average := j.Average
	if average == nil {
		average = j.Alone
	}
	if average == nil {
		return
	}
	unit := float64(1 << 20)
	if j.Message == nil || j.Size == nil || *j.Message <= 0 || *average <= 0 || *j.Size == 0 {
		r.Marks = append(r.Marks, "the file has no unit: read as MiB/s")
	} else if *j.Message*1e6*float64(*j.Size)/(*average*unit) > math.Sqrt(1e9/8/(1<<20)) {
		unit = 1e9 / 8
	}
	r.Rate = r.value("BW_average", *average, unit)
}

func (j *perftestJSON) latency(r *Result) {
	set := func(name string, v *float64, to func(*Latency) **float64) {
		if v != nil {
			*to(r.latency()) = r.value(name, *v, 1e-6)
			r.rounding = 0.005e-6
		}
	}
	set("t_avg", j.Mean, func(l *Latency) **float64 { return &l.Avg })
	set("avg_lat", j.Latency, func(l *Latency) **float64 { return &l.Avg })
	set("t_min", j.Min, func(l *Latency) **float64 { return &l.Min })
	set("t_typical", j.Typical, func(l *Latency) **float64 { return &l.P50 })
	set("percentile_99", j.P99, func(l *Latency) **float64 { return &l.P99 })
	set("t_max", j.Max, func(l *Latency) **float64 { return &l.Max })
}
