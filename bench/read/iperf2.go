package read

import (
	"math"
	"regexp"
	"strings"
)

// Formats of iperf 2.0.5 to 2.2's src/Locale.c: bits are decimal, bytes binary. Rows are like iperf3's without "sender"
// and "receiver". The last row of a stream that starts at 0 is its result.
var (
	iperf2Begin = regexp.MustCompile(`Client connecting to \S+, (TCP|UDP) port|Server listening on (TCP|UDP) port|` +
		`] local \S+ port \d+ connected with `)
	iperf2Stream = regexp.MustCompile(`\[ *\*?(\d+)\] local \S+ port \d+ connected with `)
	iperf2Row    = regexp.MustCompile(`\[ *(\*?)(\d+|SUM(?:-\d+)?|FD\d+)\] +([\d.]+) *- *([\d.]+) +sec +` +
		`[\d.]+ +[KMGTP]?Bytes +(\S+) +([KMGTP]?)(bits|Bytes)/sec(.*)`)
	iperf2CSV = regexp.MustCompile(`^\d{14}(?:\.\d+)?,[\w.:%]*,\d+,[\w.:%]*,\d+,(-?\d+),([\d.]+)-([\d.]+),\d+,(\d+)` +
		`(?:,[\d.]+,(-?\d+),(\d+),)?`)
	iperf2Error = regexp.MustCompile(`(?:connect|write|read|bind) failed: .*|` +
		`WARNING: did not receive ack of last datagram.*`)
)

type iperf2 struct {
	noDocuments
	*sink
	opened   int // line of the first message; 0 if the lines are not iperf2's
	client   bool
	mixed    bool
	protocol string
	failure  string
	streams  map[string]*iperf2Result
	order    []string
	added    int // number of results
}

// iperf2Result is the state of a stream, or of the sum of streams.
type iperf2Result struct {
	result   Result
	end      float64 // end of the result's interval, seconds
	last     float64 // end of the last row's interval, seconds
	received bool
}

func newIperf2(s *sink) parser {
	return &iperf2{sink: s, protocol: "TCP", streams: map[string]*iperf2Result{}}
}

func (p *iperf2) text(l line) {
	if strings.Count(l.text, ",") > 7 {
		if csv := iperf2CSV.FindStringSubmatch(l.text); csv != nil {
			p.csv(l, csv)
			return
		}
	}
	if has(l.text, "Client connecting ", "Server listening ", "connected with ") {
		if begin := iperf2Begin.FindStringSubmatch(l.text); begin != nil {
			p.begin(l, begin[1]+begin[2])
			return
		}
	}
	switch {
	case p.opened == 0:
	case strings.Contains(l.text, "Connecting to host "), strings.Contains(l.text, "Accepted connection from "):
		p.end() // the lines are iperf3's
	default:
		if m := iperf2Row.FindStringSubmatch(l.text); m != nil {
			p.row(l, m)
		} else if text := iperf2Error.FindString(l.text); text != "" {
			// The failed run has no result.
			if strings.HasPrefix(text, "connect") || strings.HasPrefix(text, "bind") {
				p.end()
			}
			p.failure = text
			p.fail(l.number, "iperf2 failed: %s", text)
		}
	}
}

// begin starts a run, or a stream in it. A run with --dualtest is both client and server.
func (p *iperf2) begin(l line, protocol string) {
	client := strings.Contains(l.text, "Client connecting to ")
	switch {
	case protocol == "":
		if m := iperf2Stream.FindStringSubmatch(l.text); m != nil {
			p.flush(m[1]) // an earlier connection may have the same number
		}
	case len(p.streams) > 0 || p.added > 0:
		p.end()
	case client && p.client:
		p.fail(l.number, "iperf2: this client begins before that of line %d has a result: it was cut, or several "+
			"print into one file", p.opened)
		p.mixed = true
	}
	if p.opened == 0 {
		p.opened = l.number
	}
	p.client = p.client || client
	if protocol != "" {
		p.protocol = protocol
	}
}

