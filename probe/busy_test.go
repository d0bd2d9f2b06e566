package probe

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

// sends describes a burst of writes, one over each rail.
func sends(rails ...string) (list []node.LoadRail) {
	for _, name := range rails {
		list = append(list, node.LoadRail{Name: name, Direction: rail.Transmit})
	}
	return list
}

// TestGuardJudge separates the probe's traffic from others'. One second has passed, the rail carries 100 MB/s, and
// others may use 20.
func TestGuardJudge(t *testing.T) {
	const mb = 1e6
	type reading struct{ out, in, retransmits, repeats uint64 }
	for _, tc := range []struct {
		why            string
		receiving      bool
		now            reading
		sent, underway int64
		granted        int64
		gone           bool // the rail was not read
		unknown        bool // the capacity is unknown
		late           int64
		period         time.Duration // period of the counters
		says           string
	}{
		{why: "idle"},
		{why: "others send a little", now: reading{out: 19 * mb}},
		{why: "others send", now: reading{out: 21 * mb}, says: "going out"},
		{why: "others receive", now: reading{in: 21 * mb}, says: "going in"},
		{why: "our own, with headers", now: reading{out: 95 * mb}, sent: 80 * mb},
		{why: "our own, not yet counted", now: reading{out: 95 * mb}, underway: 80 * mb},
		{why: "our own, acknowledged", now: reading{out: 90 * mb, in: 30 * mb}, sent: 80 * mb},
		{why: "our own and others'", now: reading{out: 95 * mb}, sent: 40 * mb, says: "43 % of its capacity going out"},
		{why: "our own out, others in", now: reading{out: 50 * mb, in: 45 * mb}, sent: 45 * mb,
			says: "25 % of its capacity going in"},
		{why: "our own once more", now: reading{out: 95 * mb, retransmits: 1}, sent: 10 * mb},
		{why: "our own once more, others in", now: reading{out: 50 * mb, in: 45 * mb, retransmits: 1}, sent: 10 * mb,
			says: "going in"},
		{why: "the asker's", receiving: true, granted: 80 * mb, now: reading{in: 100 * mb, out: 30 * mb}},
		{why: "the asker's and others'", receiving: true, granted: 80 * mb, now: reading{in: 10 * mb, out: 30 * mb},
			says: "going out"},
		{why: "a little more than the asker may", receiving: true, granted: 50 * mb,
			now: reading{in: 84 * mb, out: 30 * mb}},
		{why: "more than the asker may", receiving: true, granted: 50 * mb, now: reading{in: 86 * mb, out: 30 * mb},
			says: "21 % of its capacity going in"},
		{why: "the asker's once more, packets are lost", receiving: true, granted: 10 * mb,
			now: reading{in: 95 * mb, out: 30 * mb, repeats: 1}},
		{why: "the asker's once more, others out", receiving: true, granted: 10 * mb,
			now: reading{in: 50 * mb, out: 45 * mb, repeats: 1}, says: "going out"},
		{why: "our own of before", now: reading{out: 70 * mb, in: 70 * mb}, late: 50 * mb, period: time.Millisecond},
		{why: "our own of before, where counters tell at once", now: reading{out: 70 * mb}, late: 50 * mb,
			says: "going out"},
		{why: "our own of before, and others", now: reading{out: 90 * mb}, late: 50 * mb, period: time.Millisecond,
			says: "25 % of its capacity going out"},
		{why: "the asker's of before", receiving: true, granted: 10 * mb, now: reading{in: 70 * mb}, late: 50 * mb,
			period: time.Millisecond},
		{why: "others' of two seconds", now: reading{out: 39 * mb}, period: time.Second},
		{why: "others', even of two seconds", now: reading{out: 41 * mb}, period: time.Second, says: "20 % of its capacity"},
		{why: "who knows", now: reading{out: 95 * mb}, unknown: true},
		{why: "cannot be read", now: reading{out: 95 * mb}, gone: true},
	} {
		var r node.LocalRail
		r.Name, r.Device, r.Capacity = "0", "mlx5_0", 100*mb
		if tc.unknown {
			r.Capacity = 0
		}
		at := time.Unix(1000, 0)
		start := map[string]rail.Traffic{"0": {Port: [2]uint64{7, 7}, Retransmits: 7, Repeats: 7, Period: tc.period, At: at}}
		now := map[string]rail.Traffic{"0": {Port: [2]uint64{rail.Transmit: 7 + tc.now.out, rail.Receive: 7 + tc.now.in},
			Retransmits: 7 + tc.now.retransmits, Repeats: 7 + tc.now.repeats, Period: tc.period,
			At: at.Add(time.Second)}}
		if tc.gone {
			delete(now, "0")
		}
		g := node.Guard{Rails: []node.LocalRail{r}, Above: 0.2, Uncounted: tc.late, Granted: tc.granted}
		if !tc.receiving {
			g.Burst = node.NewBurstProgress([]worker.Load{{Rail: "0", Chunk: tc.underway, Depth: 1}}, sends("0"))
			g.Burst.Set(at, []int64{tc.sent})
		}
		var f *failure.Failure
		for r, d := range node.Deltas([]node.LocalRail{r}, start, now) {
			f = g.Judge(r, d)
		}
		if (f == nil) != (tc.says == "") || f != nil &&
			(f.Reason != failure.Busy || f.Rail != "0" || !strings.Contains(f.Detail, tc.says)) {
			t.Errorf("%s: %v, want %q", tc.why, f, tc.says)
		}
	}
	if d, ok := node.TrafficBetween(map[string]rail.Traffic{"": {Transmit: 10}},
		map[string]rail.Traffic{"": {At: time.Unix(1, 0)}}, ""); ok {
		t.Errorf("after a reset of the counters: %+v", d)
	}
}

