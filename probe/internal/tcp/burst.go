package tcp

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
)

// Mode is how a burst is divided among lanes.
type Mode int

// The modes.
const (
	Stealing Mode = iota // whichever lane has room takes the next chunk
	Static               // equal contiguous parts, fixed before
)

// Options say what a burst is. All but Stage, Lanes and Limit are needed.
type Options struct {
	Mode  Mode
	Stage failure.Stage // of failures; empty: that of the mode
	Lanes []int         // which take part, by their place in Dial; nil: all
	Total int64         // bytes to move; more than the buffer has goes around it
	Chunk int64         // bytes of one write, at most MaxChunk; near the end they are smaller
	Depth int           // chunks in flight per lane, over all its streams
	Limit time.Duration // nothing is sent after it, and what is in flight still arrives; 0: none
}

// Result is what a burst came to. Times are of CLOCK_MONOTONIC.
type Result struct {
	Elapsed time.Duration // first send to last acknowledgement, of all lanes
	Bytes   int64         // acknowledged
	Lanes   []LaneResult  // in order of Dial; also those that took no part
	Done    []Range       // of the buffer: what the target has, in order and merged
}

// LaneResult is a lane's part in a burst.
type LaneResult struct {
	Bytes       int64            // acknowledged on this lane
	First, Last time.Duration    // first send and last acknowledgement, since the burst began; 0 without
	Err         *failure.Failure // why the lane has ended, in this burst or before; nil: it has not
}

// Range is a part of the buffer, in bytes.
type Range struct{ Offset, Length int64 }

// Burst writes buf to the target's buffer, which is of the same size, byte n of
// the total at n modulo that size. A lane that breaks has ended for good; when
// stealing the others take what it has not delivered. When ctx ends all lanes
// end at once. The error is a [failure.Failure]: the options make no sense, or
// no lane that took part is left. The result holds what was done up to then.
func (c *Conn) Burst(ctx context.Context, buf []byte, o Options) (Result, error) {
	if o.Stage == "" {
		o.Stage = map[Mode]failure.Stage{Stealing: failure.StageStealing, Static: failure.StageStatic}[o.Mode]
	}
	if len(buf) == 0 || o.Total <= 0 || o.Chunk <= 0 || o.Chunk > MaxChunk || o.Depth <= 0 {
		return Result{}, failure.New(o.Stage, failure.Other,
			"a burst of %d bytes in chunks of %d, %d deep, from a buffer of %d",
			o.Total, o.Chunk, o.Depth, len(buf))
	}
	stop := c.watch(ctx, o.Stage)
	b := &burst{conn: c, Options: o, buf: buf, lanes: make([]LaneResult, len(c.lanes))}
	b.moved.L = &b.mu
	alive := make([]bool, len(c.lanes))
	for i, l := range c.lanes {
		b.lanes[i].Err = l.failed()
		alive[i] = b.lanes[i].Err == nil && b.asked(i)
	}
	b.plan = newPlan(o.Total, o.Chunk, int64(len(buf)), o.Depth, o.Mode == Stealing, alive)
	b.start = time.Now()
	var wg sync.WaitGroup
	for i, l := range c.lanes {
		for _, s := range l.streams {
			if alive[i] {
				f := &feed{lane: i, stream: s, sent: make(chan span, o.Depth)}
				wg.Go(func() { b.send(f) })
				wg.Go(func() { b.collect(f) })
			}
		}
	}
	wg.Wait()
	stop()
	return b.result()
}

// burst is a burst that is going on.
type burst struct {
	Options
	conn  *Conn
	buf   []byte
	start time.Time

	mu    sync.Mutex // protects all following fields
	moved sync.Cond  // a chunk has been acknowledged, or a lane has ended
	plan  *plan
	lanes []LaneResult
	done  []Range
}

// feed is a stream in a burst.
type feed struct {
	lane   int
	stream *stream
	sent   chan span // what waits for its acknowledgement, in order; has room for all there can be
	flying int       // chunks in flight; protected by burst.mu
}

// asked reports whether a lane is to take part.
func (b *burst) asked(lane int) bool { return b.Lanes == nil || slices.Contains(b.Lanes, lane) }

// send writes chunks until there are none for the lane.
func (b *burst) send(f *feed) {
	defer close(f.sent)
	for s, ok := b.claim(f); ok; s, ok = b.claim(f) {
		f.sent <- s
		at := s.at % int64(len(b.buf))
		if err := f.stream.write(at, b.buf[at:at+s.n]); err != nil {
			b.fail(f.lane, err)
			return
		}
	}
}

