package read

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"

	"github.com/railscope/railscope/bench/grid"
)

// Formats of iperf 3.21's src/iperf_locale.c and units.c: bits are decimal, bytes binary.
var (
	iperf3Row = regexp.MustCompile(`\[ *(\d+|SUM)\](?:\[([RT]X-[CS])\])? +[\d.]+- *[\d.]+ +sec +` +
		`[\d.]+ +[KMGTP]?Bytes +(\S+) +([KMGTP]?)(bits|Bytes)/sec(.*)`)
	iperf3Partial = regexp.MustCompile(`\[ *(?:\d+|SUM)\](?:\[[RT]X-[CS]\])? +[\d.]+- *[\d.]+`)
	iperf3Lost    = regexp.MustCompile(`\s(\d+)/ *(\d+) \(`)
	iperf3Other   = regexp.MustCompile(`Connecting to host |Accepted connection from |\biperf3?: |` +
		`] local \S+ port \d+ connected to `)
	iperf3Begin = regexp.MustCompile(`Starting Test: protocol: (\w+), (\d+) streams, (\d+) byte blocks`)
)

type iperf3 struct {
	*sink
	opened    int  // line of a client's connection; 0 if no client is running
	accepted  bool // a server's run, whose end is not printed
	intervals int  // line of the first interval
	ruled     bool // the previous line consists of dashes
	// summary reports that a header followed the dashes: rows are then sums, which iperf 3.1 does not label for UDP.
	summary  bool
	reverse  bool
	other    bool   // the lines are iperf2's
	clients  int    // unfinished clients
	mixed    bool   // several runs print into one file
	failure  string // iperf3's own error message
	streams  int    // number of streams in JSON
	protocol string
	block    *int64
	roles    []string
	found    map[string]*iperf3Role
}

// iperf3Role is the summary of one direction.
type iperf3Role struct {
	streams map[string]bool
	order   []string
	rows    map[string]Result // results by stream, or SUM: the receiver's, else the sender's
	all     []Result          // results of several clients, as their receivers counted
}

func newIperf3(s *sink) parser {
	return &iperf3{sink: s, protocol: "TCP", found: map[string]*iperf3Role{}}
}

func (p *iperf3) text(l line) {
	switch {
	case has(l.text, "Client connecting ", "Server listening ", "connected with ") && iperf2Begin.MatchString(l.text):
		p.end()
		p.other = true
	case p.other && iperf3Other.MatchString(l.text):
		p.other = false
	}
	if p.other {
		return
	}
	var m []string
	if strings.Contains(l.text, " sec ") {
		m = iperf3Row.FindStringSubmatch(l.text)
	}
	p.summary = p.summary || p.ruled && strings.Contains(l.text, "] Interval ")
	p.ruled = strings.Contains(l.text, "- - - - -")
	switch {
	case m != nil:
		p.row(l, m)
	case strings.Contains(l.text, "Connecting to host "), strings.Contains(l.text, "Accepted connection from "):
		p.connect(l)
	case strings.Contains(l.text, "Server listening on ") && p.accepted && p.clients < 2:
		p.end()
	case strings.Contains(l.text, "Reverse mode, remote host"):
		p.reverse = true
	case strings.Contains(l.text, "Total Datagrams"), strings.Contains(l.text, "Lost/Total Datagrams"):
		p.protocol = "UDP"
	case strings.Contains(l.text, "iperf Done."), strings.Contains(l.text, "iperf3: interrupt - "):
		p.done()
	case strings.Contains(l.text, "iperf3: error - "):
		_, p.failure, _ = strings.Cut(l.text, "iperf3: error - ")
		p.fail(l.number, "iperf3 failed: %s", p.failure)
		p.done()
	case strings.Contains(l.text, "datagrams received out-of-order"):
	case p.intervals > 0 && iperf3Partial.MatchString(l.text) && strings.Contains(l.text, " sec"):
		p.fail(l.number, "iperf3: the row is cut")
	case strings.Contains(l.text, "Starting Test: "):
		if m := iperf3Begin.FindStringSubmatch(l.text); m != nil {
			p.protocol, p.block = m[1], size(m[3])
		}
	}
}

// connect starts the run of a client. An unfinished earlier one may continue below: both print into one file.
func (p *iperf3) connect(l line) {
	accepted := strings.Contains(l.text, "Accepted connection from ")
	if p.opened > 0 && len(p.found) == 0 {
		p.fail(l.number, "iperf3: this client begins before that of line %d is done: it was cut, or several print "+
			"into one file", p.opened)
		p.clients++
		p.mixed = true
		return
	}
	p.end()
	*p = iperf3{sink: p.sink, protocol: "TCP", opened: l.number, clients: 1, found: map[string]*iperf3Role{},
		accepted: accepted}
}

