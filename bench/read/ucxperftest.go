package read

import (
	"regexp"
	"strconv"
	"strings"
)

// Formats of UCX 1.8 to 1.21's src/tools/perf/perftest.c and perftest_run.c: an MB/s is 2^20 bytes/s. "overall" is for
// the whole run, "average" for the last interval. The overhead of a bandwidth test is not a latency.
var (
	ucxCommand = regexp.MustCompile(`\bucxx?_perftest\b.*`)
	ucxOption  = regexp.MustCompile(`\s-([tsm])\s*(\S+)`)
	ucxAbout   = regexp.MustCompile(`^\| (Test|Send memory|Recv memory|Message size): +(.*?) *\|`)
	ucxKind    = regexp.MustCompile(`\|\s+(overhead|latency) +\(usec\)\s+\|\s+bandwidth \(MB/s\)`)
	ucxColumns = regexp.MustCompile(`\|\s*# iterations\s*\|.*\|\s*overall\s*\|`)
	ucxRow     = regexp.MustCompile(`^(\[thread \d+\])?(Final:)?\s*([A-Za-z]\S*)?\s+` +
		`([\d,]+(?:\s+[\d.,]+|\s+-?nan|\s+-?inf){3,7})\s*$`)
	ucxCSV = regexp.MustCompile(`(?:^|,)iterations,[\w.]+_lat,avg_lat,overall_lat,avg_bw,overall_bw,` +
		`avg_mr,overall_mr$`)
)

type ucxPerftest struct {
	noDocuments
	*sink
	test, send, recv string
	bytes            *int64
	latency          bool
	opened           int // line of the open table's header; 0 if no table is open
	before           int // number of CSV columns before the iterations; -1 if it is not CSV
	count            int // number of results of the open table
	interval         *Result
	fresh            bool // a frame came, but not yet its table
	mixed            bool
}

func newUCXPerftest(s *sink) parser { return &ucxPerftest{sink: s, before: -1} }

func (p *ucxPerftest) text(l line) {
	switch {
	case p.opened == 0 && !has(l.text, "perftest", "iterations", "| ", " (usec)"):
	case ucxCSV.MatchString(l.text):
		p.begin(l)
		p.before = strings.Count(l.text[:strings.Index(l.text, "iterations")], ",")
	case ucxColumns.MatchString(l.text):
		p.begin(l)
	case ucxKind.MatchString(l.text):
		p.finish()
		p.latency = ucxKind.FindStringSubmatch(l.text)[1] == "latency"
	case ucxAbout.MatchString(l.text):
		m := ucxAbout.FindStringSubmatch(l.text)
		p.about(m[1], m[2])
	case ucxCommand.MatchString(l.text) && !strings.Contains(l.text, " UCX "):
		for _, m := range ucxOption.FindAllStringSubmatch(ucxCommand.FindString(l.text), -1) {
			p.about(m[1], m[2])
		}
	case p.opened == 0:
	case strings.Contains(l.text, " UCX  ERROR "), strings.Contains(l.text, "Failed to run test"):
		p.fail(l.number, "ucx_perftest failed: %s", strings.TrimSpace(l.text))
		p.opened, p.interval = 0, nil
	case p.before >= 0:
		p.csv(l)
	default:
		if m := ucxRow.FindStringSubmatch(l.text); m != nil {
			p.row(l, m)
		}
	}
}

// about keeps settings of the next table, from the frame or the command.
func (p *ucxPerftest) about(key, value string) {
	switch key {
	case "Test", "t":
		p.mixed = p.fresh || p.unfinished()
		p.finish()
		p.test, p.bytes, p.fresh = value, nil, key == "Test"
		if key == "t" {
			p.latency = strings.HasSuffix(value, "_lat")
		}
	case "Send memory":
		p.send = value
	case "Recv memory":
		p.recv = value
	case "m":
		p.send, p.recv, _ = strings.Cut(value, ",")
		if p.recv == "" {
			p.recv = p.send
		}
	case "Message size", "s":
		p.bytes = size(value)
	}
}

// begin starts a table. An earlier one without a result may continue below.
func (p *ucxPerftest) begin(l line) {
	p.mixed = p.mixed || p.unfinished()
	p.finish()
	p.opened, p.before, p.count, p.interval, p.fresh = l.number, -1, 0, nil, false
}

// unfinished reports whether a table without a result is open: a following one may be from another run.
func (p *ucxPerftest) unfinished() bool { return p.opened > 0 && p.count == 0 }

func (p *ucxPerftest) row(l line, m []string) {
	fields := strings.Fields(strings.ReplaceAll(m[4], ",", ""))
	r := p.result(l.number, fields)
	if r == nil || l.cut {
		p.fail(l.number, "ucx_perftest: the row is cut")
		return
	}
	if m[3] != "" { // with -f
		r.Test = strings.TrimPrefix(r.Test, p.test)
		r.Test = m[3] + r.Test
	}
	if m[1] != "" { // cumulative rate
		p.interval = r
		return
	}
	p.interval = nil
	p.count++
	p.add(*r)
}

func (p *ucxPerftest) csv(l line) {
	fields := strings.Split(strings.TrimSpace(l.text), ",")
	if len(fields) <= p.before+3 {
		return
	}
	last := fields[p.before:]
	last[0] = strings.TrimSpace(strings.TrimPrefix(last[0], "Final:"))
	if !allNumeric(last) {
		return
	}
	r := p.result(l.number, last)
	if r == nil || l.cut {
		p.fail(l.number, "ucx_perftest: the row is cut")
		return
	}
	if n := size(fields[0]); p.before == 1 && n != nil { // a batch file of sizes
		r.Bytes = n
	} else if p.before > 0 {
		r.Test = strings.Join(fields[:p.before], " ")
	}
	p.count++
	p.add(*r)
}

// result returns a row by its number of figures: 8, or 4 for several threads; nil for others.
func (p *ucxPerftest) result(number int, fields []string) *Result {
	overall := map[int][3]int{8: {3, 5, 1}, 4: {1, 2, -1}} // indexes of latency, rate and percentile
	at, known := overall[len(fields)]
	if !known {
		return nil
	}
	test := p.test
	if p.send != "" && (p.send != "host" || p.recv != "host") {
		test += ", " + p.send + "→" + p.recv
	}
	r := &Result{Tool: "ucx_perftest", Test: strings.TrimPrefix(test, ", "), Bytes: p.bytes, Line: number}
	r.Rate = r.figure("overall bandwidth", fields[at[1]], 1<<20)
	if p.latency {
		r.average(fields[at[0]], 1e-6)
		if at[2] >= 0 {
			r.latency().P50 = r.figure("percentile", fields[at[2]], 1e-6)
		}
	}
	if p.mixed {
		r.Test, r.Bytes, r.Latency = "", nil, nil
		r.fail(mixed)
	}
	if n, err := strconv.ParseFloat(fields[0], 64); err == nil && n == 0 {
		r.fail("no iterations")
	}
	return r
}

// finish ends a table. Without "Final:" the last interval becomes a failed row.
func (p *ucxPerftest) finish() {
	switch {
	case p.opened == 0:
	case p.interval != nil:
		p.interval.fail("this is an interval: the output is cut before the result")
		p.fail(p.interval.Line, "ucx_perftest: the output is cut: no \"Final:\" after the intervals")
		p.add(*p.interval)
	case p.count == 0:
		p.fail(p.opened, "ucx_perftest: no results in the table")
	}
	p.opened, p.interval, p.count = 0, nil, 0
}

func (p *ucxPerftest) end() {
	p.finish()
	*p = ucxPerftest{sink: p.sink, before: -1}
}
