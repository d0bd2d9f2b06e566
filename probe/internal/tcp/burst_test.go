package tcp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// TestBurst moves whole buffers, parts of them and more than they hold, over one lane and several, and checks every
// byte.
func TestBurst(t *testing.T) {
	settle(t)
	for _, stealing := range []bool{true, false} {
		for _, tc := range []struct {
			lanes, streams, size int
			total, chunk         int64
			depth                int
		}{
			{1, 1, 4 << 20, 4 << 20, 1 << 20, 8},
			{1, 4, 4 << 20, 4 << 20, 128 << 10, 8},
			{2, 1, 4 << 20, 4 << 20, 1 << 20, 8},
			{3, 2, 4<<20 + 13, 4<<20 + 13, 300_001, 5}, // nothing divides anything
			{2, 2, 1<<20 + 13, 40 << 20, 64 << 10, 8},  // around and around
			{2, 1, 4 << 20, 3 << 20, 1 << 20, 1},       // a part, one at a time
			{3, 1, 8, 8, 1 << 20, 8},
			{4, 1, 4096, 1, 1 << 20, 8}, // more lanes than bytes
		} {
			t.Run(fmt.Sprint(stealing, tc), func(t *testing.T) {
				tg, dst := target(t, tc.lanes, tc.size)
				c := dial(t, tg.Addrs(), tc.streams)
				for seed := range uint64(2) { // the lanes are still good after a burst
					r := deliver(t, c, dst, seed, transfer.BurstArgs{Stealing: stealing, Total: tc.total, Chunk: tc.chunk,
						Depth: tc.depth})
					want := []transfer.Range{{Length: min(tc.total, int64(tc.size))}}
					if !slices.Equal(r.Done, want) {
						t.Errorf("done %v, want %v", r.Done, want)
					}
					if r.Elapsed <= 0 {
						t.Errorf("took %v", r.Elapsed)
					}
				}
				sum := int64(0)
				for _, n := range c.Progress() {
					sum += n
				}
				if sum != 2*tc.total {
					t.Errorf("progress of %d bytes, want %d", sum, 2*tc.total)
				}
			})
		}
	}
}

// TestStatic: every lane carries an equal part, even a slow one.
func TestStatic(t *testing.T) {
	settle(t)
	tg, dst := target(t, 2, 4<<20)
	to := tg.Addrs()
	to[1], _ = relay(t, to[1], 10e6)
	r := deliver(t, dial(t, to, 1), dst, 1, transfer.BurstArgs{Total: 8 << 20, Chunk: 1 << 20, Depth: 8})
	for i, l := range r.Rails {
		if l.Bytes != 4<<20 || l.Last <= l.First {
			t.Errorf("lane %d: %+v", i, l)
		}
	}
	if r.Rails[0].Last >= r.Rails[1].Last {
		t.Errorf("the slow lane is done at %v, the other at %v", r.Rails[1].Last, r.Rails[0].Last)
	}
}

// TestSlowLane: a lane at 1/3 of the other's rate carries about a quarter, and the lanes end together.
func TestSlowLane(t *testing.T) {
	settle(t)
	tg, dst := target(t, 2, 8<<20)
	to := tg.Addrs()
	// Slow enough that a lane which waits for a processor is still the relay's to bound.
	to[0], _ = relay(t, to[0], 15e6)
	to[1], _ = relay(t, to[1], 5e6)
	c := dial(t, to, 1)
	r := deliver(t, c, dst, 1, transfer.BurstArgs{Stealing: true, Total: 24 << 20, Chunk: 1 << 20, Depth: 8})
	share := float64(r.Rails[1].Bytes) / float64(r.Bytes)
	t.Logf("the slow lane carried %.3f; %.3f of the sum; done at %v and %v", share,
		float64(r.Bytes)/r.Elapsed.Seconds()/20e6, r.Rails[0].Last, r.Rails[1].Last)
	if share < 0.1 || share > 0.4 {
		t.Errorf("the slow lane carried %.3f, want about 0.25", share)
	}
}

