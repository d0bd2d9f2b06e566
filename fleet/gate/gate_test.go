package gate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/fleet"
	"github.com/railscope/railscope/internal/testenv"
)

// Times of a simulated visit: longer than those of real processes that docs/gate.md has. A rail that carries nothing
// takes all retries.
const (
	reachTime = time.Second
	burstTime = 2 * time.Second
	deadTime  = 5 * time.Second
)

const (
	lineRate = 50e9 // 400 Gb/s
	share    = 0.96 // share of it that a good rail carries
)

// fabric is a simulated fabric: nodes with rails, each of which may be dead or slow, and links between two nodes.
type fabric struct {
	t            *testing.T
	nodes, rails int
	factor       map[[2]int]float64          // part that a rail of a node carries; 0: it is dead
	link         map[[3]int]float64          // part that a link carries, the lower node first
	busy         map[int]bool                // others use the node's rails
	strangers    map[[2]int]bool             // nodes that do not know another one
	silent       map[int]bool                // nodes that do not answer
	dies         map[int]time.Duration       // when a node stops to answer, since the start
	liar         func(from, to int) bool     // reports that nothing reaches the other
	flaky        map[[2]int]int              // visits over a rail of a node that fail at first
	leaf         func(node, rail int) string // what nodes report of their leaves; nil: nothing
	name         func(node int) string
	tcp          map[int]bool // nodes without RDMA

	start time.Time
	mu    sync.Mutex
	using map[int]bool
	noise *rand.Rand
	left  map[int]bool
}

func (f *fabric) Greet(_ context.Context, node int) (name, instance string, err error) {
	time.Sleep(100 * time.Millisecond)
	switch {
	case f.gone(node):
		return "", "", errors.New("connection refused")
	case f.name != nil:
		return f.name(node), f.name(node), nil
	}
	return nodeName(node), nodeName(node), nil
}

func nodeName(node int) string { return fmt.Sprintf("gpu-%04d", node) }

func (f *fabric) gone(node int) bool {
	at, dies := f.dies[node]
	return f.silent[node] || dies && time.Since(f.start) >= at
}

func (f *fabric) Answers(_ context.Context, node int) bool { return !f.gone(node) }

func (f *fabric) Leave(_ context.Context, node int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left[node] = true
}

// use marks nodes as used by a visit. A node takes part in one at a time.
func (f *fabric) use(is bool, nodes ...int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range nodes {
		if is && f.using[n] {
			f.t.Errorf("node %d takes part in two visits at a time", n)
		}
		f.using[n] = is
	}
}

func (f *fabric) Visit(ctx context.Context, from, to int, burst bool) Visit {
	f.use(true, from, to)
	defer f.use(false, from, to)
	took := reachTime
	if burst {
		took = burstTime
	}
	v := f.visit(from, to, burst)
	if slices.ContainsFunc(v.Rails, func(r Rail) bool { return r.Dead != "" }) {
		took = deadTime
	}
	select {
	case <-time.After(took):
	case <-ctx.Done():
	}
	if f.gone(from) || f.gone(to) {
		return Visit{Unknown: "it does not answer"}
	}
	return v
}

func (f *fabric) visit(from, to int, burst bool) (v Visit) {
	switch {
	case f.strangers[[2]int{from, to}]:
		return Visit{Unknown: nodeName(to) + " is not among its peers"}
	case f.liar != nil && f.liar(from, to), f.tcp[from] != f.tcp[to], f.tcp[from]:
		return Visit{TCP: "no_gid"}
	}
	for rail := range f.rails {
		r := Rail{Name: fmt.Sprint(rail), Retransmits: 0, Expected: lineRate}
		if f.leaf != nil {
			r.Leaf = f.leaf(from, rail)
		}
		part := 1.0
		for _, end := range []int{from, to} {
			if known, is := f.factor[[2]int{end, rail}]; is {
				part = min(part, known)
			}
			f.mu.Lock()
			if f.flaky[[2]int{end, rail}] > 0 {
				f.flaky[[2]int{end, rail}]--
				part = 0
			}
			f.mu.Unlock()
		}
		if known, is := f.link[[3]int{min(from, to), max(from, to), rail}]; is {
			part = min(part, known)
		}
		switch {
		case part == 0:
			r.Dead = "retry_exceeded"
		case !burst:
		case f.busy[from] || f.busy[to]:
			r.Unmeasured = "others use it"
		default:
			f.mu.Lock()
			r.Goodput = part * share * lineRate * (1 - 0.03*f.noise.Float64())
			f.mu.Unlock()
		}
		v.Rails = append(v.Rails, r)
	}
	return v
}

