package sampler

import "sync"

// union tells for how long any rail was busy: a mark for each tick, set by
// whichever rail was. What is older than the ring has room for was counted, so
// that a sample that comes later than that changes nothing.
type union struct {
	mu     sync.Mutex // protects all following fields
	ticks  []uint8    // by tick modulo length: a bit for each direction
	folded int64      // ticks up to this one are counted
}

// mark marks the ticks after from, up to and with to.
func (u *union) mark(direction int, from, to int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := int64(len(u.ticks))
	for t := max(from, u.folded) + 1; t <= min(to, u.folded+n); t++ {
		u.ticks[t%n] |= 1 << direction
	}
}

// fold counts the marked ticks up to and with to, once.
func (u *union) fold(to int64) (busy [directions]int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := int64(len(u.ticks))
	for t := u.folded + 1; t <= min(to, u.folded+n); t++ {
		for d := range busy {
			busy[d] += int64(u.ticks[t%n] >> d & 1)
		}
		u.ticks[t%n] = 0
	}
	u.folded = max(u.folded, to)
	return busy
}
