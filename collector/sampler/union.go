package sampler

// union measures how long any rail was busy, by a mark per tick in a ring. The sampler's mutex protects it.
type union struct {
	ticks   []uint8 // by tick modulo length: a bit for each direction
	counted int64   // the last tick that is counted
}

// mark marks the ticks after from, up to and with to.
func (u *union) mark(direction int, from, to int64) {
	n := int64(len(u.ticks))
	for t := max(from, u.counted) + 1; t <= min(to, u.counted+n); t++ {
		u.ticks[t%n] |= 1 << direction
	}
}

// count counts the marked ticks up to and with to, once.
func (u *union) count(to int64) (busy [directions]int64) {
	n := int64(len(u.ticks))
	for t := u.counted + 1; t <= min(to, u.counted+n); t++ {
		for d := range busy {
			busy[d] += int64(u.ticks[t%n] >> d & 1)
		}
		u.ticks[t%n] = 0
	}
	u.counted = max(u.counted, to)
	return busy
}