// names returns n names.
func names(n int) (list []string) {
	for i := range n {
		list = append(list, nodeName(i))
	}
	return list
}

// run runs a gate over a simulated fabric in virtual time.
func run(t *testing.T, f *fabric, o Options) (r Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f.t, f.start, f.using, f.left = t, time.Now(), map[int]bool{}, map[int]bool{}
		f.noise = rand.New(rand.NewPCG(1, uint64(f.nodes)))
		if o.Nodes == nil {
			o.Nodes = names(f.nodes)
		}
		r = Run(t.Context(), f, o)
		if len(f.left) != f.nodes {
			t.Errorf("%d of %d nodes were released", len(f.left), f.nodes)
		}
	})
	return r
}

// nodesOf returns the names of a list.
func nodesOf(list []Node) (out []string) {
	for _, n := range list {
		out = append(out, n.Node)
	}
	return out
}

// blamed returns what is blamed.
func blamed(r Report) (out []string) {
	for _, b := range r.Blames {
		out = append(out, b.Subject()+": "+string(b.Kind))
	}
	slices.Sort(out)
	return out
}

// TestGate: each planted fault is named, and only what it concerns is left out. Busy, silent and unknown nodes are not
// accused.
func TestGate(t *testing.T) {
	bad := func(part float64) map[[2]int]float64 { return map[[2]int]float64{{3, 2}: part} }
	for _, tc := range []struct {
		name    string
		fabric  *fabric
		verdict Verdict
		blames  []string
		out     []string
		unknown []string
	}{
		{"all good", &fabric{nodes: 8}, Start, nil, nil, nil},
		{"an odd number", &fabric{nodes: 7}, Start, nil, nil, nil},
		{"two", &fabric{nodes: 2}, Start, nil, nil, nil},
		{"a dead rail", &fabric{nodes: 8, factor: bad(0)}, LeaveOut, []string{"rail 2 of gpu-0003: rail_down"},
			[]string{nodeName(3)}, nil},
		{"a slow rail", &fabric{nodes: 8, factor: bad(0.5)}, LeaveOut, []string{"rail 2 of gpu-0003: slow_rail"},
			[]string{nodeName(3)}, nil},
		{"a slow rail of 9", &fabric{nodes: 9, factor: bad(0.8)}, LeaveOut, []string{"rail 2 of gpu-0003: slow_rail"},
			[]string{nodeName(3)}, nil},
		{"two slow rails of one number", &fabric{nodes: 8, factor: map[[2]int]float64{{3, 2}: 0.5, {4, 2}: 0.3}}, LeaveOut,
			[]string{"rail 2 of gpu-0003: slow_rail", "rail 2 of gpu-0004: slow_rail"}, []string{nodeName(3), nodeName(4)},
			nil},
		{"a bad link", &fabric{nodes: 8, link: map[[3]int]float64{{1, 5, 0}: 0}}, LeaveOut,
			[]string{"rail 0 of gpu-0001 and gpu-0005: dead_path"}, []string{nodeName(1)}, nil},
		{"a liar", &fabric{nodes: 8, liar: func(from, _ int) bool { return from == 6 }}, LeaveOut, []string{
			"gpu-0006: tcp_fallback"}, []string{nodeName(6)}, nil},
		{"no RDMA", &fabric{nodes: 8, tcp: map[int]bool{6: true}}, LeaveOut, []string{"gpu-0006: tcp_fallback"},
			[]string{nodeName(6)}, nil},
		{"a silent node", &fabric{nodes: 8, silent: map[int]bool{2: true}}, Unknown, nil, nil,
			[]string{nodeName(2)}},
		{"a node that dies", &fabric{nodes: 8, dies: map[int]time.Duration{2: 3500 * time.Millisecond}}, Unknown, nil, nil,
			[]string{nodeName(2)}},
		{"a busy node", &fabric{nodes: 8, busy: map[int]bool{2: true}}, Unknown, nil, nil, []string{nodeName(2)}},
		{"a busy node and a slow one", &fabric{nodes: 8, busy: map[int]bool{2: true}, factor: bad(0.5)}, LeaveOut,
			[]string{"rail 2 of gpu-0003: slow_rail"}, []string{nodeName(3)}, []string{nodeName(2)}},
		{"all busy", &fabric{nodes: 4, busy: map[int]bool{0: true, 1: true, 2: true, 3: true}}, Unknown, nil, nil,
			[]string{nodeName(0), nodeName(1), nodeName(2), nodeName(3)}},
		{"one direction of peers", &fabric{nodes: 4, strangers: map[[2]int]bool{{0, 1}: true, {2, 3}: true}}, Start, nil,
			nil, nil},
		{"a passing fault", &fabric{nodes: 8, flaky: map[[2]int]int{{3, 2}: 1}}, Start, nil, nil, nil},
		{"a dead pair of nodes", &fabric{nodes: 2, factor: map[[2]int]float64{{0, 1}: 0}}, LeaveOut,
			[]string{"rail 1 of gpu-0000 and gpu-0001: dead_path"}, []string{nodeName(0)}, nil},
		{"alone", &fabric{nodes: 1}, Unknown, nil, nil, []string{nodeName(0)}},
		{"a node twice", &fabric{nodes: 5, name: func(i int) string { return nodeName(min(i, 3)) }}, Unknown, nil, nil,
			[]string{nodeName(4)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.fabric.rails = 8
			var addresses []string
			var found []bool
			for i := range tc.fabric.nodes { // every second one is known by its address alone
				addresses, found = append(addresses, nodeName(i)), append(found, i%2 == 0)
				if found[i] && !tc.fabric.silent[i] && tc.name != "a node twice" {
					addresses[i] = fmt.Sprintf("10.0.0.%d", i)
				}
			}
			r := run(t, tc.fabric, Options{Nodes: addresses, Found: found})
			if r.Verdict != tc.verdict || !slices.Equal(blamed(r), tc.blames) ||
				!slices.Equal(nodesOf(r.LeaveOut), tc.out) || !slices.Equal(nodesOf(r.Unknown), tc.unknown) {
				t.Errorf("%s, blames %q, leave out %q, unknown %q", r.Verdict, blamed(r), r.LeaveOut, r.Unknown)
			}
			if n := len(r.Start) + len(r.LeaveOut) + len(r.Unknown); n != tc.fabric.nodes {
				t.Errorf("%d nodes have a verdict", n)
			}
			t.Logf("%s %d visits", r.Headline(), r.Visits)
			score(t, tc.name, tc.verdict == Start, r)
		})
	}
}

