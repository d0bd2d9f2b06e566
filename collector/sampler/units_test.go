package sampler

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// TestTallyBuckets puts the same values into a tally and into client_golang's
// histogram of the same bounds: every bucket must have the same count.
func TestTallyBuckets(t *testing.T) {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "x", Buckets: ClassicBounds(),
		NativeHistogramBucketFactor:  1.1,
		NativeHistogramZeroThreshold: NativeZeroThreshold, NativeHistogramMaxBucketNumber: 1000})
	var tally Tally
	add := func(v float64) { tally.observe(v, 1); h.Observe(v) }
	r := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		add(math.Exp2(-12 + 13.9*r.Float64()))
	}
	for i := -96; i <= 16; i++ { // on a bound, and beside it
		v := math.Exp2(float64(i/8)) * nativeBounds[(i%8+8)%8]
		add(v)
		add(math.Nextafter(v, 10))
		add(math.Nextafter(v, 0))
	}
	for _, v := range append(ClassicBounds(), 0, NativeZeroThreshold) {
		add(v)
	}
	var m dto.Metric
	if err := h.Write(&m); err != nil {
		t.Fatal(err)
	}
	want := m.GetHistogram()
	if tally.Samples != want.GetSampleCount() || math.Abs(tally.Sum-want.GetSampleSum()) > 1e-9*
		tally.Sum || tally.Zero != want.GetZeroCount() || want.GetSchema() != NativeSchema {
		t.Errorf("count %d, sum %v, zero %d; want %d, %v, %d in schema %d", tally.Samples, tally.Sum, tally.Zero,
			want.GetSampleCount(), want.GetSampleSum(), want.GetZeroCount(), want.GetSchema())
	}
	var cumulative uint64
	for i, b := range want.GetBucket() {
		if cumulative += tally.Classic[i]; cumulative != b.GetCumulativeCount() {
			t.Errorf("up to %v: %d, want %d", b.GetUpperBound(), cumulative, b.GetCumulativeCount())
		}
	}
	var native [nativeCount]uint64
	index, at := 0, 0
	var count int64
	for _, span := range want.GetPositiveSpan() {
		index += int(span.GetOffset())
		for range span.GetLength() {
			count += want.GetPositiveDelta()[at]
			native[index-NativeFirst] = uint64(count)
			index, at = index+1, at+1
		}
	}
	if diff := cmp.Diff(native, tally.Native); diff != "" {
		t.Errorf("native buckets: -want +got\n%s", diff)
	}
	tally.observe(100, 1) // beyond the last bucket
	if tally.Native[nativeCount-1] != native[nativeCount-1]+1 {
		t.Error("100 times the capacity is in no native bucket")
	}
}

// TestPace: the median of nine decides.
func TestPace(t *testing.T) {
	const ms = time.Millisecond
	for name, tc := range map[string]struct {
		interval time.Duration
		took     []time.Duration
		want     int // stride after all
	}{
		"quick": {100 * ms, []time.Duration{ms, ms, ms, ms, ms, ms, ms, ms, ms, ms}, 1},
		"a tenth": {100 * ms, []time.Duration{10 * ms, 10 * ms, 10 * ms, 10 * ms, 10 * ms, 10 * ms,
			10 * ms}, 1},
		"four hiccups": {100 * ms, []time.Duration{ms, 900 * ms, 900 * ms, ms, 900 * ms, 900 * ms, ms, ms,
			ms, ms}, 1},
		"more than a tenth": {100 * ms, []time.Duration{11 * ms, 11 * ms, 11 * ms, 11 * ms, 11 * ms}, 2},
		"at 10 ms":          {10 * ms, []time.Duration{7 * ms, 7 * ms, 7 * ms, 7 * ms, 7 * ms}, 7},
		"never slower than 10 s": {100 * ms, []time.Duration{9000 * ms, 9000 * ms, 9000 * ms, 9000 * ms, 9000 * ms},
			100},
		"10 s is all there is": {10000 * ms, []time.Duration{9000 * ms, 9000 * ms, 9000 * ms, 9000 * ms, 9000 * ms},
			1},
		"not back for a little": {100 * ms, []time.Duration{25 * ms, 25 * ms, 25 * ms, 25 * ms, 25 * ms, 19 * ms,
			19 * ms, 19 * ms, 19 * ms, 19 * ms}, 3},
		"back when it is quicker": {100 * ms, []time.Duration{25 * ms, 25 * ms, 25 * ms, 25 * ms, 25 * ms, ms, ms, ms,
			ms, ms}, 1},
	} {
		p := newPace(tc.interval)
		for _, took := range tc.took {
			p.note(took)
		}
		if p.stride != tc.want {
			t.Errorf("%s: every %v, want every %v", name, p.every(), tc.interval*time.Duration(tc.want))
		}
	}
}

// TestUnion: the time in which any was busy, however they overlap and in
// whatever order they come.
func TestUnion(t *testing.T) {
	u := union{ticks: make([]uint8, 16)}
	u.mark(Receive, 0, 3)
	u.mark(Receive, 2, 5)
	u.mark(Transmit, 4, 5)
	if got := u.count(4); got != [directions]int64{4, 0} {
		t.Errorf("up to 4: %v", got)
	}
	u.mark(Receive, 1, 7) // 5, 6 and 7: what is counted stays counted
	u.mark(Transmit, 30, 40)
	if got := u.count(10); got != [directions]int64{3, 1} {
		t.Errorf("up to 10: %v", got)
	}
	u.mark(Receive, 10, 1000) // more than there is room for
	if got := u.count(1000); got != [directions]int64{16, 0} {
		t.Errorf("up to 1000: %v", got)
	}
	u.mark(Receive, 900, 1001)
	if got := u.count(1001); got != [directions]int64{1, 0} {
		t.Errorf("up to 1001: %v", got)
	}
}
