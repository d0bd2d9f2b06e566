package node

import "time"

// Tuning is what tests change.
type Tuning struct {
	GuardInterval time.Duration // between two readings of the counters while others' traffic is watched
	StrangersWork float64       // share of a core for unauthenticated connections, beside accepting them
	Emulated      bool          // processes of this machine emulate adapters, as the kernel does for rxe
	Patience      time.Duration // added to the limits of the worker's answers
}

// strangersWork is the share of a core that unauthenticated connections may take, beside accepting them.
const strangersWork = 0.05
