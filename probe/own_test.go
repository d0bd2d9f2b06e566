package probe

import (
	"math"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/target"
	"github.com/railscope/railscope/probe/internal/worker"
)

// TestOwnOfHolder: repeated reports of a holder do not raise this node's own traffic above the grant, or above what
// the port counted.
func TestOwnOfHolder(t *testing.T) {
	t.Parallel()
	const written, granted = 1 << 28, 1 << 30
	for _, tc := range []struct {
		why      string
		requests int
		counted  uint64 // bytes counted by the port; 0: not read
		period   time.Duration
		want     int64
	}{
		{"once", 1, 0, 0, written},
		{"once, as counted", 1, 2 * written, 0, written},
		{"a thousand times", 1000, 0, 0, granted},
		{"and counted once", 1000, written, 0, written},
		{"a late counter", 2, 1, time.Second, 2 * written},
	} {
		n := &node.Node{Place: node.Place{Slot: node.NewSlot()}, Own: new(node.OwnTraffic),
			Recent: new(node.RecentTransfers)}
		r := node.LocalRail{Rail: rail.Rail{Name: "0", Device: "mlx5_0", Port: 1}}
		l := &target.Lease{Guard: &node.Guard{Node: n, Rails: []node.LocalRail{r}, Granted: granted},
			Flows: map[string]string{"0": "0"}}
		now := map[string]rail.Traffic{}
		if tc.counted > 0 {
			l.OverRDMA.Start = map[string]rail.Traffic{"0": {Period: tc.period}}
			now["0"] = rail.Traffic{Receive: tc.counted, Period: tc.period}
		}
		for range tc.requests {
			l.NoteOwn([]worker.VerifyRail{{Rail: "0", Chunk: 1 << 20, Writes: []int64{written >> 21, written >> 21}}}, rail.Receive,
				now)
		}
		got, _ := n.OwnTraffic(r.Rail)
		if want := node.WireBytes(tc.want, 4096, true); math.Abs(float64(got[rail.Receive])-want) > 1e4 {
			t.Errorf("%s: %d bytes, want %.0f", tc.why, got[rail.Receive], want)
		}
	}
}

// TestVerifyWrites: impossible numbers of writes are refused.
func TestVerifyWrites(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		chunk  int64
		writes []int64
		good   bool
	}{
		{1 << 20, []int64{0, 1 << 10}, true},
		{0, []int64{5}, true}, // chunk 0: verified, not recorded
		{1 << 20, []int64{-1, 5}, false},
		{-1, []int64{5}, false},
		{1 << 20, []int64{math.MaxInt64, 5}, false},
		{1 << 20, []int64{1 << 30, 1}, false},
	} {
		v := &worker.VerifyArgs{Rails: []worker.VerifyRail{{Rail: "0", Chunk: tc.chunk, Writes: tc.writes}}}
		if err := protocol.CheckVerify(v); (err == nil) != tc.good {
			t.Errorf("%d × %v: %v", tc.chunk, tc.writes, err)
		}
	}
}