// TestSomeLanes: a burst over one of two lanes does not use the other.
func TestSomeLanes(t *testing.T) {
	settle(t)
	tg, dst := target(t, 2, 1<<20)
	c := dial(t, tg.Addrs(), 2)
	for lane := range 2 {
		r := deliver(t, c, dst, uint64(lane), transfer.BurstArgs{Stealing: true,
			Rails: []string{fmt.Sprint("rail", lane)}, Total: 1 << 20, Chunk: 64 << 10, Depth: 4})
		if p := c.Progress(); len(r.Rails) != 1 || p[1] != int64(lane)<<20 {
			t.Errorf("a burst over lane %d: %+v, progress %v", lane, r.Rails, p)
		}
	}
	if _, err := c.Burst(t.Context(), dst,
		transfer.BurstArgs{Rails: []string{}, Total: 1, Chunk: 1, Depth: 1}); reason(err) != failure.Other {
		t.Errorf("a burst over no lanes: %v", err)
	}
	for _, o := range []transfer.BurstArgs{{Chunk: 1, Depth: 1}, {Total: 1, Depth: 1}, {Total: 1, Chunk: 1},
		{Total: 1, Chunk: MaxChunk + 1, Depth: 1}} {
		if _, err := c.Burst(t.Context(), dst, o); reason(err) != failure.Other {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestLimit stops long before the total. Everything sent is acknowledged.
func TestLimit(t *testing.T) {
	settle(t)
	tg, dst := target(t, 2, 4<<20)
	c := dial(t, tg.Addrs(), 2)
	o := transfer.BurstArgs{Stealing: true, Total: 1 << 50, Chunk: 256 << 10, Depth: 8, Limit: 50 * time.Millisecond}
	r, err := c.Burst(t.Context(), source(len(dst), 1), o)
	if err != nil || r.Bytes == 0 || r.Bytes == o.Total {
		t.Fatalf("%d bytes, %v", r.Bytes, err)
	}
	arrived(t, r, dst, 1)
	o.Total, o.Limit = 4<<20, 0
	deliver(t, c, dst, 2, o) // and the lanes are good
}

// TestCut cuts one of two lanes during a burst: the other delivers everything when stealing, else its own part.
func TestCut(t *testing.T) {
	for _, stealing := range []bool{true, false} {
		t.Run(fmt.Sprint("stealing ", stealing), func(t *testing.T) {
			settle(t)
			tg, dst := target(t, 2, 4<<20)
			to := tg.Addrs()
			var cut func()
			to[0], cut = relay(t, to[0], 80e6)
			c := dial(t, to, 2)
			go func() {
				for t.Context().Err() == nil && c.Progress()[0] < 1<<20 {
					time.Sleep(time.Millisecond)
				}
				cut()
			}()
			r, err := c.Burst(t.Context(), source(len(dst), 1), transfer.BurstArgs{Stealing: stealing,
				Total: 512 << 20, Chunk: 256 << 10,
				Depth: 8})
			if err != nil {
				t.Fatal(err)
			}
			arrived(t, r, dst, 1)
			if f := r.Rails[0].Failure; f == nil || f.Reason != failure.TCPBroken || f.Rail != "rail0" ||
				r.Rails[1].Failure != nil {
				t.Errorf("the lanes failed by %v and %v", f, r.Rails[1].Failure)
			}
			if stealing && r.Bytes != 512<<20 || !stealing && r.Rails[1].Bytes != 256<<20 {
				t.Errorf("bytes %d: %+v", r.Bytes, r.Rails)
			}
			r = deliver(t, c, dst, 2, transfer.BurstArgs{Stealing: stealing, Total: 4 << 20, Chunk: 256 << 10, Depth: 8})
			if r.Rails[0].Failure == nil || r.Rails[1].Bytes != 4<<20 {
				t.Errorf("the burst after it: %+v", r.Rails)
			}
		})
	}
}

// endless runs a burst without end, calls do during it, and returns when both have ended.
func endless(ctx context.Context, t *testing.T, c *Conn, size int, do func()) (transfer.BurstDone, error) {
	t.Helper()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for t.Context().Err() == nil && c.Progress()[0] < 8<<20 {
			time.Sleep(time.Millisecond)
		}
		do()
	})
	return c.Burst(ctx, source(size, 1), transfer.BurstArgs{Stealing: true, Total: 1 << 50, Chunk: 256 << 10, Depth: 8})
}

// TestTargetCloses during a burst: every lane breaks, the result says what completed, and nothing is written
// afterwards.
func TestTargetCloses(t *testing.T) {
	settle(t)
	tg, dst := target(t, 2, 4<<20)
	c := dial(t, tg.Addrs(), 2)
	r, err := endless(t.Context(), t, c, len(dst), func() {
		tg.Close()
		clear(dst)
	})
	if reason(err) != failure.TCPBroken || r.Bytes == 0 || len(r.Done) == 0 {
		t.Errorf("%v; %d bytes, %v", err, r.Bytes, r.Done)
	}
	for i, b := range dst {
		if b != 0 {
			t.Fatalf("byte %d was written after Close", i)
		}
	}
	tg.Close()
}

// TestContextEnds ends the asker's context, and then the target's.
func TestContextEnds(t *testing.T) {
	settle(t)
	ctx, cancel := context.WithCancel(t.Context())
	dst := make([]byte, 4<<20)
	tg, err := Listen(ctx, netip.Addr{}, dst, secret(1), plenty)
	if err != nil {
		t.Fatal(err)
	}
	defer tg.Close()
	to := []netip.AddrPort{netip.AddrPortFrom(home(1), tg.Port())}
	c := dial(t, to, 1)
	asking, giveUp := context.WithCancel(t.Context())
	_, err = endless(asking, t, c, len(dst), giveUp)
	if reason(err) != failure.Canceled {
		t.Errorf("the burst: %v", err)
	}
	one := transfer.BurstArgs{Total: 1, Chunk: 1, Depth: 1}
	if _, err := c.Burst(t.Context(), dst, one); reason(err) != failure.Canceled {
		t.Errorf("the burst after it: %v", err)
	}
	if _, err := c.Latency(t.Context(), "rail0", 1); reason(err) != failure.Canceled {
		t.Errorf("latency after it: %v", err)
	}
	c = dial(t, to, 1)
	if _, err = endless(t.Context(), t, c, len(dst), cancel); reason(err) != failure.TCPBroken {
		t.Errorf("the burst when the target ends: %v", err)
	}
}

// TestClose in the middle of a burst ends it.
func TestClose(t *testing.T) {
	settle(t)
	tg, dst := target(t, 2, 4<<20)
	c := dial(t, tg.Addrs(), 1)
	if _, err := endless(t.Context(), t, c, len(dst), c.Close); reason(err) != failure.Canceled {
		t.Error(err)
	}
}

// TestLatency also checks TCP_INFO.
func TestLatency(t *testing.T) {
	settle(t)
	tg, _ := target(t, 2, 1<<20)
	c := dial(t, tg.Addrs(), 2)
	for lane := range 2 {
		samples, err := c.Latency(t.Context(), fmt.Sprint("rail", lane), 200)
		if err != nil || len(samples) != 200 || slices.Min(samples) <= 0 {
			t.Errorf("%d samples, %v", len(samples), err)
		}
		slices.Sort(samples)
		t.Logf("median %v, p99 %v", samples[100], samples[198])
	}
	infos := c.Info()
	c.Close()
	for i, info := range infos {
		if info.PathMTU <= 0 || info.RTT <= 0 {
			t.Errorf("lane %d: %+v", i, info)
		}
		if after := c.Info()[i]; after.PathMTU != info.PathMTU {
			t.Errorf("lane %d, closed: %+v, was %+v", i, after, info)
		}
	}
	if _, err := c.Latency(t.Context(), "rail2", 1); reason(err) != failure.Other {
		t.Errorf("a lane that does not exist: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c = dial(t, tg.Addrs(), 1)
	if s, err := c.Latency(ctx, "rail0", 1<<30); !errors.As(err, new(*failure.Failure)) || len(s) == 1<<30 {
		t.Errorf("canceled: %v", err)
	}
}
