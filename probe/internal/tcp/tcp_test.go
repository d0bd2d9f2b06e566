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

// plenty is a grant that no test uses up.
const plenty = 1 << 50

// testTarget is a target that lanes reach by several addresses.
type testTarget struct {
	*Target
	addrs int
}

// Addrs returns where the lanes connect.
func (t testTarget) Addrs() []netip.AddrPort {
	var list []netip.AddrPort
	for i := range t.addrs {
		list = append(list, netip.AddrPortFrom(home(i+1), t.Port()))
	}
	return list
}

// target is reached by as many addresses, and has a buffer of as many bytes.
func target(t testing.TB, addrs, size int) (testTarget, []byte) {
	t.Helper()
	return targetOf(t, addrs, size, plenty)
}

// targetOf returns a target that accepts at most granted bytes.
func targetOf(t testing.TB, addrs, size int, granted int64) (testTarget, []byte) {
	t.Helper()
	buf := make([]byte, size)
	tg, err := Listen(t.Context(), netip.Addr{}, buf, secret(1), granted)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tg.Close)
	return testTarget{tg, addrs}, buf
}

// lanes returns a lane for each address, each from its own address.
func lanes(to []netip.AddrPort) []Lane {
	var all []Lane
	for i, a := range to {
		all = append(all, Lane{Rail: fmt.Sprint("rail", i), Local: home(101 + i), Netdev: "lo", Remote: a})
	}
	return all
}

// dial connects, and fails the test if a lane does not.
func dial(t testing.TB, to []netip.AddrPort, streams int) *Conn {
	t.Helper()
	c, failures := Dial(t.Context(), lanes(to), streams, secret(1))
	t.Cleanup(c.Close)
	for _, f := range failures {
		if f != nil {
			t.Fatal(f)
		}
	}
	return c
}

// source returns a buffer that holds the pattern of seed.
func source(size int, seed uint64) []byte {
	buf := make([]byte, size)
	pattern.Fill(buf, seed, 0)
	return buf
}

// deliver runs a burst that must succeed, and checks what arrived.
func deliver(t testing.TB, c *Conn, dst []byte, seed uint64, o transfer.BurstArgs) transfer.BurstDone {
	t.Helper()
	r, err := c.Burst(t.Context(), source(len(dst), seed), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Bytes != o.Total {
		t.Errorf("%d of %d bytes acknowledged", r.Bytes, o.Total)
	}
	arrived(t, r, dst, seed)
	return r
}

// arrived fails the test unless the target has everything that the result says.
func arrived(t testing.TB, r transfer.BurstDone, dst []byte, seed uint64) {
	t.Helper()
	for _, d := range r.Done {
		for at := d.Offset; at < d.Offset+d.Length; at += 4096 {
			part := dst[at:min(at+4096, d.Offset+d.Length)]
			if bad := pattern.Check(part, seed, at); bad >= 0 {
				t.Fatalf("byte %d is not what was sent, in %+v", bad, d)
			}
		}
	}
}

// settle fails the test unless the numbers of goroutines and open files are the same at its end.
func settle(t *testing.T) {
	t.Helper()
	count := func() (int, int) {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc: ", err)
		}
		return runtime.NumGoroutine(), len(fds)
	}
	warm, err := net.Listen("tcp", "127.0.0.1:0") // the poller keeps files of its own
	if err != nil {
		t.Fatal(err)
	}
	warm.Close()
	goroutines, files := count()
	t.Cleanup(func() {
		var g, f int
		for range 100 {
			if g, f = count(); g <= goroutines && f <= files {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		stacks := make([]byte, 1<<16)
		t.Errorf("%d goroutines and %d files, were %d and %d\n%s", g, f, goroutines, files,
			stacks[:runtime.Stack(stacks, true)])
	})
}

// relay forwards a lane to a target, at a rate. It returns where it listens, and a function that cuts the lane.
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
			// Writers that are not sockets: io.Copy would keep pipes for splice.
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
		s.begin, s.bytes = time.Now(), 0 // what was not sent in time is not made up for
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
