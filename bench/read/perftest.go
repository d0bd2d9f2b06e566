package read

import (
	"regexp"
	"slices"
	"strings"
)

// Names and formats of perftest's src/perftest_parameters.{h,c}, V4.1 to 26.04. MB/sec has always meant 2^20 bytes;
// since 24.07 the header says MiB/sec.
var (
	perftestColumns = regexp.MustCompile(`#bytes|#sl|#iterations|BW (?:peak|average|Port\d) ?\[[^\]]*\]|` +
		`MsgRate(?: Port\d)? ?\[[^\]]*\]|t_\w+\[\w+\]|[\d.]+% percentile\[\w+\]|tps average|CPU_Util\[%+\]`)
	perftestTitle = regexp.MustCompile(
		`\b(Send|RDMA_Write|RDMA_Read|Atomic)(?:_imm)?(?:[ _].*)?[ _](BW|Latency)[ _](?:\w+[ _])*Test\b`)
	perftestDevice = regexp.MustCompile(`\bDevice\s*: (\S+)`)
	perftestDual   = regexp.MustCompile(`\bDual-port\s*: ON`)
	perftestHalf   = regexp.MustCompile(`^\s*(Local|Remote) results:`)
	perftestSample = regexp.MustCompile(`^(?:#, (?:usec|cycles)|\d+, [\d.e+-]+)$`)
	perftestMemory = regexp.MustCompile(`initializing (CUDA|ROCm|MUSA|MLU)|Listing all (CUDA|MUSA|MLU) devices|` +
		`(?i:using (rocm|cuda|musa|mlu|neuron|habana) device)|Use (ROCm) memory +: ON|` +
		`using DMA-BUF for (GPU|MLU)|(?i:dmabuf (export))`)
)

// perftestRun is the content of a title and the lines below it.
type perftestRun struct {
	test, rail, memory string
	lanes              float64
}

type perftest struct {
	*sink
	perftestRun
	others []perftestRun // unfinished runs when this one began: rows may be theirs
	open   int           // number of unfinished runs
	opened int           // line of the last title; 0 if every run has ended

	header int // line of the open table's header; 0 if no table is open
	columns
	table    []int // indexes of the open table's rows; -1 if a row was not kept
	ended    []int // indexes of the previous table's rows
	count    int
	iters    [2]float64 // iterations of the last two rows
	sizes    map[string]bool
	half     string // "Local" or "Remote", for a table below the one of both
	after    bool   // a table just ended: the next may be part of the same run, and a further row is lost
	ruled    bool   // the previous line is a rule after rows
	stopped  bool   // Ctrl-C ended the run
	cycles   bool   // samples are in cycles, not µs
	next     string // memory of the next run, printed before its title
	failed   bool   // an error was reported; follow-up errors are not
	complete string // "Completion with error at client", until its status follows
	server   bool   // the open or next run waits for a client
	linked   bool   // both addresses were printed
}

func newPerftest(s *sink) parser { return &perftest{sink: s, perftestRun: perftestRun{lanes: 1}} }

func (p *perftest) text(l line) {
	trimmed := strings.TrimSpace(l.text)
	begins := has(l.text, " Test", "_Test") && perftestTitle.MatchString(l.text)
	if p.ruled && !begins {
		p.close()
	}
	p.ruled = false
	switch {
	case trimmed == "":
	case begins:
		p.begin(l)
	case strings.Contains(l.text, "#bytes"):
		p.head(l)
	case p.failure(l.number, trimmed):
	case strings.HasPrefix(trimmed, "^C"):
		p.stopped = true
	case (trimmed[0] == '#' || trimmed[0] <= '9') && perftestSample.MatchString(trimmed):
		p.cycles = p.cycles || strings.HasSuffix(trimmed, "cycles")
	case p.after && perftestHalf.MatchString(l.text):
		p.half = perftestHalf.FindStringSubmatch(l.text)[1]
	case p.about(l):
	case p.header > 0:
		p.row(l)
	case p.after, p.opened > 0:
		p.lost(l)
	}
}

// maxMixed bounds the runs that are kept when several print into one file. A row may then be from any of them.
const maxMixed = 16

// begin starts a run. An unfinished earlier one may continue below: both print into one terminal.
func (p *perftest) begin(l line) {
	before, open, first := p.others, p.open, p.opened
	if !slices.Contains(before, p.perftestRun) {
		before = append(before[:min(len(before), maxMixed)], p.perftestRun)
	}
	table, next := *p, p.next
	mixed := open > 0 && !(p.stopped && p.count > 0) && !p.silent()
	server := p.server && open == 0
	if !mixed && !p.silent() {
		p.end()
	}
	*p = perftest{sink: p.sink, opened: l.number, open: 1, server: server,
		perftestRun: perftestRun{lanes: 1, memory: next}}
	p.title(l.text)
	p.columns = table.columns // recognise rows of the earlier run
	if mixed {
		p.fail(l.number, "perftest: this run begins before the one of line %d has ended: it was cut, or both print "+
			"into one file", first)
		p.others, p.open = before, open+1
		p.header = table.header
		p.clear()
	}
}

