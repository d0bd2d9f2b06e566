package round

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

// timeLeft returns how much of the round's time is left, without the time reserved for its release.
func (r *Round) timeLeft(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return drainTime
	}
	return max(time.Until(end)-releaseTime, minBurst)
}

// burst runs a burst over paths, guarded at both ends, and has the target verify the data. Failures of paths are
// recorded; an error is returned only if the round cannot continue.
func (r *Round) burst(ctx context.Context, stage failure.Stage, paths []*Path, args worker.BurstArgs) (worker.BurstDone,
	error) {
	var rails []node.LocalRail
	progress := result.Progress{Stage: stage}
	for i, p := range paths {
		p.counted = nil
		if !slices.ContainsFunc(rails, func(r node.LocalRail) bool { return r.Name == p.Local.Name }) {
			rails = append(rails, p.Local)
		}
		progress.Total += max(int64(args.Writes)*args.Loads[i].Chunk, int64(p.rate()*args.Window.Seconds()))
	}
	guarded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sent := node.NewBurstProgress(args.Loads, loadRails(paths))
	g := node.Guard{Node: r.Node, Rails: rails, Above: r.Plan.BusyAbove, Burst: sent}
	var guarding sync.WaitGroup
	guarding.Go(func() {
		if f := g.Watch(guarded); f != nil {
			cancel(f)
		}
	})
	if len(rails) == 1 {
		progress.Rail = rails[0].Name
	}
	r.Progress(progress)
	var before map[string]rail.Traffic
	if r.ByHand {
		before = r.Node.SettledTraffic(ctx, rails)
	}
	var last time.Time // time of the last report, and the bytes carried by then
	var sum int64
	done, err := r.Session.Current.Burst(guarded, stage, args, func(at time.Time, bytes []int64) {
		p, now := progress, sent.Set(at, bytes)
		p.Done = min(now, p.Total)
		if !last.IsZero() && at.After(last) && now > sum {
			p.Rate = float64(now-sum) / at.Sub(last).Seconds()
		}
		last, sum = at, now
		r.Progress(p)
	})
	f := cause(guarded)
	cancel(nil)
	guarding.Wait()
	if f == nil && err == nil {
		r.Progress(progress.AtEnd(done))
	}
	r.noteOwn(paths, done, sent)
	moved := max(movedBytes(done), sent.Sum())
	r.Node.Recent.Add(moved)
	if stage == failure.StageStriped { // read before verification: later traffic of others is not part of the burst
		r.after = r.Node.SettledTraffic(ctx, r.Rails)
	}
	if r.ByHand {
		r.countPorts(paths, before, r.Node.SettledTraffic(ctx, rails))
	}
	if f == nil {
		f = timeUp(ctx) // a worker that was stopped early reports no error
	}
	switch {
	case f != nil:
		r.Res.Bytes += moved
		return done, f
	case err != nil:
		r.Res.Bytes += moved
		return done, err
	case len(done.Rails) != len(paths):
		return done, failure.New(stage, failure.Other, "the worker reported %d rails of %d", len(done.Rails), len(paths))
	}
	r.addBurst(done, paths, stage)
	return done, r.verify(ctx, stage, paths, args.Loads, done)
}

// loadRails returns what the loads of paths move, and over which rails.
func loadRails(paths []*Path) (list []node.LoadRail) {
	for _, p := range paths {
		list = append(list, node.LoadRail{Name: p.Local.Name, Direction: p.direction(), Home: p.home})
	}
	return list
}

// noteOwn records the bytes that a burst moved over each rail.
func (r *Round) noteOwn(paths []*Path, done worker.BurstDone, sent *node.BurstProgress) {
	for i, p := range paths {
		bytes := sent.Completed(i)
		if i < len(done.Rails) {
			bytes = max(bytes, done.Rails[i].Bytes)
		}
		if !p.home {
			r.Node.Own.Add(p.Local.Rail, p.direction(), bytes, p.Result.PathMTU, p.lane)
		}
	}
}

func movedBytes(done worker.BurstDone) (sum int64) {
	for _, b := range done.Rails {
		sum += b.Bytes
	}
	return sum
}

