//go:build cgo

package verbs

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// TestBurst writes many amounts over one rail and more: everything arrives, by the expected number of writes.
func TestBurst(t *testing.T) {
	for _, tc := range []struct {
		name                    string
		size, queuePairs, depth int
		rails                   int
		o                       transfer.BurstArgs
		writes                  int // 0: not said
	}{
		{"one rail", mib, 1, 8, 1, transfer.BurstArgs{Total: mib, Chunk: 65536}, 16},
		{"one rail, stealing", mib, 1, 8, 1, transfer.BurstArgs{Stealing: true, Total: mib, Chunk: 65536}, 0},
		{"static", mib, 1, 8, 3, transfer.BurstArgs{Total: mib, Chunk: 65536}, 0},
		{"stealing", mib, 1, 8, 3, transfer.BurstArgs{Stealing: true, Total: mib, Chunk: 65536}, 0},
		{"static, four queue pairs", mib, 4, 8, 2, transfer.BurstArgs{Total: mib, Chunk: 65536}, 16},
		{"stealing, four queue pairs", mib, 4, 8, 2, transfer.BurstArgs{Stealing: true, Total: mib, Chunk: 65536}, 0},
		{"more queue pairs than depth", mib, 4, 1, 2, transfer.BurstArgs{Stealing: true, Total: mib, Chunk: 65536}, 0},
		{"a word for each rail", mib, 1, 8, 4, transfer.BurstArgs{Total: 4 * 8, Chunk: 8}, 4},
		{"a packet for each rail", mib, 1, 8, 4, transfer.BurstArgs{Total: 4 * 1024, Chunk: 1024}, 4},
		{"fewer words than rails", mib, 1, 8, 4, transfer.BurstArgs{Total: 2 * 8, Chunk: 8}, 2},
		{"a word, stealing", mib, 1, 8, 4, transfer.BurstArgs{Stealing: true, Total: 8, Chunk: 8}, 1},
		{"not a multiple of anything", mib, 1, 8, 3, transfer.BurstArgs{Total: 1000003, Chunk: 65536}, 0},
		{"not a multiple of anything, stealing", mib, 1, 8, 3,
			transfer.BurstArgs{Stealing: true, Total: 1000003, Chunk: 65536}, 0},
		{"five times the buffer", mib, 1, 8, 2, transfer.BurstArgs{Total: 5 * mib, Chunk: 65536}, 80},
		{"five times the buffer, stealing", mib, 1, 8, 2, transfer.BurstArgs{Stealing: true, Total: 5 * mib, Chunk: 100000},
			0},
		{"a buffer smaller than a chunk", 8192, 1, 8, 2, transfer.BurstArgs{Stealing: true, Total: mib, Chunk: 65536}, 0},
		{"less depth", mib, 1, 8, 2, transfer.BurstArgs{Total: mib, Chunk: 4096, Depth: 3}, 256},
		{"a depth of one", mib, 1, 1, 2, transfer.BurstArgs{Stealing: true, Total: mib, Chunk: 65536}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := connected(t, tc.size, tc.queuePairs, tc.depth, make([]fakeverbs.Knobs, tc.rails)...)
			for range 3 {
				got, err := e.burst(tc.o)
				if err != nil {
					t.Fatal(err)
				}
				if got.Bytes != tc.o.Total || !slices.Equal(got.Done, []transfer.Range{{Length: min(tc.o.Total, int64(tc.size))}}) {
					t.Errorf("%d bytes, %v", got.Bytes, got.Done)
				}
				writes, progress := 0, e.run.Progress()
				for i, r := range got.Rails {
					writes += r.Writes
					if r.Failure != nil || progress[i] != r.Bytes {
						t.Errorf("rail %d: %+v, progress %d", i, r, progress[i])
					}
				}
				if tc.writes != 0 && writes != tc.writes {
					t.Errorf("%d writes, want %d", writes, tc.writes)
				}
			}
		})
	}
}