// title sets the test from "RDMA_Write Bidirectional BW Test", which JSON writes with underscores.
func (r *perftestRun) title(text string) {
	m := perftestTitle.FindStringSubmatch(text)
	if m == nil {
		return
	}
	r.test = map[string]string{"Send": "ib_send", "RDMA_Write": "ib_write", "RDMA_Read": "ib_read",
		"Atomic": "ib_atomic"}[m[1]] +
		map[string]string{"BW": "_bw", "Latency": "_lat"}[m[2]]
	if strings.Contains(text, "Bidirectional") {
		r.test += bidirectional
		r.lanes *= 2
	}
}

const bidirectional = ", bidirectional"

// about reads the lines between title and table, and the memory, which precedes the title.
func (p *perftest) about(l line) (mine bool) {
	var m []string
	if has(l.text, "nitializing ", "isting all ", "evice", "Use ROCm", "DMA-BUF", "mabuf") {
		m = perftestMemory.FindStringSubmatch(l.text)
	}
	if m != nil {
		p.memoryOf(perftestKind(strings.Join(m[1:], "")))
		p.failed = false
		return true
	}
	if strings.Contains(l.text, "Waiting for client to connect") {
		p.server, mine = true, true
	}
	if p.opened == 0 {
		return mine
	}
	if m := perftestDevice.FindStringSubmatch(l.text); m != nil {
		p.rail, mine = m[1], true
	}
	if perftestDual.MatchString(l.text) {
		p.lanes *= 2
	}
	p.linked = p.linked || strings.Contains(l.text, " remote address: ")
	return mine
}

// memoryOf sets the memory of the run whose settings are open, else of the next one. Lines about DMA-BUF do not have
// the vendor, and follow one that has it.
func (p *perftest) memoryOf(kind string) {
	of := &p.next
	if p.opened > 0 && p.header == 0 {
		of = &p.memory
	}
	if kind != gpuMemory || *of == "" {
		*of = kind
	}
}

// silent reports whether the run ended without a result: servers of these tests print none.
func (p *perftest) silent() bool {
	return p.server && p.linked && p.open == 1 && p.header == 0 &&
		(p.test == "ib_read_lat" || p.test == "ib_atomic_lat")
}

const gpuMemory = "GPU memory"

// perftestKind returns the name of a kind of memory for a row.
func perftestKind(name string) string {
	if strings.EqualFold(name, "export") || name == "GPU" {
		return gpuMemory
	}
	if strings.EqualFold(name, "rocm") {
		return "ROCm memory"
	}
	return strings.ToUpper(name) + " memory"
}

// head starts a table. Without a title or a preceding table, nothing is known about its run.
func (p *perftest) head(l line) {
	c := header(l.text, perftestColumns)
	if len(c.names) <= 2 {
		return
	}
	if p.header > 0 && p.open < 2 {
		p.endTable(p.opened > 0)
	}
	if p.opened == 0 && !p.after {
		p.perftestRun = perftestRun{lanes: 1}
	}
	p.columns, p.header, p.failed = c, l.number, false
	if p.open < 2 {
		p.clear()
	}
}

func (p *perftest) clear() { p.count, p.table, p.sizes = 0, nil, map[string]bool{} }

func (p *perftest) row(l line) {
	cells, cut := p.columns.row(l)
	switch {
	case cut:
		p.fail(l.number, "perftest: the row has fewer columns than its header in line %d", p.header)
	case cells != nil && !(l.cut && p.opened > 0): // the end of the last figure may be missing
		p.addRow(l.number, cells)
	case cells != nil:
		p.stopped, p.sizes = false, nil // the row is cut, however many precede it
	case dashes(l.text) && p.count > 0:
		p.ruled = true // the rule ends the table, unless a title follows: then it is another run's
	case p.count > 1 && !dashes(l.text) && !strings.Contains(l.text, "CPU freq"):
		p.stopped = p.stopped || len(p.sizes) == 1 // other text, such as a prompt, shows that the run has ended
	}
}

// dashes reports whether a line is a rule, possibly after a prefix.
func dashes(text string) bool {
	at := strings.Index(text, "---")
	return at >= 0 && strings.Count(text, "-") > 20 && strings.Trim(text[at:], "- ") == ""
}

// close ends a table and its run.
func (p *perftest) close() {
	p.open = max(p.open-1, 0)
	p.ended = p.table
	p.clear()
	p.half, p.after = "", true
	if p.open == 0 {
		p.opened, p.header, p.others, p.stopped = 0, 0, nil, false
	}
}

