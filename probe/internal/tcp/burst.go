package tcp

import (
	"context"
	"sync"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// Burst writes buf to the target's buffer of the same size, over the named rails, or over all if there are no names.
// It uses neither Seed nor Deadline. A lane that breaks has ended; when stealing, the others send what it did not
// deliver. When ctx ends, all lanes end. The error is a [failure.Failure]: invalid arguments, or no lane of the burst
// is left. The result always says what was acknowledged.
func (c *Conn) Burst(ctx context.Context, buf []byte, args transfer.BurstArgs) (transfer.BurstDone, error) {
	lanes, err := c.find(args.Rails)
	if err != nil {
		return transfer.BurstDone{}, err
	}
	if len(buf) == 0 || args.Total <= 0 || args.Chunk <= 0 || args.Chunk > MaxChunk || args.Depth <= 0 {
		return transfer.BurstDone{}, failure.New("", failure.Other,
			"a burst of %d bytes in chunks of %d, %d deep, from a buffer of %d", args.Total, args.Chunk, args.Depth,
			len(buf))
	}
	stop := c.watch(ctx)
	b := &burst{args: args, buf: buf, lanes: lanes, rails: make([]transfer.BurstRail, len(lanes)), start: time.Now()}
	b.moved.L = &b.mu
	alive := make([]bool, len(lanes))
	for i, l := range lanes {
		b.rails[i].Failure = l.failed()
		alive[i] = b.rails[i].Failure == nil
	}
	b.plan = newPlan(args, int64(len(buf)), alive)
	var wg sync.WaitGroup
	for i, l := range lanes {
		for _, s := range l.streams {
			if alive[i] {
				f := &flow{lane: i, stream: s, sent: make(chan transfer.Range, args.Depth)}
				wg.Go(func() { b.send(f) })
				wg.Go(func() { b.collect(f) })
			}
		}
	}
	wg.Wait()
	stop()
	return transfer.Sum(b.rails, b.done, int64(len(buf)))
}

// burst is a burst in progress.
type burst struct {
	args  transfer.BurstArgs
	buf   []byte
	lanes []*lane
	start time.Time

	mu    sync.Mutex // protects all following fields
	moved sync.Cond  // a chunk was acknowledged, or a lane has ended
	plan  *plan
	rails []transfer.BurstRail
	done  []transfer.Range
}

// flow is a stream in a burst.
type flow struct {
	lane     int
	stream   *stream
	sent     chan transfer.Range // waiting for acknowledgement, in order; has room for all
	inFlight int                 // chunks; protected by burst.mu
}

// send writes chunks until there are none for the lane.
func (b *burst) send(f *flow) {
	defer close(f.sent)
	for s, ok := b.claim(f); ok; s, ok = b.claim(f) {
		f.sent <- s
		at := s.Offset % int64(len(b.buf))
		if err := f.stream.write(at, b.buf[at:at+s.Length]); err != nil {
			b.fail(f.lane, err)
			return
		}
	}
}

// collect waits for the acknowledgements of what send has written.
func (b *burst) collect(f *flow) {
	for s := range f.sent {
		if err := f.stream.waitAck(int(s.Length)); err != nil {
			b.fail(f.lane, err)
			return
		}
		b.complete(f, s)
	}
}

// claim waits for a chunk. It waits only while something is in flight, which is acknowledged in bounded time or its
// lane breaks.
func (b *burst) claim(f *flow) (transfer.Range, bool) {
	streams := len(b.lanes[f.lane].streams)
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		now := time.Since(b.start)
		if b.args.Limit > 0 && now >= b.args.Limit {
			b.plan.stopped = true
		}
		// One stream of many must not use up the lane's window.
		if f.inFlight*streams < b.plan.lanes[f.lane].window || b.plan.ended(f.lane) {
			switch s, answer := b.plan.claim(f.lane, now); answer {
			case granted:
				f.inFlight++
				if rail := &b.rails[f.lane]; rail.First == 0 {
					rail.First = max(now, 1)
				}
				return s, true
			case finished:
				return transfer.Range{}, false
			}
		}
		b.moved.Wait()
	}
}

// complete notes that the target has a chunk.
func (b *burst) complete(f *flow, s transfer.Range) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Since(b.start)
	f.inFlight--
	if !b.plan.complete(f.lane, s, now) {
		return // its lane has ended, and another sends it again
	}
	b.lanes[f.lane].acked.Add(s.Length)
	rail := &b.rails[f.lane]
	rail.Bytes, rail.Writes, rail.Last = rail.Bytes+s.Length, rail.Writes+1, now
	b.done = append(b.done, s)
	b.moved.Broadcast()
}

// fail ends a lane.
func (b *burst) fail(lane int, err error) {
	f := b.lanes[lane].fail(broken(err))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rails[lane].Failure = f
	b.plan.remove(lane)
	b.moved.Broadcast()
}

// Latency writes 8 zero bytes to the start of the target's buffer n times over one rail, one at a time, and returns the
// times from send to acknowledgement. On an error, a [failure.Failure], the lane has ended, and so have all if ctx has;
// the samples so far are returned.
func (c *Conn) Latency(ctx context.Context, rail string, n int) ([]time.Duration, error) {
	lanes, err := c.find([]string{rail})
	if err != nil {
		return nil, err
	}
	l := lanes[0]
	defer c.watch(ctx)()
	if f := l.failed(); f != nil {
		return nil, f
	}
	s, word, samples := l.streams[0], make([]byte, 8), []time.Duration(nil)
	for range n {
		begin := time.Now()
		err := s.write(0, word)
		if err == nil {
			err = s.waitAck(len(word))
		}
		if err != nil {
			return samples, l.fail(broken(err))
		}
		samples = append(samples, time.Since(begin))
		l.acked.Add(int64(len(word)))
	}
	return samples, nil
}
