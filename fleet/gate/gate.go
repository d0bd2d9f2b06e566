// Package gate tries the rails of nodes against each other before a job starts on them, and says on which it may start.
//
// A gate starts and ends in [Run]: all nodes are greeted, which reserves them, each is tried against enough others,
// what differs is tried again and against further nodes until one part explains it, and all nodes are released.
package gate

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/railscope/railscope/fleet"
)

// Fabric reaches the nodes of a gate, by their index. Its methods are called concurrently, for a node at most once at a
// time, and end with their context.
type Fabric interface {
	// Greet reserves a node for the gate, and returns the name that it reports, and an ID of its process.
	Greet(ctx context.Context, node int) (name, instance string, err error)
	// Visit has a node try its rails with another one: whether they carry RDMA, or with burst what each carries alone.
	Visit(ctx context.Context, from, to int, burst bool) Visit
	// Answers reports whether a node still answers.
	Answers(ctx context.Context, node int) bool
	// Leave releases a node, also when ctx is done.
	Leave(ctx context.Context, node int)
}

// Visit is what a node reports of its rails with another node.
type Visit struct {
	// Unknown is why nothing is known of the pair, such as a node that did not answer; empty: RDMA or TCP was used.
	Unknown string
	TCP     string // why no rail carries RDMA, although the nodes reach each other; empty: RDMA was used
	Rails   []Rail
}

// Rail is what a node reports of one of its rails with another node.
type Rail struct {
	Name, Leaf  string // leaf is empty if it is not known
	Dead        string // why it carries no RDMA; empty: it does
	Unmeasured  string // why its rate is unknown, such as the traffic of others; empty: it is not, or nobody asked
	Goodput     float64
	Expected    float64 // 0: unknown
	Retransmits float64 // negative: unknown
}

// Options are what a gate tries.
type Options struct {
	Nodes    []string       // names of the nodes, each once
	Found    []bool         // a node's name is a mere address, and the one that it reports is shown; nil: none is
	Partners int            // so many of the last nodes are not judged: the others are tried with some of them alone
	Topology fleet.Topology // leaves of rails that the nodes do not know themselves
	Before   *Report        // an earlier gate to compare with; nil: none
	Progress func(done, all int)
}

// parallel is how many visits are made at once.
const parallel = 512

// gate is a gate that runs.
type gate struct {
	Options
	fabric Fabric
	start  time.Time
	names  []string // names that are shown
	random *rand.Rand
	byName map[string]int

	mu     sync.Mutex // protects all following fields
	lost   map[int]string
	paths  map[fleet.Path]*tried
	pairs  map[fleet.Pair]string // transport of the last visit of a pair that says something
	leaves map[fleet.Rail]string
	silent map[[2]int]string // pairs of which nothing is known, and why
	visits int
	done   int
	all    int
}

// tried is what is known of a path.
type tried struct {
	up, down   int
	why        string // why it last carried no RDMA
	unmeasured string // why its rate is not known; empty: it is, or nobody asked
	best       fleet.Round
}

// Run tries the nodes. It returns in time also if nodes do not answer, because every visit has a limit.
func Run(ctx context.Context, f Fabric, o Options) Report {
	g := &gate{Options: o, fabric: f, start: time.Now(), names: slices.Clone(o.Nodes), lost: map[int]string{},
		paths: map[fleet.Path]*tried{}, pairs: map[fleet.Pair]string{}, leaves: map[fleet.Rail]string{},
		silent: map[[2]int]string{}, byName: map[string]int{},
		random: rand.New(rand.NewPCG(uint64(len(o.Nodes)), 0))} // repeatable
	defer g.each(func(i int) { f.Leave(context.WithoutCancel(ctx), i) })
	g.greet(ctx)
	if o.Partners > 0 {
		g.visitAll(ctx, g.alone(), true)
	} else {
		present := g.present()
		g.visitAll(ctx, over(present, partners(len(present))), false)
		g.random.Shuffle(len(present), func(i, j int) { present[i], present[j] = present[j], present[i] })
		g.visitAll(ctx, over(present, exchanges(len(present))), true) // over a random leaf
	}
	g.narrow(ctx)
	return g.report(ctx)
}

// each calls fn for all nodes, some at a time.
func (g *gate) each(fn func(node int)) {
	var calls sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for i := range g.Nodes {
		slots <- struct{}{}
		calls.Go(func() {
			fn(i)
			<-slots
		})
	}
	calls.Wait()
}

