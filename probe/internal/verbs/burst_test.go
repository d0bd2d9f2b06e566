//go:build cgo

package verbs

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// TestBurst makes bursts of many shapes: bytes arrive only at [transfer.Place] in the ring of their queue pair.
func TestBurst(t *testing.T) {
	for _, tc := range []struct {
		name                    string
		ring, queuePairs, depth int
		rails                   int
		chunk                   int64
		window                  time.Duration // 0 for single writes
	}{
		{"one rail", mib, 1, 8, 1, 65536, 5 * time.Millisecond},
		{"three", mib, 1, 8, 3, 65536, 5 * time.Millisecond},
		{"four queue pairs", mib, 4, 8, 2, 65536, 5 * time.Millisecond},
		{"sixteen queue pairs", 8192, 16, 16, 2, 4096, time.Millisecond},
		{"more queue pairs than depth", mib, 4, 1, 2, 65536, time.Millisecond},
		{"a depth of one", mib, 1, 1, 2, 65536, time.Millisecond},
		{"a ring of one write", 65536, 2, 8, 2, 65536, time.Millisecond},
		{"a ring that is no multiple of writes", 100000, 3, 8, 2, 4096, time.Millisecond},
		{"pages", 65536, 2, 8, 2, transfer.Page, time.Millisecond},
		{"words", 4096, 2, 8, 2, 8, time.Millisecond},
		{"the largest", 2 * mib, 1, 8, 2, transfer.MaxChunk, 5 * time.Millisecond},
		{"not a multiple of anything", 100003, 3, 8, 3, 4099, time.Millisecond},
		{"a word for each rail", 4096, 1, 1, 4, 8, 0},
		{"a packet for each queue pair", 16384, 4, 4, 3, 4096, 0},
		{"four packets for each queue pair", 16384, 4, 16, 3, 4096, 0},
		{"more single writes than the ring has room for", 8192, 2, 16, 2, 4096, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := connected(t, tc.ring, tc.queuePairs, tc.depth, make([]fakeverbs.Knobs, tc.rails)...)
			o := transfer.BurstArgs{Loads: e.loads(tc.chunk, tc.depth), Window: tc.window, Writes: 8,
				Slow: 50 * time.Millisecond}
			for range 3 {
				got, err := e.burst(o)
				if err != nil || got.Failed() {
					t.Fatalf("%+v, %v", got, err)
				}
				for i, r := range got.Rails {
					if fewest, most := slices.Min(r.Writes), slices.Max(r.Writes); tc.window == 0 && most-fewest > 1 {
						t.Errorf("rail %d: queue pairs wrote %v times", i, r.Writes)
					}
				}
			}
		})
	}
}

// TestSingleWrites: without a window each rail posts as many writes as it may have in flight, evenly over its queue
// pairs, however fast the others are. A burst without figures cannot be disturbed.
func TestSingleWrites(t *testing.T) {
	for _, tc := range []struct{ queuePairs, depth int }{{1, 1}, {4, 4}, {4, 16}, {16, 16}, {1, 8}} {
		for _, software := range []bool{false, true} {
			t.Run(fmt.Sprint(tc, software), func(t *testing.T) {
				e := connected(t, 65536, tc.queuePairs, tc.depth, fakeverbs.Knobs{},
					fakeverbs.Knobs{Rate: mib}, fakeverbs.Knobs{Latency: 30 * time.Millisecond})
				o := e.single(4096, tc.depth)
				o.Software = software
				got, err := e.burst(o)
				if err != nil {
					t.Fatal(err)
				}
				want := slices.Repeat([]int64{int64(tc.depth / tc.queuePairs)}, tc.queuePairs)
				for i, r := range got.Rails {
					if !slices.Equal(r.Writes, want) || r.Disturbed || r.Measured != 0 || r.Failure != nil {
						t.Errorf("rail %d: %+v, want writes %v", i, r, want)
					}
				}
			})
		}
	}
}

// TestGoodput: each rail's figure is its rate, whatever the others carry. A busy machine gets more attempts.
func TestGoodput(t *testing.T) {
	for _, tc := range []struct {
		name  string
		rates []uint64
	}{
		{"alone", []uint64{64 * mib}},
		{"alike", []uint64{48 * mib, 48 * mib}},
		{"one at a third", []uint64{48 * mib, 16 * mib}},
		{"one at a third, first", []uint64{16 * mib, 48 * mib}},
		{"one of four at half", []uint64{32 * mib, 32 * mib, 16 * mib, 32 * mib}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var knobs []fakeverbs.Knobs
			for _, r := range tc.rates {
				knobs = append(knobs, fakeverbs.Knobs{Rate: r, Latency: 50 * time.Microsecond})
			}
			e := connected(t, 16*mib, 1, 64, knobs...) // 60 ms in flight: a busy machine delays the test for less
			worst := 1.0
			for try := 0; try < 5 && worst > 0.05; try++ {
				got, err := e.burst(transfer.BurstArgs{Loads: e.loads(65536, 64), Window: 100 * time.Millisecond,
					Writes: 16})
				if err != nil {
					t.Fatal(err)
				}
				if got.Disturbed() {
					continue
				}
				worst = 0
				for i, r := range got.Rails {
					worst = max(worst, math.Abs(r.Rate()/float64(tc.rates[i])-1))
					if r.Last-r.First < 100*time.Millisecond {
						t.Errorf("rail %d is measured for %v", i, r.Last-r.First)
					}
				}
			}
			if worst > 0.05 {
				t.Errorf("off by %.3f", worst)
			}
		})
	}
}

