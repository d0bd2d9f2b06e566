package result

import "time"

// Plans is what rounds with several lists of extras would need of the rails, and what the peer grants.
type Plans struct {
	Needs  []Need  // one for each list, in order
	Grants *Grants // nil: an older peer does not report it
}

// Need is what one round needs.
type Need struct {
	RailTime time.Duration // most time of each rail, as the lease asks for it
	Bursts   int           // bursts of the round, extras included
	Budget   float64       // share of time that the peer's budget must be at least to grant it
}

// Grants is the rail time that a peer grants: its budget.
type Grants struct {
	Lease time.Duration // the most of one lease
	Left  time.Duration // left now; it refills within an hour
}
