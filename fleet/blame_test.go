package fleet_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/railscope/railscope/fleet"
	"github.com/railscope/railscope/fleet/fleettest"
	"github.com/railscope/railscope/internal/testenv"
)

// plan returns fleet number n of those that TestBlame judges.
func plan(n uint64) fleettest.Options {
	random := rand.New(rand.NewPCG(n, 17))
	o := fleettest.Options{Seed: n, Nodes: []int{10, 16, 32, 64, 100}[random.IntN(5)], Rails: 8, Fanout: 4,
		Noise: 0.02, Missing: 0.05, Loopback: n%2 == 0}
	if n%20 == 3 || n%40 == 4 {
		o.Nodes = 1000
	}
	o.LeafSize = min(32, o.Nodes/2)
	if n%5 == 0 {
		o.Clusters, o.Nodes = []string{"a", "b"}, max(o.Nodes/2, 10)
		o.LeafSize = min(32, o.Nodes/2)
	}
	kinds := []fleet.Kind{fleet.RailDown, fleet.SlowWire, fleet.SlowHost, fleet.GPUPath, fleet.PeerDown,
		fleet.LossyPath, fleet.Leaf, fleet.TCPFallback}
	pairs := fleettest.Pairs(o)
	var nodes []fleet.Node // nodes with a fault
	free := func() fleet.Node {
		for {
			p := pairs[random.IntN(len(pairs))]
			if !slices.Contains(nodes, p.From) {
				nodes = append(nodes, p.From)
				return p.From
			}
		}
	}
	for range 1 + random.IntN(5) {
		kind := kinds[random.IntN(len(kinds))]
		f := fleettest.Fault{Kind: kind, Rail: strconv.Itoa(random.IntN(o.Rails))}
		switch kind {
		case fleet.LossyPath:
			p := pairs[random.IntN(len(pairs))]
			f.Node, f.Peer = p.From, p.To.Name
			if slices.Contains(nodes, p.From) || slices.Contains(nodes, p.To) {
				continue
			}
			nodes = append(nodes, p.From, p.To)
		case fleet.Leaf:
			if slices.ContainsFunc(o.Faults, func(f fleettest.Fault) bool { return f.Kind == fleet.Leaf }) {
				continue
			}
			p := pairs[random.IntN(len(pairs))]
			i, _ := strconv.Atoi(p.From.Name[len("node-"):])
			rail, _ := strconv.Atoi(f.Rail)
			f.Cluster, f.Leaf, f.Rail = p.From.Cluster, o.LeafOf(i, rail), ""
		case fleet.PeerDown, fleet.TCPFallback:
			f.Node, f.Rail = free(), ""
		default:
			f.Node, f.Part = free(), 0.3+0.5*random.Float64()
			if kind == fleet.SlowWire {
				f.Way = []string{"", "in", "out"}[random.IntN(3)]
			}
		}
		o.Faults = append(o.Faults, f)
	}
	return o
}

// right reports whether a blame matches a planted fault in kind and subject.
func right(o fleettest.Options, f fleettest.Fault, b fleet.Blame) bool {
	want := f.Kind
	if !o.Loopback && (want == fleet.SlowHost || want == fleet.SlowWire) {
		want = fleet.SlowRail // host and wire cannot be distinguished
	}
	if b.Kind != want {
		return false
	}
	switch f.Kind {
	case fleet.Leaf:
		return b.Cluster == f.Cluster && b.Leaf == f.Leaf
	case fleet.LossyPath:
		return b.Cluster == f.Cluster && (b.Name == f.Name && b.Peer == f.Peer || b.Name == f.Peer && b.Peer == f.Name)
	}
	return b.Node == f.Node && b.Rail == f.Rail
}

// TestBlame judges 200 fleets: at least 95 % of the faults are found with kind and subject, and at most 1 % of the
// healthy nodes are blamed.
func TestBlame(t *testing.T) {
	found, all := map[fleet.Kind]int{}, map[fleet.Kind]int{}
	accused, healthy := 0, 0
	for n := range uint64(200) {
		o := plan(n)
		report := fleet.Judge(fleettest.New(o))
		faulty := map[fleet.Node]bool{}
		for _, f := range o.Faults {
			all[f.Kind]++
			faulty[f.Node] = true
			faulty[fleet.Node{Cluster: f.Cluster, Name: f.Peer}] = true
			if slices.ContainsFunc(report.Blames, func(b fleet.Blame) bool { return right(o, f, b) }) {
				found[f.Kind]++
			} else {
				t.Logf("fleet %d of %d nodes, loopback %v: not found: %s %s rail %q, peer %q", n, o.Nodes,
					o.Loopback, f.Kind, f.Node, f.Rail, f.Peer)
				for _, b := range report.Blames {
					t.Logf("    %s %s: %s", b.Kind, b.Subject(), b.Evidence)
				}
			}
		}
		wrong := map[fleet.Node]bool{}
		for _, b := range report.Blames {
			if b.Leaf == "" && !faulty[b.Node] {
				wrong[b.Node] = true
				t.Logf("fleet %d of %d nodes: accused: %s %s: %s", n, o.Nodes, b.Kind, b.Subject(), b.Evidence)
			}
		}
		accused += len(wrong)
		healthy += max(len(o.Clusters), 1)*o.Nodes - len(faulty)
	}
	right, planted := 0, 0
	for _, kind := range slices.SortedFunc(func(yield func(fleet.Kind) bool) {
		for k := range all {
			if !yield(k) {
				return
			}
		}
	}, cmp.Compare[fleet.Kind]) {
		testenv.Score{What: strings.ReplaceAll(string(kind), "_", " "), Named: found[kind], Planted: all[kind]}.Log(t)
		right, planted = right+found[kind], planted+all[kind]
	}
	part := float64(right) / float64(planted)
	testenv.Score{What: "healthy nodes", Accused: accused, Healthy: healthy}.Log(t)
	if part < 0.95 {
		t.Errorf("%.1f %% of the faults found", 100*part)
	}
	if float64(accused) > 0.01*float64(healthy) {
		t.Errorf("%d of %d healthy nodes accused", accused, healthy)
	}
}