// collect waits for the acknowledgement of what send has written.
func (b *burst) collect(f *feed) {
	for s := range f.sent {
		if err := f.stream.answer(int(s.n)); err != nil {
			b.fail(f.lane, err)
			return
		}
		b.complete(f, s)
	}
}

// claim waits for a chunk. It waits only while something is in flight, and
// that is acknowledged in bounded time, or its lane breaks.
func (b *burst) claim(f *feed) (span, bool) {
	streams := len(b.conn.lanes[f.lane].streams)
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		now := time.Since(b.start)
		if b.Limit > 0 && now >= b.Limit {
			b.plan.stop()
		}
		// A stream of many must not hold what the lane may have in flight.
		if f.flying*streams < b.plan.lanes[f.lane].window || b.plan.ended(f.lane) {
			switch s, verdict := b.plan.claim(f.lane, now); verdict {
			case take:
				f.flying++
				if lane := &b.lanes[f.lane]; lane.First == 0 {
					lane.First = max(now, 1)
				}
				return s, true
			case over:
				return span{}, false
			}
		}
		b.moved.Wait()
	}
}

// complete notes that the target has a chunk.
func (b *burst) complete(f *feed, s span) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Since(b.start)
	f.flying--
	if !b.plan.complete(f.lane, s, now) {
		return // its lane has ended, and another sends it again
	}
	b.conn.lanes[f.lane].acked.Add(s.n)
	lane := &b.lanes[f.lane]
	lane.Bytes, lane.Last = lane.Bytes+s.n, now
	b.done = append(b.done, Range{s.at % int64(len(b.buf)), s.n})
	b.moved.Broadcast()
}

// fail ends a lane.
func (b *burst) fail(lane int, err error) {
	l := b.conn.lanes[lane]
	why := l.fail(l.whyBroken(b.Stage, err))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lanes[lane].Err = why
	b.plan.fail(lane)
	b.moved.Broadcast()
}

// result sums up when all is over.
func (b *burst) result() (Result, error) {
	r := Result{Lanes: b.lanes, Done: merge(b.done)}
	var first, last time.Duration
	var broken *failure.Failure
	left := false
	for i, l := range b.lanes {
		if r.Bytes += l.Bytes; l.First > 0 && (first == 0 || l.First < first) {
			first = l.First
		}
		last = max(last, l.Last)
		if b.asked(i) {
			left = left || l.Err == nil
			if broken == nil {
				broken = l.Err
			}
		}
	}
	r.Elapsed = max(last-first, 0)
	switch {
	case left:
		return r, nil
	case broken != nil:
		return r, broken
	}
	return r, failure.New(b.Stage, failure.Other, "none of %d lanes takes part", len(b.lanes))
}

// merge puts ranges in order and joins those that touch, in place.
func merge(ranges []Range) []Range {
	slices.SortFunc(ranges, func(a, b Range) int { return cmp.Compare(a.Offset, b.Offset) })
	merged := ranges[:0]
	for _, r := range ranges {
		if n := len(merged); n > 0 && r.Offset <= merged[n-1].Offset+merged[n-1].Length {
			end := max(merged[n-1].Offset+merged[n-1].Length, r.Offset+r.Length)
			merged[n-1].Length = end - merged[n-1].Offset
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

// Latency writes 8 B to the start of the target's buffer n times over one lane,
// one at a time, and returns how long each took, from before it was sent to
// after it was acknowledged (CLOCK_MONOTONIC). What it writes is zero. On an
// error, a [failure.Failure], the lane has ended, and so have all if ctx has;
// the samples up to then are returned.
func (c *Conn) Latency(ctx context.Context, lane, n int) ([]time.Duration, error) {
	if lane < 0 || lane >= len(c.lanes) {
		return nil, failure.New(failure.StageLatency, failure.Other, "lane %d of %d", lane, len(c.lanes))
	}
	l := c.lanes[lane]
	defer c.watch(ctx, failure.StageLatency)()
	if f := l.failed(); f != nil {
		return nil, f
	}
	var (
		s       = l.streams[0]
		word    [8]byte
		samples []time.Duration
	)
	for range n {
		begin := time.Now()
		err := s.write(0, word[:])
		if err == nil {
			err = s.answer(len(word))
		}
		if err != nil {
			return samples, l.fail(l.whyBroken(failure.StageLatency, err))
		}
		samples = append(samples, time.Since(begin))
		l.acked.Add(int64(len(word)))
	}
	return samples, nil
}