// TestBurstParts: static parts are equal.
func TestBurstParts(t *testing.T) {
	for _, total := range []int64{3 * 8, 3 * 4096, 3 * mib, 4 * mib, 1000000} {
		e := connected(t, 4*mib, 1, 8, make([]fakeverbs.Knobs, 3)...)
		got, err := e.burst(transfer.BurstArgs{Total: total, Chunk: 65536})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range got.Rails {
			if d := r.Bytes - total/3; d < -8192 || d > 8192 || total < mib && (d < -16 || d > 16) {
				t.Errorf("rail %d of 3 wrote %d of %d", i, r.Bytes, total)
			}
		}
	}
}

// TestStriping: with equal parts every rail writes the same, when stealing what its rate allows. A busy machine gets
// more tries; TestClaim checks the time that it takes, by simulation.
func TestStriping(t *testing.T) {
	for _, tc := range []struct {
		name  string
		rates []uint64
	}{
		{"alike", []uint64{48 * mib, 48 * mib}},
		{"one at a third", []uint64{48 * mib, 16 * mib}},
		{"one at a third, first", []uint64{16 * mib, 48 * mib}},
		{"one of four at half", []uint64{32 * mib, 32 * mib, 16 * mib, 32 * mib}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var knobs []fakeverbs.Knobs
			sum := 0.0
			for _, r := range tc.rates {
				knobs = append(knobs, fakeverbs.Knobs{Rate: r, Latency: 50 * time.Microsecond})
				sum += float64(r)
			}
			e := connected(t, 16*mib, 1, 8, knobs...)
			static, err := e.burst(transfer.BurstArgs{Total: 4 * mib, Chunk: 256 << 10})
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range static.Rails {
				if want := 4 * mib / int64(len(tc.rates)); r.Bytes != want {
					t.Errorf("static: rail %d wrote %d bytes, want %d", i, r.Bytes, want)
				}
			}
			off := 1.0
			for attempt := 0; attempt < 5 && off > 0.1; attempt++ {
				got, err := e.burst(transfer.BurstArgs{Stealing: true, Total: 16 * mib, Chunk: 256 << 10})
				if err != nil {
					t.Fatal(err)
				}
				off = 0
				for i, r := range got.Rails {
					off = max(off, math.Abs(float64(r.Bytes)/float64(16*mib)-float64(tc.rates[i])/sum))
				}
				t.Logf("%.3f of the sum of rates, shares off by %.3f at most",
					float64(got.Bytes)/got.Elapsed.Seconds()/sum, off)
			}
			if off > 0.1 {
				t.Errorf("rails do not take what their rates allow")
			}
		})
	}
}

// TestRailDies: when a rail fails during a burst, the others take over its part when stealing, else it is missing. The
// rail stays failed.
func TestRailDies(t *testing.T) {
	for _, tc := range []struct {
		name       string
		knobs      fakeverbs.Knobs
		queuePairs int
		want       failure.Reason
	}{
		{"retries", fakeverbs.Knobs{Rate: 64 * mib, DropAfter: mib}, 1, failure.RetryExceeded},
		{"retries, four queue pairs", fakeverbs.Knobs{Rate: 64 * mib, DropAfter: mib}, 4, failure.RetryExceeded},
		{"from the start", fakeverbs.Knobs{Blocked: true}, 1, failure.RetryExceeded},
		{"fifth write", fakeverbs.Knobs{Rate: 64 * mib, FailEvery: 5, FailStatus: 10}, 1, failure.RemoteAccess},
		{"fifth write, two queue pairs", fakeverbs.Knobs{Rate: 64 * mib, FailEvery: 5, FailStatus: 4}, 2,
			failure.LocalProt},
		{"device", fakeverbs.Knobs{Rate: 64 * mib, FailEvery: 3, FailStatus: 19}, 1, failure.DeviceFatal},
	} {
		for _, stealing := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stealing %t", tc.name, stealing), func(t *testing.T) {
				other := fakeverbs.Knobs{Rate: 64 * mib}
				e := connected(t, 8*mib, tc.queuePairs, 8, other, tc.knobs, other)
				got, err := e.burst(transfer.BurstArgs{Stealing: stealing, Total: 8 * mib, Chunk: 256 << 10})
				if err != nil {
					t.Fatal(err)
				}
				dead := got.Rails[1].Failure
				if dead == nil || dead.Reason != tc.want ||
					!strings.HasPrefix(dead.Detail, "mlx5_1: ") || got.Rails[0].Failure != nil ||
					got.Rails[2].Failure != nil {
					t.Errorf("%v, %v, %v; want %s of mlx5_1", got.Rails[0].Failure, dead, got.Rails[2].Failure, tc.want)
				}
				all := slices.Equal(got.Done, []transfer.Range{{Length: 8 * mib}})
				if stealing && (!all || got.Bytes != 8*mib) || !stealing && all {
					t.Errorf("%d bytes, %v", got.Bytes, got.Done)
				}
				again, err := e.burst(transfer.BurstArgs{Stealing: true, Total: mib, Chunk: 65536})
				if err != nil || again.Rails[1].Failure == nil || again.Rails[1].Failure.Reason != tc.want ||
					again.Bytes != mib {
					t.Errorf("the next burst: %+v, %v", again, err)
				}
				if _, err := e.run.Latency(e.rails[1], 1, time.Second); reason(err) != tc.want {
					t.Errorf("latency of a dead rail: %v", err)
				}
			})
		}
	}
}

