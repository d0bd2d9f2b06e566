package sampler

import (
	"slices"

	"github.com/railscope/railscope/internal/rail"
)

// Set sums up all rails in one direction.
type Set struct {
	Known      bool    // the capacity of a rail is or was known; if not, nothing below is
	Active     int     // rails that were busy in the window
	Busy       float64 // seconds in which any rail was
	Imbalanced float64 // of these, seconds in which the window was imbalanced
	Imbalance  float64 // over the window, of the worst group of rails
	Balanced   bool    // Imbalance is known: a group of two rails or more was busy

	Roles map[string]float64 // the imbalance of each role in which it is known; not changed
}

// judge compares what rails carried in a window of seconds, except in groups without a busy rail: stray packets. Rails
// over which no job is connected are not compared.
func (s *Set) judge(direction int, accounts []*account, window int) (imbalanced bool) {
	s.Known, s.Active = false, 0
	loads, busy := make([]rail.Load, 0, len(accounts)), map[rail.Group]bool{}
	for _, a := range accounts {
		if a.lastCapacity <= 0 {
			continue // without a capacity it has no share
		}
		s.Known = true
		w := a.history[direction].over(window)
		if w.seconds <= 0 {
			continue // it hangs, or has just been found
		}
		if w.busy > 0 {
			s.Active++
		}
		if a.unused {
			continue
		}
		busy[a.group] = busy[a.group] || w.busy > 0
		loads = append(loads, rail.Load{Group: a.group, Rate: float64(w.bytes) / w.seconds, Capacity: a.lastCapacity})
	}
	loads = slices.DeleteFunc(loads, func(l rail.Load) bool { return !busy[l.Group] })
	s.Roles, s.Imbalance = rail.Imbalances(loads), 0
	s.Balanced = len(s.Roles) > 0
	for _, of := range s.Roles {
		s.Imbalance = max(s.Imbalance, of)
	}
	return s.Imbalance > rail.ImbalancedAbove
}

// union measures how long any rail was busy, by a mark per tick in a ring. The sampler's mutex protects it.
type union struct {
	ticks   []uint8 // by tick modulo length: a bit for each direction
	counted int64   // the last tick that is counted
}

func (u *union) mark(direction int, from, to int64) {
	n := int64(len(u.ticks))
	for t := max(from, u.counted) + 1; t <= min(to, u.counted+n); t++ {
		u.ticks[t%n] |= 1 << direction
	}
}

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

// The reasons for which a fallback is suspected, as indices.
const (
	RDMAIdleTCPBusy = iota // GPUs compute, no rail carries RDMA, and the rails' interfaces carry much other traffic
	SingleRail             // the rails were balanced, and without a pause one carries all traffic
	suspicions
)

// Reason names a reason as the label of metrics does.
func Reason(i int) string { return [suspicions]string{"rdma_idle_tcp_busy", "single_rail"}[i] }

// The thresholds. Reads are tcpEvery apart.
const (
	tcpLeast      = 10e6  // bytes per second of TCP over all rails; less is ssh, scrapes and probes
	tcpLeastShare = 0.01  // of the capacity of the fastest rail
	rdmaIdleShare = 0.1   // of TCP, up to which RDMA is idle, so that probes do not hide a fallback
	stays         = 0.5   // of these thresholds, down to which a suspicion stays
	streakReads   = 3     // in a row, that raise a suspicion, clear it, or make it unknown
	idleShare     = 0.005 // of the capacity, below which all rails are idle
	idleReads     = 6     // in a row, after which other traffic is another job: 30 s
	maxDelayed    = 5     // in a row, for which a measurement under way puts off the verdict
	evenLeast     = 0.5   // of the mean load, which every rail has while they are balanced
	singleShare   = 0.9   // of all traffic, which one rail has if it is the only one
	singleStays   = 0.7   // of all traffic, down to which that suspicion stays
	balancedReads = 3     // that make rails balanced
)

// condition is true, false or unknown.
type condition struct{ met, known bool }

// Suspicion is the verdict on one reason.
type Suspicion struct {
	Known     bool // there is enough evidence
	Suspected bool
}

// railLoad is what one compute rail carried between two reads, both directions together.
type railLoad struct {
	tcp, rdma           float64 // bytes per second: a lower and an upper bound
	tcpKnown, rdmaKnown bool
	carried             float64 // bytes per second by the rail's counters
	carriedKnown        bool
	capacity            float64 // last known one in one direction, bytes per second; 0 if none
}

type suspicion struct {
	now    [suspicions]Suspicion
	streak [suspicions]int              // reads in a row that contradict now
	blind  [suspicions]int              // reads in a row that could not be judged
	before map[string][directions]point // by Rail.Key, at the last read

	own     map[string][directions]uint64 // likewise: bytes of own measurements
	delayed int                           // reads in a row that a measurement under way put off

	balanced, idle int // reads
}