// greet reserves all nodes. Of two addresses of one node, the second is left out.
func (g *gate) greet(ctx context.Context) {
	reported, instances := make([]string, len(g.Nodes)), make([]string, len(g.Nodes))
	g.each(func(i int) {
		name, instance, err := g.fabric.Greet(ctx, i)
		if err == nil {
			reported[i], instances[i] = name, instance
			return
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.lost[i] = err.Error()
	})
	first := map[string]int{}
	for i, instance := range instances {
		if other, twice := first[instance]; twice && instance != "" {
			g.lost[i] = "it is the same node as " + g.Nodes[other]
			continue
		}
		first[instance] = i
		if _, taken := g.byName[reported[i]]; g.Found != nil && g.Found[i] && reported[i] != "" && !taken {
			g.names[i] = reported[i]
		}
		g.byName[g.names[i]] = i
	}
}

// present returns the nodes that were reserved, and are not lost.
func (g *gate) present() (list []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.Nodes {
		if _, lost := g.lost[i]; !lost {
			list = append(list, i)
		}
	}
	return list
}

// visitAll makes visits in their order, as far as that matters: a node takes part in one at a time.
func (g *gate) visitAll(ctx context.Context, list []pair, burst bool) {
	g.mu.Lock()
	g.all += len(list)
	g.mu.Unlock()
	before := map[int]<-chan struct{}{} // closed when the node's last visit has ended
	slots := make(chan struct{}, parallel)
	var visits sync.WaitGroup
	for _, p := range list {
		a, b, done := before[p.from], before[p.to], make(chan struct{})
		before[p.from], before[p.to] = done, done
		visits.Go(func() {
			defer close(done)
			for _, other := range []<-chan struct{}{a, b} {
				if other != nil {
					<-other
				}
			}
			slots <- struct{}{}
			defer func() { <-slots }()
			g.visit(ctx, p, burst)
		})
	}
	visits.Wait()
}

// visit makes one visit, unless a node is lost or the gate has ended, and notes what it came to. If the node does not
// know the other one, that is asked in its place.
func (g *gate) visit(ctx context.Context, p pair, burst bool) {
	defer g.step()
	if ctx.Err() != nil || g.isLost(p.from) || g.isLost(p.to) {
		return
	}
	from, to := p.from, p.to
	v := g.fabric.Visit(ctx, from, to, burst)
	if v.Unknown != "" && ctx.Err() == nil {
		g.check(ctx, p.from)
		g.check(ctx, p.to)
		if g.isLost(p.from) || g.isLost(p.to) {
			return
		}
		if back := g.fabric.Visit(ctx, to, from, burst); back.Unknown == "" {
			v, from, to = back, to, from
		}
	}
	if ctx.Err() != nil {
		return // it was interrupted: that says nothing
	}
	g.note(from, to, v)
}

// step reports the progress.
func (g *gate) step() {
	g.mu.Lock()
	g.done++
	done, all := g.done, g.all
	g.mu.Unlock()
	if g.Progress != nil {
		g.Progress(done, all)
	}
}

// judged reports whether a node is one of those that the gate is for.
func (g *gate) judged(node int) bool { return node < len(g.Nodes)-g.Partners }

func (g *gate) isLost(node int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, lost := g.lost[node]
	return lost
}

// check notes that a node is lost if it does not answer any more. Nothing is said of it, nor of its pairs: railscope
// may have ended there, and not the node.
func (g *gate) check(ctx context.Context, node int) {
	if g.isLost(node) || g.fabric.Answers(ctx, node) || ctx.Err() != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost[node] = "it stopped answering during the gate"
}

// note records a visit.
func (g *gate) note(from, to int, v Visit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := [2]int{min(from, to), max(from, to)}
	g.visits++
	if v.Unknown != "" {
		if g.silent[key] == "" {
			g.silent[key] = v.Unknown
		}
		return
	}
	both := fleet.Pair{From: fleet.Node{Name: g.names[from]}, To: fleet.Node{Name: g.names[to]}}
	delete(g.silent, key)
	if v.TCP != "" {
		if g.pairs[both] == "" {
			g.pairs[both] = byTCP
		}
	} else {
		g.pairs[both] = byRDMA
	}
	for _, r := range v.Rails {
		own := fleet.Rail{Node: both.From, Rail: r.Name}
		if r.Leaf != "" {
			g.leaves[own] = r.Leaf
		}
		at := fleet.Path{Pair: both, Rail: r.Name}
		t := g.paths[at]
		if t == nil {
			t = &tried{best: fleet.Round{Retransmits: -1}}
			g.paths[at] = t
		}
		t.note(r)
	}
}

// Transports of a pair, as in [fleet.State].
const (
	byRDMA = "rdma"
	byTCP  = "tcp"
)

// note adds a visit to what is known of a path. Its best visit counts: a fault is there each time.
func (t *tried) note(r Rail) {
	if r.Dead != "" {
		t.down++
		t.why = r.Dead
		return
	}
	t.up++
	t.best.Up = true
	if r.Retransmits >= 0 && (t.best.Retransmits < 0 || r.Retransmits < t.best.Retransmits) {
		t.best.Retransmits = r.Retransmits
	}
	if r.Expected > 0 {
		t.best.Expected = r.Expected
	}
	switch {
	case r.Goodput > t.best.Goodput:
		t.best.Goodput, t.unmeasured = r.Goodput, ""
	case t.best.Goodput == 0 && r.Unmeasured != "":
		t.unmeasured = strings.TrimSpace(r.Unmeasured)
	}
}