// TestRecentTransfers: a transfer is uncounted only for a moment, and later dropped.
func TestRecentTransfers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m node.RecentTransfers
		for range 1000 {
			m.Add(1 << 20)
			time.Sleep(node.CounterDelay / 4)
		}
		if got := m.Uncounted(node.CounterDelay); got != 4<<20 || m.Uncounted(2*node.CounterDelay) != 8<<20 ||
			len(m.List) > 61 {
			t.Errorf("%d bytes of %d transfers", got, len(m.List))
		}
		time.Sleep(node.CounterDelay)
		if m.Uncounted(node.CounterDelay) != 0 {
			t.Errorf("later %d", m.Uncounted(node.CounterDelay))
		}
	})
}

// TestSettledTraffic: counters that move once per second are read after they have counted the last burst; others
// are read at once, and so are those of an interface.
func TestSettledTraffic(t *testing.T) {
	for name, tc := range map[string]struct {
		r    rail.Rail
		want time.Duration
	}{
		"bnxt": {rail.Rail{Name: "0", Driver: "bnxt_en"}, 700 * time.Millisecond},
		"mlx5": {rail.Rail{Name: "0", Driver: "mlx5_core"}, 0},
		"rxe":  {rail.Rail{Name: "0", Software: true, Netdev: "eth0"}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := bareNode(t, "a")
			r := node.LocalRail{Rail: tc.r}
			r.Dir, r.Port = t.TempDir(), 1
			dir := filepath.Join(r.Dir, "ports/1/counters")
			names := []string{"port_xmit_data", "port_rcv_data"}
			if tc.r.Software {
				dir, names = filepath.Join(n.Opts.Sysfs, "class/net/eth0/statistics"), []string{"tx_bytes", "rx_bytes"}
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				file(t, filepath.Join(dir, name), "1\n")
			}
			r.Traffic = rail.NewPort(n.Opts.Sysfs, r.Rail, nil)
			n.Recent.Add(1)
			time.Sleep(300 * time.Millisecond)
			start := time.Now()
			if got := n.SettledTraffic(t.Context(), []node.LocalRail{r}); len(got) != 1 ||
				time.Since(start) != tc.want {
				t.Errorf("%s: %v after %v, want %v", name, got, time.Since(start), tc.want)
			}
			time.Sleep(time.Hour) // no lane outlives the bubble
		})
	}
}