// ownLocked returns the bytes of own measurements by Rail.Key, or false while one is under way: the next read then
// covers both times. After maxDelayed of them, they are what is known.
func (s *Sampler) ownLocked() (own map[string][directions]uint64, settled bool) {
	own, settled = map[string][directions]uint64{}, true
	if s.opts.Own == nil {
		return own, true
	}
	for _, r := range s.rails {
		bytes, done := s.opts.Own(r)
		own[r.Key()], settled = bytes, settled && done
	}
	if s.suspect.delayed++; settled || s.suspect.delayed > maxDelayed {
		s.suspect.delayed = 0
		return own, true
	}
	return nil, false
}

func (s *Sampler) suspectLocked() {
	own, settled := s.ownLocked()
	if !settled {
		return
	}
	ownBefore := s.suspect.own
	s.suspect.own = own
	before := s.suspect.before
	s.suspect.before = make(map[string][directions]point, len(s.rails))
	loads := make([]railLoad, 0, len(s.rails))
	for _, r := range s.rails {
		if r.Role != rail.Compute { // storage may use one rail, and TCP
			continue
		}
		a := s.accounts[r.Key()]
		now := [directions]point{a.now(Receive), a.now(Transmit)}
		s.suspect.before[r.Key()] = now
		was, known := before[r.Key()]
		l := railLoad{capacity: a.lastCapacity, carriedKnown: known}
		for d := range now {
			if took := now[d].seconds - was[d].seconds; took > 0 {
				bytes := float64(now[d].bytes - was[d].bytes)
				l.carried += max(bytes-float64(own[r.Key()][d]-ownBefore[r.Key()][d]), 0) / took
			} else {
				l.carriedKnown = false // it hangs, or has no byte counter
			}
		}
		if t := &a.tcp; t[Receive].known && t[Transmit].known {
			l.tcp, l.tcpKnown = t[Receive].least+t[Transmit].least, true
			l.rdma, l.rdmaKnown = t[Receive].rdma+t[Transmit].rdma, true
		}
		if !r.Software { // its own counters have RDMA only
			l.rdma, l.rdmaKnown = l.carried, l.carriedKnown
		}
		loads = append(loads, l)
	}
	for key, was := range before {
		// A rail that left while they were balanced counts as idle: its traffic went to the others, or ended.
		present := slices.ContainsFunc(s.rails, func(r rail.Rail) bool { return r.Key() == key })
		if !present && s.suspect.balanced >= balancedReads {
			s.suspect.before[key] = was
			loads = append(loads, railLoad{capacity: s.accounts[key].lastCapacity, carriedKnown: true, rdmaKnown: true})
		}
	}
	s.suspect.judge(loads, s.gpus.busy)
}

func (s *suspicion) judge(loads []railLoad, gpus condition) {
	s.settle(RDMAIdleTCPBusy, s.tcpBusy(loads, gpus))
	s.settle(SingleRail, s.singleRail(loads))
}

// settle changes a verdict after enough reads in a row. After as many without evidence, it is unknown.
func (s *suspicion) settle(reason int, evidence condition) {
	now := &s.now[reason]
	if !evidence.known {
		if s.blind[reason]++; s.blind[reason] >= streakReads {
			*now, s.streak[reason] = Suspicion{}, 0
			if reason == SingleRail {
				s.balanced, s.idle = 0, 0
			}
		}
		return
	}
	now.Known, s.blind[reason] = true, 0
	if evidence.met == now.Suspected {
		s.streak[reason] = 0
		return
	}
	if s.streak[reason]++; s.streak[reason] >= streakReads {
		now.Suspected, s.streak[reason] = evidence.met, 0
	}
}

// tcpBusy reports whether GPUs compute, RDMA is idle and TCP is busy. It is unknown if no rail counts TCP, or RDMA.
func (s *suspicion) tcpBusy(loads []railLoad, gpus condition) condition {
	var tcp, rdma, fastest float64
	known := false
	for _, l := range loads {
		if !l.rdmaKnown {
			return condition{}
		}
		rdma += l.rdma
		if l.tcpKnown {
			known = true
			tcp += l.tcp
			fastest = max(fastest, l.capacity)
		}
	}
	if !known || !gpus.known {
		return condition{}
	}
	least, idle := max(tcpLeast, tcpLeastShare*fastest), rdmaIdleShare
	if s.now[RDMAIdleTCPBusy].Suspected {
		least, idle = least*stays, idle/stays
	}
	return condition{met: gpus.met && tcp >= least && rdma <= idle*tcp, known: true}
}

func (s *suspicion) singleRail(loads []railLoad) condition {
	var sum, most, n float64
	least := -1.
	for _, l := range loads {
		if l.capacity == 0 || !l.carriedKnown {
			continue
		}
		load := l.carried / l.capacity
		n++
		sum, most = sum+load, max(most, load)
		if least < 0 || load < least {
			least = load
		}
	}
	if n < 2 {
		return condition{}
	}
	if most < idleShare {
		if s.idle++; s.idle >= idleReads {
			s.balanced = 0
		}
		return condition{known: true}
	}
	s.idle = 0
	if least*n >= evenLeast*sum {
		s.balanced = min(s.balanced+1, balancedReads)
	}
	share := singleShare
	if s.now[SingleRail].Suspected {
		share = singleStays
	}
	return condition{met: s.balanced >= balancedReads && most >= share*sum && most >= BusyAbove, known: true}
}
