package probe

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/worker"
)

// timeLeft is how much of the round's time is left, less what its release needs.
func (r *round) timeLeft(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return drainTime
	}
	return max(time.Until(end)-releaseTime, minBurst)
}

func pathNames(paths []*path) (names []string) {
	for _, p := range paths {
		names = append(names, p.local.Name)
	}
	return names
}

// burst moves total bytes over the paths, guarded at both ends, and has the target verify them. Failures of paths are
// recorded; the error is that of the round.
func (r *round) burst(ctx context.Context, stage failure.Stage, paths []*path, total int64) (worker.BurstDone, error) {
	limit, deadline := r.plan.burstTimes(r.timeLeft(ctx), r.bursts)
	r.bursts--
	args := worker.BurstArgs{Rails: pathNames(paths), Total: total, Chunk: r.plan.Chunk, Depth: r.plan.Depth,
		Stealing: stage != failure.StageSolo && stage != failure.StageStatic, Seed: newSeed(), Limit: limit,
		Deadline: deadline}
	var rails []localRail
	for _, p := range paths {
		rails = append(rails, p.local)
	}
	guarded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sent := newBurstProgress(args.Rails, r.plan.inFlight())
	g := guard{node: r.node, rails: rails, above: r.plan.BusyAbove, burst: sent}
	var guarding sync.WaitGroup
	guarding.Go(func() {
		if f := g.watch(guarded); f != nil {
			cancel(f)
		}
	})
	progress := Progress{Stage: stage, Total: total}
	if len(paths) == 1 {
		progress.Rail = paths[0].local.Name
	}
	r.progress(progress)
	done, err := r.session.current.Burst(guarded, stage, args, func(at time.Time, bytes []int64) {
		p := progress
		p.Done = sent.set(at, bytes)
		r.progress(p)
	})
	f := cause(guarded)
	cancel(nil)
	guarding.Wait()
	moved := max(done.Bytes, sent.sum())
	r.node.recent.add(moved)
	if f == nil {
		f = timeUp(ctx) // the worker may have stopped so early that no error shows it
	}
	switch {
	case f != nil:
		r.res.Bytes += moved
		return done, f
	case err != nil:
		r.res.Bytes += moved
		return done, err
	}
	r.addBurst(done, paths, stage)
	return done, r.verify(ctx, stage, args.Seed, done)
}

func (r *round) addBurst(done worker.BurstDone, paths []*path, stage failure.Stage) {
	r.res.Bytes += done.Bytes
	for i, b := range done.Rails[:min(len(done.Rails), len(paths))] {
		if b.Failure != nil {
			r.failPath(paths[i], stage, b.Failure)
		}
	}
}

func (r *round) verify(ctx context.Context, stage failure.Stage, seed uint64, done worker.BurstDone) error {
	args := worker.VerifyArgs{Seed: seed, Ranges: done.Done[:min(len(done.Done), maxRanges)]}
	if len(args.Ranges) == 0 {
		return nil // nothing completed, and the paths have the failures
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
		return failure.New(failure.StageVerify, failure.Protocol, "the target verified %d bytes of %d", v.Bytes, want)
	}
	return nil
}

// newSeed returns a seed for the pattern that no earlier burst had.
func newSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return binary.LittleEndian.Uint64(b[:])
}

// burstProgress is how many bytes of a burst have completed, by rail. Safe for concurrent use.
type burstProgress struct {
	names    []string
	inFlight int64         // bytes that each rail has in flight at most
	updated  chan struct{} // holds a token after set

	mu    sync.Mutex // protects all following fields
	bytes []int64
	at    time.Time // when bytes was read
}

func newBurstProgress(names []string, inFlight int64) *burstProgress {
	return &burstProgress{names: names, inFlight: inFlight, updated: make(chan struct{}, 1)}
}

// set sets the bytes that had completed at a moment, and returns their sum.
func (b *burstProgress) set(at time.Time, bytes []int64) int64 {
	b.mu.Lock()
	b.bytes, b.at = bytes, at
	b.mu.Unlock()
	select {
	case b.updated <- struct{}{}:
	default:
	}
	return b.sum()
}

func (b *burstProgress) sum() (sum int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.bytes {
		sum += n
	}
	return sum
}

// covers reports whether the bytes are at least as new as when.
func (b *burstProgress) covers(when time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.at.Before(when)
}

// sent is how many bytes a rail has sent at most: those completed, and those in flight.
func (b *burstProgress) sent(rail string) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.names, rail); i >= 0 && i < len(b.bytes) {
		return b.bytes[i] + b.inFlight
	}
	return b.inFlight
}

// flow is what rail i of a burst carried; nil when nothing completed.
func flow(done worker.BurstDone, i int) *Flow {
	if i >= len(done.Rails) || done.Rails[i].Bytes == 0 || done.Rails[i].Last <= done.Rails[i].First {
		return nil
	}
	b := done.Rails[i]
	return &Flow{Bytes: b.Bytes, Active: b.Last - b.First}
}

// goodput is that of the whole burst, first post to last completion; nil when nothing completed.
func goodput(done worker.BurstDone) *float64 {
	if done.Elapsed <= 0 {
		return nil
	}
	return positive(float64(done.Bytes) / done.Elapsed.Seconds())
}
