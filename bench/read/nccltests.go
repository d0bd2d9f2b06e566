package read

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Formats of nccl-tests' src/common.cu and util.cu, v1.0.0 to a0b82b2 (July 2026), and of rccl-tests' until 2.18 (July
// 2026): 10^9 bytes/s and µs. In v1, whose first column is "bytes", times are in ms.
var (
	ncclTestsName = regexp.MustCompile(`\b([a-z_]+_perf)(?:_mpi)?\b`)
	ncclTestsType = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	// ncclTestsBegin matches the settings of a run; rccl-tests of 2022 and 2023 have the plural.
	ncclTestsBegin  = regexp.MustCompile(`# nThreads?:? `)
	ncclTestsDate   = regexp.MustCompile(`^\d{4}-\d\d-\d\d$`)
	ncclTestsPlaces = regexp.MustCompile(`# +(?:out-of-place +)?in-place *$`)
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

	inPlace  bool // the table has no out-of-place columns
	counters netCounters
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
	case p.counters.text(p.sink, l):
	case has(l.text, "# nccl-tests version ", "# rccl-tests version "):
		p.open(l.number)
	case strings.Contains(l.text, "# nThread") && ncclTestsBegin.MatchString(l.text):
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
	case strings.Contains(l.text, "in-place") && ncclTestsPlaces.MatchString(l.text):
		p.inPlace = !strings.Contains(l.text, "out-of-place")
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
	if i := slices.Index(p.names, "algo"); i > 0 && p.names[len(p.names)-1] == "timestamp" { // rows have it before
		p.names = slices.Insert(p.names[:len(p.names)-1], i, "timestamp")
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
	if i := slices.IndexFunc(fields, ncclTestsDate.MatchString); i > 0 { // a timestamp has two fields
		fields = slices.Delete(slices.Clone(fields), i, i+1)
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
		if !numeric(f) && !slices.Contains([]string{"timestamp", "algo", "proto", "nchannels"}, names[i]) {
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
	if algorithm := figures["algo"]; algorithm != "" && algorithm != "N/A" {
		r.Test += ", " + algorithm + " " + figures["proto"]
	}
	if p.inPlace {
		r.Test += inPlaceOnly
	}
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

func (p *ncclTests) reset() {
	p.opened, p.header, p.name, p.runs, p.ranks, p.inPlace = 0, 0, "", 0, [2]int{}, false
}

// Format of rccl-tests' src/collector.cu (ROCm/rocm-systems, March to July 2026), printed by one rank of each node with
// RCCL_TESTS_NET_COUNTER_ENABLE=1: how far the adapters' counters rose during the run, and by second.
var (
	netCountersTitle = regexp.MustCompile(`\bNET_COUNTER_TABLE: node=(\S+) +rank=\d+ +duration_sec=`)
	netCountersRow   = regexp.MustCompile(`^\s*([\w.+:-]+)(?:\([\w.-]+\))?((?:\s+\d+\s+\d+\.\d+)+)\s*$`)
	// netCountersLost matches counters of packets that did not arrive in order. Others count pause frames and CNPs.
	netCountersLost    = regexp.MustCompile(`discard|drop|retrans|retry|timeout|outof_buf|_seq$|seq_err`)
	netCountersTraffic = regexp.MustCompile(`_(?:ucast|mcast)_|^[rt]x_(?:bytes|pkts)$`)
)

// netCounters reads such tables.
type netCounters struct {
	node  string // empty if the tables of several nodes are mixed
	open  int    // number of open tables
	names []string
	rules int // number of rules in the open tables: each has three
}

// text reads a line of a table.
func (c *netCounters) text(s *sink, l line) (mine bool) {
	if m := netCountersTitle.FindStringSubmatch(l.text); m != nil {
		c.node, c.open = m[1], c.open+1
		if c.open > 1 {
			c.node = ""
		}
		return true
	}
	if c.open == 0 {
		return false
	}
	fields := strings.Fields(l.text)
	switch {
	case dashes(l.text):
		c.rules++
		if c.rules == 3*c.open {
			*c = netCounters{}
		}
		return true
	case len(fields) > 1 && fields[0] == "Device":
		c.names = fields[1:]
		return true
	}
	m := netCountersRow.FindStringSubmatch(l.text)
	if m == nil || len(strings.Fields(m[2])) != 2*len(c.names) {
		return len(fields) > 0 && fields[0] == "count"
	}
	c.row(s, l.number, m[1], strings.Fields(m[2]))
	return true
}

// row adds the counters of a device that rose, but for those of traffic.
func (c *netCounters) row(s *sink, number int, device string, figures []string) {
	r := Result{Tool: "nccl-tests", Rail: device, Line: number}
	var rose, lost []string
	for i, name := range c.names {
		n, err := strconv.ParseUint(figures[2*i], 10, 64)
		if n == 0 || netCountersTraffic.MatchString(name) {
			continue
		}
		text := name + " " + figures[2*i]
		if err != nil || n >= 1<<63 { // the difference of unsigned numbers
			r.Marks = append(r.Marks, name+" fell: the counter was reset, or could not be read")
			continue
		}
		rose = append(rose, text)
		if netCountersLost.MatchString(name) {
			lost = append(lost, text)
		}
	}
	if len(rose)+len(r.Marks) == 0 {
		return
	}
	r.Test = "counters"
	if c.node != "" {
		r.Test += " of " + c.node
	}
	if len(rose) > 0 {
		r.Test += ": " + strings.Join(rose, ", ")
	}
	if len(lost) > 0 {
		r.Marks = append(r.Marks, "packets were lost or out of order during the run: "+strings.Join(lost, ", "))
	}
	s.add(r)
}
