package why

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/fleet"
	"github.com/railscope/railscope/internal/terminal"
)

// Thresholds of the judgement.
const (
	// light is the part of what the same rail carried on most other nodes below which a rail is too light.
	light = 0.75
	// least is how many bytes most nodes must have sent over a rail before one is called light.
	least = 1e9
	// heavy is how many times more than on most other nodes a node must have sent by TCP, and tcpShare which part of
	// its RDMA bytes, to stand out.
	heavy    = 10
	tcpShare = 0.1
	// common is the share of nodes from which a warning sets none of them apart.
	common = 0.5
	// ended is how long ago a job that has ended was last seen.
	ended = 3 * time.Minute
	// early is how long before its end a finding of a job began before it, at the latest.
	early = 2 * time.Minute
)

// Report is what was wrong where a job ran.
type Report struct {
	Job string `json:"job"`
	Span
	Running bool   `json:"running"`
	Cause   string `json:"cause"` // the likeliest cause in one sentence; empty: none was found
	// Also lists what else was found, the likelier first.
	Also     []string   `json:"also"`
	NotKnown []string   `json:"not_known"`
	Nodes    []NodeUse  `json:"nodes"`
	Findings []Found    `json:"findings"`
	Failed   []string   `json:"failed"` // questions that were not answered, and why
	BusRates []NodeRate `json:"bus_bandwidth"`
}

// NodeUse is what a node carried while the job ran.
type NodeUse struct {
	fleet.Node
	Span
	Rails  []RailUse `json:"rails"`
	Uneven *float64  `json:"imbalance"` // highest imbalance of the job's rails; nil: unknown
}

// RailUse is what a rail carried. Nil is unknown.
type RailUse struct {
	Rail     string   `json:"rail"`
	Bytes    *float64 `json:"bytes"` // sent by RDMA over the port
	JobBytes *float64 `json:"job_bytes"`
	Peak     *float64 `json:"peak_bytes_per_second"`
	TCP      *float64 `json:"tcp_bytes"`
	Part     *float64 `json:"part"` // share of what the same rail of most nodes carried
}

// NodeRate is the mean bus bandwidth of the job's collectives on a node.
type NodeRate struct {
	fleet.Node
	Rate float64 `json:"bytes_per_second"`
}

func compareFound(a, b Found) int {
	rank := map[string]int{"critical": 0, "warning": 1}
	return cmp.Or(rank[a.Severity]-rank[b.Severity], a.From.Compare(b.From), a.Compare(b.Node),
		strings.Compare(a.Check, b.Check), strings.Compare(a.Subject, b.Subject))
}

// Judge names the likeliest cause.
func Judge(d Data) Report {
	whole := d.Whole()
	slices.SortFunc(d.Found, compareFound)
	r := Report{Job: d.Job, Span: whole, Running: d.Now.Sub(whole.To) < ended, Also: []string{}, NotKnown: []string{},
		Nodes: d.nodes(), Findings: slices.Concat([]Found{}, d.Found), Failed: slices.Concat([]string{}, d.Failed),
		BusRates: []NodeRate{}}
	for _, n := range slices.SortedFunc(maps.Keys(d.BusRates), fleet.Node.Compare) {
		r.BusRates = append(r.BusRates, NodeRate{n, d.BusRates[n]})
	}
	causes := slices.Concat(d.fallbacks(), d.critical(whole), d.byTCP(), uneven(r.Nodes), d.warnings(whole))
	if len(causes) > 0 {
		r.Cause, r.Also = causes[0], append(r.Also, causes[1:]...)
	}
	r.NotKnown = append(r.NotKnown, d.unknown()...)
	return r
}

// nodes returns what each node carried.
func (d *Data) nodes() (list []NodeUse) {
	usual := map[string][]float64{}
	for r, u := range d.Rails {
		if u.Port >= 0 {
			usual[r.Rail] = append(usual[r.Rail], u.Port)
		}
	}
	known := func(v float64) *float64 {
		if v < 0 {
			return nil
		}
		return &v
	}
	rails, most := map[fleet.Node][]RailUse{}, map[string]float64{}
	for rail, sent := range usual {
		most[rail] = middle(sent)
	}
	for _, r := range slices.SortedFunc(maps.Keys(d.Rails), fleet.Rail.Compare) {
		u := d.Rails[r]
		one := RailUse{Rail: r.Rail, Bytes: known(u.Port), JobBytes: known(u.Own), Peak: known(u.Peak),
			TCP: known(u.TCP)}
		if most[r.Rail] > least && u.Port >= 0 && len(usual[r.Rail]) > 2 {
			one.Part = new(u.Port / most[r.Rail])
		}
		rails[r.Node] = append(rails[r.Node], one)
	}
	for _, n := range slices.SortedFunc(maps.Keys(d.Seen), fleet.Node.Compare) {
		use := NodeUse{Node: n, Span: d.Seen[n], Rails: slices.Concat([]RailUse{}, rails[n])}
		if v, ok := d.Uneven[n]; ok {
			use.Uneven = &v
		}
		list = append(list, use)
	}
	return list
}

