package read

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"
)

// Formats are those of iperf 3.21's src/iperf_locale.c and units.c: bits are decimal, bytes binary.
var (
	iperf3Row = regexp.MustCompile(`\[ *(\d+|SUM)\](?:\[([RT]X-[CS])\])? +[\d.]+- *[\d.]+ +sec +` +
		`[\d.]+ +[KMGTP]?Bytes +(\S+) +([KMGTP]?)(bits|Bytes)/sec(.*)`)
	iperf3Partial = regexp.MustCompile(`\[ *(?:\d+|SUM)\](?:\[[RT]X-[CS]\])? +[\d.]+- *[\d.]+`)
	iperf3Begin   = regexp.MustCompile(`Starting Test: protocol: (\w+), (\d+) streams, (\d+) byte blocks`)
)

type iperf3 struct {
	*sink
	opened    int  // line of the connection of a client; 0: none, or it is done
	accepted  bool // it is of a server, which does not say when it is done
	intervals int  // line of the first one
	ruled     bool // the line before is one of dashes
	summary   bool // a header came after it: rows are sums, which UDP of iperf 3.1 does not name
	reverse   bool
	streams   int // of JSON
	protocol  string
	block     *int64
	roles     []string
	found     map[string]*iperf3Role
}

// iperf3Role is the summary of one direction.
type iperf3Role struct {
	streams map[string]bool
	order   []string
	rows    map[string]Result // by stream, or SUM: the receiver's, else the sender's
}

func newIperf3(s *sink) parser {
	return &iperf3{sink: s, protocol: "TCP", found: map[string]*iperf3Role{}}
}

func (p *iperf3) text(l line) {
	m := iperf3Row.FindStringSubmatch(l.text)
	p.summary = p.summary || p.ruled && strings.Contains(l.text, "] Interval ")
	p.ruled = strings.Contains(l.text, "- - - - -")
	switch {
	case m != nil:
		p.row(l, m)
	case strings.Contains(l.text, "Connecting to host "), strings.Contains(l.text, "Accepted connection from "):
		p.end()
		*p = iperf3{sink: p.sink, protocol: "TCP", opened: l.number, found: map[string]*iperf3Role{},
			accepted: strings.Contains(l.text, "Accepted connection from ")}
	case strings.Contains(l.text, "Reverse mode, remote host"):
		p.reverse = true
	case strings.Contains(l.text, "Total Datagrams"), strings.Contains(l.text, "Lost/Total Datagrams"):
		p.protocol = "UDP"
	case strings.Contains(l.text, "iperf Done."), strings.Contains(l.text, "iperf3: interrupt - "):
		p.opened = 0
		p.end()
	case strings.Contains(l.text, "iperf3: error - "):
		_, text, _ := strings.Cut(l.text, "iperf3: error - ")
		p.opened = 0
		p.fail(l.number, "iperf3 failed: %s", text)
	case strings.Contains(l.text, "datagrams received out-of-order"):
	case p.intervals > 0 && iperf3Partial.MatchString(l.text) && strings.Contains(l.text, " sec"):
		p.fail(l.number, "iperf3: the row is cut")
	default:
		if m := iperf3Begin.FindStringSubmatch(l.text); m != nil {
			p.protocol, p.block = m[1], size(m[3])
		}
	}
}

func (p *iperf3) row(l line, m []string) {
	if p.intervals == 0 {
		p.intervals = l.number
	}
	tail := strings.Fields(m[6])
	if p.summary && len(tail) > 0 && strings.HasSuffix(tail[len(tail)-1], "%)") {
		tail, p.protocol = append(tail, "receiver"), "UDP" // with jitter and loss, which the receiver counts
	}
	if len(tail) == 0 || tail[len(tail)-1] != "receiver" && tail[len(tail)-1] != "sender" {
		return // an interval
	}
	role := p.found[m[2]]
	if role == nil {
		role = &iperf3Role{streams: map[string]bool{}, rows: map[string]Result{}}
		p.found[m[2]] = role
		p.roles = append(p.roles, m[2])
	}
	if m[1] != "SUM" && !role.streams[m[1]] {
		role.streams[m[1]] = true
		role.order = append(role.order, m[1])
	}
	step, unit := 1024.0, 1.0
	if m[5] == "bits" {
		step, unit = 1000, 1.0/8
	}
	unit *= math.Pow(step, float64(strings.Index("KMGTP", m[4])+len(m[4])))
	r := Result{Tool: "iperf3", Line: l.number, Bytes: p.block}
	r.Rate = r.figure("rate", m[3], unit)
	if _, known := role.rows[m[1]]; !known || tail[len(tail)-1] == "receiver" {
		role.rows[m[1]] = r
	}
}

