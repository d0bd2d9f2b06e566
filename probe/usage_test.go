package probe

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/internal/target"
	"github.com/railscope/railscope/probe/internal/tcp"
	"github.com/railscope/railscope/probe/internal/transfer"
	"github.com/railscope/railscope/probe/result"
)

// TestTCPGrant: over TCP, at most the grant is accepted over all sessions of the lease. More ends the lease, with a
// reason.
func TestTCPGrant(t *testing.T) {
	t.Parallel()
	const chunk = 64 << 10
	for _, tc := range []struct {
		granted  int64
		sessions int
	}{{1, 1}, {1 << 20, 1}, {3 << 20, 3}} {
		t.Run(fmt.Sprint(tc.granted), func(t *testing.T) {
			t.Parallel()
			p := newPair(t, 1, nil)
			h := p.holder()
			before := p.answerBytes()
			if f := h.acquire("c", tc.granted); f != nil {
				t.Fatal(f)
			}
			l := held(p.resp)
			var written int64
			for i := range tc.sessions {
				total := tc.granted / int64(2*tc.sessions) // the sessions write this and the writes in flight
				if i == tc.sessions-1 {
					total = 4 << 30
				}
				written += flood(t, h.openTCP(), h.key, total, chunk)
			}
			if f := h.ended(); f.Reason != failure.Budget || !strings.Contains(f.Detail, "more over TCP than the") {
				t.Errorf("the lease ended with %v", f)
			}
			if !within(5*time.Second, func() bool { return p.resp.Leases() == 0 }) {
				t.Fatal("the lease does not end")
			}
			l.Mu.Lock()
			took := l.Session.Received
			l.Mu.Unlock()
			if took > tc.granted || took < written || took < tc.granted-2*chunk {
				t.Errorf("took in %d bytes of %d, %d were acknowledged", took, tc.granted, written)
			}
			if cost := before - p.answerBytes(); cost > float64(tc.granted)+1e3 || cost < float64(took)-4e6 {
				t.Errorf("it cost %.0f bytes, %d were granted and %d taken in", cost, tc.granted, took)
			}
		})
	}
}

// flood writes up to total bytes to a port, and returns how many were acknowledged.
func flood(t *testing.T, port uint16, key [32]byte, total int64, chunk int) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, failures := tcp.Dial(ctx,
		[]tcp.Lane{{Rail: "0", Remote: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)}}, 1, 1<<20, key)
	defer c.Close()
	if failures[0] != nil {
		t.Fatal(failures[0])
	}
	res, _ := c.Burst(ctx, make([]byte, transfer.SourceLen), transfer.BurstArgs{Window: time.Minute, Writes: 1,
		Loads: []transfer.Load{{Rail: "0", Chunk: int64(chunk), Cap: total, Depth: 8}},
		Slow:  time.Minute}) // the caller judges how it ends
	return res.Rails[0].Bytes
}

// TestTCPGrantIsUsedUp: when the grant is used up, no port is opened.
func TestTCPGrantIsUsedUp(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, nil)
	h := p.holder()
	const size, writes = 4096, 16 // few, because a busy machine must write them before the lease ends
	if f := h.acquire("c", size*writes); f != nil {
		t.Fatal(f)
	}
	to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), h.openTCP())
	c, _ := tcp.Dial(t.Context(), []tcp.Lane{{Rail: "0", Remote: to}}, 1, 4096, h.key)
	defer c.Close()
	if n, err := c.Latency(t.Context(), "0", size, writes); err != nil || len(n) != writes {
		t.Fatalf("%d of %d written: %v", len(n), writes, err)
	}
	if _, f := h.do(http.MethodPost, h.id+"/open", byTCP); f.Reason != failure.Budget || !strings.Contains(f.Detail,
		"all 0.1 MiB") {
		t.Errorf("another session: %v", f)
	}
	if text, f := h.do(http.MethodPost, h.id+"/open", byRDMA); f.Reason != "" {
		t.Errorf("by RDMA, which is not counted so: %v %s", f, text)
	}
}

