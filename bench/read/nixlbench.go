package read

import (
	"regexp"
	"strconv"
	"strings"
)

// Formats of nixl's benchmark/nixlbench/src/utils/utils.cpp, 0.2.0 (6 and 8 columns), 0.5.1 to v1.4.0 (10 and 12). A GB
// is 10^9 bytes. The latency is the time per block of one thread, P99 Tx that of a whole batch. "Block Size: 64.00 MiB,
// Bandwidth: …" and "Percentiles: p50=…" are from a tutorial.
var (
	nixlbenchColumns = regexp.MustCompile(`Batch Size|[A-Za-z][A-Za-z0-9/.]*(?: [A-Za-z/.]+)* ?\([^)]*\)`)
	nixlbenchOption  = regexp.MustCompile(
		`\b(Backend|Op type|Initiator seg type|Target seg type|Device list|Max block size|` +
			`Max batch size) \(--.*\)\s*: (\S+)`)
	nixlbenchSentence = regexp.MustCompile(`Block Size:\s*([\d.,]+)\s*([KMGT]?i?B),\s*Bandwidth:\s*([\d.,]+)\s*` +
		`([KMGT]?i?B)/s(?:\s*\([^)]*\))?,\s*Latency:\s*([\d.,]+)\s*(ns|us|µs|μs|ms|s)\b`)
	nixlbenchNetwork = regexp.MustCompile(`^(?:UCX|UCX_MO|LIBFABRIC|Mooncake|GPUNETIO|UCCL)?$`)
	nixlbenchError   = regexp.MustCompile(`NIXL_ERR_\w+|(?i:consistency check failed)|[Tt]ransfer failed|` +
		`createBackend failed|Failed to (?:synchronize|register|allocate)|keepalive failed|liveness check failed`)
	nixlTutorial     = regexp.MustCompile(`^\s*NIXL (\w+) Backend Benchmark Results`)
	nixlTutorialLine = regexp.MustCompile(`^\s*(Backend|Transport|World Size|Tensor Size|Bandwidth):\s*(.*?)\s*$`)
	nixlTutorialRate = regexp.MustCompile(`^([\d.,]+)\s*([KMGT]?i?B)/s\b`)

	nixlbenchPercentile = regexp.MustCompile(`\bp(50|99)\s*=\s*([\d.,]+)\s*(ns|us|µs|μs|ms|s)\b`)
)

type nixlbench struct {
	noDocuments
	*sink
	opened  int // line of the settings; 0 if there are none
	header  int
	options map[string]string
	columns
	count              int   // number of rows in the table
	table              []int // indexes of the table's rows; -1 if a row was not kept
	lastBlock, lastMax int64 // sizes in the last row: block in bytes, and blocks per batch
	last               int   // index of the row from a tutorial's sentence; -1 if there is none
	mixed              bool  // settings of several runs precede the table
	tutorial           tutorialBlock
}

// tutorialBlock is the format of another tutorial: "Backend: UCX", "Transport: …", "Bandwidth: 0.85 GB/s".
type tutorialBlock struct {
	opened int // line of its title; 0 if there is none
	about  map[string]string
}

func newNixlbench(s *sink) parser { return &nixlbench{sink: s, last: -1, options: map[string]string{}} }

func (p *nixlbench) text(l line) {
	switch {
	case strings.Contains(l.text, "NIXLBench Configuration"):
		p.begin(l)
	case strings.Contains(l.text, "Benchmark Results") && nixlTutorial.MatchString(l.text):
		p.end()
		p.tutorial = tutorialBlock{l.number, map[string]string{"backend": nixlTutorial.FindStringSubmatch(l.text)[1]}}
	case p.tutorial.opened > 0 && p.block(l):
	case p.opened > 0 && nixlbenchError.MatchString(l.text):
		p.failure(l)
	case strings.Contains(l.text, "Block Size (B)"):
		if p.header > 0 && !p.mixed {
			p.end()
		}
		at := strings.Index(l.text, "Block Size (B)")
		p.columns, p.header, p.count = header(l.text[at:], nixlbenchColumns), l.number, 0
		p.before = len(strings.Fields(l.text[:at]))
	case strings.Contains(l.text, "Block Size:"), strings.Contains(l.text, "Percentiles:"):
		p.sentence(l)
	case p.header > 0:
		p.row(l)
	case strings.Contains(l.text, " (--"):
		if m := nixlbenchOption.FindStringSubmatch(l.text); m != nil {
			p.options[m[1]] = m[2]
		}
	}
}

