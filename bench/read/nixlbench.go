package read

import (
	"regexp"
	"strconv"
	"strings"
)

// Formats are those of nixl's benchmark/nixlbench/src/utils/utils.cpp, 0.2.0 (6 and 8 columns), 0.5.1 to v1.4.0 (10 and
// 12). GB are 10^9 bytes. Its latency is the time divided by the blocks of one thread; P99 Tx is that of a whole batch.
// "Block Size: 64.00 MiB, Bandwidth: …" and "Percentiles: p50=…" are the form of a tutorial.
var (
	nixlbenchColumns = regexp.MustCompile(`Batch Size|[A-Za-z][A-Za-z0-9/.]*(?: [A-Za-z/.]+)* ?\([^)]*\)`)
	nixlbenchOption  = regexp.MustCompile(
		`\b(Backend|Op type|Initiator seg type|Target seg type|Device list|Max block size|Max batch size) \(--.*\)\s*: (\S+)`)
	nixlbenchSentence = regexp.MustCompile(`Block Size:\s*([\d.,]+)\s*([KMGT]?i?B),\s*Bandwidth:\s*([\d.,]+)\s*` +
		`([KMGT]?i?B)/s(?:\s*\([^)]*\))?,\s*Latency:\s*([\d.,]+)\s*(ns|us|µs|μs|ms|s)\b`)
	nixlbenchPercentile = regexp.MustCompile(`\bp(50|99)\s*=\s*([\d.,]+)\s*(ns|us|µs|μs|ms|s)\b`)
)

type nixlbench struct {
	noDocuments
	*sink
	opened  int // line of the settings; 0: none
	header  int
	options map[string]string
	columns
	count              int   // rows of the table
	lastBlock, lastMax int64 // of the last row: size of a block, and blocks of a batch
	last               int   // index of the row of a sentence; -1: none
}

func newNixlbench(s *sink) parser { return &nixlbench{sink: s, last: -1, options: map[string]string{}} }

func (p *nixlbench) text(l line) {
	switch {
	case strings.Contains(l.text, "NIXLBench Configuration"):
		p.end()
		*p = nixlbench{sink: p.sink, opened: l.number, last: -1, options: map[string]string{}}
	case strings.Contains(l.text, "Block Size (B)"):
		if p.header > 0 {
			p.end()
		}
		at := strings.Index(l.text, "Block Size (B)")
		p.columns, p.header, p.count = header(l.text[at:], nixlbenchColumns), l.number, 0
		p.before = len(strings.Fields(l.text[:at]))
	case strings.Contains(l.text, "Block Size:"), strings.Contains(l.text, "Percentiles:"):
		p.sentence(l)
	case p.header > 0:
		p.row(l)
	default:
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
	r := Result{Tool: "nixlbench", Test: p.test(cells["Batch Size"]), Line: l.number, Bytes: size(cells["Block Size (B)"])}
	if devices := p.options["Device list"]; devices != "all" {
		r.Rail = devices
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
	for column, to := range map[string]func(*Latency) **float64{
		"P50 Tx (us)":   func(l *Latency) **float64 { return &l.P50 },
		"P99 Tx (us)":   func(l *Latency) **float64 { return &l.P99 },
		"P50 Lat. (us)": func(l *Latency) **float64 { return &l.P50 },
		"P99 Lat. (us)": func(l *Latency) **float64 { return &l.P99 },
	} {
		if text, ok := cells[column]; ok {
			*to(r.latency()) = r.figure(column, text, 1e-6)
		}
	}
	p.count++
	p.lastBlock, p.lastMax = *r.Bytes, 1
	if n := size(cells["Batch Size"]); n != nil {
		p.lastMax = *n
	}
	p.add(r)
}

// test is "UCX WRITE DRAM→VRAM, batch 8", as far as it is known.
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

// sentence reads the form of a tutorial.
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

// byteUnit is that of KB, MB, … (decimal) and KiB, MiB, … (binary).
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

// end checks that the last row is the last one of the settings: both sizes double from row to row.
func (p *nixlbench) end() {
	block, batch := size(p.options["Max block size"]), size(p.options["Max batch size"])
	switch {
	case p.opened > 0 && p.header == 0:
		p.fail(p.opened, "nixlbench: no table of results after the settings")
	case p.header > 0 && p.count == 0:
		p.fail(p.header, "nixlbench: no rows in the table")
	case p.header > 0 && block != nil && p.lastBlock <= *block/2, p.header > 0 && batch != nil && p.lastMax <= *batch/2:
		p.fail(p.header, "nixlbench: the table is cut: its last row is not that of the maximum sizes")
	}
	p.opened, p.header, p.count, p.last = 0, 0, 0, -1
	p.options = map[string]string{}
}
