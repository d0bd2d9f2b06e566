package worker

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
)

const (
	size  = 1 << 20 // bytes of a target's memory
	chunk = 64 << 10
	seed  = 7
)

// burst writes this many bytes, plus the writes in flight at that point.
func burst(ctx context.Context, s *Session, bytes int64) (BurstDone, error) {
	return s.Burst(ctx, failure.StageSolo, burstArgs(bytes, "0"), nil)
}

func burstArgs(bytes int64, rails ...string) BurstArgs {
	args := BurstArgs{Window: time.Minute, Writes: 1, Slow: 20 * time.Second, Deadline: 20 * time.Second,
		Software: true}
	for _, rail := range rails {
		args.Loads = append(args.Loads, Load{Rail: rail, Chunk: chunk, Cap: bytes, Depth: 4})
	}
	return args
}

// wrote reports whether a burst over one rail wrote this many bytes, plus at most the writes in flight.
func wrote(done BurstDone, bytes int64) bool {
	return len(done.Rails) == 1 && done.Rails[0].Bytes >= bytes && done.Rails[0].Bytes <= bytes+8*chunk
}

// verify compares a burst's writes on its rails.
func verify(t *testing.T, target *Session, seed uint64, done BurstDone, rails ...string) (Verified, error) {
	t.Helper()
	args := VerifyArgs{Seed: seed, Pass: done.Pass}
	for i, r := range done.Rails {
		args.Rails = append(args.Rails, VerifyRail{Rail: rails[i], Chunk: chunk, Writes: r.Writes})
	}
	return target.Verify(t.Context(), args)
}

// counted is a simulated network that counts bytes and does not limit rates.
type counted struct {
	bytes [2]atomic.Int64 // by RDMA, and by TCP
	read  atomic.Int64    // part of the bytes by RDMA that the peer sent
	moved atomic.Int32
	fault atomic.Pointer[failure.Failure]
}

func (c *counted) simulation() *Simulation {
	return &Simulation{
		Through: func(_, transport string, op Op, to io.Writer) io.Writer {
			if op == Read {
				to = counting{to, &c.read}
			}
			return counting{to, &c.bytes[map[string]int{RDMA: 0, TCP: 1}[transport]]}
		},
		Fault: c.fault.Load,
		Moved: func() { c.moved.Add(1) },
	}
}

type counting struct {
	io.Writer
	bytes *atomic.Int64
}

func (c counting) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.bytes.Add(int64(n))
	return n, err
}

// simulatedSession opens and connects both ends of a transfer over two rails.
func simulatedSession(t *testing.T, transport string, asker, target *Worker, ops ...Op) (from, to *Session) {
	t.Helper()
	args := OpenArgs{Transport: transport, Buffer: 1 << 20, Seed: seed, Depth: 4, QueuePairs: 1, Key: make([]byte, 32),
		Grant: 1 << 30}
	for i := range 2 {
		args.Rails = append(args.Rails,
			RailArg{Name: fmt.Sprint(i), Device: "demo", GID: netip.MustParseAddr(fmt.Sprintf("::ffff:127.0.%d.1", i))})
		if len(ops) > 0 {
			args.Rails[i].Op = ops[i]
		}
	}
	from, ours, err := asker.Open(t.Context(), args)
	if err != nil {
		t.Fatal(err)
	}
	args.Target = true
	to, theirs, err := target.Open(t.Context(), args)
	if err != nil {
		t.Fatal(err)
	}
	connect := func(s *Session, ends []End) {
		c := ConnectArgs{}
		for _, e := range ends {
			c.Rails = append(c.Rails,
				ConnectRail{Name: e.Name, Remote: e, TCP: netip.AddrPortFrom(loopback, theirs.TCPPort)})
		}
		if done, err := s.Connect(t.Context(), c); err != nil || len(done) > 0 {
			t.Fatal(err, done)
		}
	}
	connect(to, ours.Ends)
	connect(from, theirs.Ends)
	return from, to
}

