package transfer

import (
	"fmt"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
)

// TestPlace compares places with a table. A test of package verbs compares C with Go.
func TestPlace(t *testing.T) {
	for _, tc := range []struct {
		i, ring, chunk int64
		pass           int
		at, source     int64
	}{
		{0, 1 << 20, 1 << 16, 0, 0, 0},
		{1, 1 << 20, 1 << 16, 0, 1 << 16, 61 * Page},
		{15, 1 << 20, 1 << 16, 0, 15 << 16, 915 * Page},
		{16, 1 << 20, 1 << 16, 0, 0, Page},
		{17, 1 << 20, 1 << 16, 0, 1 << 16, 62 * Page},
		{17, 1 << 20, 1 << 16, 67, 1 << 16, 129 * Page},
		{16 * 1024, 1 << 20, 1 << 16, 0, 0, 0}, // starts over
		{0, 1 << 20, 1 << 16, 1 << 30, 0, 0},
		{2, 10000, 4096, 0, 0, Page}, // the rest of the ring is unused
		{3, 10000, 4096, 0, 4096, 62 * Page},
		{5, 4096, 4096, 0, 0, 5 * Page},
		{5, 100, 4096, 0, 0, 5 * Page},
		{7, 64, 8, 0, 56, 427 * Page},
	} {
		if at, source := Place(tc.i, tc.ring, tc.chunk, tc.pass); at != tc.at || source != tc.source {
			t.Errorf("Place(%d, %d, %d, %d) = %d, %d; want %d, %d", tc.i, tc.ring, tc.chunk, tc.pass, at, source, tc.at,
				tc.source)
		}
	}
}

// TestPlacesDiffer: writes of one pass are adjacent in the ring and come from the source, and neither an earlier pass
// nor one of the previous burst left the same bytes in a place.
func TestPlacesDiffer(t *testing.T) {
	const perBurst = 67 // passes by which the next burst is shifted: worker.maxPasses
	for _, tc := range []struct{ ring, chunk int64 }{{1 << 20, 1 << 16}, {34 * MaxChunk, MaxChunk}, {100000, 4096},
		{4096, 4096}, {64, 8}} {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			slots := tc.ring / tc.chunk
			held := map[int64]map[int64]int{} // offset in the ring → offset in the source → burst + 1
			for burst := range 3 {
				for i := range slots * perBurst {
					at, source := Place(i, tc.ring, tc.chunk, burst*perBurst)
					if at != i%slots*tc.chunk || at+tc.chunk > tc.ring {
						t.Fatalf("write %d lies at %d", i, at)
					}
					if source < 0 || source+tc.chunk > SourceLen {
						t.Fatalf("write %d comes from %d", i, source)
					}
					if held[at] == nil {
						held[at] = map[int64]int{}
					}
					if n := held[at][source]; n > 0 {
						t.Fatalf("burst %d: write %d leaves at %d the same bytes as one of burst %d", burst, i, at, n-1)
					}
					held[at][source] = burst + 1
				}
			}
		})
	}
}

// TestRate: only measured bytes and measured time count.
func TestRate(t *testing.T) {
	for _, tc := range []struct {
		rail BurstRail
		want float64
	}{
		{BurstRail{}, 0},
		{BurstRail{Bytes: 1000, Measured: 500, First: time.Second, Last: 3 * time.Second}, 250},
		{BurstRail{Bytes: 1000, First: time.Second, Last: 3 * time.Second}, 0},
		{BurstRail{Bytes: 1000, Measured: 500, First: time.Second, Last: time.Second}, 0},
		{BurstRail{Bytes: 1000, First: -1}, 0},
		{BurstRail{Measured: 50e9, First: 0, Last: time.Second}, 50e9},
	} {
		if got := tc.rail.Rate(); got != tc.want {
			t.Errorf("%+v: %v, want %v", tc.rail, got, tc.want)
		}
	}
}

// TestBurstDone: a failed rail needs no figure, a working one does.
func TestBurstDone(t *testing.T) {
	good, gap := BurstRail{Measured: 1, Last: 1}, BurstRail{Measured: 1, Last: 1, Disturbed: true}
	broken := BurstRail{Disturbed: true, Failure: failure.New("", failure.TCPBroken, "cut")}
	for _, tc := range []struct {
		rails             []BurstRail
		failed, disturbed bool
	}{
		{nil, false, false},
		{[]BurstRail{good, good}, false, false},
		{[]BurstRail{good, gap}, false, true},
		{[]BurstRail{broken, good}, true, false},
		{[]BurstRail{broken, gap}, true, true},
		{[]BurstRail{broken}, true, false},
	} {
		d := BurstDone{Rails: tc.rails}
		if d.Failed() != tc.failed || d.Disturbed() != tc.disturbed {
			t.Errorf("%+v: failed %v, disturbed %v", tc.rails, d.Failed(), d.Disturbed())
		}
	}
}
