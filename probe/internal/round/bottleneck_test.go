package round

import (
	"testing"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/history"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/result"
)

// carryingRound returns a round in which two rails carry so much alone, in bytes per second, and so much together.
func carryingRound(full bool, low int, striped float64, solos ...float64) *Round {
	r := &Round{Pairing: Pairing{Past: &history.PastPeer{Low: low}}, Plan: Plan{Full: full}}
	r.Res.Striped = &striped
	for i, solo := range solos {
		r.Res.Rails = append(r.Res.Rails, result.RailResult{Rail: string(rune('0' + i)), Solo: alone(solo),
			Striped: alone(striped / float64(len(solos)))})
	}
	for i := range r.Res.Rails {
		one := &r.Res.Rails[i]
		r.Flows = append(r.Flows, &Flow{Local: node.LocalRail{Rail: rail.Rail{Name: one.Rail}},
			Peer: &protocol.HelloRail{}, Result: one})
	}
	return r
}

func alone(rate float64) *result.Flow { return &result.Flow{Bytes: int64(rate), Active: time.Second} }

// TestBottleneckLater: a full round confirms a bottleneck when the last of enough striped bursts agrees on it, once.
// Without time for that, a later round does.
func TestBottleneckLater(t *testing.T) {
	for _, tc := range []struct {
		why       string
		full      bool
		low, want int
	}{
		{"there is no time to confirm it", true, history.Agreeing - 1, history.Agreeing - 1},
		{"it was confirmed before", true, history.Agreeing, history.Agreeing},
		{"the round is not a full one", false, history.Agreeing - 1, history.Agreeing},
		{"too few agree", true, history.Agreeing - 3, history.Agreeing - 2},
	} {
		r := carryingRound(tc.full, tc.low, 120e6, 100e6, 100e6)
		if err := r.confirmBottleneck(t.Context()); err != nil || r.Past.Low != tc.want {
			t.Errorf("%s: %v, %d bursts agree, want %d", tc.why, err, r.Past.Low, tc.want)
		}
	}
}

// TestBottleneckConfirmed: the slower solo burst of each rail judges the striped one, and the faster one is its figure.
func TestBottleneckConfirmed(t *testing.T) {
	for _, tc := range []struct {
		why    string
		again  [2]float64
		low    int
		figure float64
	}{
		{"slower, as on a busy machine", [2]float64{60e6, 62e6}, 0, 100e6},
		{"as before", [2]float64{99e6, 98e6}, history.Agreeing, 100e6},
		{"faster", [2]float64{110e6, 120e6}, history.Agreeing, 110e6},
		{"disturbed", [2]float64{0, 0}, history.Agreeing, 100e6},
	} {
		r := carryingRound(true, history.Agreeing, 120e6, 100e6, 100e6)
		first := map[*Flow]*result.Flow{}
		for i, p := range r.Flows {
			first[p], p.Result.Solo = p.Result.Solo, nil
			if tc.again[i] > 0 {
				p.Result.Solo = alone(tc.again[i])
			}
		}
		confirm(r, first)
		if got := r.Flows[0].Result.Solo.BytesPerSecond(); r.Past.Low != tc.low || got != tc.figure {
			t.Errorf("%s: %d bursts agree, want %d; the figure is %v, want %v", tc.why, r.Past.Low, tc.low, got, tc.figure)
		}
	}
}