func (p *nixlbench) row(l line) {
	cells, cut := p.columns.row(l)
	switch {
	case cut:
		p.fail(l.number, "nixlbench: the row has fewer columns than its header in line %d", p.header)
		return
	case cells == nil, l.cut && p.opened > 0: // the end of the last figure may be missing
		return
	}
	r := Result{Tool: "nixlbench", Test: p.test(cells["Batch Size"]), Line: l.number,
		Bytes: size(cells["Block Size (B)"])}
	if devices := p.options["Device list"]; devices != "all" && nixlbenchNetwork.MatchString(p.options["Backend"]) {
		r.Rail = devices // otherwise the backend is storage, without a rail
	}
	if p.mixed {
		r.Test, r.Rail = "", ""
		r.fail(mixed)
	}
	for _, rate := range []struct {
		column string
		unit   float64
	}{{"B/W (GB/Sec)", 1e9}, {"B/W (MiB/Sec)", 1 << 20}, {"B/W (GiB/Sec)", 1 << 30}, {"B/W (MB/Sec)", 1e6}} {
		if text, ok := cells[rate.column]; ok && r.Rate == nil {
			r.Rate = r.figure(rate.column, text, rate.unit)
		}
	}
	if text, ok := cells["Avg Lat. (us)"]; ok {
		r.average(text, 1e-6)
	}
	batch := size(cells["Batch Size"])
	for column, to := range map[string]func(*Latency) **float64{
		"P50 Tx (us)":   func(l *Latency) **float64 { return &l.P50 },
		"P99 Tx (us)":   func(l *Latency) **float64 { return &l.P99 },
		"P50 Lat. (us)": func(l *Latency) **float64 { return &l.P50 },
		"P99 Lat. (us)": func(l *Latency) **float64 { return &l.P99 },
	} {
		if strings.HasSuffix(column, "Tx (us)") && batch != nil && *batch > 1 {
			continue // time of a batch; the mean is per block
		}
		if text, ok := cells[column]; ok {
			*to(r.latency()) = r.figure(column, text, 1e-6)
		}
	}
	p.count++
	p.lastBlock, p.lastMax = *r.Bytes, 1
	if batch != nil {
		p.lastMax = *batch
	}
	p.table = append(p.table, p.add(r))
}

// begin starts a run. An earlier one without a table may continue below: both print into one file.
func (p *nixlbench) begin(l line) {
	unfinished, first := p.opened > 0 && p.count == 0, p.opened
	if !unfinished {
		p.end()
	}
	*p = nixlbench{sink: p.sink, opened: l.number, last: -1, options: map[string]string{}, mixed: unfinished}
	if unfinished {
		p.fail(l.number, "nixlbench: this run begins before that of line %d has results: it was cut, or several "+
			"print into one file", first)
	}
}

// failure reports an error of a run and marks its rows as failed.
func (p *nixlbench) failure(l line) {
	text := strings.TrimSpace(l.text)
	p.fail(l.number, "nixlbench failed: %s", text)
	for _, i := range p.table {
		if i >= 0 {
			p.rows[i].fail("nixlbench failed: %s", text)
		}
	}
	p.opened, p.header, p.table = 0, 0, nil
}

