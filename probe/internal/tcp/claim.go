package tcp

import (
	"slices"
	"time"
)

// The rule by which lanes share a burst. It has no clock and no sockets, so a
// test can run a burst of minutes in no time; the engine for RDMA follows the
// same rule.
const (
	firstWindow = 2                      // chunks in flight at first; each one that completes allows one more
	most        = 250 * time.Millisecond // what is in flight on a lane takes no longer than this, or is two chunks
	memory      = 8                      // a lane's rate is that of about as many chunks before
	block       = 4096                   // chunks are made smaller only down to multiples of this
)

// span is a part of what a burst moves, from 0 to its total.
type span struct{ at, n int64 }

// verdict is what a lane that asks for a chunk is told.
type verdict int

const (
	take verdict = iota // here it is
	wait                // not now: ask again when something has completed
	over                // no more for this lane, whatever happens
)

// plan says which lane sends what, and when. Not safe for concurrent use. The
// times it is given are since the start of the burst.
type plan struct {
	chunk, least int64 // sizes of a claim
	depth        int
	wrap         int64 // length of the buffer: a claim does not cross a multiple of it
	stealing     bool
	stopped      bool
	lanes        []share
}

// share is one lane's part in a plan.
type share struct {
	dead   bool
	pool   *pool // what it may claim from: everybody's, or its own
	window int   // chunks it may have in flight
	flying []span
	queued int64         // bytes in flying
	rate   float64       // bytes per second, moved ÷ spent; 0: nothing has completed yet
	moved  float64       // bytes that completed, those of long ago counting less
	spent  float64       // the seconds that took, likewise
	since  time.Duration // the last completion, or when the lane ceased to be idle
}

// newPlan divides total among the lanes that are alive: as they go when
// stealing, else in equal parts, of which the last takes what is left over.
func newPlan(total, chunk, wrap int64, depth int, stealing bool, alive []bool) *plan {
	p := &plan{chunk: chunk, least: min(chunk, max(chunk/16, 16*block)), depth: depth, wrap: wrap, stealing: stealing}
	parts := int64(0)
	for _, ok := range alive {
		if ok {
			parts++
		}
	}
	all, i := &pool{}, int64(0)
	all.put(span{0, total})
	for _, ok := range alive {
		lane := share{dead: !ok, pool: all, window: min(firstWindow, depth)}
		if ok && !stealing {
			from, to := total/parts*i, total/parts*(i+1)
			if i++; i == parts {
				to = total
			}
			lane.pool = &pool{}
			lane.pool.put(span{from, to - from})
		}
		p.lanes = append(p.lanes, lane)
	}
	return p
}

// claim answers a lane that has room and asks for a chunk at this time.
func (p *plan) claim(i int, now time.Duration) (span, verdict) {
	l := &p.lanes[i]
	left := l.pool.left
	flying, rates, alive := p.sums()
	switch {
	case p.ended(i):
		return span{}, over
	case left == 0 && flying > 0 && p.stealing:
		return span{}, wait // a lane may yet die and give back what it has
	case left == 0:
		return span{}, over
	}
	n := p.size(l, alive)
	if len(l.flying) >= l.window || !l.brief(n) || p.stealing && !l.helps(n, left+flying, rates, p.least*int64(alive)) {
		return span{}, wait
	}
	s := l.pool.take(n, p.wrap)
	if len(l.flying) == 0 {
		l.since = now // idle time says nothing of the rate
	}
	l.flying, l.queued = append(l.flying, s), l.queued+s.n
	return s, take
}

// ended reports whether the lane may claim nothing any more.
func (p *plan) ended(i int) bool { return p.stopped || p.lanes[i].dead }

// sums adds up what is in flight, the rates of the lanes that are alive, and
// these lanes.
func (p *plan) sums() (flying int64, rates float64, alive int) {
	for _, l := range p.lanes {
		if !l.dead {
			flying, rates, alive = flying+l.queued, rates+l.rate, alive+1
		}
	}
	return flying, rates, alive
}

// size is how much a claim takes: a chunk, and when stealing less near the end,
// so that no lane is left with a whole one when the others are done.
func (p *plan) size(l *share, alive int) int64 {
	n := p.chunk
	switch {
	case l.rate == 0:
		n = p.least // nothing is known of the lane: it may be the slowest of all
	case p.stealing:
		n = l.pool.left / (4 * int64(alive))
		n = min(max(n-n%block, p.least), p.chunk)
	}
	return min(n, l.pool.left)
}

// brief reports whether n more bytes leave the lane's queue short: what is in
// flight on a lane that breaks has to be sent again.
func (l *share) brief(n int64) bool {
	return len(l.flying) < 2 || float64(l.queued+n) <= l.rate*most.Seconds()
}

// helps reports whether n more bytes on this lane will be through before all
// lanes together are through with all there is, give or take slack bytes of
// theirs. A lane of which nothing is known yet has few in flight. Of lanes with
// nothing in flight one always helps: the slack is one smallest claim for each.
func (l *share) helps(n, all int64, rates float64, slack int64) bool {
	return l.rate == 0 || float64(l.queued+n)/l.rate <= float64(all+slack)/rates
}

// complete notes that a chunk is through, and returns false when it is nothing
// that the lane has in flight: it has died since.
func (p *plan) complete(i int, s span, now time.Duration) bool {
	l := &p.lanes[i]
	at := slices.Index(l.flying, s)
	if at < 0 {
		return false
	}
	l.flying = slices.Delete(l.flying, at, at+1)
	l.queued -= s.n
	l.window = min(l.window+1, p.depth)
	keep := 1 - float64(s.n)/float64(memory*p.chunk)
	l.moved = keep*l.moved + float64(s.n)
	l.spent = keep*l.spent + (now - l.since).Seconds()
	if l.since = now; l.spent > 0 {
		l.rate = l.moved / l.spent
	}
	return true
}

// fail ends a lane. What it had in flight goes back to where it came from, for
// others to claim if any may.
func (p *plan) fail(i int) {
	l := &p.lanes[i]
	for _, s := range l.flying {
		l.pool.put(s)
	}
	l.dead, l.flying, l.queued = true, nil, 0
}

// stop ends all claims: what is in flight is all that is left to wait for.
func (p *plan) stop() { p.stopped = true }

// pool is what nobody has claimed, or what came back.
type pool struct {
	spans []span // the last is claimed from first
	left  int64  // their bytes
}

func (p *pool) put(s span) {
	if s.n > 0 {
		p.spans, p.left = append(p.spans, s), p.left+s.n
	}
}

// take removes up to n bytes that do not cross a multiple of wrap. There must
// be some.
func (p *pool) take(n, wrap int64) span {
	top := &p.spans[len(p.spans)-1]
	s := span{top.at, min(n, top.n, wrap-top.at%wrap)}
	top.at, top.n = top.at+s.n, top.n-s.n
	if top.n == 0 {
		p.spans = p.spans[:len(p.spans)-1]
	}
	p.left -= s.n
	return s
}