// lost reports a row outside of any table: another run printed the rule.
func (p *perftest) lost(l line) {
	var cells map[string]string
	if len(p.names) > 0 {
		cells, _ = p.columns.row(l)
	}
	switch {
	case cells != nil && len(strings.Fields(l.text)) == p.before+len(p.names):
		p.fail(l.number, "perftest: a row after the end of its table: it was cut, or several runs print into one file")
	case !dashes(l.text):
		p.after = false
	}
}

func (p *perftest) addRow(number int, cells map[string]string) {
	run, known := p.attributed()
	r := run.result(p.half)
	r.Line, r.Bytes = number, size(cells["#bytes"])
	if !known {
		r.fail(mixed)
	}
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
	if r.Latency != nil && p.cycles {
		r.Latency = nil
		r.Marks = append(r.Marks, "the latency is in cycles of the CPU")
	}
	if r.Test == "" {
		r.Test = name
	}
	p.count++
	p.table = append(p.table, p.add(r))
	if p.sizes != nil {
		p.sizes[cells["#bytes"]] = true
	}
	iterations, _ := parseFloat(cells["#iterations"])
	p.iters = [2]float64{p.iters[1], iterations}
	p.ports(r, cells)
}

// ports adds the ports of --report-per-port.
func (p *perftest) ports(both Result, cells map[string]string) {
	for _, column := range p.names {
		port, unit, found := strings.Cut(strings.TrimPrefix(column, "BW Port"), "[")
		if !found || port == column || !strings.HasPrefix(column, "BW Port") {
			continue
		}
		r := both
		r.Marks, r.lanes = append([]string{}, both.Marks...), both.lanes/2
		r.Test += ", port " + strings.TrimSpace(port)
		r.Rate = r.figure(column, cells[column], perftestUnit(unit))
		p.add(r)
	}
}

// attributed returns the run that printed a row, without the attributes in which the possible runs differ.
func (p *perftest) attributed() (run perftestRun, known bool) {
	run, known = p.perftestRun, true
	for _, other := range p.others {
		known = known && other == p.perftestRun
		if other.test != run.test {
			run.test = ""
		}
		if other.rail != run.rail {
			run.rail = ""
		}
		if other.memory != run.memory {
			run.memory = ""
		}
		run.lanes = max(run.lanes, other.lanes)
	}
	return run, known
}

// result returns a row of a run; half is the direction of --report-both.
func (r perftestRun) result(half string) Result {
	test, lanes := r.test, r.lanes
	if half != "" {
		test = strings.TrimSuffix(test, bidirectional) + ", " + strings.ToLower(half) + " direction"
		if test != r.test && strings.HasSuffix(r.test, bidirectional) {
			lanes /= 2
		}
	}
	if r.memory != "" {
		test += ", " + r.memory
	}
	return Result{Tool: "perftest", Test: strings.TrimPrefix(test, ", "), Rail: r.rail, lanes: lanes}
}

// perftestUnit returns a unit of rates in bytes per second.
func perftestUnit(name string) float64 {
	switch strings.ToLower(strings.TrimSuffix(name, "]")) {
	case "gb/sec":
		return 1e9 / 8
	case "gib/sec":
		return 1 << 30
	}
	return 1 << 20
}

// endTable ends the table. Missing rows are an error.
func (p *perftest) endTable(missing bool) {
	if p.header > 0 && missing {
		p.fail(p.header, "perftest: the table is cut: %d rows, and no line of dashes at its end", p.count)
	}
	p.header = 0
}

// stoppedByUser reports whether only Ctrl-C ends the run: until then it prints rows of one size.
func (p *perftest) stoppedByUser() bool {
	return p.open == 1 && len(p.sizes) == 1 && (p.stopped && p.count > 0 || p.count > 1)
}

func (p *perftest) end() {
	if p.ruled {
		p.close()
	}
	p.ruled = false
	p.flushFailure()
	switch {
	case p.header > 0 && p.stoppedByUser():
		last := -1
		if n := len(p.table); n > 0 {
			last = p.table[n-1]
		}
		if cut := p.count == 1 || p.iters[1] < 0.98*p.iters[0]; cut && last >= 0 {
			p.rows[last].Marks = append(p.rows[last].Marks,
				"the run was stopped within this interval: the rate may be too low")
		}
	case p.header > 0:
		p.endTable(p.opened > 0 || p.count == 0)
	case p.silent():
		if len(p.rows) == 0 {
			p.fail(p.opened, "perftest: the server of %s prints no results: read what its client prints", p.test)
		}
	case p.opened > 0:
		p.fail(p.opened, "perftest: no results after the title")
	}
	p.opened, p.open, p.header, p.others, p.after = 0, 0, 0, nil, false
}