// TestDisturbed: a gap in which the rail may have run dry makes the burst disturbed, because the figure is then this
// process's and not the rail's. With software devices it does not.
func TestDisturbed(t *testing.T) {
	for _, tc := range []struct {
		name     string
		depth    int
		rtt      time.Duration
		software bool
		want     bool
	}{
		{"deep enough", 8, 0, false, false},
		{"one at a time", 1, 0, false, true},
		{"less than the round trip in flight", 8, time.Second, false, true},
		{"one at a time, in software", 1, 0, true, false},
		{"less than the round trip in flight, in software", 8, time.Second, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := connected(t, mib, 1, 8, fakeverbs.Knobs{Rate: 8 * mib})
			o := transfer.BurstArgs{Loads: e.loads(65536, tc.depth), Window: 50 * time.Millisecond, Writes: 4,
				Software: tc.software}
			o.Loads[0].RTT = tc.rtt
			disturbed := !tc.want
			for try := 0; try < 5 && disturbed != tc.want; try++ {
				got, err := e.burst(o)
				if err != nil || got.Rails[0].Gap <= 0 || got.Rails[0].Gap > got.Rails[0].Last ||
					got.Rails[0].Rate() <= 0 {
					t.Fatalf("%+v, %v", got, err)
				}
				disturbed = got.Disturbed()
			}
			if disturbed != tc.want {
				t.Errorf("disturbed %v, want %v", disturbed, tc.want)
			}
		})
	}
}

// TestSlow: a burst over a slow rail ends by its number of writes, its cap or its time limit, and never has more in
// flight than the rail can soon complete.
func TestSlow(t *testing.T) {
	const chunk = 16384
	for _, tc := range []struct {
		name        string
		rate        uint64
		o           transfer.BurstArgs
		cap         int64
		least, most int64 // bounds on the writes
	}{
		{"by writes", 4 * mib, transfer.BurstArgs{Window: 5 * time.Millisecond, Writes: 64, Slow: 5 * time.Second}, 1 << 50,
			64 + 8, 1000},
		{"by cap", 4 * mib, transfer.BurstArgs{Window: time.Hour, Slow: time.Hour, Deadline: 20 * time.Second},
			40 * chunk, 40, 40 + 2*8},
		{"in time", chunk * 16, transfer.BurstArgs{Window: 5 * time.Millisecond, Writes: 64, Slow: 700 * time.Millisecond},
			1 << 50, 2, 11 + 4 + 1}, // completed after 250 ms, plus one that is due
		{"in time, of a long window", 4 * mib, transfer.BurstArgs{Window: time.Hour, Slow: 300 * time.Millisecond}, 1 << 50,
			2, 300},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := connected(t, mib, 1, 8, fakeverbs.Knobs{Rate: tc.rate}, fakeverbs.Knobs{Rate: 256 * mib})
			tc.o.Loads = e.loads(chunk, 8)
			tc.o.Loads[0].Cap = tc.cap
			begin := time.Now()
			got, err := e.burst(tc.o)
			if took := time.Since(begin); err != nil || got.Failed() || took > bySurprise {
				t.Fatalf("%+v, %v after %v", got, err, took)
			}
			if n := got.Rails[0].Writes[0]; n < tc.least || n > tc.most {
				t.Errorf("%d writes, want %d to %d", n, tc.least, tc.most)
			}
		})
	}
}