func middle(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

// fallbacks returns a cause if the job did without RDMA.
func (d *Data) fallbacks() []string {
	var names []string
	for _, n := range slices.SortedFunc(maps.Keys(d.Fallback), fleet.Node.Compare) {
		if d.Fallback[n] {
			names = append(names, n.String())
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("it did without RDMA on %s: it held GPUs and no connected queue pair, or its NCCL "+
		"used sockets: docs/nccl.md has the reasons", terminal.Few(names))}
}

// critical returns a cause for each critical finding, the first one first.
func (d *Data) critical(whole Span) (list []string) {
	for _, f := range d.Found {
		if f.Severity == "critical" {
			list = append(list, f.sentence(whole))
		}
	}
	return list
}

func (f Found) sentence(whole Span) string {
	when := "from " + f.From.Format(time.TimeOnly)
	if f.From.Sub(whole.From) < early {
		when = "since before it began"
	}
	if whole.To.Sub(f.To) < early {
		when += ", until its end"
	} else {
		when += " to " + f.To.Format(time.TimeOnly)
	}
	return fmt.Sprintf("%s on %s: %s (%s)", f.Check, f.Node, f.Subject, when)
}

// byTCP returns a cause for each node that sent much more by TCP than most others.
func (d *Data) byTCP() (list []string) {
	tcp, rdma := map[fleet.Node]float64{}, map[fleet.Node]float64{}
	for r, u := range d.Rails {
		tcp[r.Node] += max(u.TCP, 0)
		rdma[r.Node] += max(u.Port, 0)
	}
	usual := middle(slices.Collect(maps.Values(tcp)))
	for _, n := range slices.SortedFunc(maps.Keys(tcp), fleet.Node.Compare) {
		if len(tcp) > 2 && tcp[n] > heavy*usual && tcp[n] > tcpShare*rdma[n] {
			list = append(list, fmt.Sprintf("%s sent %s over its rails by TCP, most of its nodes %s", n,
				amount(tcp[n]), amount(usual)))
		}
	}
	return list
}

// amount shows bytes in GB or TB, 10⁹ and 10¹² bytes.
func amount(bytes float64) string {
	if bytes >= 1e12 {
		return grid.Decimal(bytes/1e12, 1) + " TB"
	}
	return grid.Decimal(bytes/1e9, 1) + " GB"
}

// uneven returns a cause for each node whose rails carried less than the same rails of most other nodes, the lightest
// first.
func uneven(nodes []NodeUse) (list []string) {
	type lightNode struct {
		least float64
		text  string
	}
	var all []lightNode
	for _, n := range nodes {
		var names []string
		lightest := 1.0
		for _, r := range n.Rails {
			if r.Part != nil && *r.Part < light {
				names = append(names, r.Rail)
				lightest = min(lightest, *r.Part)
			}
		}
		switch {
		case len(names) == 1:
			all = append(all, lightNode{lightest, fmt.Sprintf("rail %s of %s carried %.2f of what rail %[1]s of most "+
				"nodes carried", names[0], n.Node, lightest)})
		case len(names) > 1:
			all = append(all, lightNode{lightest, fmt.Sprintf("rails %s of %s carried less than those of most nodes, "+
				"one of them %.2f of it", terminal.Few(names), n.Node, lightest)})
		}
	}
	slices.SortStableFunc(all, func(a, b lightNode) int { return cmp.Compare(a.least, b.least) })
	for _, one := range all {
		list = append(list, one.text)
	}
	return list
}

// warnings returns a cause for each warning that only some of the nodes had.
func (d *Data) warnings(whole Span) (list []string) {
	on := map[string]map[fleet.Node]bool{}
	for _, f := range d.Found {
		if on[f.Check] == nil {
			on[f.Check] = map[fleet.Node]bool{}
		}
		on[f.Check][f.Node] = true
	}
	for _, f := range d.Found {
		if f.Severity == "warning" && float64(len(on[f.Check])) < common*float64(len(d.Seen)) {
			list = append(list, f.sentence(whole))
		}
	}
	return list
}

// unknown returns what could not be judged.
func (d *Data) unknown() (list []string) {
	without, shared := []string{}, []string{}
	for _, n := range slices.SortedFunc(maps.Keys(d.Seen), fleet.Node.Compare) {
		rails, own := 0, 0
		for r, u := range d.Rails {
			if r.Node == n && u.Port >= 0 {
				rails++
			}
			if r.Node == n && u.Own >= 0 {
				own++
			}
		}
		switch {
		case rails == 0:
			without = append(without, n.String())
		case own < rails:
			shared = append(shared, n.String())
		}
	}
	if len(without) > 0 {
		list = append(list, "what the rails carried on "+terminal.Few(without))
	}
	if len(shared) > 0 {
		list = append(list, "which part of the bytes is the job's on "+terminal.Few(shared)+": its rails were shared, "+
			"or not used")
	}
	if len(d.BusRates) == 0 {
		list = append(list, "the bus bandwidth of its collectives: Prometheus has no files of NCCL Inspector")
	}
	return append(list, "what the job did itself: its data, its code, its storage")
}

// Headline is the answer in one sentence.
func (r Report) Headline() string {
	when := fmt.Sprintf("%s to %s UTC", r.From.Format(time.DateTime), r.To.Format(time.DateTime))
	if r.Running {
		when = "since " + r.From.Format(time.DateTime) + " UTC"
	}
	head := fmt.Sprintf("Job %s, %s, %s: ", r.Job, terminal.Count(len(r.Nodes), "node"), when)
	if r.Cause == "" {
		return head + "nothing was found that sets one of its nodes apart."
	}
	return head + r.Cause + "."
}
