package tcp

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// endless runs an endless burst, calls do during it, and returns after both have ended.
func endless(ctx context.Context, t *testing.T, c *Conn, do func()) (transfer.BurstDone, transfer.BurstArgs, error) {
	t.Helper()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for t.Context().Err() == nil && c.Progress()[0] < 8<<20 {
			time.Sleep(time.Millisecond)
		}
		do()
	})
	o := some(len(c.lanes), 1<<50)
	o.Slow = time.Hour
	r, err := c.Burst(ctx, source(1), o)
	return r, o, err
}

// TestCut cuts one of two lanes during a burst. The burst ends for both, and the other lane has delivered what the
// result says. The cut lane stays broken.
func TestCut(t *testing.T) {
	settle(t)
	tg := target(t, 2, 2, 4<<20)
	to := tg.Addrs()
	var cut func()
	to[0], cut = relay(t, to[0], 80e6)
	c := tg.dialTo(t, to)
	begin := time.Now()
	r, o, err := endless(t.Context(), t, c, cut)
	if err != nil || time.Since(begin) > 10*time.Second {
		t.Fatalf("%v after %v", err, time.Since(begin))
	}
	tg.arrived(t, r, o)
	if f := r.Rails[0].Failure; f == nil || f.Reason != failure.TCPBroken || f.Rail != "rail0" ||
		r.Rails[1].Failure != nil || r.Rails[1].Bytes == 0 {
		t.Errorf("%+v", r.Rails)
	}
	r = tg.deliver(t, c, o)
	if r.Rails[0].Failure == nil || r.Rails[1].Failure != nil || r.Rails[1].Bytes != 0 {
		t.Errorf("the burst after it: %+v", r.Rails)
	}
	o = some(2, 4<<20)
	o.Loads = o.Loads[1:]
	r = tg.deliver(t, c, o)
	if r.Rails[0].Failure != nil || r.Rails[0].Bytes < 4<<20 {
		t.Errorf("a burst over the other: %+v", r.Rails)
	}
}

// broke returns how many rails failed for a reason. The burst may end before others notice it.
func broke(r transfer.BurstDone, why failure.Reason) (n int) {
	for _, l := range r.Rails {
		if l.Failure != nil && l.Failure.Reason == why {
			n++
		}
	}
	return n
}

// TestTargetCloses closes the target during a burst: lanes break, the result has what completed, and nothing is written
// afterwards.
func TestTargetCloses(t *testing.T) {
	settle(t)
	tg := target(t, 2, 2, 4<<20)
	r, _, err := endless(t.Context(), t, tg.dial(t), func() {
		tg.Close()
		for _, m := range tg.memory {
			clear(m)
		}
	})
	if broke(r, failure.TCPBroken) == 0 || r.Rails[0].Bytes == 0 {
		t.Errorf("%v; %+v", err, r.Rails)
	}
	for lane, m := range tg.memory {
		for i, b := range m {
			if b != 0 {
				t.Fatalf("byte %d of lane %d was written after Close", i, lane)
			}
		}
	}
	tg.Close()
}

// TestContextEnds ends the asker's context, and then the target's.
func TestContextEnds(t *testing.T) {
	settle(t)
	ctx, cancel := context.WithCancel(t.Context())
	memory := [][]byte{make([]byte, 4<<20), make([]byte, 4<<20)}
	own, err := Listen(ctx, netip.Addr{}, memory, 1, secret(1), plenty)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	tg := testTarget{own, 4 << 20}
	c := tg.dial(t)
	asking, giveUp := context.WithCancel(t.Context())
	_, _, err = endless(asking, t, c, giveUp)
	if reason(err) != failure.Canceled {
		t.Errorf("the burst: %v", err)
	}
	if _, err := c.Burst(t.Context(), source(1), some(2, 1)); reason(err) != failure.Canceled {
		t.Errorf("the burst after it: %v", err)
	}
	if _, err := c.Latency(t.Context(), "rail0", 8, 1); reason(err) != failure.Canceled {
		t.Errorf("latency after it: %v", err)
	}
	waitFor(t, func() bool { // otherwise two connections write to the same memory
		all, _ := own.limit.Open()
		return all == 0
	})
	c = tg.dial(t)
	if r, _, err := endless(t.Context(), t, c, cancel); broke(r, failure.TCPBroken) == 0 {
		t.Errorf("the burst when the target ends: %+v, %v", r, err)
	}
}

// TestClose in the middle of a burst ends it.
func TestClose(t *testing.T) {
	settle(t)
	c := target(t, 2, 1, 4<<20).dial(t)
	if r, _, err := endless(t.Context(), t, c, c.Close); broke(r, failure.Canceled) == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := c.Burst(t.Context(), source(1), some(2, 1)); reason(err) != failure.Canceled {
		t.Errorf("the burst after it: %v", err)
	}
}

// stuck returns a target that accepts everything and acknowledges nothing.
func stuck(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if serveHandshake(c, secret(1), newNonce(), func(uint32, uint32) bool { return true }) == nil {
					_, _ = io.Copy(io.Discard, struct{ io.Reader }{c})
				}
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// TestStuckTarget: a lane fails when an acknowledgement takes too long, and all fail when the burst's time is over.
func TestStuckTarget(t *testing.T) {
	settle(t)
	tg := target(t, 2, 1, 4<<20)
	to := tg.Addrs()
	to[1] = stuck(t)
	c := tg.dialTo(t, to)
	c.lanes[1].streams[0].timeout = 100 * time.Millisecond
	o := some(2, 1<<50)
	o.Slow = 50 * time.Millisecond
	r, err := c.Burst(t.Context(), source(1), o)
	if err != nil || r.Rails[0].Failure != nil || r.Rails[1].Failure == nil ||
		r.Rails[1].Failure.Reason != failure.Timeout || r.Rails[1].Bytes != 0 {
		t.Errorf("%+v, %v", r.Rails, err)
	}
	tg.arrived(t, r, o)
	c = tg.dialTo(t, to[1:])
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err = c.Burst(ctx, source(1), some(1, 1<<50))
	if reason(err) != failure.Timeout ||
		time.Since(begin) > ackTimeout/2 {
		t.Errorf("the burst's time: %v after %v", err, time.Since(begin))
	}
}

// TestStretch: the measurement of a lane that was blocked at the end of a burst includes that time, unless it already
// had enough.
func TestStretch(t *testing.T) {
	const ms = time.Millisecond
	for why, tc := range map[string]struct {
		first, last, over time.Duration
		counted           int
		want              time.Duration // end of the measurement
	}{
		"three at once, and then nothing": {100 * ms, 100*ms + 50*time.Microsecond, 200 * ms, 2, 200 * ms},
		"slow, and steady":                {70 * ms, 175 * ms, 200 * ms, 2, 175 * ms},
		"enough":                          {20 * ms, 70 * ms, 200 * ms, 8, 70 * ms},
		"one":                             {20 * ms, 20 * ms, 200 * ms, 0, 20 * ms},
	} {
		b := &burst{args: transfer.BurstArgs{Writes: 8, Window: 40 * ms}, counted: []int{tc.counted},
			rails: []transfer.BurstRail{{First: tc.first, Last: tc.last}}}
		b.over.Store(int64(tc.over))
		b.stretch(0)
		if b.rails[0].Last != tc.want {
			t.Errorf("%s: measured until %v, want %v", why, b.rails[0].Last, tc.want)
		}
	}
}
