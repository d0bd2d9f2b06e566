//go:build cgo && linux

package probe

import (
	"math"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/linerate"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// postRate is how many messages per second one thread posts and polls in the model, about.
const postRate = 5e6

// TestSizesAtLineRate: a sweep finds the rate of the model for every size, or, of messages that are too small for one
// thread to keep the rails busy, nothing.
func TestSizesAtLineRate(t *testing.T) {
	for _, rails := range []int{1, 2, 8} {
		for _, rate := range []float64{100, 400, 800} {
			m := linerate.Model{Rails: alike(rails, linerate.Rail{Rate: gbps(rate), RTT: 5 * us})}
			for size := int64(64 << 10); size <= 64<<20; size *= 4 {
				p := plan{Options: DefaultOptions(), rails: rails}
				most := p.chunk(transfer.MaxChunk, transfer.MaxChunk)
				chunk, _ := part(size, rails, most)
				p = p.ofMessages(chunk, most)
				b := planned(m, p.Depth)
				for i := range b.Loads {
					b.Loads[i] = p.load(&path{result: &RailResult{Capacity: new(gbps(rate)),
						Latency: &Latency{Samples: []time.Duration{5 * us}}}})
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
