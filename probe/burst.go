package probe

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/rail"
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

// burst makes a burst over paths, guarded at both ends, and has the target verify what arrived. Failures of paths are
// recorded; the error is that of the round.
func (r *round) burst(ctx context.Context, stage failure.Stage, paths []*path, args worker.BurstArgs) (worker.BurstDone,
	error) {
	var rails []localRail
	progress := Progress{Stage: stage}
	for i, p := range paths {
		p.counted = nil
		if !slices.ContainsFunc(rails, func(r localRail) bool { return r.Name == p.local.Name }) {
			rails = append(rails, p.local)
		}
		progress.Total += max(burstWrites*args.Loads[i].Chunk, int64(p.rate()*args.Window.Seconds()))
	}
	guarded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sent := newBurstProgress(args.Loads)
	sent.paths = paths
	g := guard{node: r.node, rails: rails, above: r.plan.BusyAbove, burst: sent}
	var guarding sync.WaitGroup
	guarding.Go(func() {
		if f := g.watch(guarded); f != nil {
			cancel(f)
		}
	})
	if len(paths) == 1 {
		progress.Rail = paths[0].name()
	}
	r.progress(progress)
	var before map[string]rail.Traffic
	if r.byHand {
		before = r.node.settledTraffic(ctx, rails)
	}
	done, err := r.session.current.Burst(guarded, stage, args, func(at time.Time, bytes []int64) {
		p := progress
		p.Done = min(sent.set(at, bytes), p.Total)
		r.progress(p)
	})
	f := cause(guarded)
	cancel(nil)
	guarding.Wait()
	r.noteOwn(paths, done, sent)
	moved := max(movedBytes(done), sent.sum())
	r.node.recent.add(moved)
	if stage == failure.StageStriped { // before verification: what others send meanwhile is not of the burst
		r.after = r.node.settledTraffic(ctx, r.rails)
	}
	if r.byHand {
		r.countPorts(paths, before, r.node.settledTraffic(ctx, rails))
	}
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
	case len(done.Rails) != len(paths):
		return done, failure.New(stage, failure.Other, "the worker reported %d rails of %d", len(done.Rails), len(paths))
	}
	r.addBurst(done, paths, stage)
	return done, r.verify(ctx, stage, paths, args.Loads, done)
}

// noteOwn notes what a burst moved over each rail.
func (r *round) noteOwn(paths []*path, done worker.BurstDone, sent *burstProgress) {
	for i, p := range paths {
		bytes := sent.completed(i)
		if i < len(done.Rails) {
			bytes = max(bytes, done.Rails[i].Bytes)
		}
		if !p.home {
			r.node.own.add(p.local.Rail, p.direction(), bytes, p.result.PathMTU)
		}
	}
}

// countPorts notes what the port of each path counted during a burst. The counters of an RDMA device do not count TCP,
// those of its physical port and of a software device do.
func (r *round) countPorts(paths []*path, before, after map[string]rail.Traffic) {
	for _, p := range paths {
		name := p.local.Name
		d, ok := trafficBetween(before, after, name)
		if after[name].Physical {
			d, ok = portTraffic(before, after, name)
		} else if p.lane && !p.local.software() {
			continue
		}
		if bytes := d.out; ok {
			if p.direction() == rail.Receive {
				bytes = d.in
			}
			p.counted = new(int64(bytes))
		}
	}
}

func movedBytes(done worker.BurstDone) (sum int64) {
	for _, b := range done.Rails {
		sum += b.Bytes
	}
	return sum
}

func (r *round) addBurst(done worker.BurstDone, paths []*path, stage failure.Stage) {
	r.res.Bytes += movedBytes(done)
	for i, b := range done.Rails[:min(len(done.Rails), len(paths))] {
		paths[i].result.Bytes += b.Bytes
		if b.Failure != nil {
			r.failPath(paths[i], stage, b.Failure)
		}
	}
}

// claims are what a burst moved, as told to the end that compares it.
type claims struct {
	args  worker.VerifyArgs
	paths []*path // in the order of args.Rails
	bytes []int64 // to be compared, of each
}

func (c *claims) add(p *path, name string, chunk int64, writes []int64, memory int64) {
	c.args.Rails = append(c.args.Rails, worker.VerifyRail{Rail: name, Chunk: chunk, Writes: writes})
	var bytes int64
	for _, n := range writes {
		bytes += min(n, memory/int64(len(writes))/chunk) * chunk
	}
	c.paths, c.bytes = append(c.paths, p), append(c.bytes, bytes)
}

// verify has what a burst moved compared where it arrived, over the paths that completed it, and has the target stop
// the others.
func (r *round) verify(ctx context.Context, stage failure.Stage, paths []*path, loads []worker.Load,
	done worker.BurstDone) error {
	there := claims{args: worker.VerifyArgs{Seed: r.seed, Pass: done.Pass, Stop: r.failedPaths(),
		Count: stage == failure.StageStriped}}
	here := claims{args: worker.VerifyArgs{Seed: r.seed, Pass: done.Pass}}
	for i, b := range done.Rails {
		switch p := paths[i]; {
		case b.Failure != nil:
		case p.home:
			here.add(p, p.name()+answerEnd, loads[i].Chunk, b.Writes, r.buffer)
		case p.op == worker.Read:
			here.add(p, p.name(), loads[i].Chunk, b.Writes, r.buffer)
			there.args.Read = append(there.args.Read, worker.VerifyRail{Rail: p.peerName(), Chunk: loads[i].Chunk,
				Writes: b.Writes})
		default:
			there.add(p, p.peerName(), loads[i].Chunk, b.Writes, r.buffer)
		}
	}
	if len(here.paths) > 0 {
		v, err := r.session.current.Verify(ctx, here.args)
		if err := r.settle(stage, &here, v, err, "this node"); err != nil {
			return err
		}
	}
	if len(there.paths)+len(there.args.Read)+len(there.args.Stop) == 0 {
		return nil
	}
	v, err := r.client.verify(ctx, there.args)
	r.notePeerLoss(v)
	for i := range v.Failures {
		sanitize(&v.Failures[i], failure.StageVerify)
		v.Failures[i] = *v.Failures[i].OnPeer()
	}
	return r.settle(stage, &there, v, err, "the target")
}

