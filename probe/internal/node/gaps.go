package node

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/internal/failure"
)

// Gaps is what a node needs for bursts in gaps of the traffic of others: one place for a round that waits, which asks
// or answers, with a worker of its own, because the slot's worker measures other peers meanwhile. It remembers over
// which rails a burst met other traffic, and how long the last gaps were. Safe for concurrent use.
type Gaps struct {
	Place

	mu       sync.Mutex           // protects all following fields
	collided map[string]time.Time // end of the last burst that met other traffic, by rail
	lasted   map[string][]lasted  // last gaps by rail, the latest last
}

// lasted is a gap, from its beginning to its end.
type lasted struct {
	end    time.Time
	length time.Duration
}

// Constants of the watch for a gap.
const (
	gapReading = 5 * time.Millisecond // time between two readings of the rails
	// The readings are as far apart as the counters' period. With a longer one than this, no gap is seen.
	maxGapPeriod = 20 * time.Millisecond
	// A reading takes at most this part of the time, because on some adapters it costs firmware commands.
	gapShare   = 10
	quietRows  = 4    // readings in a row that show a rail quiet
	quietWaits = 7    // those after which a quiet rail does not wait for others that become quiet
	quietMost  = 0.05 // share of its capacity that a quiet rail carries at most
	// KeepCollided is how long no burst is made in a gap over a rail after one met other traffic.
	KeepCollided = time.Hour

	// A burst is made only if each of the last keepGaps gaps was longer than this one is so far, by gapMargin: the time
	// of a reading, the claim and the burst. After longQuiet the job is pausing, and the gaps of its steps say nothing.
	keepGaps  = 12
	gapMargin = 10 * time.Millisecond
	longQuiet = 100 * time.Millisecond
)

// NoteGap records the length of a gap that was long enough to be noticed: shorter ones say nothing about those.
func (g *Gaps) NoteGap(name string, length time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lasted == nil {
		g.lasted = map[string][]lasted{}
	}
	list := append(g.lasted[name], lasted{time.Now(), length})
	g.lasted[name] = list[max(0, len(list)-keepGaps):]
}

