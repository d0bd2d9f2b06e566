package read

import (
	"regexp"
	"strings"
)

// Formats of OSU micro-benchmarks 5.0 to 7.5's c/util: one line per size, an MB/s is 10^6 bytes/s. The latency is
// one-way.
var (
	osuTitle   = regexp.MustCompile(`# OSU (MPI|OpenSHMEM|UPC|NCCL|RCCL)(?:-(\w+))?[ _](.+?) (?:Test|Benchmark)\b`)
	osuColumns = regexp.MustCompile(`#? ?Size\b|(?:Avg |Min |Max )?(?:Latency|Lat|Bandwidth|Bi-Bandwidth) ?` +
		`\((?:us|[MG]B/s)\)|` +
		`P\d+(?:\.\d+)? Tail (?:Lat|Latency|BW|Bandwidth) ?\([^)]*\)|\bMB/s|Messages/s|Iterations|Validation|` +
		`\bOverall\(us\)|Compute\(us\)|Coll\. ?Init\(us\)|MPI_Test\(us\)|MPI_Wait\(us\)|Pure Comm\.\(us\)|Overlap\(%\)`)
	osuBuffers = regexp.MustCompile(`# Send Buffer on (\w+) \(\w\) and Receive Buffer on (\w+) \(\w\)`)
)

type osu struct {
	noDocuments
	*sink
	opened, header int // line numbers; 0 if there is none
	test, memory   string
	lanes          float64
	columns
	count int
	size  int64 // size in the last row: sizes rise
	mixed bool
}

func newOSU(s *sink) parser { return &osu{sink: s} }

func (p *osu) text(l line) {
	if strings.Contains(l.text, "# OSU ") {
		if m := osuTitle.FindStringSubmatch(l.text); m != nil {
			p.begin(l, m)
			return
		}
	}
	switch {
	case p.opened == 0:
	case strings.Contains(l.text, "# Size") && !strings.Contains(l.text, "algbw"):
		if c := header(l.text, osuColumns); len(c.names) > 1 {
			p.mixed = p.mixed || p.header > 0 // two titles, then two headers
			p.columns, p.header, p.size = c, l.number, -1
		}
	case strings.Contains(l.text, "DATA VALIDATION ERROR"):
		p.fail(l.number, "osu failed: %s", strings.TrimSpace(l.text))
	case osuBuffers.MatchString(l.text):
		m := osuBuffers.FindStringSubmatch(l.text)
		p.memory = strings.ToLower(m[1]) + "→" + strings.ToLower(m[2])
	case p.header > 0:
		p.row(l)
	}
}

// begin starts a run. An earlier one without a row may continue below.
func (p *osu) begin(l line, m []string) {
	unfinished := p.opened > 0 && p.count == 0
	first := p.opened
	if !unfinished {
		p.end()
	}
	names := map[string]string{"Bandwidth": "osu_bw", "Bi-Directional Bandwidth": "osu_bibw", "Latency": "osu_latency",
		"Multiple Bandwidth / Message Rate": "osu_mbw_mr", "Multi Latency": "osu_multi_lat",
		"Multi-threaded Latency": "osu_latency_mt"}
	test := names[m[3]]
	if test == "" {
		test = m[1] + " " + m[3]
	}
	*p = osu{sink: p.sink, opened: l.number, test: test, lanes: 1, size: -1}
	if strings.HasPrefix(m[3], "Bi-") {
		p.lanes = 2
	}
	if m[2] != "" {
		p.memory = m[2]
	}
	if unfinished {
		p.fail(l.number, "osu: this run begins before that of line %d has a row: it was cut, or several print into "+
			"one file", first)
		p.mixed = true
	}
}

func (p *osu) row(l line) {
	verdict := ""
	numbers := p.columns
	if fields := strings.Fields(l.text); len(fields) > 1 && numbers.names[len(numbers.names)-1] == "Validation" {
		verdict = fields[len(fields)-1]
		l.text = strings.TrimSuffix(strings.TrimRight(l.text, " \t"), verdict)
		numbers.names = numbers.names[:len(numbers.names)-1]
	}
	cells, cut := numbers.row(l)
	switch {
	case cut:
		p.fail(l.number, "osu: the row has fewer columns than its header in line %d", p.header)
		return
	case cells == nil:
		return
	case l.cut:
		p.fail(l.number, "osu: the file ends in the row: its last figure may be cut")
		return
	}
	r := Result{Tool: "osu", Test: strings.TrimSuffix(p.test+", "+p.memory, ", "), Line: l.number, lanes: p.lanes}
	for name, text := range cells {
		switch name = strings.TrimSpace(strings.TrimPrefix(name, "#")); {
		case name == "Size":
			r.Bytes = size(text)
		case strings.HasPrefix(name, "P") && strings.Contains(name, "Lat"):
			p.percentile(&r, name, text)
		case strings.HasPrefix(name, "Min "):
			r.latency().Min = r.figure(name, text, 1e-6)
		case strings.HasPrefix(name, "Max "):
			r.latency().Max = r.figure(name, text, 1e-6)
		case strings.HasPrefix(name, "Lat"), strings.HasPrefix(name, "Avg Lat"):
			r.average(text, 1e-6)
		case strings.HasSuffix(name, "GB/s)"):
			r.Rate = r.figure(name, text, 1e9)
		case !strings.HasPrefix(name, "P") && strings.Contains(name, "MB/s"):
			r.Rate = r.figure(name, text, 1e6)
		}
	}
	if p.mixed || r.Bytes != nil && *r.Bytes <= p.size {
		if !p.mixed {
			p.fail(l.number, "osu: sizes do not rise: several runs print into one file")
		}
		p.mixed = true
		r.Test = ""
		r.fail(mixed)
	}
	if verdict != "" && !strings.EqualFold(verdict, "Pass") && verdict != "-" {
		r.fail("validation: %s", verdict)
	}
	p.size = *r.Bytes
	p.count++
	p.add(r)
}

func (p *osu) percentile(r *Result, name, text string) {
	switch rank, _, _ := strings.Cut(name, " "); rank {
	case "P50":
		r.latency().P50 = r.figure(name, text, 1e-6)
	case "P99":
		r.latency().P99 = r.figure(name, text, 1e-6)
	}
}

func (p *osu) end() {
	if p.opened > 0 && p.count == 0 {
		p.fail(p.opened, "osu: no rows")
	}
	*p = osu{sink: p.sink}
}