// score logs what a gate came to that was right.
func score(t *testing.T, name string, good bool, r Report) {
	s := testenv.Score{What: fmt.Sprintf("%s of %d nodes", name, r.Nodes), Named: 1, Planted: 1,
		Took: time.Duration(r.Seconds * float64(time.Second))}
	if good {
		s.Named, s.Planted, s.Healthy = 0, 0, 1
	}
	if !t.Failed() {
		s.Log(t)
	}
}

// TestLiarAboutRails: a node that calls all rails of others dead is blamed itself, not they.
func TestLiarAboutRails(t *testing.T) {
	f := &lyingFabric{fabric{nodes: 9, rails: 4}}
	var r Report
	synctest.Test(t, func(t *testing.T) {
		f.t, f.start, f.using, f.left = t, time.Now(), map[int]bool{}, map[int]bool{}
		f.noise = rand.New(rand.NewPCG(1, 1))
		r = Run(t.Context(), f, Options{Nodes: names(9)})
	})
	if !slices.Equal(nodesOf(r.LeaveOut), []string{nodeName(4)}) {
		t.Errorf("blames %q, leave out %q", blamed(r), r.LeaveOut)
	}
	score(t, "a liar about rails", false, r)
}

// lyingFabric has a node, 4, that calls the rails of others dead.
type lyingFabric struct{ fabric }