func (r *Round) addBurst(done worker.BurstDone, paths []*Path, stage failure.Stage) {
	r.Res.Bytes += movedBytes(done)
	for i, b := range done.Rails[:min(len(done.Rails), len(paths))] {
		paths[i].Result.Bytes += b.Bytes
		if b.Failure != nil {
			r.failPath(paths[i], stage, b.Failure)
		}
	}
}

// Claims lists the bytes that a burst moved, which the receiving end must find.
type Claims struct {
	args  worker.VerifyArgs
	paths []*Path // same order as args.Rails
	bytes []int64 // bytes to compare, per path
}

// Add adds what a path wrote into memory of the verifying end.
func (c *Claims) Add(p *Path, name string, chunk int64, writes []int64, memory int64) {
	c.args.Rails = append(c.args.Rails, worker.VerifyRail{Rail: name, Chunk: chunk, Writes: writes})
	var bytes int64
	for _, n := range writes {
		bytes += min(n, memory/int64(len(writes))/chunk) * chunk
	}
	c.paths, c.bytes = append(c.paths, p), append(c.bytes, bytes)
}

// verify asks each receiving end to compare its memory with the pattern, for the paths that completed the burst,
// and has the target stop the other paths.
func (r *Round) verify(ctx context.Context, stage failure.Stage, paths []*Path, loads []worker.Load,
	done worker.BurstDone) error {
	there := Claims{args: worker.VerifyArgs{Seed: r.seed, Pass: done.Pass, Stop: r.failedPaths(),
		Count: stage == failure.StageStriped}}
	here := Claims{args: worker.VerifyArgs{Seed: r.seed, Pass: done.Pass}}
	for i, b := range done.Rails {
		switch p := paths[i]; {
		case b.Failure != nil:
		case p.home:
			here.Add(p, p.name()+answerEnd, loads[i].Chunk, b.Writes, r.buffer)
		case p.Op == worker.Read:
			here.Add(p, p.name(), loads[i].Chunk, b.Writes, r.buffer)
			there.args.Read = append(there.args.Read, worker.VerifyRail{Rail: p.peerName(), Chunk: loads[i].Chunk,
				Writes: b.Writes})
		default:
			there.Add(p, p.peerName(), loads[i].Chunk, b.Writes, r.buffer)
		}
	}
	if len(here.paths) > 0 {
		v, err := r.Session.Current.Verify(ctx, here.args)
		if err := r.Settle(stage, &here, v, err, "this node"); err != nil {
			return err
		}
	}
	if len(there.paths)+len(there.args.Read)+len(there.args.Stop) == 0 {
		return nil
	}
	v, err := r.Client.Verify(ctx, there.args)
	r.notePeerLoss(v)
	for i := range v.Failures {
		protocol.Sanitize(&v.Failures[i], failure.StageVerify)
		v.Failures[i] = *v.Failures[i].OnPeer()
	}
	return r.Settle(stage, &there, v, err, "the target")
}

// Settle records the failures of flows that verification found, and returns an error if the round cannot continue.
func (r *Round) Settle(stage failure.Stage, c *Claims, v worker.Verified, err error, who string) error {
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

// failedPaths returns the connected paths that failed since the last call, by their names in the peer's session.
// The peer has to stop them.
func (r *Round) failedPaths() (names []string) {
	for _, p := range r.Paths {
		if p.connected && p.Result.Failure != nil {
			p.connected = false
			names = append(names, p.peerName())
		}
	}
	return names
}

// stopFailed has the target stop the paths that failed: data in flight must not arrive during a later burst.
func (r *Round) stopFailed(ctx context.Context) error {
	names := r.failedPaths()
	if len(names) == 0 {
		return nil
	}
	_, err := r.Client.Verify(ctx, worker.VerifyArgs{Seed: r.seed, Stop: names})
	return err
}

// newSeed returns a random seed for the pattern, different for every burst.
func newSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return binary.LittleEndian.Uint64(b[:])
}

// Flow returns what rail i of an RDMA burst carried, or nil if that could not be measured.
func Flow(p *Path, loads []worker.Load, done worker.BurstDone, i int) *result.Flow {
	b := done.Rails[i]
	if b.Failure != nil || b.Disturbed || b.Ramping || b.Rate() == 0 {
		return nil
	}
	return &result.Flow{Bytes: b.Measured, Active: b.Last - b.First, Moved: b.Bytes,
		Slow: b.Measured < BurstWrites*loads[i].Chunk, Counted: p.counted}
}