// TestBusyRecently: known traffic of the last seconds decides at once, for the function and for the physical port,
// without the probe's own.
func TestBusyRecently(t *testing.T) {
	const gb = 1e9
	rates := func(receive, transmit float64) [2]float64 { return [2]float64{receive, transmit} }
	for _, tc := range []struct {
		why  string
		mean rail.MeanTraffic
		own  int64
		says string
	}{
		{why: "idle"},
		{why: "a little", mean: rail.MeanTraffic{Rate: rates(1.9*gb, 1.9*gb)}},
		{why: "RDMA of this function", mean: rail.MeanTraffic{Rate: rates(0, 2.1*gb)},
			says: "21 % of its capacity going out"},
		{why: "TCP, or a virtual function", mean: rail.MeanTraffic{Port: rates(5*gb, 0), Physical: true},
			says: "25 % of its capacity going in"},
		{why: "both functions of the port, a little", mean: rail.MeanTraffic{Rate: rates(1.9*gb, 0), Port: rates(3.9*gb, 0),
			Physical: true}},
		{why: "not the physical port's", mean: rail.MeanTraffic{Port: rates(5*gb, 0)}},
		{why: "the probe's own", mean: rail.MeanTraffic{Rate: rates(2.5*gb, 0)}, own: 4 << 30},
		{why: "the probe's own, and others", mean: rail.MeanTraffic{Rate: rates(5*gb, 0)}, own: 4 << 30, says: "going in"},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := bareNode(t, "a")
			n.UseTraffic(func(rail.Rail) (rail.MeanTraffic, bool) {
				tc.mean.Over = 5 * time.Second
				return tc.mean, true
			})
			if tc.own > 0 {
				n.Recent.Add(tc.own)
			}
			time.Sleep(3 * time.Second)
			r := node.LocalRail{Capacity: 10 * gb, PortCapacity: 20 * gb}
			r.Name = "0"
			start := time.Now()
			f := n.Busy(t.Context(), []node.LocalRail{r, r}, 0.2)["0"] // each rail had half of the probe's own bytes
			if (f == nil) != (tc.says == "") || f != nil && !strings.Contains(f.Detail, tc.says) || time.Since(start) > 0 {
				t.Errorf("%s: %v after %v, want %q", tc.why, f, time.Since(start), tc.says)
			}
		})
	}
}

// TestSharedPort: two functions of one physical port share its counters, which count both.
func TestSharedPort(t *testing.T) {
	const mb = 1e6
	rails := make([]node.LocalRail, 2)
	before, now := map[string]rail.Traffic{}, map[string]rail.Traffic{}
	at := time.Unix(1000, 0)
	for i := range rails {
		r := &rails[i]
		r.Name, r.Capacity, r.PortCapacity, r.Status.Limits.PortKey = fmt.Sprint(i), 50*mb, 100*mb, "port"
		before[r.Name] = rail.Traffic{At: at, Physical: true}
		now[r.Name] = rail.Traffic{At: at.Add(time.Second), Physical: true, Port: [2]uint64{rail.Transmit: 95 * mb}}
	}
	for _, tc := range []struct {
		sent []int64
		says string
	}{{[]int64{40 * mb, 40 * mb}, ""}, {[]int64{80 * mb, 0}, ""}, {[]int64{40 * mb, 0}, "43 %"}} {
		g := node.Guard{Rails: rails, Above: 0.2, Burst: node.NewBurstProgress([]worker.Load{{Rail: "0"}, {Rail: "1"}},
			sends("0", "1"))}
		g.Burst.Set(at, tc.sent)
		count := 0
		for r, d := range node.Deltas(rails, before, now) {
			f := g.Judge(r, d)
			count++
			if (f == nil) != (tc.says == "") || f != nil && !strings.Contains(f.Detail, tc.says) {
				t.Errorf("%v: %v, want %q", tc.sent, f, tc.says)
			}
		}
		if count != 1 {
			t.Errorf("%d ports", count)
		}
	}
}