// TestAllRailsDie: the error is the first rail's.
func TestAllRailsDie(t *testing.T) {
	for _, stealing := range []bool{false, true} {
		e := connected(t, mib, 1, 8, fakeverbs.Knobs{FailEvery: 2, FailStatus: 10}, fakeverbs.Knobs{DropAfter: 65536})
		got, err := e.burst(transfer.BurstArgs{Stealing: stealing, Total: mib, Chunk: 65536})
		if reason(err) != failure.RemoteAccess || got.Rails[1].Failure == nil || got.Rails[1].Failure.Reason !=
			failure.RetryExceeded {
			t.Errorf("%v; %+v", err, got)
		}
		if got.Bytes == 0 || got.Bytes >= mib {
			t.Errorf("%d bytes", got.Bytes)
		}
	}
}

// bySurprise is less than the deadline that would otherwise end a test's burst, and more than a busy machine takes to
// notice.
const bySurprise = 8 * time.Second

// TestLimit stops a long burst: no error, and nothing in flight.
func TestLimit(t *testing.T) {
	for _, stealing := range []bool{false, true} {
		t.Run(fmt.Sprint("stealing ", stealing), func(t *testing.T) {
			e := connected(t, 4*mib, 1, 8, fakeverbs.Knobs{Rate: 64 * mib}, fakeverbs.Knobs{Rate: 8 * mib})
			for range 2 {
				begin := time.Now()
				got, err := e.burst(transfer.BurstArgs{Stealing: stealing, Total: 1 << 40, Chunk: 65536,
					Limit: 100 * time.Millisecond})
				took := time.Since(begin)
				if err != nil || took < 100*time.Millisecond || took > bySurprise {
					t.Errorf("%v after %v", err, took)
				}
				// What the rates allow, however late the machine lets us be, and what was in flight at first.
				for i, rate := range []float64{64 * mib, 8 * mib} {
					if r := got.Rails[i]; r.Failure != nil || r.Bytes == 0 || float64(r.Bytes) > rate*
						took.Seconds()+8*65536 {
						t.Errorf("rail %d in %v: %+v", i, took, r)
					}
				}
			}
		})
	}
}

// TestDeadline abandons a rail that hangs, and reports what the other did.
func TestDeadline(t *testing.T) {
	e := connected(t, 4*mib, 1, 8, fakeverbs.Knobs{}, fakeverbs.Knobs{HangPoll: true})
	begin := time.Now()
	got, err := e.burst(transfer.BurstArgs{Stealing: true, Total: 4 * mib, Chunk: 65536,
		Deadline: time.Second}) // the other needs some milliseconds
	if took := time.Since(begin); reason(err) != failure.Timeout || took < time.Second || took > bySurprise {
		t.Errorf("%v after %v", err, took)
	}
	if got.Rails[0].Failure != nil || got.Rails[1].Failure == nil || got.Rails[1].Failure.Reason != failure.Timeout ||
		got.Bytes < 3*
			mib || got.Bytes >= 4*mib {
		t.Errorf("%+v", got)
	}
	if _, err := e.burst(transfer.BurstArgs{Stealing: true, Total: mib, Chunk: 65536}); err != nil {
		t.Errorf("the rail that is left: %v", err)
	}
}

