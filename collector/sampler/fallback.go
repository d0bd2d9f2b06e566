package sampler

import "github.com/railscope/railscope/internal/rail"

// The reasons for which a fallback is suspected, as indices.
const (
	RDMAIdleTCPBusy = iota // GPUs compute, no rail carries RDMA, and the rails' interfaces carry much else
	SingleRail             // the rails carried their traffic evenly, and without a pause one carries all of it
	suspicions
)

// Reason names a reason as the label of metrics does.
func Reason(i int) string {
	return [suspicions]string{"rdma_idle_tcp_busy", "single_rail"}[i]
}

// What is evidence, and for how long. Reads are tcpEvery apart.
const (
	tcpLeast        = 10e6 // bytes per second beside RDMA, of all rails: below that it is ssh, scrapes and the like
	tcpLeastShare   = 0.01 // of the capacity of the greatest rail
	rdmaIdleShare   = 0.1  // RDMA is idle up to that part of the rest, so that probes do not hide a fallback
	stays           = 0.5  // what is suspected stays so down to that part of the thresholds
	streakReads     = 3    // reads in a row that it takes to suspect, to stop, and not to know
	idleShare       = 0.005
	idleReads       = 6   // in a row, that make whatever was before forgotten: 30 s without traffic are another job
	evenLeast       = 0.5 // rails are even while the least loaded has half of the mean
	singleShare     = 0.9 // one is all while it has that part of everything
	singleStays     = 0.7
	balancedReads   = 3 // that it takes to have been balanced
	unknownCapacity = 0
)

// condition is something that holds, does not, or is not known.
type condition struct{ met, known bool }

// Suspicion is one reason.
type Suspicion struct {
	Known     bool // there was enough to judge by
	Suspected bool
}

// railLoad is what one rail carried between two reads, both directions together.
type railLoad struct {
	tcp, rdma           float64 // bytes per second: not RDMA at least, RDMA at most
	tcpKnown, rdmaKnown bool
	carried             float64 // bytes per second by the rail's counters
	carriedKnown        bool
	capacity            float64 // bytes per second in one direction, the last that was known; 0 for none
}

// suspicion is what is suspected now, and what led to it.
type suspicion struct {
	now    [suspicions]Suspicion
	streak [suspicions]int              // reads in a row that contradict now
	blind  [suspicions]int              // reads in a row that could not be judged
	before map[string][directions]point // by rail.Key, as of the last read

	balanced, idle int // reads
}

// suspectLocked judges the time since the last read.
func (s *Sampler) suspectLocked() {
	before := s.suspect.before
	s.suspect.before = make(map[string][directions]point, len(s.rails))
	loads := make([]railLoad, 0, len(s.rails))
	for _, r := range s.rails {
		key := rail.Key(r.Device, r.Port)
		l := railLoad{capacity: s.reachLocked(r).capacity}
		a := s.accounts[key]
		a.mu.Lock()
		var now [directions]point
		for d := range now {
			now[d] = point{bytes: a.bytes[d], seconds: a.seconds[d]}
		}
		a.mu.Unlock()
		s.suspect.before[key] = now
		was, known := before[key]
		l.carriedKnown = known
		for d := range now {
			if took := now[d].seconds - was[d].seconds; took > 0 {
				l.carried += float64(now[d].bytes-was[d].bytes) / took
			} else {
				l.carriedKnown = false // stuck, or nothing counts its bytes
			}
		}
		if t := s.tcp[key]; t != nil && t[Receive].known && t[Transmit].known {
			l.tcp, l.tcpKnown = t[Receive].least+t[Transmit].least, true
			l.rdma, l.rdmaKnown = t[Receive].rdma+t[Transmit].rdma, true
		}
		if !r.Software { // there the rail's own counters are of RDMA alone
			l.rdma, l.rdmaKnown = l.carried, l.carriedKnown
		}
		loads = append(loads, l)
	}
	loads = s.suspect.missing(loads, before, s.reaches)
	s.suspect.judge(loads, s.gpus.busy)
}

// missing adds the rails that left while the rails were even: their traffic went
// on over the others, or it ended, and then all are forgotten.
func (s *suspicion) missing(loads []railLoad, before map[string][directions]point,
	reaches map[string]*reach) []railLoad {
	for key, was := range before {
		if _, there := s.before[key]; !there && s.balanced >= balancedReads {
			s.before[key] = was
			loads = append(loads, railLoad{capacity: reaches[key].capacity, carriedKnown: true, rdmaKnown: true})
		}
	}
	return loads
}

// judge judges one read.
func (s *suspicion) judge(loads []railLoad, gpus condition) {
	s.settle(RDMAIdleTCPBusy, s.tcpBusy(loads, gpus))
	s.settle(SingleRail, s.singleRail(loads))
}

// settle changes a verdict after enough reads in a row. Where as many could not be judged, nothing is claimed.
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

// tcpBusy reports whether GPUs compute, RDMA is idle and the rails carry much else. It is not known where no rail
// counts what is not RDMA, or one that moves something does not count what is.
func (s *suspicion) tcpBusy(loads []railLoad, gpus condition) condition {
	var tcp, rdma, greatest float64
	known := false
	for _, l := range loads {
		if !l.rdmaKnown {
			return condition{}
		}
		rdma += l.rdma
		if l.tcpKnown {
			known = true
			tcp += l.tcp
			greatest = max(greatest, l.capacity)
		}
	}
	if !known || !gpus.known {
		return condition{}
	}
	least, idle := max(tcpLeast, tcpLeastShare*greatest), rdmaIdleShare
	if s.now[RDMAIdleTCPBusy].Suspected {
		least, idle = least*stays, idle/stays
	}
	return condition{met: gpus.met && tcp >= least && rdma <= idle*tcp, known: true}
}

// singleRail reports whether one of several balanced rails now carries everything.
func (s *suspicion) singleRail(loads []railLoad) condition {
	var sum, most, n float64
	least := -1.
	for _, l := range loads {
		if l.capacity == unknownCapacity || !l.carriedKnown {
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