// TestLeaseTooMuch: one lease is at most 1/8 of the budget, or a round with default options. The refusal says how
// to change that.
func TestLeaseTooMuch(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, nil)
	for _, tc := range []struct {
		budget, need time.Duration
		says         string
	}{
		{18 * time.Second, 2250 * time.Millisecond, ""},
		{18 * time.Second, 2251 * time.Millisecond, "needs up to 2.251s of the rails' time, and the peer grants at most " +
			"2.25s to one lease, 1/8 of its hourly budget: shorten the bursts of this node (burst), or raise budget on " +
			"the peer to 0.6%"},
		{18 * time.Second, 60 * time.Second, "raise budget on the peer to 13.4%"},
		{time.Second, node.LeastLease, ""},
		{time.Millisecond, node.LeastLease + time.Millisecond, "grants at most 1s to one lease"},
	} {
		p.b.AnswerBudget.Resize(tc.budget)
		before := p.b.AnswerBudget.Remaining()
		h := p.holder()
		f := h.acquire("c", int64(tc.need.Seconds()*p.rate("b")))
		if tc.says == "" {
			if f != nil {
				t.Errorf("%v of %v: %v", tc.need, tc.budget, f)
				continue
			}
			if _, f := h.do(http.MethodDelete, h.id, `{"bytes":0}`); f.Reason != "" {
				t.Fatal(f)
			}
			continue
		}
		if f == nil || f.Reason != failure.Budget || !strings.Contains(f.Detail, tc.says) {
			t.Errorf("%v of %v: %v, want %q", tc.need, tc.budget, f, tc.says)
		}
		if after := p.b.AnswerBudget.Remaining(); after < before {
			t.Errorf("the refusal cost %v s", before-after)
		}
	}
}

// TestLeaseHungUp: a holder that hangs up without writing costs no budget.
func TestLeaseHungUp(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, nil)
	before := p.answerBytes()
	for range 3 {
		h := p.holder()
		if f := h.acquire("c", 1<<30); f != nil {
			t.Fatal(f)
		}
		h.drop()
		if !within(5*time.Second, func() bool { return p.resp.Leases() == 0 }) {
			t.Fatal("the lease does not end")
		}
	}
	if cost := before - p.answerBytes(); cost > 0 {
		t.Errorf("it cost %.0f bytes", cost)
	}
}

// TestLeaseIdleUncounted: a lease whose counters cannot be read does not end as idle.
func TestLeaseIdleUncounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for counted, want := range map[bool]bool{true: true, false: false} {
			g := node.Guard{Rails: []node.LocalRail{{}}, Start: map[string]rail.Traffic{"": {}}, Granted: 1}
			now := map[string]rail.Traffic{}
			if counted {
				now[""] = rail.Traffic{}
			}
			l := target.NewLease(t.Context(), node.Place{}, &g, 0, 0, time.Hour, time.Hour)
			defer l.End(nil)
			time.Sleep(target.IdleLease)
			if f := l.Check(now); (f != nil) != want {
				t.Errorf("counted: %v, %v", counted, f)
			}
		}
	})
}

// TestAskedOverrun: a round that moved more than it reserved is charged for the rest.
func TestAskedOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := bareNode(t, "a")
		n.AskBudget = node.NewBudget(time.Hour)
		if _, ok := n.AskBudget.Reserve(600 * time.Second); !ok {
			t.Fatal("no budget")
		}
		if _, ok := n.Slot.Acquire(t.Context(), 0, netip.Addr{}, "test"); !ok {
			t.Fatal("no place")
		}
		r := round.Round{Pairing: round.Pairing{Node: n, Client: &control.Client{}},
			Reserved: round.Reservation{HasSlot: true, Charged: 600 * time.Second},
			Res:      result.Result{Bytes: 4000 * node.NominalRate}}
		r.Free()
		wait, ok := n.AskBudget.Reserve(time.Second)
		if ok || wait.Round(time.Second) != 401*time.Second || n.Slot.Holder() != "" {
			t.Errorf("wait %v, %v; %q", wait, ok, n.Slot.Holder())
		}
	})
}

