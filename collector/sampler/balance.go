package sampler

import (
	"math"
	"slices"
	"time"

	"github.com/railscope/railscope/internal/rail"
)

// Set holds the sums of all rails in one direction.
type Set struct {
	Known      bool    // the capacity of a rail is or was known; otherwise the following fields are unknown
	Active     int     // rails that were busy in the window
	Busy       float64 // seconds in which at least one rail was busy
	Imbalanced float64 // seconds of Busy in which the window was imbalanced
	Imbalance  float64 // imbalance over the window, of the worst group of rails
	Balanced   bool    // Imbalance is known: a group of two or more rails was busy

	Roles  map[string]float64 // imbalance by role, where it is known; the map is never modified
	Shares map[string]float64 // shares of rails by name, where known; the map is never modified

	held int // seconds for which own measurements delayed the verdict
}

// maxHeld is the number of consecutive seconds for which own measurements may delay the verdict. The last verdict
// remains valid meanwhile.
const maxHeld = 30

// judge compares what rails carried in a window of seconds. Groups without a busy rail carry only stray packets and
// are skipped. Rails over which no job is connected are not compared, and own measurements do not count as traffic.
func (s *Set) judge(direction int, accounts []*account, window int) (imbalanced bool) {
	s.Known, s.Active = false, 0
	loads, busy := make([]rail.Load, 0, len(accounts)), map[rail.Group]bool{}
	names, settled := make([]string, 0, len(accounts)), true
	for _, a := range accounts {
		if a.lastCapacity <= 0 {
			continue // unknown capacity: there is no share
		}
		s.Known = true
		w := a.history[direction].over(window)
		if w.seconds <= 0 {
			continue // it hangs, or was found just now
		}
		if w.busy > 0 {
			s.Active++
		}
		if a.unused {
			continue
		}
		of, ok := a.history[direction].settledOver(window)
		settled = settled && ok
		if of.seconds <= 0 {
			continue
		}
		bytes, isBusy := of.real(a.lastCapacity)
		busy[a.group] = busy[a.group] || isBusy
		loads = append(loads, rail.Load{Group: a.group, Rate: bytes / of.seconds, Capacity: a.lastCapacity})
		names = append(names, a.name)
	}
	s.held++
	if !settled && s.held <= maxHeld {
		return s.Imbalance > rail.ImbalancedAbove
	}
	s.Roles, s.Shares, s.Imbalance = nil, nil, 0
	if settled {
		s.held = 0
		s.compare(loads, names, busy)
	}
	s.Balanced = len(s.Roles) > 0
	for _, of := range s.Roles {
		s.Imbalance = max(s.Imbalance, of)
	}
	return s.Imbalance > rail.ImbalancedAbove
}

// compare sets the shares of the rails in groups with a busy rail.
func (s *Set) compare(loads []rail.Load, names []string, busy map[rail.Group]bool) {
	var of []string
	for i, l := range loads {
		if busy[l.Group] {
			of = append(of, names[i])
		}
	}
	loads = slices.DeleteFunc(loads, func(l rail.Load) bool { return !busy[l.Group] })
	s.Roles, s.Shares = rail.Imbalances(loads), map[string]float64{}
	for i, share := range rail.Shares(loads) {
		if !math.IsNaN(share) {
			s.Shares[of[i]] = share
		}
	}
}

