//go:build cgo && linux

package probe

import (
	"math"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/linerate"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/internal/transfer"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// postRate is about the number of messages per second that one thread posts and polls in the model.
const postRate = 5e6

// TestSizesAtLineRate: a sweep finds the model's rate for every size, or no figure for messages that are too small
// for one thread to keep the rails busy.
func TestSizesAtLineRate(t *testing.T) {
	for _, rails := range []int{1, 2, 8} {
		for _, rate := range []float64{100, 400, 800} {
			m := linerate.Model{Rails: alike(rails, linerate.Rail{Rate: gbps(rate), RTT: 5 * us})}
			for size := int64(64 << 10); size <= 64<<20; size *= 4 {
				p := round.Plan{Options: options.DefaultOptions(), Rails: rails}
				most := p.Chunk(transfer.MaxChunk, transfer.MaxChunk)
				chunk, _ := round.Part(size, rails, most)
				p = p.OfMessages(chunk, most)
				b := planned(m, p.Depth)
				for i := range b.Loads {
					b.Loads[i] = p.Load(&round.Flow{Result: &result.RailResult{Capacity: new(gbps(rate)),
						Latency: &result.Latency{Samples: []time.Duration{5 * us}}}})
				}
				o, line := measureBurst(m, b), float64(rails)*gbps(rate)
				slow := line/float64(chunk) > postRate
				if o.disturbed != slow && !slow || !o.disturbed && math.Abs(o.sum()/line-1) > maxOff {
					t.Errorf("%d × %.0f Gb/s, %d × %d bytes: %.3f of the line, disturbed %v", rails, rate, p.Depth, chunk, o.sum()/line,
						o.disturbed)
				}
			}
		}
	}
}