// done ends the run of one client.
func (p *iperf3) done() {
	p.clients--
	if p.clients > 0 {
		return
	}
	p.opened = 0
	if p.failure != "" {
		p.intervals = 0 // the failure already explains missing results
	}
	p.end()
}

func (p *iperf3) row(l line, m []string) {
	if p.intervals == 0 {
		p.intervals = l.number
	}
	tail := strings.Fields(m[6])
	if p.summary && len(tail) > 0 && strings.HasSuffix(tail[len(tail)-1], "%)") {
		tail, p.protocol = append(tail, "receiver"), "UDP" // with jitter and loss, which only the receiver counts
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
	sent, known := role.rows[m[1]]
	received := tail[len(tail)-1] == "receiver"
	if lost := iperf3Lost.FindStringSubmatch(m[6]); lost != nil && lost[1] != "0" && received {
		r.fail("%s of %s datagrams were lost", lost[1], lost[2])
	}
	if known && received && r.Rate != nil && *r.Rate == 0 && sent.Rate != nil && *sent.Rate > 0 {
		r.fail("the sender counted %s, the receiver nothing", grid.GigabitsPerSecond(*sent.Rate))
	}
	if received {
		role.all = append(role.all, r)
	}
	if !known || received {
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
		list := make([]Result, 0, len(which))
		for _, stream := range which {
			list = append(list, role.rows[stream])
		}
		if p.mixed {
			list = role.all
		}
		for _, r := range list {
			if p.mixed {
				r.fail(mixed)
			}
			if p.failure != "" {
				r.fail("iperf3 failed: %s", p.failure)
			}
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
	*p = iperf3{sink: p.sink, protocol: "TCP", other: p.other, found: map[string]*iperf3Role{}}
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
		Lost *float64 `json:"lost_packets"`
		All  *float64 `json:"packets"`
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
		open := p.opened > 0
		p.end() // the open run was cut, or continues below
		if d.get("data", &start) {
			p.opened, p.mixed = d.line, open
			p.begin(start)
		}
	case stream && event == "end":
		p.opened = 0
		p.sums(d.members["data"])
	case stream && event == "error":
		d.get("data", &p.failure)
		p.fail(d.line, "iperf3 failed: %s", p.failure)
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
	p.streams, p.failure = start.Test.Streams, ""
}

func (p *iperf3) whole(d *document) {
	var start iperf3Start
	var failure string
	d.get("start", &start)
	if d.get("error", &failure) && failure != "" {
		p.fail(d.members["error"].line, "iperf3 failed: %s", failure)
	}
	p.begin(start)
	p.failure = failure
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

// sums adds the receiver's count of each direction, or else the sender's. With --bidir the sums of the reverse
// direction have separate names since 3.11; before, the names occur twice.
func (p *iperf3) sums(end part) (found bool) {
	type sum struct {
		iperf3Sum
		line int
	}
	var directions [2]map[string]sum
	err := end.object(func(key string, value json.RawMessage, line int) {
		name, reverse := strings.CutSuffix(key, "_bidir_reverse")
		one := sum{line: line}
		if !strings.HasPrefix(name, "sum") || json.Unmarshal(value, &one.iperf3Sum) != nil || one.Rate == nil {
			return
		}
		i := 0
		if _, twice := directions[0][name]; reverse || twice {
			i = 1
		}
		if directions[i] == nil {
			directions[i] = map[string]sum{}
		}
		directions[i][name] = one
	})
	for i, direction := range directions {
		received, counted := direction["sum_received"]
		best := received
		for _, name := range []string{"sum_sent", "sum"} {
			if one, ok := direction[name]; ok && (best.Rate == nil || *best.Rate == 0) {
				best = one
			}
		}
		if best.Rate == nil {
			continue
		}
		r := Result{Tool: "iperf3", Line: best.line, Bytes: p.block,
			Test: iperf3Test(p.protocol, p.streams, p.reverse != (i > 0))}
		r.Rate = r.value("bits_per_second", *best.Rate, 1.0/8)
		if counted && *received.Rate == 0 && *best.Rate > 0 {
			r.fail("the receiver counted nothing")
		}
		for _, name := range []string{"sum", "sum_received"} {
			if one := direction[name]; one.Lost != nil && *one.Lost > 0 && one.All != nil {
				r.fail("%.0f of %.0f datagrams were lost", *one.Lost, *one.All)
				break
			}
		}
		if p.failure != "" {
			r.fail("iperf3 failed: %s", p.failure)
		}
		if p.mixed {
			r.fail(mixed)
		}
		p.add(r)
		found = true
	}
	return found && err == nil
}