// block reads a line of a tutorial's block. The size stays absent: its MB may be decimal or binary.
func (p *nixlbench) block(l line) (mine bool) {
	m := nixlTutorialLine.FindStringSubmatch(l.text)
	if m == nil {
		return false
	}
	about := p.tutorial.about
	if m[1] != "Bandwidth" {
		about[strings.ToLower(m[1])] = m[2]
		return true
	}
	rate := nixlTutorialRate.FindStringSubmatch(m[2])
	if rate == nil || l.cut {
		p.fail(l.number, "nixlbench: the bandwidth is cut, or has no unit")
		p.tutorial.opened = 0
		return true
	}
	test := about["backend"]
	if about["transport"] != "" {
		test += " over " + about["transport"]
	}
	if about["tensor size"] != "" {
		test += ", " + about["tensor size"]
	}
	r := Result{Tool: "nixlbench", Test: test, Line: l.number}
	r.Rate = r.figure("bandwidth", strings.ReplaceAll(rate[1], ",", ""), byteUnit(rate[2]))
	p.add(r)
	p.tutorial.opened = 0
	return true
}

// test returns the known part of a name such as "UCX WRITE DRAM→VRAM, batch 8".
func (p *nixlbench) test(batch string) string {
	words := []string{}
	for _, name := range []string{"Backend", "Op type"} {
		if v := p.options[name]; v != "" {
			words = append(words, v)
		}
	}
	if from, to := p.options["Initiator seg type"], p.options["Target seg type"]; from != "" && to != "" {
		words = append(words, from+"→"+to)
	}
	if n, err := strconv.Atoi(batch); err == nil && n > 1 {
		return strings.TrimPrefix(strings.Join(words, " ")+", batch "+batch, ", ")
	}
	return strings.Join(words, " ")
}

// sentence reads the sentence of a tutorial.
func (p *nixlbench) sentence(l line) {
	number := func(text string) string { return strings.ReplaceAll(text, ",", "") }
	if m := nixlbenchSentence.FindStringSubmatch(l.text); m != nil {
		r := Result{Tool: "nixlbench", Test: p.test(""), Line: l.number}
		if v := r.figure("block size", number(m[1]), byteUnit(m[2])); v != nil && *v < 1<<62 {
			n := int64(*v)
			r.Bytes = &n
		}
		r.Rate = r.figure("bandwidth", number(m[3]), byteUnit(m[4]))
		r.average(number(m[5]), timeUnit(m[6]))
		p.last = p.add(r)
		return
	}
	for _, m := range nixlbenchPercentile.FindAllStringSubmatch(l.text, -1) {
		if p.last < 0 {
			return
		}
		r := &p.rows[p.last]
		v := r.figure("p"+m[1], number(m[2]), timeUnit(m[3]))
		if m[1] == "50" {
			r.latency().P50 = v
		} else {
			r.latency().P99 = v
		}
	}
}

// byteUnit returns the bytes of KB, MB, … (decimal) and KiB, MiB, … (binary).
func byteUnit(name string) float64 {
	step := 1000.0
	if strings.Contains(name, "i") {
		step = 1024
	}
	unit := 1.0
	for range strings.IndexByte("BKMGT", name[0]) {
		unit *= step
	}
	return unit
}

func timeUnit(name string) float64 {
	switch name {
	case "s":
		return 1
	case "ms":
		return 1e-3
	case "ns":
		return 1e-9
	}
	return 1e-6
}

// end checks that the table has all rows that the settings ask for: both sizes double from row to row.
func (p *nixlbench) end() {
	if p.tutorial.opened > 0 {
		p.fail(p.tutorial.opened, "nixlbench: no bandwidth after the title")
	}
	block, batch := size(p.options["Max block size"]), size(p.options["Max batch size"])
	switch {
	case p.opened > 0 && p.header == 0:
		p.fail(p.opened, "nixlbench: no table of results after the settings")
	case p.header > 0 && p.count == 0:
		p.fail(p.header, "nixlbench: no rows in the table")
	case p.header > 0 && block != nil && p.lastBlock <= *block/2, p.header > 0 && batch != nil && p.lastMax <= *batch/2:
		p.fail(p.header, "nixlbench: the table is cut: its last row is not that of the maximum sizes")
	}
	*p = nixlbench{sink: p.sink, last: -1, options: map[string]string{}}
}
