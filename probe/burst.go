package probe

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/worker"
)

// How long a burst goes on beginning chunks: a slow link is measured well in less than it takes to move all bytes.
const (
	maxBurst  = 3 * time.Second
	minBurst  = 200 * time.Millisecond
	drainTime = 12 * time.Second // for what is under way then, all retries included
	maxRanges = 4096             // that the target is asked to look at
)

// timeLeft is how much of the round's time is left, less what its end needs.
func (r *round) timeLeft(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return drainTime
	}
	return max(time.Until(end)-releaseTime, minBurst)
}

// burst moves total bytes over the paths, guarded on both ends, and has the target look at what arrived. Paths that
// break are noted; the error is of the round.
func (r *round) burst(ctx context.Context, stage failure.Stage, paths []*path, stealing bool,
	total int64) (worker.BurstDone, error) {
	left := r.timeLeft(ctx)
	limit := min(maxBurst, left*6/10/time.Duration(max(r.bursts, 1)))
	r.bursts--
	args := worker.BurstArgs{Stealing: stealing, Total: total, Chunk: r.opts.Chunk, Depth: r.opts.Depth, Seed: seed(),
		Limit: max(limit, minBurst), Deadline: min(limit+drainTime, left)}
	var rails []localRail
	for _, p := range paths {
		args.Rails = append(args.Rails, p.local.Name)
		rails = append(rails, p.local)
	}
	watched, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sent := newBurstProgress(args.Rails, int64(r.opts.Depth)*r.opts.Chunk)
	g := guard{node: r.node, rails: rails, above: r.opts.BusyAbove, sent: sent.sent, covers: sent.covers, updated: sent.updated}
	var watching sync.WaitGroup
	watching.Go(func() {
		if f := g.watch(watched); f != nil {
			cancel(f)
		}
	})
	r.progress(r.progressAt(stage, paths, 0, total))
	done, err := r.session.current.Burst(watched, stage, args, func(at time.Time, bytes []int64) {
		r.progress(r.progressAt(stage, paths, sent.set(at, bytes), total))
	})
	f := cause(watched)
	cancel(nil)
	watching.Wait()
	r.node.recent.add(max(done.Bytes, sent.sum()))
	if f == nil {
		f = timeUp(ctx) // the worker may have ended it so early that nothing shows
	}
	if f != nil || err != nil {
		r.res.Bytes += max(done.Bytes, sent.sum()) // they were moved all the same
	}
	switch {
	case f != nil:
		return done, f
	case err != nil:
		return done, err
	}
	r.addBurst(done, paths, stage)
	return done, r.verify(ctx, stage, args.Seed, done)
}

func (r *round) progressAt(stage failure.Stage, paths []*path, done, total int64) Progress {
	p := Progress{Stage: stage, Done: done, Total: total}
	if len(paths) == 1 {
		p.Rail = paths[0].local.Name
	}
	return p
}

// verify has the target look for what the burst wrote.
func (r *round) verify(ctx context.Context, stage failure.Stage, seed uint64, done worker.BurstDone) error {
	args := worker.VerifyArgs{Seed: seed, Ranges: done.Done[:min(len(done.Done), maxRanges)]}
	if len(args.Ranges) == 0 {
		return nil // nothing completed; the paths know why
	}
	var want int64
	for _, g := range args.Ranges {
		want += g.Length
	}
	v, err := r.client.verify(ctx, args)
	switch {
	case err != nil:
		return err
	case v.Mismatch >= 0:
		return failure.New(failure.StageVerify, failure.DataMismatch,
			"after the %s burst the target found wrong bytes, the first at offset %d of its memory", stage, v.Mismatch)
	case v.Bytes != want:
		return failure.New(failure.StageVerify, failure.Protocol, "the target looked at %d bytes of %d", v.Bytes, want)
	}
	return nil
}

// seed is a pattern that no burst before had.
func seed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return binary.LittleEndian.Uint64(b[:])
}

// tally is how many bytes of a burst completed so far, by rail. Safe for concurrent use.
type burstProgress struct {
	names    []string
	inFlight int64         // bytes that may be in flight on each rail
	updated  chan struct{} // holds one token while something was set

	mu    sync.Mutex // protects all following fields
	bytes []int64
	at    time.Time // since when they are so many
}

func newBurstProgress(names []string, underway int64) *burstProgress {
	return &burstProgress{names: names, inFlight: underway, updated: make(chan struct{}, 1)}
}

// set notes the bytes as they were at a moment and returns their sum.
func (t *burstProgress) set(at time.Time, bytes []int64) int64 {
	t.mu.Lock()
	t.bytes, t.at = bytes, at
	t.mu.Unlock()
	select {
	case t.updated <- struct{}{}:
	default: // it is known that there are
	}
	return t.sum()
}

// sum is that of the bytes noted last.
func (t *burstProgress) sum() (sum int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.bytes {
		sum += n
	}
	return sum
}

// knows reports whether what was set is not older than when.
func (t *burstProgress) covers(when time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.at.Before(when)
}

func (t *burstProgress) sent(rail string) (sent, underway int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, n := range t.names {
		if n == rail && i < len(t.bytes) {
			return t.bytes[i], t.inFlight
		}
	}
	return 0, t.inFlight
}

// flow is what rail i of a burst carried; nil when nothing completed.
func flow(done worker.BurstDone, i int) *Flow {
	if i >= len(done.Rails) || done.Rails[i].Bytes == 0 || done.Rails[i].Last <= done.Rails[i].First {
		return nil
	}
	b := done.Rails[i]
	return &Flow{Bytes: b.Bytes, Active: b.Last - b.First}
}

// goodput is that of the whole burst, first post to last completion.
func goodput(done worker.BurstDone) *float64 {
	if done.Bytes == 0 || done.Elapsed <= 0 {
		return nil
	}
	v := float64(done.Bytes) / done.Elapsed.Seconds()
	return &v
}