// flush adds the sum of each direction, or its only stream.
func (p *iperf3) flush() (rows int) {
	for _, name := range p.roles {
		role := p.found[name]
		which := role.order
		if _, ok := role.rows["SUM"]; ok {
			which = []string{"SUM"}
		}
		for _, stream := range which {
			r := role.rows[stream]
			r.Test = iperf3Test(p.protocol, max(len(role.streams), 1), p.reverse)
			if name != "" {
				r.Test += ", " + name
			}
			p.add(r)
			rows++
		}
	}
	return rows
}

func iperf3Test(protocol string, streams int, reverse bool) string {
	test := protocol
	if streams > 1 {
		test += fmt.Sprintf(", %d streams", streams)
	}
	if reverse {
		test += ", reverse"
	}
	return test
}

func (p *iperf3) end() {
	rows := p.flush()
	switch {
	case p.opened > 0 && !p.accepted:
		p.fail(p.opened, "iperf3: the output is cut: no \"iperf Done.\" after the connection")
	case p.intervals > 0 && rows == 0:
		p.fail(p.intervals, "iperf3: the output is cut: no line of the sender or receiver after the intervals")
	}
	*p = iperf3{sink: p.sink, protocol: "TCP", found: map[string]*iperf3Role{}}
}

type (
	iperf3Start struct {
		Test struct {
			Protocol string `json:"protocol"`
			Streams  int    `json:"num_streams"`
			Block    *int64 `json:"blksize"`
			Reverse  int    `json:"reverse"`
		} `json:"test_start"`
	}
	iperf3Sum struct {
		Rate *float64 `json:"bits_per_second"`
	}
)

// document reads --json, and the events of --json-stream.
func (p *iperf3) document(d *document) bool {
	var event string
	stream := d.get("event", &event) && d.has("data")
	if !stream && !(d.has("start") && (d.has("end") || d.has("intervals"))) && !(d.has("error") && d.has("start")) {
		return false
	}
	switch {
	case stream && event == "start":
		var start iperf3Start
		p.end() // of one that was cut
		if d.get("data", &start) {
			p.opened = d.line
			p.begin(start)
		}
	case stream && event == "end":
		p.opened = 0
		p.sums(d.members["data"])
	case stream && event == "error":
		var text string
		d.get("data", &text)
		p.fail(d.line, "iperf3 failed: %s", text)
	case stream:
	default:
		p.whole(d)
	}
	return true
}

func (p *iperf3) begin(start iperf3Start) {
	p.protocol, p.block, p.reverse = "TCP", start.Test.Block, start.Test.Reverse == 1
	if start.Test.Protocol != "" {
		p.protocol = start.Test.Protocol
	}
	p.streams = start.Test.Streams
}

func (p *iperf3) whole(d *document) {
	var start iperf3Start
	var failure string
	d.get("start", &start)
	if d.get("error", &failure) && failure != "" {
		p.fail(d.members["error"].line, "iperf3 failed: %s", failure)
	}
	p.begin(start)
	end, ok := d.members["end"]
	switch {
	case ok && end.whole && p.sums(end):
	case failure == "" && d.err == nil:
		p.fail(d.line, "iperf3: no sum in \"end\"")
	}
	if d.err != nil {
		p.fail(d.errorLine(), "iperf3: the JSON is cut: %v", d.err)
	}
}

// sums adds what the receiver counted in each direction, else what the sender did.
func (p *iperf3) sums(end part) (found bool) {
	var all map[string]json.RawMessage
	if json.Unmarshal(end.text, &all) != nil {
		return false
	}
	for _, direction := range []string{"", "_bidir_reverse"} {
		for _, name := range []string{"sum_received", "sum_sent", "sum"} {
			var sum iperf3Sum
			raw := all[name+direction]
			if json.Unmarshal(raw, &sum) != nil || sum.Rate == nil || *sum.Rate == 0 && name == "sum_received" {
				continue
			}
			r := Result{Tool: "iperf3", Line: end.lineOf(raw), Bytes: p.block,
				Test: iperf3Test(p.protocol, p.streams, p.reverse != (direction != ""))}
			r.Rate = r.value("bits_per_second", *sum.Rate, 1.0/8)
			p.add(r)
			found = true
			break
		}
	}
	return found
}