// TestSimulation: both transports use the simulation's wrapper, and their bytes are counted when the result arrives.
func TestSimulation(t *testing.T) {
	var c counted
	a, b := New(Options{Simulation: c.simulation()}), New(Options{Simulation: c.simulation()})
	defer a.Close()
	defer b.Close()
	if info, err := a.Info(t.Context()); err != nil || info != (Info{}) {
		t.Errorf("%+v %v", info, err)
	}
	for i, transport := range []string{RDMA, TCP} {
		from, to := simulatedSession(t, transport, a, b)
		l, err := from.Latency(t.Context(), LatencyArgs{Rail: "1", N: 5, Limit: 20 * time.Second})
		if err != nil || len(l.Samples) != 5 {
			t.Errorf("%s: latency %v %v", transport, l, err)
		}
		before, moved := c.bytes[i].Load(), c.moved.Load()
		done, err := from.Burst(t.Context(), failure.StageStriped, burstArgs(1<<20, "0", "1"), nil)
		if err != nil || len(done.Rails) != 2 || max(done.Rails[0].Bytes, done.Rails[1].Bytes) < 1<<20 {
			t.Fatalf("%s: %v %+v", transport, err, done)
		}
		sum := done.Rails[0].Bytes + done.Rails[1].Bytes
		if n := c.bytes[i].Load() - before; n < sum || n > sum+sum/256 || c.moved.Load() != moved+1 {
			t.Errorf("%s: %d bytes passed of %d, reported %d times", transport, n, sum, c.moved.Load()-moved)
		}
		for seed, right := range map[uint64]bool{seed: true, seed + 1: false} {
			if v, err := verify(t, to, seed, done, "0", "1"); err != nil || v.Mismatch < 0 != right || v.Bytes == 0 {
				t.Errorf("%s: seed %d: %+v %v", transport, seed, v, err)
			}
		}
		for _, s := range []*Session{from, to} {
			if _, err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestSimulatedReads: what is read is what the peer would send. It is counted as the peer's, is written into the
// asker's memory and compared there, beside writes over another rail.
func TestSimulatedReads(t *testing.T) {
	var c counted
	a, b := New(Options{Simulation: c.simulation()}), New(Options{Simulation: c.simulation()})
	defer a.Close()
	defer b.Close()
	from, to := simulatedSession(t, RDMA, a, b, Read, Write)
	l, err := from.Latency(t.Context(), LatencyArgs{Rail: "0", Size: 4096, N: 5, Limit: 20 * time.Second})
	if err != nil || len(l.Samples) != 5 {
		t.Errorf("latency %v %v", l, err)
	}
	before := c.read.Load()
	done, err := from.Burst(t.Context(), failure.StageStriped, burstArgs(1<<20, "0", "1"), nil)
	if err != nil || len(done.Rails) != 2 || done.Rails[0].Bytes < chunk || done.Rails[1].Bytes < chunk {
		t.Fatalf("%v %+v", err, done)
	}
	if n, sum := c.read.Load()-before, done.Rails[0].Bytes; n < sum || n > sum+sum/256 {
		t.Errorf("%d bytes are the peer's, and %d were read", n, sum)
	}
	for i, s := range []*Session{from, to} { // where the bytes of each rail arrive
		own := done
		own.Rails = done.Rails[i : i+1]
		for seed, right := range map[uint64]bool{seed: true, seed + 1: false} {
			v, err := verify(t, s, seed, own, fmt.Sprint(i))
			if err != nil || v.Mismatch < 0 != right || v.Bytes == 0 {
				t.Errorf("rail %d: seed %d: %+v %v", i, seed, v, err)
			}
		}
	}
}

// TestSimulatedTransfers: a transfer ends when the last message over each rail has arrived, and none begins after the
// limit.
func TestSimulatedTransfers(t *testing.T) {
	var c counted
	a, b := New(Options{Simulation: c.simulation()}), New(Options{Simulation: c.simulation()})
	defer a.Close()
	defer b.Close()
	from, _ := simulatedSession(t, RDMA, a, b)
	args := TransfersArgs{Shares: []Share{{Rail: "0", Chunk: chunk, Count: 3}, {Rail: "1", Chunk: chunk, Count: 3}},
		N:     4,
		Limit: time.Minute, Deadline: 20 * time.Second}
	before := c.bytes[0].Load()
	l, err := from.Transfers(t.Context(), args)
	if n := c.bytes[0].Load() - before; err != nil || len(l.Samples) != 4 || n < 4*6*chunk || n > 4*6*(chunk+64) {
		t.Errorf("%v, %v, %d bytes", l.Samples, err, n)
	}
	args.Limit = 0 // the first is always made
	if l, err := from.Transfers(t.Context(), args); err != nil || len(l.Samples) != 1 {
		t.Errorf("without time: %v, %v", l.Samples, err)
	}
	c.fault.Store(failure.New("", failure.RetryExceeded, "a wall"))
	if _, err := from.Transfers(t.Context(), args); failure.As("", err).Reason != failure.RetryExceeded {
		t.Errorf("with a fault: %v", err)
	}
}

// TestSimulatedFault: with a fault, TCP works, and RDMA fails with this fault on each rail.
func TestSimulatedFault(t *testing.T) {
	var c counted
	c.fault.Store(failure.New("", failure.RetryExceeded, "a wall"))
	a, b := New(Options{Simulation: c.simulation()}), New(Options{Simulation: c.simulation()})
	defer a.Close()
	defer b.Close()
	args := burstArgs(chunk, "0", "1")
	from, _ := simulatedSession(t, RDMA, a, b)
	done, err := from.Burst(t.Context(), failure.StageReach, args, nil)
	if err != nil || len(done.Rails) != 2 || done.Rails[0].Bytes > 0 {
		t.Fatal(err, done)
	}
	for i, r := range done.Rails {
		if f := r.Failure; f == nil || f.Reason != failure.RetryExceeded || f.Rail != args.Loads[i].Rail || f.Detail !=
			"a wall" {
			t.Errorf("rail %d: %v", i, f)
		}
	}
	if _, err := from.Latency(t.Context(), LatencyArgs{Rail: "1", N: 1, Limit: time.Second}); failure.As("",
		err).Reason != failure.RetryExceeded {
		t.Errorf("latency: %v", err)
	}
	from, _ = simulatedSession(t, TCP, a, b)
	if done, err := from.Burst(t.Context(), failure.StageStriped, args, nil); err != nil ||
		done.Rails[0].Bytes < chunk {
		t.Errorf("by TCP: %v %+v", err, done)
	}
	if n := c.bytes[0].Load(); n > 0 {
		t.Errorf("%d bytes by RDMA", n)
	}
}

// TestSimulationEnds: closing a worker ends a burst and leaves nothing behind.
func TestSimulationEnds(t *testing.T) {
	stuck := make(chan struct{})
	sim := (&counted{}).simulation()
	sim.Through = func(_, _ string, _ Op, to io.Writer) io.Writer { return wall{stuck, to} }
	a, b := New(Options{Simulation: sim}), New(Options{Simulation: (&counted{}).simulation()})
	from, _ := simulatedSession(t, RDMA, a, b)
	ended := make(chan error, 1)
	go func() {
		_, err := from.Burst(t.Context(), failure.StageSolo, burstArgs(1<<30, "0"), nil)
		ended <- err
	}()
	<-stuck
	p := a.proc
	a.Close()
	if err := <-ended; err == nil {
		t.Error("the burst went on")
	}
	select {
	case <-p.gone:
	case <-time.After(20 * time.Second):
		t.Error("it did not end")
	}
	b.Close()
}

// wall signals the first write.
type wall struct {
	stuck chan struct{}
	to    io.Writer
}

func (w wall) Write(p []byte) (int, error) {
	select {
	case w.stuck <- struct{}{}:
	default:
	}
	time.Sleep(time.Millisecond)
	return w.to.Write(p)
}