// TestBusyLate: interface statistics that count the previous round late are not traffic of others.
func TestBusyLate(t *testing.T) {
	for moved, want := range map[int64]bool{0: true, 1000 << 20: false} {
		synctest.Test(t, func(t *testing.T) {
			n := bareNode(t, "a")
			dir := filepath.Join(n.Opts.Sysfs, "class/net/eth0/statistics")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			file(t, filepath.Join(dir, "rx_bytes"), "0\n")
			file(t, filepath.Join(dir, "tx_bytes"), "0\n")
			time.AfterFunc(time.Second, func() { file(t, filepath.Join(dir, "tx_bytes"), fmt.Sprintln(1300<<20)) })
			n.Recent.Add(moved)
			r := node.LocalRail{Capacity: 1e9}
			r.Name, r.Netdev, r.Dir, r.Port = "0", "eth0", t.TempDir(), 1
			r.Software = true
			r.Traffic = rail.NewPort(n.Opts.Sysfs, r.Rail, nil)
			if f := n.Busy(t.Context(), []node.LocalRail{r}, 0.2)["0"]; (f != nil) != want {
				t.Errorf("after %d bytes: %v", moved, f)
			}
			time.Sleep(time.Hour) // no lane outlives the bubble
		})
	}
}

// TestGuardWaitsForWord: if the worker of a busy machine reports late, the bytes of that time are the probe's, and
// traffic of others is still noticed.
func TestGuardWaitsForWord(t *testing.T) {
	const capacity, payload = 1e9, 0.94e9 // bytes per second
	for _, tc := range []struct {
		why     string
		late    time.Duration // delay of the worker's report
		foreign float64       // bytes per second of others
		busy    bool
	}{
		{"in time", 0, 0, false},
		{"late", 200 * time.Millisecond, 0, false},
		{"later than a look takes", 600 * time.Millisecond, 0, false},
		{"in time, and others", 0, 0.8 * capacity, true},
		{"late, and others", 200 * time.Millisecond, 0.8 * capacity, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := bareNode(t, "a")
			dir := t.TempDir()
			counters := filepath.Join(dir, "ports/1/counters")
			if err := os.MkdirAll(counters, 0o755); err != nil {
				t.Fatal(err)
			}
			file(t, filepath.Join(counters, "port_rcv_data"), "0\n")
			own := capacity - tc.foreign
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			var wire sync.WaitGroup
			defer wire.Wait()
			sent, start := node.NewBurstProgress([]worker.Load{{Rail: "0", Chunk: 1 << 20, Depth: 8}}, sends("0")),
				time.Now()
			count := func() {
				file(t, filepath.Join(counters, "port_xmit_data"),
					fmt.Sprintf("%d\n", int64(capacity*time.Since(start).Seconds()/4)))
			}
			count()
			wire.Go(func() {
				for time.Sleep(5 * time.Millisecond); ctx.Err() == nil; time.Sleep(10 *
					time.Millisecond) { // reports and readings never coincide
					count()
				}
			})
			wire.Go(func() {
				for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
					at := time.Now()
					bytes := int64(own * payload / capacity * at.Sub(start).Seconds())
					time.AfterFunc(tc.late, func() { sent.Set(at, []int64{bytes}) })
				}
			})
			r := node.LocalRail{Capacity: capacity}
			r.Name, r.Device, r.Dir, r.Port = "0", "mlx5_0", dir, 1
			r.Traffic = rail.NewPort(dir, r.Rail, nil)
			g := node.Guard{Node: n, Rails: []node.LocalRail{r}, Above: 0.2, Burst: sent}
			if f := g.Watch(ctx); (f != nil) != tc.busy {
				t.Errorf("%s: %v after %v", tc.why, f, time.Since(start))
			}
			cancel()
			time.Sleep(time.Hour) // no lane outlives the bubble
		})
	}
}

// foreign adds traffic of others on a rail, 40 of 50 GB/s, until stop is called.
func (p *pairOfNodes) foreign(node string, i int, counter string) (stop func()) {
	p.t.Helper()
	f, err := os.OpenFile(filepath.Join(p.fabric.Sysfs(node), fmt.Sprintf("class/infiniband/mlx5_%d/ports/1/counters",
		i), counter), os.O_RDWR, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	start := time.Unix(1.79e9, 0) // a later job continues the count of an earlier one
	count := func() { _, _ = fmt.Fprintf(writerAt{f}, "%020d\n", int64(40e9/4*time.Since(start).Seconds())) }
	count() // the first addition sets the start value
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer f.Close()
		for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
			count()
		}
	}()
	stop = func() { cancel(); <-done }
	p.t.Cleanup(stop)
	return stop
}