// union measures how long at least one rail was busy, with a ring of one mark per tick. The sampler's mutex
// protects it.
type union struct {
	ticks   []uint8 // indexed by tick modulo length: one bit per direction
	counted int64   // last tick that was counted
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

// Reasons for which a fallback is suspected, as indices.
const (
	RDMAIdleTCPBusy = iota // GPUs compute, no rail carries RDMA, and the rails' interfaces carry much other traffic
	SingleRail             // the rails were balanced and now, without a pause, one carries all traffic
	suspicions
)

// Reason returns the label value of a reason.
func Reason(i int) string { return [suspicions]string{"rdma_idle_tcp_busy", "single_rail"}[i] }

// Thresholds. Reads are tcpEvery apart.
const (
	minTCP        = 10e6  // bytes per second of TCP over all rails; ssh, scrapes and probes use less
	tcpLeastShare = 0.01  // TCP counts as busy above this share of the capacity of the fastest rail
	rdmaIdleShare = 0.1   // RDMA is idle up to this share of TCP, so that probes do not hide a fallback
	stays         = 0.5   // a suspicion ends below this share of these thresholds
	streakReads   = 3     // consecutive reads that raise a suspicion, clear it, or make it unknown
	idleShare     = 0.005 // share of the capacity below which all rails are idle
	idleReads     = 6     // consecutive idle reads after which other traffic is another job: 30 s
	maxDelayed    = 5     // consecutive reads that a measurement under way may delay
	minEven       = 0.5   // share of the mean load that every rail has while they are balanced
	singleShare   = 0.9   // share of all traffic above which a rail is the only one
	singleStays   = 0.7   // share of all traffic below which that suspicion ends
	balancedReads = 3     // consecutive balanced reads that make rails balanced
)

// condition is true, false or unknown.
type condition struct{ met, known bool }

// Suspicion is the verdict on one reason.
type Suspicion struct {
	Known     bool // there is enough evidence
	Suspected bool
}

// railLoad is the traffic of one compute rail between two reads, both directions together.
type railLoad struct {
	tcp, rdma           float64 // bytes per second; tcp is a lower bound, rdma an upper bound
	tcpKnown, rdmaKnown bool
	carried             float64 // bytes per second by the rail's counters
	carriedKnown        bool
	capacity            float64 // last known capacity in one direction, bytes per second; 0 if none
}

type suspicion struct {
	now    [suspicions]Suspicion
	streak [suspicions]int              // consecutive reads that contradict the verdict
	blind  [suspicions]int              // consecutive reads that could not be judged
	before map[string][directions]point // keyed by Rail.Key, at the last read

	own     map[string][directions]uint64 // bytes of own measurements by Rail.Key, at the last read
	delayed int                           // consecutive reads that a measurement under way delayed

	balanced, idle int // consecutive reads
}

// ownLocked returns the bytes of own measurements by Rail.Key. It returns false while a measurement is under way:
// the next read then covers both intervals. After maxDelayed such reads it returns the known bytes.
func (s *Sampler) ownLocked() (own map[string][directions]uint64, settled bool) {
	own, settled = map[string][directions]uint64{}, true
	if s.opts.Own == nil {
		return own, true
	}
	for _, r := range s.rails {
		bytes, done := s.opts.Own(r)
		a := s.accounts[r.Key()]
		// Samples of slow counters may still lack some of these bytes.
		counted := a == nil || a.window == 0 || time.Duration(a.quiet)*time.Second > a.lag()
		own[r.Key()], settled = bytes, settled && done && counted
	}
	s.suspect.delayed++
	if settled || s.suspect.delayed > maxDelayed {
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
		if !r.Software { // counters of hardware contain only RDMA
			l.rdma, l.rdmaKnown = l.carried, l.carriedKnown
		}
		loads = append(loads, l)
	}
	for key, was := range before {
		// A rail that disappeared while they were balanced counts as idle: its traffic moved to the others, or
		// ended.
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

// settle changes a verdict after enough consecutive reads. After the same number of reads without evidence, it is
// unknown.
func (s *suspicion) settle(reason int, evidence condition) {
	now := &s.now[reason]
	if !evidence.known {
		s.blind[reason]++
		if s.blind[reason] >= streakReads {
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
	s.streak[reason]++
	if s.streak[reason] >= streakReads {
		now.Suspected, s.streak[reason] = evidence.met, 0
	}
}

// tcpBusy reports whether GPUs compute, RDMA is idle and TCP is busy. It is unknown if no rail counts TCP, or none
// RDMA.
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
	least, idle := max(minTCP, tcpLeastShare*fastest), rdmaIdleShare
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
		s.idle++
		if s.idle >= idleReads {
			s.balanced = 0
		}
		return condition{known: true}
	}
	s.idle = 0
	if least*n >= minEven*sum {
		s.balanced = min(s.balanced+1, balancedReads)
	}
	share := singleShare
	if s.now[SingleRail].Suspected {
		share = singleStays
	}
	return condition{met: s.balanced >= balancedReads && most >= share*sum && most >= BusyAbove, known: true}
}