// TestCancel stops a burst from another goroutine, and reads its progress. The burst returns soon, whether or not
// writes in flight complete.
func TestCancel(t *testing.T) {
	for name, knobs := range map[string]fakeverbs.Knobs{"drains": {Rate: 64 * mib},
		"hangs": {Rate: 64 * mib, Latency: time.Hour}} {
		t.Run(name, func(t *testing.T) {
			e := connected(t, mib, 1, 8, fakeverbs.Knobs{Rate: 64 * mib}, knobs)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for begin := time.Now(); time.Since(begin) < 5*time.Second; time.Sleep(time.Millisecond) {
					if p := e.run.Progress(); p[0] > mib {
						break
					}
				}
				e.run.Cancel()
			}()
			begin := time.Now()
			got, err := e.burst(transfer.BurstArgs{Stealing: true, Total: 1 << 40, Chunk: 65536, Deadline: 20 * time.Second})
			<-done
			if took := time.Since(begin); reason(err) != failure.Canceled || took > 15*
				time.Second || got.Rails[0].Bytes <= mib {
				t.Errorf("%v after %v: %+v", err, took, got)
			}
			if hung := got.Rails[1].Failure; (hung != nil) != (name == "hangs") || hung != nil &&
				hung.Reason != failure.Canceled {
				t.Errorf("%v", hung)
			}
			if got, err := e.burst(transfer.BurstArgs{Stealing: true, Total: mib,
				Chunk: 65536}); reason(err) != failure.Canceled || got.Bytes != 0 {
				t.Errorf("after Cancel: %v, %+v", err, got)
			}
			if samples, err := e.run.Latency(e.rails[0], 8,
				time.Second); reason(err) != failure.Canceled || len(samples) != 0 {
				t.Errorf("after Cancel: %v, %v", err, samples)
			}
		})
	}
}

// TestBurstMisuse: invalid arguments give an error, and nothing is written.
func TestBurstMisuse(t *testing.T) {
	e := connected(t, 4096, 1, 8, make([]fakeverbs.Knobs, 2)...)
	good := transfer.BurstArgs{Total: 4096, Chunk: 4096, Deadline: time.Second}
	with := func(change func(*transfer.BurstArgs)) transfer.BurstArgs { o := good; change(&o); return o }
	other := buffer(t, 4096)
	defer other.Close()
	one := NewRun(1)
	for i, tc := range []struct {
		run   *Run
		rails []*Rail
		b     *Buffer
		o     transfer.BurstArgs
	}{
		{e.run, nil, e.from, good},
		{e.run, []*Rail{e.rails[0], e.rails[0]}, e.from, good},
		{e.run, e.rails, other, good},
		{one, e.rails, e.from, good},
		{e.run, e.rails, e.from, with(func(o *transfer.BurstArgs) { o.Deadline = 0 })},
		{e.run, e.rails, e.from, with(func(o *transfer.BurstArgs) { o.Chunk = 0 })},
		{e.run, e.rails, e.from, with(func(o *transfer.BurstArgs) { o.Chunk = 1 << 31 })},
		{e.run, e.rails, e.from, with(func(o *transfer.BurstArgs) { o.Total = 0 })},
		{NewRun(0), e.rails, e.from, good},
	} {
		if got, err := tc.run.Burst(tc.rails, tc.b, tc.o); err == nil || got.Bytes != 0 {
			t.Errorf("case %d: %+v, %v", i, got, err)
		}
	}
	if _, err := e.run.Latency(e.rails[0], 0, time.Second); err == nil {
		t.Error("no samples")
	}
}

// TestNotConnected writes on a rail that is not connected.
func TestNotConnected(t *testing.T) {
	f := fakeverbs.New(t)
	f.Add("A", fakeverbs.Device{Name: "mlx5_0", GIDs: fakeverbs.RoCE("192.0.2.1")})
	f.Use(t, "A")
	b, run := buffer(t, 4096), NewRun(1)
	defer b.Close()
	r := must(fake(t).OpenRail(Spec{Device: "mlx5_0", Port: 1, GIDIndex: 3, QueuePairs: 1, Depth: 1}))
	defer r.Close()
	if _, err := run.Latency(r, 1, time.Second); err == nil {
		t.Error("without a buffer")
	}
	if err := r.Register(b); err != nil {
		t.Fatal(err)
	}
	_, err := run.Latency(r, 1, time.Second)
	got, berr := run.Burst([]*Rail{r}, b, transfer.BurstArgs{Total: 8, Chunk: 8, Deadline: time.Second})
	if err == nil || berr == nil || got.Rails[0].Failure == nil {
		t.Errorf("%v, %v, %+v", err, berr, got)
	}
}