// TestBeyondGrant: how much arrived beyond the grant over all rails, of which others may use 1/5, and how much of
// it must be the asker's.
func TestBeyondGrant(t *testing.T) {
	const mb = 1e6
	type reading struct{ in, out, repeats uint64 }
	for _, tc := range []struct {
		why     string
		rails   []reading // one second has passed, in which each rail carried 100 MB
		granted int64
		unknown bool // the capacity is unknown
		over    int64
		certain int64
	}{
		{why: "nothing"},
		{why: "as granted, with headers, and others", rails: []reading{{in: 150 * mb}}, granted: 100 * mb,
			certain: 130 * mb},
		{why: "a little more", rails: []reading{{in: 151 * mb}}, granted: 100 * mb, over: 1 * mb, certain: 131 * mb},
		{why: "as granted, but on each of two rails", rails: []reading{{in: 100 * mb}, {in: 100 * mb}},
			granted: 50 * mb, over: 95 * mb, certain: 160 * mb},
		{why: "others', both ways", rails: []reading{{in: 100 * mb, out: 100 * mb}}, granted: 10 * mb, over: 67 * mb},
		{why: "with losses", rails: []reading{{in: 100 * mb, repeats: 1}}, granted: 10 * mb, certain: 10 * mb},
		{why: "with losses, without end", rails: []reading{{in: 200 * mb, repeats: 1}}, granted: 10 * mb, over: 76 * mb,
			certain: 22.5 * mb},
		{why: "of unknown capacity", rails: []reading{{in: 26 * mb}}, granted: 10 * mb, unknown: true},
		{why: "of unknown capacity, more", rails: []reading{{in: 30 * mb}}, granted: 10 * mb, unknown: true,
			over: 4 * mb},
	} {
		g := node.Guard{Above: 0.2, Granted: tc.granted, Start: map[string]rail.Traffic{}}
		now := map[string]rail.Traffic{}
		start := time.Now()
		for i, r := range tc.rails {
			own := node.LocalRail{Capacity: 100 * mb}
			own.Name = fmt.Sprint(i)
			if tc.unknown {
				own.Capacity = 0
			}
			g.Rails = append(g.Rails, own)
			g.Start[own.Name] = rail.Traffic{At: start, Receive: 7, Transmit: 8, Port: [2]uint64{7, 8}, Repeats: 9}
			now[own.Name] = rail.Traffic{At: start.Add(time.Second), Receive: 7 + r.in, Transmit: 8 + r.out,
				Port: [2]uint64{7 + r.in, 8 + r.out}, Repeats: 9 + r.repeats}
		}
		if over, certain := g.BeyondGrant(now), g.BeyondOthers(now); over != tc.over || certain != tc.certain {
			t.Errorf("%s: %d too much and %d the asker's, want %d and %d", tc.why, over, certain, tc.over, tc.certain)
		}
	}
}

// TestOverrunOfNothing: an asker that reserves almost no time and writes more is charged for its writes.
func TestOverrunOfNothing(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, nil)
	h := p.holder()
	if f := h.acquire("c", 1); f != nil { // the request is for less than a nanosecond
		t.Fatal(f)
	}
	if _, f := h.do(http.MethodPost, h.id+"/open", byRDMA); f.Reason != "" {
		t.Fatal(f)
	}
	before := p.b.AnswerBudget.Remaining()
	p.count("b", 0, "port_rcv_data", int64(4*p.rate("b")))
	h.do(http.MethodDelete, h.id, `{"bytes":1}`)
	if !within(5*time.Second, func() bool { return p.resp.Leases() == 0 }) {
		t.Fatal("the lease does not end")
	}
	// 4 s of headers and payload, minus what others may have used.
	if cost := before - p.b.AnswerBudget.Remaining(); cost < 2 || cost > 3.2 {
		t.Errorf("it cost %v s", cost)
	}
}

// TestBudgetWithoutRails: without rails nothing is charged, and earlier debt refuses no lease.
func TestBudgetWithoutRails(t *testing.T) {
	p := newPair(t, 0, nil)
	p.b.AnswerBudget.Settle(0, time.Hour)
	h := p.holder()
	if f := h.acquire("c", 1<<20); f != nil {
		t.Fatal(f)
	}
	h.drop()
	if !within(5*time.Second, func() bool { return p.resp.Leases() == 0 }) {
		t.Fatal("the lease does not end")
	}
	if left := p.b.AnswerBudget.Remaining(); left > 0 {
		t.Errorf("%v s left", left)
	}
}

