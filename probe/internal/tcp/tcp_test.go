package tcp

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/pattern"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// home returns address n of this machine, which has all of 127.0.0.0/8.
func home(n int) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 1, byte(n)}) }

// plenty is a grant that no test exhausts.
const plenty = 1 << 50

// testTarget is a target with a lane for each of its addresses.
type testTarget struct {
	*Target
	size int // bytes per lane
}

// Addrs returns the addresses that the lanes connect to.
func (t testTarget) Addrs() []netip.AddrPort {
	var list []netip.AddrPort
	for i := range t.memory {
		list = append(list, netip.AddrPortFrom(home(i+1), t.Port()))
	}
	return list
}

// target returns a target with these lanes, each with this many streams and bytes.
func target(t testing.TB, lanes, streams, size int) testTarget {
	t.Helper()
	return targetOf(t, lanes, streams, size, plenty)
}

// targetOf returns a target that accepts at most granted bytes.
func targetOf(t testing.TB, lanes, streams, size int, granted int64) testTarget {
	t.Helper()
	var memory [][]byte
	for range lanes {
		memory = append(memory, make([]byte, size))
	}
	tg, err := Listen(t.Context(), netip.Addr{}, memory, streams, secret(1), granted)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tg.Close)
	return testTarget{tg, size}
}

// lanes returns a lane for each address, each from its own address.
func lanes(to []netip.AddrPort) []Lane {
	var all []Lane
	for i, a := range to {
		all = append(all, Lane{Rail: fmt.Sprint("rail", i), Local: home(101 + i), Netdev: "lo", Remote: a})
	}
	return all
}

// dial connects over all lanes, and fails the test if one does not.
func (t testTarget) dial(tb testing.TB) *Conn {
	tb.Helper()
	return t.dialTo(tb, t.Addrs())
}

// dialTo is dial with other addresses.
func (t testTarget) dialTo(tb testing.TB, to []netip.AddrPort) *Conn {
	tb.Helper()
	c, failures := Dial(tb.Context(), lanes(to), t.streams, int64(t.size), secret(1))
	tb.Cleanup(c.Close)
	for _, f := range failures {
		if f != nil {
			tb.Fatal(f)
		}
	}
	return c
}

// source returns an asker's source: the pattern of a seed.
func source(seed uint64) []byte {
	buf := make([]byte, transfer.SourceLen)
	pattern.Fill(buf, seed, 0)
	return buf
}

// wrong returns the offset of the first byte that differs from the pattern, which begins at offset, or -1. The race
// detector does not know that acknowledged bytes are no longer written.
//
//go:norace
func wrong(buf []byte, seed uint64, offset int64) int64 {
	want := make([]byte, len(buf))
	pattern.Fill(want, seed, offset)
	for i := range buf {
		if buf[i] != want[i] {
			return offset + int64(i)
		}
	}
	return -1
}

// loads returns equal loads for all lanes.
func loads(lanes int, chunk int64, depth int) (list []transfer.Load) {
	for i := range lanes {
		list = append(list, transfer.Load{Rail: fmt.Sprint("rail", i), Chunk: chunk, Cap: 1 << 50, Depth: depth})
	}
	return list
}

// some returns the arguments of a burst that moves at least this many bytes over each lane.
func some(lanes int, bytes int64) transfer.BurstArgs {
	o := transfer.BurstArgs{Loads: loads(lanes, 64<<10, 8), Window: time.Hour, Slow: 10 * time.Second}
	for i := range o.Loads {
		o.Loads[i].Cap = bytes
	}
	return o
}

// deliver runs a burst that must succeed, and checks the bytes that arrived.
func (t testTarget) deliver(tb testing.TB, c *Conn, o transfer.BurstArgs) transfer.BurstDone {
	tb.Helper()
	r, err := c.Burst(tb.Context(), source(1), o)
	if err != nil {
		tb.Fatal(err)
	}
	t.arrived(tb, r, o)
	return r
}

// arrived fails the test unless the target has everything that the result says, on the lanes that did not fail.
func (t testTarget) arrived(tb testing.TB, r transfer.BurstDone, o transfer.BurstArgs) {
	tb.Helper()
	for n, l := range r.Rails {
		var lane int
		_, _ = fmt.Sscanf(o.Loads[n].Rail, "rail%d", &lane)
		chunk, ring, sum := o.Loads[n].Chunk, int64(t.size/t.streams), int64(0)
		for s, writes := range l.Writes {
			sum += writes * chunk
			for i := max(writes-ring/chunk, 0); i < writes && l.Failure == nil; i++ {
				at, from := transfer.Place(i, ring, chunk, o.Pass)
				if bad := wrong(t.memory[lane][int64(s)*ring+at:][:chunk], 1, from); bad >= 0 {
					tb.Fatalf("lane %d, stream %d, write %d at %d: byte %d is wrong", lane, s, i, at, bad-from)
				}
			}
		}
		if l.Failure == nil && l.Bytes != sum || l.Bytes > sum || l.Measured > l.Bytes {
			tb.Errorf("lane %d wrote %d bytes: %+v", lane, sum, l)
		}
	}
}

// settle checks at the end of the test that no goroutines and open files were leaked.
func settle(t *testing.T) {
	t.Helper()
	count := func() (int, int) {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc: ", err)
		}
		return runtime.NumGoroutine(), len(fds)
	}
	warm, err := net.Listen("tcp", "127.0.0.1:0") // makes the poller open its own files first
	if err != nil {
		t.Fatal(err)
	}
	warm.Close()
	goroutines, files := count()
	t.Cleanup(func() {
		var g, f int
		for range 100 {
			g, f = count()
			if g <= goroutines && f <= files {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		stacks := make([]byte, 1<<16)
		t.Errorf("%d goroutines and %d files, were %d and %d\n%s", g, f, goroutines, files,
			stacks[:runtime.Stack(stacks, true)])
	})
}

// relay forwards a lane to a target, at a rate. It returns its address, and a function that cuts the lane.
func relay(t testing.TB, to netip.AddrPort, bytesPerSecond int) (netip.AddrPort, func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.3.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cut := context.WithCancel(context.Background())
	context.AfterFunc(ctx, func() { l.Close() })
	t.Cleanup(cut)
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to.String())
			if err != nil {
				in.Close()
				return
			}
			context.AfterFunc(ctx, func() { in.Close(); out.Close() })
			// These writers are not sockets, because io.Copy would keep pipes for splice.
			go func() { io.Copy(struct{ io.Writer }{in}, out); in.Close() }()
			go func() {
				io.Copy(struct{ io.Writer }{out}, &slow{in, float64(bytesPerSecond), time.Now(), 0})
				out.Close()
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort(), cut
}

// slow reads at a rate.
type slow struct {
	io.Reader
	rate  float64
	begin time.Time
	bytes int
}

func (s *slow) Read(p []byte) (int, error) {
	if s.rate <= 0 {
		return s.Reader.Read(p)
	}
	due := time.Duration(float64(s.bytes) / s.rate * 1e9)
	if ahead := due - time.Since(s.begin); ahead > 0 {
		time.Sleep(ahead)
	} else if ahead < -10*time.Millisecond {
		s.begin, s.bytes = time.Now(), 0 // it does not catch up on missed time
	}
	n, err := s.Reader.Read(p[:min(len(p), 64<<10)])
	s.bytes += n
	return n, err
}

// reason returns the reason of a failure, empty for none.
func reason(err error) failure.Reason {
	if f := failure.As(failure.StageConnect, err); f != nil {
		return f.Reason
	}
	return ""
}