func (p *iperf2) row(l line, m []string) {
	step, unit := 1024.0, 1.0
	if m[7] == "bits" {
		step, unit = 1000, 1.0/8
	}
	unit *= math.Pow(step, float64(strings.Index("KMGTP", m[6])+len(m[6])))
	r := Result{Tool: "iperf2", Line: l.number}
	r.Rate = r.figure("rate", m[5], unit)
	if strings.HasPrefix(m[2], "FD") {
		r.lanes = 2
	}
	lost := iperf3Lost.FindStringSubmatch(m[8])
	if lost != nil && lost[1] != "0" {
		r.fail("%s of %s datagrams were lost", lost[1], lost[2])
	}
	p.keep(m[1]+m[2], m[3], m[4], r, lost != nil)
}

// keep stores a row as the result of its stream, unless it is an interval.
func (p *iperf2) keep(stream, from, to string, r Result, received bool) {
	if strings.HasPrefix(stream, "SUM") {
		stream = "SUM"
	}
	s := p.streams[stream]
	if s == nil {
		s = &iperf2Result{}
		p.streams[stream] = s
		p.order = append(p.order, stream)
	}
	start, _ := parseFloat(from)
	end, _ := parseFloat(to)
	s.last = max(s.last, end)
	if start == 0 && (p.mixed || !s.received || received) {
		if p.mixed && s.result.Tool != "" {
			p.emit(stream, s)
		}
		s.result, s.end, s.received = r, end, received
	}
}

func (p *iperf2) csv(l line, m []string) {
	if p.opened == 0 {
		p.opened = l.number
	}
	stream := m[1]
	if stream == "-1" {
		stream = "SUM"
	}
	r := Result{Tool: "iperf2", Line: l.number}
	r.Rate = r.figure("rate", m[4], 1.0/8)
	if m[6] != "" {
		p.protocol = "UDP"
		if m[5] != "0" {
			r.fail("%s of %s datagrams were lost", m[5], m[6])
		}
	}
	p.keep(stream, m[2], m[3], r, m[6] != "")
}

// flush adds the result of a stream and forgets the stream.
func (p *iperf2) flush(stream string) {
	if s := p.streams[stream]; s != nil && s.result.Tool != "" {
		p.emit(stream, s)
		s.result = Result{}
	}
}

func (p *iperf2) emit(stream string, s *iperf2Result) {
	r := s.result
	r.Test = p.protocol
	switch n := len(p.order) - 1; {
	case stream == "SUM":
		r.Test = iperf3Test(p.protocol, n, false)
	case n > 0 || p.added > 0:
		r.Test += ", stream " + strings.TrimPrefix(stream, "*")
	}
	if strings.HasPrefix(stream, "*") {
		r.Test += ", reverse"
	}
	switch {
	case p.mixed:
		r.fail(mixed)
	case p.failure != "":
		r.fail("iperf2 failed: %s", p.failure)
	case s.end < s.last-0.5:
		r.fail("this is an interval: the output is cut before the result")
		p.fail(r.Line, "iperf2: the output is cut: no result after the intervals")
	}
	if p.protocol == "UDP" && !s.received {
		r.Marks = append(r.Marks, "the sender's figure: there is no report of the server")
	}
	p.add(r)
	p.added++
}

func (p *iperf2) end() {
	list := p.order
	if s := p.streams["SUM"]; s != nil && s.result.Tool != "" && !p.mixed {
		list = []string{"SUM"}
	}
	for _, stream := range list {
		p.flush(stream)
	}
	if p.opened > 0 && p.added == 0 && p.failure == "" {
		p.fail(p.opened, "iperf2: no result")
	}
	*p = iperf2{sink: p.sink, protocol: "TCP", streams: map[string]*iperf2Result{}}
}
