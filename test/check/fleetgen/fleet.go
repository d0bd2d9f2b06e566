// Package fleetgen generates fleets: the series that Prometheus scrapes from 2 to 10,000 nodes, healthy or with
// planted faults. The series of a node are defined once, here; a World has the facts about a fleet. A fleet can be
// written to a storage, as OpenMetrics for promtool tsdb create-blocks-from, or as series for promtool test rules,
// and it can answer queries like Prometheus.
package fleetgen

import (
	"fmt"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// World has the facts about a fleet. Nodes count from 1, rails from 0; t is in seconds since the beginning of the
// fleet. Healthy is a fleet without faults; others embed it.
type World interface {
	Rails() int
	Peers(n int) []int          // peers that the node's probe asks
	Leaf(n, rail int) string    // leaf switch of a rail; "": not known
	Gone(n int, t float64) bool // it is not scraped, and answers no probe

	PortUp(n, rail int, t float64) bool
	Misbound(n, rail int, t float64) bool
	Capacity(rail int) float64             // bytes per second
	Load(n, rail int, t float64) float64   // traffic of a job, as a fraction of the capacity
	TCP(n int, t float64) float64          // bytes per second of each rail other than RDMA
	Marked(n, rail int, t float64) float64 // congestion notifications per second
	Errors(n, rail int, t float64) float64 // errors of a bad cable, as a fraction of those of the worst
	GPUFree(n, gpu int, t float64) float64 // fraction of the memory
	Suspected(n int, t float64) bool       // a job uses TCP although RDMA works

	Transport(n, to int, t float64) string                      // transport of the last round: rdma, tcp or none
	Path(n, to, rail int, t float64) (part float64, known bool) // solo goodput of a rail, as a fraction of the capacity
	Retransmits(n, to, rail int, t float64) float64             // per second
	RoundTrip(n, to int, t float64) float64                     // microseconds
	Loopback(n, rail int) (goodput float64, known bool)         // loopback goodput, bytes per second
	GPUPath(n, rail int) (part float64, known bool)             // goodput of GPU memory, as a fraction of host memory's

	Findings(n int) []Finding
	Noise(words ...any) float64 // -1 to 1, the same for the same words
}

// Finding is a finding, with the time at which it is raised.
type Finding struct {
	Check, Severity, Subject, Rail string
	When                           func(t float64) bool
}

// Fleet is the series of a world over some time.
type Fleet struct {
	World World
	Nodes int
	Begin time.Time     // time of t = 0
	From  time.Duration // first scrape, since Begin
	To    time.Duration // last scrape, since Begin
	Every time.Duration // interval of scrapes

	Name     func(n int) string // name of a node; nil: node-00001
	Domain   string             // suffix of the name in instances
	Cluster  func(n int) string // cluster of a node; nil: a
	Kube     bool               // the instance is the name of the node, which kube-state-metrics reports, too
	Template Template           // additional series of a machine
	Native   bool               // latencies have a label rail, as for native histograms; classic ones lack it
	// Needs are the series that are generated, as far back as needed before To-Warm; nil: all. Skip drops metrics
	// by name.
	Needs *Needs
	Warm  time.Duration // time before To at which queries begin
	Skip  func(metric string) bool
	// Off reports when nothing is scraped. Change modifies a series over time; nil: no change.
	Off    func(since time.Duration) bool
	Change func(n int, l labels.Labels) Change
}

// Change maps a value at a time since the beginning to the scraped value; false: the series is missing.
type Change func(since time.Duration, v float64) (float64, bool)

// Name returns the default name of a node.
func Name(n int) string { return fmt.Sprintf("node-%05d", n) }

// Each calls do with every series, node by node.
func (f *Fleet) Each(do func(*Series) error) error {
	for n := 1; n <= f.Nodes; n++ {
		for _, s := range f.Of(n) {
			if err := do(s); err != nil {
				return fmt.Errorf("%s: %w", s.Labels, err)
			}
		}
	}
	return nil
}

// Of returns the series of one node.
func (f *Fleet) Of(n int) []*Series {
	b := &node{Fleet: f, n: n, named: map[uint64]bool{}, w: f.World}
	b.target()
	b.rails()
	b.gpus()
	b.findings()
	b.probe()
	b.template()
	return b.series
}

func (f *Fleet) nameOf(n int) string {
	if f.Name != nil {
		return f.Name(n)
	}
	return Name(n)
}

// Instance returns the instance label of a node's target.
func (f *Fleet) Instance(n int) string {
	if f.Kube {
		return f.nameOf(n)
	}
	return f.nameOf(n) + f.Domain + ":10091"
}

// Healthy returns a world without faults, in which a job uses half of each rail.
func Healthy(nodes int) World { return healthy{nodes} }

type healthy struct{ nodes int }

// Fan-out: number of peers that a node asks if there are many nodes.
const fanout, manyNodes = 4, 32

// The methods of World.

func (healthy) Rails() int { return 8 }

// Peers are all other nodes, or the next ones.
func (h healthy) Peers(n int) (list []int) {
	for k := 1; k < h.nodes && (k <= fanout || h.nodes <= manyNodes); k++ {
		list = append(list, (n-1+k)%h.nodes+1)
	}
	return list
}

func (healthy) Leaf(n, rail int) string                     { return fmt.Sprintf("leaf-%d-%d", (n-1)/32, rail) }
func (healthy) Gone(int, float64) bool                      { return false }
func (healthy) PortUp(int, int, float64) bool               { return true }
func (healthy) Misbound(int, int, float64) bool             { return false }
func (healthy) Capacity(int) float64                        { return 50e9 }
func (healthy) Load(int, int, float64) float64              { return 0.5 }
func (healthy) TCP(int, float64) float64                    { return 2e5 }
func (healthy) Marked(int, int, float64) float64            { return 60 }
func (healthy) Errors(int, int, float64) float64            { return 0 }
func (healthy) GPUFree(int, int, float64) float64           { return 0.2 }
func (healthy) Suspected(int, float64) bool                 { return false }
func (healthy) Transport(int, int, float64) string          { return "rdma" }
func (healthy) RoundTrip(int, int, float64) float64         { return 3.1 }
func (healthy) Loopback(int, int) (float64, bool)           { return 0, false }
func (healthy) GPUPath(int, int) (float64, bool)            { return 0, false }
func (healthy) Findings(int) []Finding                      { return nil }
func (healthy) Noise(...any) float64                        { return 0 }
func (healthy) Path(int, int, int, float64) (float64, bool) { return usual, true }
func (healthy) Retransmits(int, int, int, float64) float64  { return 0 }

// usual is the goodput of a healthy rail, as a fraction of its capacity.
const usual = 0.94

func flag01(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
