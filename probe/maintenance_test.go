package probe

import (
	"sync/atomic"
	"testing"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// TestMaintenance: a node in maintenance asks no peer, and a peer that asks it skips the round.
func TestMaintenance(t *testing.T) {
	for _, at := range []string{"a", "b"} {
		t.Run(at, func(t *testing.T) {
			var on atomic.Bool
			a, b := bareNode(t, "a"), bareNode(t, "b")
			map[string]*node.Node{"a": a, "b": b}[at].Opts.Maintenance = on.Load
			opts := options.DefaultOptions()
			opts.Security.Insecure = true
			address := answeringAt(t, b, opts, "127.0.0.1:0")
			want := map[string]result.Reason{"a": failure.Maintenance, "b": failure.Draining}[at]
			for _, active := range []bool{true, false, true} {
				on.Store(active)
				res := Bench(t.Context(), a, opts, address, func(result.Progress) {})
				if skipped := res.Outcome == result.Skipped && res.Reason == want; skipped != active {
					t.Errorf("maintenance %v: %s, %s, %s", active, res.Outcome, res.Reason, res.Detail)
				}
			}
		})
	}
}
