package sampler

import "time"

// settling is how long the state that a driver tells and the kernel's count of
// carrier changes may be apart and still be about the same change.
const settling = 3 * time.Second

// Flaps counts how often a link came or went.
type Flaps struct {
	Changes uint64    // up and down each are one
	Last    time.Time // when the last one was noticed, within a second; zero when there was none
}

// link makes Flaps of two witnesses. The state that is read every second misses
// what is over in less; the kernel's count of carrier changes misses a port that
// went down without its carrier. What both saw must count once, although one
// may tell it before the other.
type link struct {
	Flaps
	state, carrier witness
	settled        time.Time // until then what one witness is ahead may be the other's to come
}

// witness is one of the two.
type witness struct {
	known bool
	value uint64
	ahead uint64 // changes counted on its word alone
}

// changed returns by how much the value moved; the first one moves nothing.
func (w *witness) changed(value uint64, ok bool, once bool) uint64 {
	if !ok {
		return 0
	}
	was, known := w.value, w.known
	w.value, w.known = value, true
	switch {
	case !known || value == was || !once && value < was: // a count that steps back is another interface's
		return 0
	case once:
		return 1
	}
	return value - was
}

// forget makes the next count a first: the interface is another one.
func (l *link) forget() { l.carrier.known = false }

// look takes in what the witnesses say now. up is known where stateOK, changes
// where carrierOK.
func (l *link) look(now time.Time, up, stateOK bool, changes uint64, carrierOK bool) {
	state := l.state.changed(oneIf(up), stateOK, true)
	carrier := l.carrier.changed(changes, carrierOK, false)
	if now.After(l.settled) {
		l.state.ahead, l.carrier.ahead = 0, 0
	}
	if state == 0 && carrier == 0 {
		return
	}
	both := min(state, carrier)
	count := both + beyond(l.carrier.ahead, state-both) + beyond(l.state.ahead, carrier-both)
	l.state.ahead += state - both
	l.carrier.ahead += carrier - both
	// What was ahead and is now confirmed is nobody's lead any more.
	even := min(l.state.ahead, l.carrier.ahead)
	l.state.ahead -= even
	l.carrier.ahead -= even
	l.settled = now.Add(settling)
	if count > 0 {
		l.Changes += count
		l.Last = now
	}
}

// beyond returns what of n the lead of the other witness does not explain.
func beyond(lead, n uint64) uint64 {
	if n <= lead {
		return 0
	}
	return n - lead
}

func oneIf(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
