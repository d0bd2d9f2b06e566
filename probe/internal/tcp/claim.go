package tcp

import (
	"slices"
	"time"

	"github.com/railscope/railscope/probe/internal/transfer"
)

// The rule by which lanes share a burst, without a clock or sockets, so that a test can simulate one. The engine for
// RDMA follows the same rule (claim.c).
const (
	firstWindow = 2                      // chunks in flight at first; each completion allows one more
	maxQueue    = 250 * time.Millisecond // the most that is in flight on a lane, or two chunks
	rateWindow  = 8                      // a lane's rate is that of about as many chunks before
	block       = 4096                   // smaller chunks are multiples of it
)

// answer is that to a lane's claim.
type answer int

const (
	granted  answer = iota
	retry           // after the next completion
	finished        // no more for this lane
)

// plan says which lane sends what, and when. Times are since the start of the burst. Not safe for concurrent use.
type plan struct {
	chunk, least int64 // sizes of a claim
	depth        int
	wrap         int64 // size of the buffer: a claim does not cross a multiple of it
	stealing     bool
	stopped      bool // no more claims
	lanes        []share
}

// share is one lane's part in a plan.
type share struct {
	dead     bool
	pool     *pool // what it may claim from: the common one, or its own
	window   int   // most chunks in flight
	inFlight []transfer.Range
	queued   int64         // bytes in flight
	rate     float64       // bytes per second, moved ÷ spent; 0: nothing has completed yet
	moved    float64       // bytes completed, with a weight that declines
	spent    float64       // seconds it took, likewise
	since    time.Duration // the last completion, or the end of an idle time
}

// newPlan divides the total among the lanes that are alive.
func newPlan(args transfer.BurstArgs, wrap int64, alive []bool) *plan {
	p := &plan{chunk: args.Chunk, least: min(args.Chunk, max(args.Chunk/16, 16*block)), depth: args.Depth, wrap: wrap,
		stealing: args.Stealing}
	n := 0
	for _, ok := range alive {
		if ok {
			n++
		}
	}
	parts := args.Divide(max(n, 1))
	pool := newPool(parts[0])
	for _, ok := range alive {
		p.lanes = append(p.lanes, share{dead: !ok, pool: pool, window: min(firstWindow, args.Depth)})
		if ok && len(parts) > 1 {
			parts = parts[1:]
			pool = newPool(parts[0])
		}
	}
	return p
}

// claim answers a lane that asks for a chunk.
func (p *plan) claim(i int, now time.Duration) (transfer.Range, answer) {
	l := &p.lanes[i]
	left := l.pool.left
	inFlight, rates, alive := p.sums()
	switch {
	case p.ended(i):
		return transfer.Range{}, finished
	case left == 0 && inFlight > 0 && p.stealing:
		return transfer.Range{}, retry // a lane may break and return its chunks
	case left == 0:
		return transfer.Range{}, finished
	}
	n := p.size(l, alive)
	if len(l.inFlight) >= l.window || !l.isShort(n) ||
		p.stealing && !l.inTime(n, left+inFlight, rates, p.least*int64(alive)) {
		return transfer.Range{}, retry
	}
	s := l.pool.cut(n, p.wrap)
	if len(l.inFlight) == 0 {
		l.since = now // idle time does not count for the rate
	}
	l.inFlight, l.queued = append(l.inFlight, s), l.queued+s.Length
	return s, granted
}

// ended reports whether the lane gets no more chunks.
func (p *plan) ended(i int) bool { return p.stopped || p.lanes[i].dead }

// sums returns the bytes in flight, the sum of rates, and the number of the lanes that are alive.
func (p *plan) sums() (inFlight int64, rates float64, alive int) {
	for _, l := range p.lanes {
		if !l.dead {
			inFlight, rates, alive = inFlight+l.queued, rates+l.rate, alive+1
		}
	}
	return inFlight, rates, alive
}

// size returns the size of a claim: a chunk, and when stealing less near the end, so that no lane has a whole one left
// when the others have finished.
func (p *plan) size(l *share, alive int) int64 {
	n := p.chunk
	switch {
	case l.rate == 0:
		n = p.least // the lane may be the slowest
	case p.stealing:
		n = l.pool.left / (4 * int64(alive))
		n = min(max(n-n%block, p.least), p.chunk)
	}
	return min(n, l.pool.left)
}

// isShort reports whether the lane's queue is short with n more bytes: when a lane breaks, its queue is sent again.
func (l *share) isShort(n int64) bool {
	return len(l.inFlight) < 2 || float64(l.queued+n) <= l.rate*maxQueue.Seconds()
}

// inTime reports whether n more bytes on this lane complete before all lanes have sent everything, plus slack bytes. A
// lane without a rate has few in flight. Slack is one smallest claim per lane: of idle lanes, one is always in time.
func (l *share) inTime(n, all int64, rates float64, slack int64) bool {
	return l.rate == 0 || float64(l.queued+n)/l.rate <= float64(all+slack)/rates
}

// complete notes that a chunk is acknowledged; false if the lane has lost it by remove.
func (p *plan) complete(i int, s transfer.Range, now time.Duration) bool {
	l := &p.lanes[i]
	at := slices.Index(l.inFlight, s)
	if at < 0 {
		return false
	}
	l.inFlight = slices.Delete(l.inFlight, at, at+1)
	l.queued -= s.Length
	l.window = min(l.window+1, p.depth)
	keep := 1 - float64(s.Length)/float64(rateWindow*p.chunk)
	l.moved = keep*l.moved + float64(s.Length)
	l.spent = keep*l.spent + (now - l.since).Seconds()
	if l.since = now; l.spent > 0 {
		l.rate = l.moved / l.spent
	}
	return true
}

// remove ends a lane, and returns its chunks to where they came from.
func (p *plan) remove(i int) {
	l := &p.lanes[i]
	for _, s := range l.inFlight {
		l.pool.put(s)
	}
	l.dead, l.inFlight, l.queued = true, nil, 0
}

// pool is what is not claimed.
type pool struct {
	ranges []transfer.Range // the last is claimed from first
	left   int64            // their bytes
}

func newPool(r transfer.Range) *pool {
	p := &pool{}
	p.put(r)
	return p
}

func (p *pool) put(r transfer.Range) {
	if r.Length > 0 {
		p.ranges, p.left = append(p.ranges, r), p.left+r.Length
	}
}

// cut removes up to n bytes that do not cross a multiple of wrap. The pool must not be empty.
func (p *pool) cut(n, wrap int64) transfer.Range {
	top := &p.ranges[len(p.ranges)-1]
	r := transfer.Range{Offset: top.Offset, Length: min(n, top.Length, wrap-top.Offset%wrap)}
	top.Offset, top.Length = top.Offset+r.Length, top.Length-r.Length
	if top.Length == 0 {
		p.ranges = p.ranges[:len(p.ranges)-1]
	}
	p.left -= r.Length
	return r
}