func (f *lyingFabric) Visit(ctx context.Context, from, to int, burst bool) Visit {
	v := f.fabric.Visit(ctx, from, to, burst)
	for i := range v.Rails {
		if from == 4 && i > 0 {
			v.Rails[i] = Rail{Name: v.Rails[i].Name, Dead: "retry_exceeded"}
		}
	}
	return v
}

// TestAllPairs: 8 nodes with 8 rails are tried over all 224 paths in 20 s.
func TestAllPairs(t *testing.T) {
	r := run(t, &fabric{nodes: 8, rails: 8}, Options{})
	if r.Pairs != 28 || r.Paths != 224 || r.Seconds > 20 || r.Verdict != Start {
		t.Errorf("%+v", r)
	}
	t.Logf("%d visits in %.1f s", r.Visits, r.Seconds)
}

// TestLargeGate: of 1,024 nodes with 8 rails, one bad rail of 8,192 is found within 5 minutes, and so are two bad
// leaves and a link between two nodes.
func TestLargeGate(t *testing.T) {
	const perLeaf = 32
	leaf := func(node, rail int) string { return fmt.Sprintf("leaf-%d-%d", node/perLeaf, rail) }
	members := func(bad ...int) (list []string) {
		for node := range 1024 {
			if slices.Contains(bad, node/perLeaf) {
				list = append(list, nodeName(node))
			}
		}
		return list
	}
	badLeaves := []string{"leaf leaf-3-6: leaf", "leaf leaf-7-1: leaf"}
	leaves := func(part float64) map[[2]int]float64 {
		all := map[[2]int]float64{}
		for node := range 1024 {
			switch node / perLeaf {
			case 7:
				all[[2]int{node, 1}] = part
			case 3:
				all[[2]int{node, 6}] = part
			}
		}
		return all
	}
	for _, tc := range []struct {
		name   string
		nodes  int
		factor map[[2]int]float64
		leaf   func(node, rail int) string
		blames []string
		out    []string
	}{
		{"nothing", 256, nil, nil, nil, nil},
		{"a dead rail", 1024, map[[2]int]float64{{517, 3}: 0}, nil, []string{"rail 3 of gpu-0517: rail_down"},
			[]string{nodeName(517)}},
		{"a slow rail", 256, map[[2]int]float64{{117, 3}: 0.7}, nil, []string{"rail 3 of gpu-0117: slow_rail"},
			[]string{nodeName(117)}},
		{"two dead leaves", 256, leaves(0), leaf, badLeaves, members(3, 7)},
		{"two slow leaves", 1024, leaves(0.5), leaf, badLeaves, members(3, 7)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := run(t, &fabric{nodes: tc.nodes, rails: 8, factor: tc.factor, leaf: tc.leaf}, Options{})
			if !slices.Equal(blamed(r), tc.blames) || !slices.Equal(nodesOf(r.LeaveOut), tc.out) ||
				len(r.Unknown) > 0 || r.Seconds > 300 {
				t.Errorf("%.0f s, blames %q, leave out %d, unknown %d", r.Seconds, blamed(r), len(r.LeaveOut),
					len(r.Unknown))
			}
			t.Logf("%d visits in %.1f s", r.Visits, r.Seconds)
			score(t, tc.name, len(tc.blames) == 0, r)
		})
	}
}

