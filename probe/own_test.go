package probe

import (
	"math"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/worker"
)

// TestOwnOfHolder: a holder that repeats itself does not make this node's own traffic more than was granted, or than
// the port counted.
func TestOwnOfHolder(t *testing.T) {
	t.Parallel()
	const written, granted = 1 << 28, 1 << 30
	for _, tc := range []struct {
		why      string
		requests int
		counted  uint64 // by the port; 0: it is not read
		period   time.Duration
		want     int64
	}{
		{"once", 1, 0, 0, written},
		{"once, as counted", 1, 2 * written, 0, written},
		{"a thousand times", 1000, 0, 0, granted},
		{"and counted once", 1000, written, 0, written},
		{"a late counter", 2, 1, time.Second, 2 * written},
	} {
		n := &Node{slot: newSlot(), own: new(ownTraffic), recent: new(recentTransfers)}
		r := localRail{Rail: rail.Rail{Name: "0", Device: "mlx5_0", Port: 1}}
		l := &lease{guard: &guard{node: n, rails: []localRail{r}, granted: granted}, flows: map[string]string{"0": "0"}}
		now := map[string]rail.Traffic{}
		if tc.counted > 0 {
			l.overRDMA.start = map[string]rail.Traffic{"0": {Period: tc.period}}
			now["0"] = rail.Traffic{Receive: tc.counted, Period: tc.period}
		}
		for range tc.requests {
			l.noteOwn([]worker.VerifyRail{{Rail: "0", Chunk: 1 << 20, Writes: []int64{written >> 21, written >> 21}}}, rail.Receive,
				now)
		}
		got, _ := n.OwnTraffic(r.Rail)
		if want := wireBytes(tc.want, 4096, true); math.Abs(float64(got[rail.Receive])-want) > 1e4 {
			t.Errorf("%s: %d bytes, want %.0f", tc.why, got[rail.Receive], want)
		}
	}
}

// TestVerifyWrites: numbers of writes that no burst makes are refused.
func TestVerifyWrites(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		chunk  int64
		writes []int64
		good   bool
	}{
		{1 << 20, []int64{0, 1 << 10}, true},
		{0, []int64{5}, true}, // only verified
		{1 << 20, []int64{-1, 5}, false},
		{-1, []int64{5}, false},
		{1 << 20, []int64{math.MaxInt64, 5}, false},
		{1 << 20, []int64{1 << 30, 1}, false},
	} {
		v := &worker.VerifyArgs{Rails: []worker.VerifyRail{{Rail: "0", Chunk: tc.chunk, Writes: tc.writes}}}
		if err := checkVerify(v); (err == nil) != tc.good {
			t.Errorf("%d × %v: %v", tc.chunk, tc.writes, err)
		}
	}
}