// Lasts reports whether a rail that has been quiet for this long is likely to stay quiet for the time of a burst.
func (g *Gaps) Lasts(name string, quiet time.Duration) bool {
	if quiet >= longQuiet {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	list := g.lasted[name]
	return len(list) == keepGaps && time.Since(list[0].end) < KeepCollided &&
		!slices.ContainsFunc(list, func(p lasted) bool { return p.length < quiet+gapMargin })
}

// Collide records that a burst over these rails met other traffic.
func (g *Gaps) Collide(rails ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(g.collided, func(_ string, at time.Time) bool { return now.Sub(at) >= KeepCollided })
	if g.collided == nil {
		g.collided = map[string]time.Time{}
	}
	for _, name := range rails {
		g.collided[name] = now
	}
}

// Collided returns why no burst is made in a gap over a rail now; nil: one may be made.
func (g *Gaps) Collided(name string) *failure.Failure {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, ok := g.collided[name]
	if !ok || time.Since(at) >= KeepCollided {
		return nil
	}
	f := failure.New(failure.StageStriped, failure.Collided, "a burst in a gap met other traffic %v ago: none is made "+
		"for %v", time.Since(at).Round(time.Second), KeepCollided)
	f.Rail = name
	return f
}

// Unseen returns the rails over which no burst can be made in a gap, by name, after a reading of their counters: the
// driver updates them too seldom, the capacity is unknown, or a burst has met other traffic.
func (g *Gaps) Unseen(rails []LocalRail, now map[string]rail.Traffic) map[string]*failure.Failure {
	unseen := map[string]*failure.Failure{}
	for _, r := range rails {
		f := g.Collided(r.Name)
		switch t, ok := now[r.Name]; {
		case !ok:
			f = failure.New(failure.StageStriped, failure.NoGap, "its counters cannot be read")
		case t.Period > maxGapPeriod:
			f = failure.New(failure.StageStriped, failure.NoGap, "its driver updates the counters every %v: no gap "+
				"can be seen", t.Period)
		case r.Capacity <= 0:
			f = failure.New(failure.StageStriped, failure.NoGap, "its capacity is unknown")
		}
		if f != nil {
			f.Rail = r.Name
			unseen[r.Name] = f
		}
	}
	return unseen
}

// QuietWatch knows which rails others do not use at this moment. Safe for concurrent use.
type QuietWatch struct {
	node    *Node
	rails   []LocalRail
	Changed chan struct{} // receives after each change

	mu    sync.Mutex // protects quiet
	quiet map[string]quietRun
}

// quietRun is the time for which a rail has been quiet.
type quietRun struct {
	rows  int  // readings in a row
	whole bool // the watch saw its beginning
	long  time.Duration
}

// NewQuietWatch returns a watch over rails, for which no rail is quiet before Run has seen it.
func NewQuietWatch(n *Node, rails []LocalRail) *QuietWatch {
	return &QuietWatch{node: n, rails: rails, Changed: make(chan struct{}, 1), quiet: map[string]quietRun{}}
}

// Quiet returns the names of the rails that are quiet, and are likely to stay so for the time of a burst, in order. A
// job ends a step on its rails within milliseconds: while others of the rails become quiet, none is, for a few readings
// at most, so that one burst is over all of them.
func (w *QuietWatch) Quiet() (names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	enough := quietRows
	for _, r := range w.rails {
		if q := w.quiet[r.Name]; q.rows > 0 && q.rows < quietRows {
			enough = quietWaits
		}
	}
	for _, r := range w.rails {
		if q := w.quiet[r.Name]; q.rows >= enough && w.node.Gaps.Lasts(r.Name, q.long) {
			names = append(names, r.Name)
		}
	}
	return names
}

// Run reads the rails until ctx is done. It reads them less often where a reading takes long.
func (w *QuietWatch) Run(ctx context.Context) {
	before := w.node.Traffic(w.rails)
	every := gapReading
	for _, t := range before {
		every = max(every, t.Period)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		begin := time.Now()
		now := w.node.Traffic(w.rails)
		w.Note(before, now)
		before = now
		tick.Reset(max(every, gapShare*time.Since(begin)))
	}
}

// Note counts for each rail the readings in a row that showed it quiet. A rail that was not read is not quiet.
func (w *QuietWatch) Note(before, now map[string]rail.Traffic) {
	was := w.Quiet()
	calm, took := map[string]bool{}, map[string]time.Duration{}
	for r, d := range Deltas(w.rails, before, now) {
		still := d.Seconds > 0 && r.Capacity > 0 && max(d.Out, d.In) <= quietMost*r.Capacity*d.Seconds
		for _, same := range w.rails {
			if same.Name == r.Name || now[r.Name].Physical && same.SharedPortKey() == r.SharedPortKey() {
				calm[same.Name], took[same.Name] = still, time.Duration(d.Seconds*float64(time.Second))
			}
		}
	}
	w.mu.Lock()
	for _, r := range w.rails {
		q := w.quiet[r.Name]
		if calm[r.Name] {
			w.quiet[r.Name] = quietRun{q.rows + 1, q.whole, q.long + took[r.Name]}
			continue
		}
		if q.whole && q.rows >= quietRows {
			w.node.Gaps.NoteGap(r.Name, q.long)
		}
		w.quiet[r.Name] = quietRun{whole: true}
	}
	w.mu.Unlock()
	if !slices.Equal(was, w.Quiet()) {
		select {
		case w.Changed <- struct{}{}:
		default:
		}
	}
}

// Met returns the rails that carried traffic of others between two readings, around a burst by which this node carried
// own bytes of payload over each rail: as [Guard.Judge] bounds them, with the share of a quiet rail.
func Met(rails []LocalRail, before, after map[string]rail.Traffic, own map[string]int64) (names []string) {
	for r, d := range Deltas(rails, before, after) {
		sum := 0.0
		var same []string
		for _, of := range rails {
			if of.Name == r.Name || after[r.Name].Physical && of.SharedPortKey() == r.SharedPortKey() {
				sum += maxWireRatio * float64(own[of.Name])
				same = append(same, of.Name)
			}
		}
		// The payload goes in one direction, any number of times if packets are lost, and acknowledgements in the
		// other.
		quiet := quietMost * r.Capacity * d.Seconds
		if max(d.Out, d.In) > sum+quiet && !d.Resent && !d.resentToUs || min(d.Out, d.In) > maxAckRatio*sum+quiet {
			names = append(names, same...)
		}
	}
	return names
}

// CollidedDetail is the detail of the failure of a rail over which a burst has just met other traffic.
func CollidedDetail() string {
	return "the burst in a gap met other traffic, above " + terminal.Percent(quietMost) + " of the capacity: its " +
		"figure is dropped, and none is made for an hour"
}
