package tcp

import "sync/atomic"

// grant is how many bytes of payload a target may take, over all connections.
// What counts is what is written into the buffer: not greetings, proofs and
// frame heads. Safe for concurrent use.
type grant struct {
	total    int64
	left     atomic.Int64
	exceeded atomic.Bool // somebody wanted to write more
}

func newGrant(total int64) *grant {
	g := &grant{total: max(total, 0)}
	g.left.Store(g.total)
	return g
}

// take takes n bytes, before any of them is read, or none.
func (g *grant) take(n int64) bool {
	for {
		left := g.left.Load()
		if n > left {
			g.exceeded.Store(true)
			return false
		}
		if g.left.CompareAndSwap(left, left-n) {
			return true
		}
	}
}

// giveBack returns what was taken and did not arrive.
func (g *grant) giveBack(n int64) { g.left.Add(n) }

// taken is how many bytes are taken, those included that are still arriving.
func (g *grant) taken() int64 { return g.total - g.left.Load() }