// TestGrantOverRails: an asker that writes its whole grant on every rail by RDMA loses the lease and its queue
// pairs.
func TestGrantOverRails(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, func(_ string, _ int, d *fakeverbs.Device) { d.PortRate = slowPort })
	p.setBudget(1 << 30)
	h := p.holder()
	if f := h.acquire("c", 100<<20); f != nil {
		t.Fatal(f)
	}
	if _, f := h.do(http.MethodPost, h.id+"/open", byRDMA); f.Reason != "" || len(p.fabric.Left()) == 0 {
		t.Fatalf("%v, open: %v", f, p.fabric.Left())
	}
	for i := range 2 {
		p.count("b", i, "port_rcv_data", 120<<20)
	}
	if f := h.ended(); f.Reason != failure.Busy || !strings.Contains(f.Detail, "that were granted") {
		t.Errorf("it ended with %v", f)
	}
	if !within(5*time.Second, func() bool { return p.resp.Leases() == 0 }) || len(p.fabric.Left()) > 0 {
		t.Errorf("%d leases, left %v", p.resp.Leases(), p.fabric.Left())
	}
}

// slowPort is a rate at which the tolerated traffic of others is negligible during a test.
const slowPort = "0.1 Gb/sec (1X SDR)"

// TestOverrunIsDebt: bytes beyond the grant that must be the asker's delay the next lease. The debt is at most an
// hour's budget.
func TestOverrunIsDebt(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, tc := range []struct {
		open      string
		came, out int64
		left      float64 // MiB left, of 1024
	}{
		{open: byRDMA, came: 130 * mib, left: 924 * mib},
		{open: byRDMA, came: 260 * mib, left: 824 * mib},
		{open: byRDMA, came: 1560 * mib, left: -176 * mib},
		{open: byRDMA, came: 1560 * mib, out: 1450 * mib, left: 924 * mib}, // traffic of others goes both ways
		{open: byRDMA, came: 20000 * mib, left: -1024 * mib},
		{open: byTCP, came: 1560 * mib, left: 924 * mib}, // the holder had no queue pair to write to
		{came: 1560 * mib, left: 924 * mib},
	} {
		t.Run(fmt.Sprintf("%d in, %d out, %.20s", tc.came/mib, tc.out/mib, tc.open), func(t *testing.T) {
			t.Parallel()
			p := newPair(t, 1, func(_ string, _ int, d *fakeverbs.Device) { d.PortRate = slowPort })
			p.setBudget(1024 * mib)
			h := p.holder()
			if f := h.acquire("c", 100*mib); f != nil {
				t.Fatal(f)
			}
			if tc.open != "" {
				if _, f := h.do(http.MethodPost, h.id+"/open", tc.open); f.Reason != "" {
					t.Fatal(f)
				}
			}
			p.count("b", 0, "port_xmit_data", tc.out)
			p.count("b", 0, "port_rcv_data", tc.came)
			h.do(http.MethodDelete, h.id, `{"bytes":1}`)
			if !within(5*time.Second, func() bool { return p.resp.Leases() == 0 }) {
				t.Fatal("the lease does not end")
			}
			rate := p.rate("b")
			p.b.AnswerBudget.Mu.Lock()
			left := p.b.AnswerBudget.Balance / float64(time.Second) * rate
			p.b.AnswerBudget.Mu.Unlock()
			if left < tc.left-mib || left > tc.left+16*mib { // others may use a little
				t.Errorf("%.0f MiB left, want %.0f", left/mib, tc.left/mib)
			}
			p.resp.Mu.Lock()
			p.resp.QuietUntil = time.Time{}
			p.resp.Mu.Unlock()
			f := p.holder().acquire("d", 1)
			if owed := tc.left < 0; owed != (f != nil) || owed &&
				(f.Reason != failure.Budget || p.b.AnswerBudget.Remaining() != 0) {
				t.Errorf("the next lease: %v, %.0f bytes remain", f, p.b.AnswerBudget.Remaining())
			}
		})
	}
}