// TestPartners: each node meets enough others, each at most once, and asks in about half of its visits.
func TestPartners(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 8, 31, 32, 33, 100, 1023, 1024} {
		met, asks := map[int]map[int]bool{}, map[int]int{}
		for _, p := range partners(n) {
			for _, ends := range [][2]int{{p.from, p.to}, {p.to, p.from}} {
				if met[ends[0]] == nil {
					met[ends[0]] = map[int]bool{}
				}
				if met[ends[0]][ends[1]] || ends[0] == ends[1] || max(p.from, p.to) >= n {
					t.Fatalf("%d nodes: %v", n, p)
				}
				met[ends[0]][ends[1]] = true
			}
			asks[p.from]++
		}
		for i := range n {
			want := min(n-1, MostPartners)
			if len(met[i]) > want || len(met[i]) < want-1 || n <= 32 && len(met[i]) != want {
				t.Errorf("%d nodes: %d meets %d", n, i, len(met[i]))
			}
			if n >= 8 && (asks[i] < want/4 || asks[i] > want*3/4+1) {
				t.Errorf("%d nodes: %d asks %d times of %d", n, i, asks[i], want)
			}
		}
		count := map[int][2]int{}
		for _, p := range exchanges(n) {
			a, b := count[p.from], count[p.to]
			a[0]++
			b[1]++
			count[p.from], count[p.to] = a, b
		}
		for i := range n {
			if n > 1 && (count[i][0] == 0 || count[i][1] == 0) {
				t.Errorf("%d nodes: %d asks and is asked %v times", n, i, count[i])
			}
		}
	}
}

// TestInterrupted: a gate that is interrupted accuses nobody, and releases all nodes.
func TestInterrupted(t *testing.T) {
	f := &fabric{nodes: 8, rails: 2, factor: map[[2]int]float64{{1, 1}: 0}}
	synctest.Test(t, func(t *testing.T) {
		f.t, f.start, f.using, f.left = t, time.Now(), map[int]bool{}, map[int]bool{}
		f.noise = rand.New(rand.NewPCG(1, 1))
		// Before the first visit has ended, and when a slow rail has been measured once.
		for _, limit := range []time.Duration{500 * time.Millisecond, 12 * time.Second} {
			f.factor = map[[2]int]float64{{1, 1}: limit.Seconds() / 20} // dead would take 5 s each time
			ctx, stop := context.WithTimeout(t.Context(), limit)
			r := Run(ctx, f, Options{Nodes: names(8)})
			stop()
			if r.Verdict != Unknown || len(r.Unknown) != 8 || len(f.left) != 8 || r.Seconds > limit.Seconds()+2 {
				t.Errorf("after %v: %+v, %d released", limit, r, len(f.left))
			}
		}
	})
}

// TestCompare: a rail that carries less than at an earlier gate is left out, although it carries as much as others. The
// report survives JSON.
func TestCompare(t *testing.T) {
	before := run(t, &fabric{nodes: 4, rails: 2}, Options{})
	var text strings.Builder
	if err := before.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	read, err := ReadReport(strings.NewReader(text.String()))
	if err != nil || len(read.Rails) != 8 || read.Rails[0].Goodput == nil {
		t.Fatalf("%+v, %v", read, err)
	}
	all := map[[2]int]float64{}
	for node := range 4 {
		all[[2]int{node, 0}], all[[2]int{node, 1}] = 0.8, 0.8
	}
	now := run(t, &fabric{nodes: 4, rails: 2, factor: all}, Options{Before: &read})
	if now.Verdict != LeaveOut || len(now.LeaveOut) != 4 || len(now.Blames) != 0 || now.Before == nil ||
		!strings.Contains(now.LeaveOut[0].Why[0],
			"of what it carried at the gate of "+before.Time.Format(time.DateOnly)) {
		t.Errorf("%+v", now)
	}
	var page, table strings.Builder
	if err := errors.Join(now.WriteHTML(&page), now.WriteTable(&table, false)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Tried at 2000-01-01 00:00:", "Compared with the gate of 2000-01-01", "Leave out 4 nodes",
		`class="bad">30`, "<th>gpu-0003", "0.7"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, page.String())
		}
	}
	if !strings.Contains(table.String(), "gpu-0002: leave out\n  - rail 0 carries 0.") {
		t.Error(table.String())
	}
	same := run(t, &fabric{nodes: 4, rails: 2}, Options{Before: &read})
	if same.Verdict != Start {
		t.Errorf("%+v", same)
	}
	for _, bad := range []string{"", "{}", "[]", `{"time": 3}`, strings.Repeat(" ", maxReport+1)} {
		if _, err := ReadReport(strings.NewReader(bad)); err == nil {
			t.Errorf("%.20q was read", bad)
		}
	}
}