// TestLatency measures a device of known latency: no sample is less, and their sum is at most the elapsed time. Limits
// leave room for a busy machine.
func TestLatency(t *testing.T) {
	const samples, limit = 20, 500 * time.Millisecond
	for _, queuePairs := range []int{1, 4} {
		e := connected(t, 4096, queuePairs, 8, fakeverbs.Knobs{Latency: 2 * time.Millisecond})
		slow := func(delay time.Duration) {
			e.fabric.Set("A", "mlx5_0", func(k *fakeverbs.Knobs) { k.Latency = delay })
		}
		begin := time.Now()
		got, err := e.run.Latency(e.rails[0], samples, 5*time.Second)
		if took := time.Since(begin); err != nil || len(got) != samples || slices.Min(got) < 2*
			time.Millisecond || sum(got) > took {
			t.Errorf("in %v: %v, %v", took, got, err)
		}
		e.arrived(transfer.Range{Length: 8})
		slow(20 * time.Millisecond)
		if got, err = e.run.Latency(e.rails[0], 1000, limit); err != nil || len(got) < 1 || len(got) > 25 {
			t.Errorf("within %v, 20 ms each: %v, %v", limit, got, err)
		}
		slow(200 * time.Millisecond)
		if got, err = e.run.Latency(e.rails[0], 1000, limit); err != nil || len(got) != 1 {
			t.Errorf("within %v, 200 ms each: %v, %v", limit, got, err)
		}
	}
}

func sum(list []time.Duration) (all time.Duration) {
	for _, d := range list {
		all += d
	}
	return all
}

// TestLatencyFails: no answer, a refusal, and a cancel.
func TestLatencyFails(t *testing.T) {
	for _, tc := range []struct {
		name  string
		knobs fakeverbs.Knobs
		want  failure.Reason
		least int // samples
	}{
		{"hangs", fakeverbs.Knobs{HangPoll: true}, failure.Timeout, 0},
		{"blocked", fakeverbs.Knobs{Blocked: true}, failure.RetryExceeded, 0},
		{"tenth", fakeverbs.Knobs{FailEvery: 10, FailStatus: 13}, failure.RNR, 6},
		{"cancelled", fakeverbs.Knobs{Latency: time.Hour}, failure.Canceled, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := connected(t, 4096, 1, 8, tc.knobs)
			limit := time.Minute
			switch tc.want {
			case failure.Timeout:
				limit = 200 * time.Millisecond
			case failure.Canceled:
				defer time.AfterFunc(50*time.Millisecond, e.run.Cancel).Stop()
			}
			begin := time.Now()
			got, err := e.run.Latency(e.rails[0], 100, limit)
			if took := time.Since(begin); reason(err) != tc.want || len(got) != tc.least || took > bySurprise {
				t.Errorf("%d samples, %v after %v; want %d, %s", len(got), err, took, tc.least, tc.want)
			}
		})
	}
}

// BenchmarkBurst measures the cost of a burst without a wire.
func BenchmarkBurst(b *testing.B) {
	for _, chunk := range []int64{4096, 65536, mib} {
		b.Run(fmt.Sprint(chunk), func(b *testing.B) {
			e := connected(b, 4*mib, 1, 16, make([]fakeverbs.Knobs, 2)...)
			b.SetBytes(4 * mib)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.run.Burst(e.rails, e.from, transfer.BurstArgs{Stealing: true, Total: 4 * mib, Chunk: chunk,
					Deadline: time.Second}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLatency measures the cost of a write without a wire.
func BenchmarkLatency(b *testing.B) {
	e := connected(b, 4096, 1, 8, fakeverbs.Knobs{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.run.Latency(e.rails[0], 100, time.Second); err != nil {
			b.Fatal(err)
		}
	}
}