// settle judges what was compared. Failures of paths are recorded; the error is that of the round.
func (r *round) settle(stage failure.Stage, c *claims, v worker.Verified, err error, who string) error {
	var want int64
	for i, one := range c.args.Rails {
		k := slices.IndexFunc(v.Failures, func(f failure.Failure) bool { return f.Rail == one.Rail })
		if k < 0 {
			want += c.bytes[i]
			continue
		}
		r.failPath(c.paths[i], failure.StageVerify, &v.Failures[k])
	}
	switch {
	case err != nil:
		return err
	case v.Mismatch >= 0:
		return failure.New(failure.StageVerify, failure.DataMismatch,
			"after the %s burst %s found wrong bytes, the first at offset %d of the memory of rail %.40q", stage, who,
			v.Mismatch, v.Rail)
	case v.Bytes != want:
		return failure.New(failure.StageVerify, failure.Protocol, "%s verified %d bytes of %d", who, v.Bytes, want)
	}
	return nil
}

// failedPaths are the peer's names of the connected paths that failed since the last call: it has to stop them.
func (r *round) failedPaths() (names []string) {
	for _, p := range r.paths {
		if p.connected && p.result.Failure != nil {
			p.connected = false
			names = append(names, p.peerName())
		}
	}
	return names
}

// stopFailed has the target stop the paths that failed: what is still on the way must not arrive in a later burst.
func (r *round) stopFailed(ctx context.Context) error {
	names := r.failedPaths()
	if len(names) == 0 {
		return nil
	}
	_, err := r.client.verify(ctx, worker.VerifyArgs{Seed: r.seed, Stop: names})
	return err
}

// name is the path's name in this node's session.
func (p *path) name() string { return worker.FlowName(p.local.Name, p.op, p.flow) }

// peerName is its name in the peer's.
func (p *path) peerName() string {
	if p.peer != nil {
		return worker.FlowName(p.peer.Name, p.op, p.flow)
	}
	return p.name()
}

// direction is that of its bytes.
func (p *path) direction() int {
	if p.op == worker.Read {
		return rail.Receive
	}
	return rail.Transmit
}

// rate is what the path should carry, in bytes per second.
func (p *path) rate() float64 {
	if p.result.Capacity != nil {
		return *p.result.Capacity
	}
	return unknownRate
}

// rtt is the shortest round trip of a small write over the path; 0: not measured.
func (p *path) rtt() time.Duration {
	if p.result.Latency == nil {
		return 0
	}
	return p.result.Latency.Samples[0]
}

// newSeed returns a seed for the pattern that no earlier burst had.
func newSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return binary.LittleEndian.Uint64(b[:])
}

// burstProgress is how many bytes of a burst have completed, by rail. Safe for concurrent use.
type burstProgress struct {
	loads   []worker.Load
	paths   []*path       // of the loads; nil: each has the name of a rail, and writes
	updated chan struct{} // holds a token after set

	mu    sync.Mutex // protects all following fields
	bytes []int64
	at    time.Time // when bytes was read
}

func newBurstProgress(loads []worker.Load) *burstProgress {
	return &burstProgress{loads: loads, updated: make(chan struct{}, 1)}
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

// completed is how many bytes of a load have completed.
func (b *burstProgress) completed(load int) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if load >= len(b.bytes) {
		return 0
	}
	return b.bytes[load]
}

// covers reports whether the bytes are at least as new as when.
func (b *burstProgress) covers(when time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.at.Before(when)
}

// moved is how many bytes a rail has carried at most by direction: those completed, and those in flight.
func (b *burstProgress) moved(name string) (bytes [rail.Directions]int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, l := range b.loads {
		of, direction, home := l.Rail, rail.Transmit, false
		if b.paths != nil {
			of, direction, home = b.paths[i].local.Name, b.paths[i].direction(), b.paths[i].home
		}
		if of != name {
			continue
		}
		n := int64(l.Depth) * l.Chunk
		if i < len(b.bytes) {
			n += b.bytes[i]
		}
		if bytes[direction] += n; home { // some adapters count what does not leave them
			bytes[rail.Receive] += n
		}
	}
	return bytes
}

// flow is what rail i of a burst by RDMA carried; nil when that could not be measured.
func flow(p *path, loads []worker.Load, done worker.BurstDone, i int) *Flow {
	b := done.Rails[i]
	if b.Failure != nil || b.Disturbed || b.Rate() == 0 {
		return nil
	}
	return &Flow{Bytes: b.Measured, Active: b.Last - b.First, Moved: b.Bytes,
		Slow: b.Measured < burstWrites*loads[i].Chunk, Counted: p.counted}
}