// TestAlone: nodes are judged by what they carry with partners, which are not judged. A bad node does not taint
// another.
func TestAlone(t *testing.T) {
	factor := map[[2]int]float64{{0, 1}: 0.5, {2, 0}: 0, {6, 1}: 0.3} // 6 is a partner
	r := run(t, &fabric{nodes: 10, rails: 2, factor: factor}, Options{Partners: 6})
	if r.Verdict != LeaveOut || !slices.Equal(r.Start, []string{nodeName(1), nodeName(3)}) ||
		!slices.Equal(nodesOf(r.LeaveOut), []string{nodeName(0), nodeName(2)}) || r.Nodes != 4 {
		t.Errorf("%+v", r)
	}
	r = run(t, &fabric{nodes: 7, rails: 2, factor: map[[2]int]float64{{6, 1}: 0.3}}, Options{Partners: 6})
	if r.Verdict != Start || !slices.Equal(r.Start, []string{nodeName(0)}) {
		t.Errorf("%+v", r)
	}
	r = run(t, &fabric{nodes: 3, rails: 2, busy: map[int]bool{1: true, 2: true}}, Options{Partners: 2})
	if r.Verdict != Unknown || len(r.Start) != 0 {
		t.Errorf("%+v", r)
	}
	var text strings.Builder
	if err := r.WriteDrain(&text); err != nil || text.Len() > 0 {
		t.Errorf("%q, %v", text.String(), err)
	}
	r.Start = []string{"b", "a", "-x", "it's"}
	if err := r.WriteNames(&text); err != nil || !strings.HasPrefix(text.String(), "# the name of this node") ||
		!strings.Contains(text.String(), "\na\nb\n") {
		t.Errorf("%q, %v", text.String(), err)
	}
}

// TestUnexpected: where nobody knows what to expect, rails are compared with each other.
func TestUnexpected(t *testing.T) {
	f := &unexpectingFabric{fabric{nodes: 6, rails: 2, factor: map[[2]int]float64{{3, 1}: 0.5}}}
	synctest.Test(t, func(t *testing.T) {
		f.t, f.start, f.using, f.left = t, time.Now(), map[int]bool{}, map[int]bool{}
		f.noise = rand.New(rand.NewPCG(1, 1))
		r := Run(t.Context(), f, Options{Nodes: names(6)})
		if !slices.Equal(nodesOf(r.LeaveOut), []string{nodeName(3)}) {
			t.Errorf("%q", blamed(r))
		}
	})
}

// unexpectingFabric knows nothing of what its rails should carry.
type unexpectingFabric struct{ fabric }

func (f *unexpectingFabric) Visit(ctx context.Context, from, to int, burst bool) Visit {
	v := f.fabric.Visit(ctx, from, to, burst)
	for i := range v.Rails {
		v.Rails[i].Expected = 0
	}
	return v
}

// TestTopology: leaves that the nodes do not know come from a file.
func TestTopology(t *testing.T) {
	topology, factor := fleet.Topology{}, map[[2]int]float64{}
	for node := range 16 {
		topology[[2]string{nodeName(node), "0"}] = fmt.Sprintf("leaf-%d", node/4)
		if node/4 == 2 {
			factor[[2]int{node, 0}] = 0
		}
	}
	r := run(t, &fabric{nodes: 16, rails: 2, factor: factor}, Options{Topology: topology})
	if !slices.Equal(blamed(r), []string{"leaf leaf-2: leaf"}) {
		t.Errorf("%q", blamed(r))
	}
}