type writerAt struct{ f *os.File }

func (w writerAt) Write(p []byte) (int, error) { return w.f.WriteAt(p, 0) }

// TestBusyBefore: a rail of either end that others use, in either direction, is reached and left out of the bursts. The
// other rail is measured, alone and striped.
func TestBusyBefore(t *testing.T) {
	t.Parallel()
	for _, node := range []string{"a", "b"} {
		for _, counter := range []string{"port_xmit_data", "port_rcv_data"} {
			t.Run(node+" "+counter, func(t *testing.T) {
				t.Parallel()
				p := newPair(t, 2, nil)
				stop := p.foreign(node, 1, counter)
				res := p.round()
				quiet, busy := &res.Rails[0], &res.Rails[1]
				if res.Outcome != result.OK || res.Transport != result.RDMA || len(res.Failures) != 0 ||
					res.TCP != nil {
					t.Errorf("%s because of %q: %s, %v", res.Outcome, res.Reason, res.Detail, res.Failures)
				}
				if quiet.Solo == nil || quiet.Striped == nil || quiet.Left != nil || quiet.Busy || !res.Verified {
					t.Errorf("the other rail: %+v", *quiet)
				}
				if f := busy.Left; busy.Measured() || !busy.Busy || busy.Failure != nil || busy.Latency == nil ||
					f == nil ||
					f.Reason != failure.Busy || strings.Contains(f.Detail, "on the peer") != (node == "b") ||
					res.BurstSkipped != f {
					t.Errorf("the busy rail: %+v", *busy)
				}
				stop()
				res = p.round()
				if res.Outcome != result.OK || res.BurstSkipped != nil || res.Rails[1].Striped == nil {
					t.Errorf("afterwards: %s because of %q: %s", res.Outcome, res.Reason, res.Detail)
				}
			})
		}
	}
}

// TestBusyDuring: when others start during a burst, the probe soon yields the rails, the peer was reached, and it has a
// cooldown.
func TestBusyDuring(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		node, counter string
		rail          int
		next          failure.Reason
	}{
		{"a", "port_rcv_data", 0, ""},
		{"b", "port_xmit_data", 0, failure.Cooldown},
		{"b", "port_rcv_data", 1, failure.Cooldown},
		{"b", "port_xmit_data", 1, failure.Cooldown}, // a direction that the burst does not use
	} {
		t.Run(fmt.Sprint(tc.node, " rail ", tc.rail), func(t *testing.T) {
			t.Parallel()
			p := newPair(t, 2, func(_ string, _ int, d *fakeverbs.Device) { d.Rate = 4e6 })
			var at time.Time
			var stop func()
			res := p.during(failure.StageSolo, func() {
				at, stop = time.Now(), p.foreign(tc.node, tc.rail, tc.counter)
			})
			if took := time.Since(at); took > 8*time.Second {
				t.Errorf("it took %v to get out of the way", took)
			}
			if res.Outcome != result.Reached || res.Reason != failure.Busy || res.Transport != result.RDMA ||
				res.BurstSkipped == nil || res.Striped != nil || !strings.Contains(res.Detail, fmt.Sprintf("rail %d",
				tc.rail)) || strings.Contains(res.Detail,
				"on the peer") != (tc.node == "b") {
				t.Errorf("%s because of %q: %s", res.Outcome, res.Reason, res.Detail)
			}
			p.clean()
			stop()
			p.fabric.Set("a", "mlx5_0", func(k *fakeverbs.Knobs) { k.Rate = 200e6 })
			p.fabric.Set("a", "mlx5_1", func(k *fakeverbs.Knobs) { k.Rate = 200e6 })
			res = p.scheduled(p.a)
			if res.Reason != tc.next || (res.Outcome == result.OK) != (tc.next == "") {
				t.Errorf("right afterwards: %s because of %q: %s", res.Outcome, res.Reason, res.Detail)
			}
		})
	}
}
