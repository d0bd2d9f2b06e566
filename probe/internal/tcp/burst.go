package tcp

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// Burst keeps every lane at full depth for a time, and measures what the target acknowledges on each, after the
// connections have left slow start. Without a window each connection writes once as much as it may have in flight. A
// lane that breaks ends the burst for all, and a broken lane keeps it from starting.
//
// The error is a [failure.Failure]: invalid arguments, or no lane is left. The result always has what was acknowledged.
func (c *Conn) Burst(ctx context.Context, source []byte, args transfer.BurstArgs) (done transfer.BurstDone, err error) {
	b := &burst{args: args, source: source, counted: make([]int, len(args.Loads))}
	for _, l := range args.Loads {
		lane, err := c.find(l.Rail)
		if err != nil {
			return done, err
		}
		if l.Chunk < 1 || l.Chunk > transfer.MaxChunk || l.Chunk > lane.ring || l.Cap < 1 || l.Depth < 1 ||
			slices.Contains(b.lanes, lane) {
			return done, failure.New("", failure.Other, "a burst in chunks of %d, %d deep, over %s", l.Chunk, l.Depth,
				l.Rail)
		}
		b.lanes = append(b.lanes, lane)
		b.rails = append(b.rails, transfer.BurstRail{Writes: make([]int64, len(lane.streams)), Failure: lane.failed()})
	}
	if len(b.lanes) == 0 || len(source) < transfer.SourceLen {
		return done, failure.New("", failure.Other, "a burst over %d lanes from %d bytes", len(b.lanes), len(source))
	}
	if (transfer.BurstDone{Rails: b.rails}).Failed() {
		b.stopped.Store(true)
	}
	stop := c.watch(ctx)
	b.start = time.Now()
	timer := time.AfterFunc(args.Slow, b.stop)
	var wg sync.WaitGroup
	for i, l := range b.lanes {
		l.acked.Store(0)
		for n, s := range l.streams {
			f := &flow{lane: i, number: n, stream: s,
				sent: make(chan struct{}, max(args.Loads[i].Depth/len(l.streams), 1))}
			wg.Go(func() { b.send(f) })
			wg.Go(func() { b.collect(f) })
		}
	}
	wg.Wait()
	timer.Stop()
	stop() // a ctx that ended has ended all lanes
	return b.result()
}

// burst is a burst in progress.
type burst struct {
	args    transfer.BurstArgs
	source  []byte
	lanes   []*lane
	start   time.Time
	stopped atomic.Bool  // no more chunks are sent
	over    atomic.Int64 // time of the stop in ns after start

	mu        sync.Mutex // protects all following fields
	measuring bool
	rails     []transfer.BurstRail
	counted   []int // number of measured chunks
}

// flow is a stream in a burst.
type flow struct {
	lane, number int
	stream       *stream
	sent         chan struct{} // one element for each chunk in flight
}

// stop ends the measurement.
func (b *burst) stop() {
	if !b.stopped.Swap(true) {
		b.over.Store(int64(time.Since(b.start)))
	}
}

// send writes chunks until the burst is stopped; without a window it writes a fixed number.
func (b *burst) send(f *flow) {
	defer close(f.sent)
	chunk, writes := b.args.Loads[f.lane].Chunk, &b.rails[f.lane].Writes[f.number]
	for ; !b.stopped.Load() && (b.args.Window > 0 || *writes < int64(cap(f.sent))); *writes++ {
		at, from := transfer.Place(*writes, b.lanes[f.lane].ring, chunk, b.args.Pass)
		f.sent <- struct{}{}
		if err := f.stream.write(at, b.source[from:from+chunk]); err != nil {
			b.fail(f.lane, err)
			return
		}
	}
}

// collect waits for the acknowledgements of the chunks from send.
func (b *burst) collect(f *flow) {
	chunk := b.args.Loads[f.lane].Chunk
	broken := false
	for range f.sent {
		if broken {
			continue // send must not wait for room
		}
		if err := f.stream.waitAck(int(chunk)); err != nil {
			broken = true
			b.fail(f.lane, err)
			continue
		}
		b.complete(f.lane, chunk)
	}
}

// complete counts a chunk that the target has received.
func (b *burst) complete(i int, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, r := time.Since(b.start), &b.rails[i]
	b.lanes[i].acked.Add(n)
	switch r.Bytes += n; {
	case b.args.Window == 0, b.stopped.Load(): // nothing is measured, or the lanes are draining
		return
	case !b.measuring:
		b.measuring = now >= b.args.Warmup
		for _, r := range b.rails {
			b.measuring = b.measuring && r.Bytes > 0
		}
	case r.First == 0:
		r.First, r.Last = now, now
	default:
		r.Measured, r.Last = r.Measured+n, now
		b.counted[i]++
	}
	ended := true
	for i, r := range b.rails {
		if r.Bytes >= b.args.Loads[i].Cap {
			ended = true
			break
		}
		ended = ended && b.counted[i] >= max(b.args.Writes, 1) && r.Last-r.First >= b.args.Window
	}
	if ended {
		b.stop()
	}
}

// fail ends a lane, and the burst.
func (b *burst) fail(lane int, err error) {
	_ = b.lanes[lane].fail(broken(err))
	b.stop()
}

// stretch extends a lane's measurement to the end of the burst, if it measured too little and was blocked at the end.
func (b *burst) stretch(i int) {
	r := &b.rails[i]
	took := r.Last - r.First
	if b.counted[i] == 0 || b.counted[i] >= b.args.Writes && took >= b.args.Window {
		return
	}
	if over := time.Duration(b.over.Load()); over-r.Last > 2*took/time.Duration(b.counted[i]) {
		r.Last = over
	}
}

func (b *burst) result() (transfer.BurstDone, error) {
	done := transfer.BurstDone{Rails: b.rails}
	failed := 0
	for i := range b.rails {
		r := &b.rails[i]
		r.Failure = b.lanes[i].failed()
		if r.Failure != nil {
			failed++
		}
		b.stretch(i)
		r.Disturbed = b.args.Window > 0 && r.Measured == 0
	}
	if failed == len(b.rails) {
		return done, b.rails[0].Failure
	}
	return done, nil
}

// Latency writes size zero bytes to the start of the target's buffer n times over one rail, one at a time, and returns
// the times from send to acknowledgement. On an error, a [failure.Failure], it returns the samples so far, and the lane
// has ended, or all lanes if ctx has.
func (c *Conn) Latency(ctx context.Context, rail string, size, n int) ([]time.Duration, error) {
	l, err := c.find(rail)
	if err != nil {
		return nil, err
	}
	if size < 1 || size > transfer.MaxChunk || int64(size) > l.ring {
		return nil, failure.New("", failure.Other, "writes of %d bytes over %s", size, rail)
	}
	defer c.watch(ctx)()
	if f := l.failed(); f != nil {
		return nil, f
	}
	s, word, samples := l.streams[0], make([]byte, size), []time.Duration(nil)
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
