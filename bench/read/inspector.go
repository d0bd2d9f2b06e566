package read

import (
	"regexp"
	"strings"
)

// Formats of NCCL's plugins/profiler/inspector/inspector_{json,prom}.cc, v4.0 (June 2026). A GB/s is 10^9 bytes/s.
var (
	inspectorMetric = regexp.MustCompile(
		`^\s*nccl_(?:(p2p_)?bus_bandwidth_gbs|(?:collective|p2p)_exec_time_microseconds)\{`)
	inspectorLine = regexp.MustCompile(
		`^\s*nccl_(p2p|bus|collective)_(\w+)\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\}\s+(\S+)(?:\s+\d+)?\s*$`)
	inspectorLabel = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)
)

type inspector struct {
	*sink
	rowOf map[string]int // labels → index of the row
	alone map[string]int // labels of rows with only one of the two metrics → line
}

func newInspector(s *sink) parser {
	return &inspector{sink: s, rowOf: map[string]int{}, alone: map[string]int{}}
}

// text reads the Prometheus format. Two metrics with equal labels are one row. The size label is a range, so Bytes
// stays absent.
func (p *inspector) text(l line) {
	if !strings.Contains(l.text, "nccl_") || !inspectorMetric.MatchString(l.text) {
		return
	}
	m := inspectorLine.FindStringSubmatch(l.text)
	if m == nil || !numeric(m[4]) || l.cut {
		p.fail(l.number, "nccl-inspector: the metric is cut")
		return
	}
	i, known := p.rowOf[m[3]]
	if known && i >= 0 && p.has(i, m[2]) { // from another scrape
		known = false
	}
	if !known {
		labels := map[string]string{}
		for _, label := range inspectorLabel.FindAllStringSubmatch(m[3], -1) {
			labels[label[1]] = label[2]
		}
		test := strings.Join([]string{labels["collective"] + labels["p2p_operation"], labels["message_size"],
			labels["algo_proto"], labels["gpu"]}, " ")
		i = p.add(Result{Tool: "nccl-inspector", Test: strings.Join(strings.Fields(test), " "), Line: l.number})
		p.rowOf[m[3]], p.alone[m[3]] = i, l.number
	} else {
		delete(p.alone, m[3])
	}
	if i < 0 {
		return
	}
	if r := &p.rows[i]; strings.HasSuffix(m[2], "exec_time_microseconds") {
		r.average(m[4], 1e-6)
	} else {
		r.BusRate = r.figure("bandwidth", m[4], 1e9)
	}
}

// has reports whether a row already has the value of a metric.
func (p *inspector) has(i int, metric string) bool {
	r := &p.rows[i]
	if strings.HasSuffix(metric, "exec_time_microseconds") {
		return r.Latency != nil && r.Latency.Avg != nil
	}
	return r.BusRate != nil
}

func (p *inspector) end() {
	first := 0
	for _, number := range p.alone {
		if first == 0 || number < first {
			first = number
		}
	}
	if first > 0 {
		p.fail(first, "nccl-inspector: the file is cut: %d series have a bandwidth or a time, not both", len(p.alone))
	}
}

// inspectorJSON is coll_perf or p2p_perf, with the prefix of the keys removed.
type inspectorJSON struct {
	Coll     string   `json:"coll"`
	CollSize *int64   `json:"coll_msg_size_bytes"`
	CollTime *float64 `json:"coll_exec_time_us"`
	CollAlg  *float64 `json:"coll_algobw_gbs"`
	CollBus  *float64 `json:"coll_busbw_gbs"`
	P2P      string   `json:"p2p"`
	P2PSize  *int64   `json:"p2p_msg_size_bytes"`
	P2PTime  *float64 `json:"p2p_exec_time_us"`
	P2PAlg   *float64 `json:"p2p_algobw_gbs"`
	P2PBus   *float64 `json:"p2p_busbw_gbs"`
}

func (p *inspector) document(d *document) bool {
	name := "coll_perf"
	if !d.has(name) {
		name = "p2p_perf"
	}
	var meta struct {
		Version string `json:"inspector_output_format_version"`
	}
	if !d.has(name) && !(d.get("metadata", &meta) && meta.Version != "") &&
		!strings.Contains(string(d.text[:min(len(d.text), 1000)]), "n_ranks") {
		return false
	}
	var j inspectorJSON
	if d.err != nil || !d.get(name, &j) {
		p.fail(d.errorLine(), "nccl-inspector: the JSON is cut, or has no coll_perf and p2p_perf")
		return true
	}
	r := Result{Tool: "nccl-inspector", Test: j.Coll, Bytes: j.CollSize, Line: d.line}
	time, alg, bus := j.CollTime, j.CollAlg, j.CollBus
	if name == "p2p_perf" {
		r.Test, r.Bytes = j.P2P, j.P2PSize
		time, alg, bus = j.P2PTime, j.P2PAlg, j.P2PBus
	}
	if time != nil {
		r.latency().Avg, r.rounding = r.value("time", *time, 1e-6), 0.5e-6
	}
	if alg != nil {
		r.Rate = r.value("algobw", *alg, 1e9)
	}
	if bus != nil {
		r.BusRate = r.value("busbw", *bus, 1e9)
	}
	p.add(r)
	return true
}
