package tcp

import "sync/atomic"

// grant is how many bytes of payload a target accepts over all connections. Only bytes written into the buffer count.
// Safe for concurrent use.
type grant struct {
	total    int64
	left     atomic.Int64
	exceeded atomic.Bool // an asker sent more
}

func newGrant(total int64) *grant {
	g := &grant{total: max(total, 0)}
	g.left.Store(g.total)
	return g
}

// reserve takes n bytes, before any of them is read, or none.
func (g *grant) reserve(n int64) bool {
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

// release returns reserved bytes that did not arrive.
func (g *grant) release(n int64) { g.left.Add(n) }

// used returns how many bytes are reserved, including those still arriving.
func (g *grant) used() int64 { return g.total - g.left.Load() }