// TestBurstMisuse: invalid arguments yield an error, and nothing is written.
func TestBurstMisuse(t *testing.T) {
	e := connected(t, 8192, 2, 8, make([]fakeverbs.Knobs, 2)...)
	good := transfer.BurstArgs{Loads: e.loads(4096, 8), Window: time.Millisecond, Slow: time.Second,
		Deadline: time.Second}
	with := func(change func(*transfer.BurstArgs)) transfer.BurstArgs {
		o := good
		o.Loads = slices.Clone(o.Loads)
		change(&o)
		return o
	}
	load := func(change func(*transfer.Load)) transfer.BurstArgs {
		return with(func(o *transfer.BurstArgs) { change(&o.Loads[1]) })
	}
	for i, tc := range []struct {
		run   *Run
		rails []*Rail
		o     transfer.BurstArgs
	}{
		{e.run, nil, good},
		{e.run, []*Rail{e.rails[0], e.rails[0]}, good},
		{e.run, e.rails[:1], good},
		{e.run, e.peers, good}, // a target's memory is not a source
		{NewRun(1), e.rails, good},
		{NewRun(0), e.rails, good},
		{e.run, e.rails, with(func(o *transfer.BurstArgs) { o.Loads = o.Loads[:1] })},
		{e.run, e.rails, with(func(o *transfer.BurstArgs) { o.Deadline = 0 })},
		{e.run, e.rails, with(func(o *transfer.BurstArgs) { o.Slow = 0 })},
		{e.run, e.rails, with(func(o *transfer.BurstArgs) { o.Window = -1 })},
		{e.run, e.rails, with(func(o *transfer.BurstArgs) { o.Writes = -1 })},
		{e.run, e.rails, with(func(o *transfer.BurstArgs) { o.Pass = -1 })},
		{e.run, e.rails, load(func(l *transfer.Load) { l.Chunk = 0 })},
		{e.run, e.rails, load(func(l *transfer.Load) { l.Chunk = 8193 })},
		{e.run, e.rails, load(func(l *transfer.Load) { l.Chunk = transfer.MaxChunk + 1 })},
		{e.run, e.rails, load(func(l *transfer.Load) { l.Cap = 0 })},
		{e.run, e.rails, load(func(l *transfer.Load) { l.Depth = 0 })},
		{e.run, e.rails, load(func(l *transfer.Load) { l.RTT = -1 })},
	} {
		if got, err := tc.run.Burst(tc.rails, tc.o); err == nil || len(got.Rails) != 0 {
			t.Errorf("case %d: %+v, %v", i, got, err)
		}
	}
	if _, _, err := e.run.Latency(e.rails[0], 8, 0, time.Second); err == nil {
		t.Error("no samples")
	}
	if _, _, err := e.run.Latency(e.peers[0], 8, 1, time.Second); err == nil {
		t.Error("from a target's memory")
	}
	if at := e.wrong(1); at >= 0 {
		t.Errorf("byte %d was written", at)
	}
	e.rails[1].Close()
	if _, err := e.run.Burst(e.rails, good); err == nil {
		t.Error("over a closed rail")
	}
}

// TestNotConnected writes on a rail that is not connected.
func TestNotConnected(t *testing.T) {
	f := fakeverbs.New(t)
	f.Add("A", fakeverbs.Device{Name: "mlx5_0", GIDs: fakeverbs.RoCE("192.0.2.1")})
	f.Use(t, "A")
	b, run := buffer(t, transfer.SourceLen), NewRun(1)
	defer b.Close()
	r := must(fake(t).OpenRail(Spec{Device: "mlx5_0", Port: 1, GIDIndex: 3, QueuePairs: 1, Depth: 1}))
	defer r.Close()
	if _, _, err := run.Latency(r, 8, 1, time.Second); err == nil {
		t.Error("without a buffer")
	}
	if err := r.Register(AreaOf(b.Bytes())); err != nil {
		t.Fatal(err)
	}
	if _, _, err := run.Latency(r, 8, 1, time.Second); err == nil {
		t.Error("a latency")
	}
	if got, err := run.Burst([]*Rail{r}, transfer.BurstArgs{Loads: []transfer.Load{{Chunk: 8, Cap: 8, Depth: 1}},
		Slow: time.Second, Deadline: time.Second}); err == nil {
		t.Errorf("a burst: %+v", got)
	}
}

// BenchmarkBurst measures the cost of a burst without a wire.
func BenchmarkBurst(b *testing.B) {
	for _, chunk := range []int64{4096, 65536, mib} {
		b.Run(fmt.Sprint(chunk), func(b *testing.B) {
			e := connected(b, 16*mib, 1, 16, make([]fakeverbs.Knobs, 2)...)
			o := transfer.BurstArgs{Loads: e.loads(chunk, 16), Window: time.Hour, Slow: time.Minute,
				Deadline: time.Minute}
			o.Loads[0].Cap = 32 * mib
			bytes := int64(0)
			b.ReportAllocs()
			for b.Loop() {
				e.pass++
				o.Pass = e.pass
				got, err := e.run.Burst(e.rails, o)
				if err != nil {
					b.Fatal(err)
				}
				for i, r := range got.Rails {
					bytes += r.Bytes
					if err := e.run.Arrived(e.peers[i], e.pass, time.Second); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.SetBytes(bytes / int64(b.N))
		})
	}
}
