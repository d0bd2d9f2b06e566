package sampler

import (
	"cmp"
	"slices"
	"time"
)

// stuckAfter is how long a read may take before it counts as stuck.
const stuckAfter = time.Second

// Rail is what is known of one rail.
type Rail struct {
	Name, Device string
	Port         int
	Tally        [directions]Tally
	TCP          [directions]uint64    // bytes of its interface that were not RDMA, since the start
	TCPKnown     bool                  // the driver counts these separately
	Recent       [directions][]float64 // bytes per second in each of the last seconds, oldest first; NaN without samples
	Rate         [directions]float64   // bytes per second, over the last one to two seconds; NaN without samples
}

// Snapshot is everything that the sampler has at one moment.
type Snapshot struct {
	Rails    []Rail
	Devices  []Device        // of these rails, in order of name
	Dropped  [Reasons]uint64 // samples, of all devices so far
	Sets     [directions]Set
	GPUs     []GPUPeaks
	Fallback [suspicions]Suspicion // by reason
}

// Snapshot copies everything into the memory of snap. It reads nothing and does not block.
func (s *Sampler) Snapshot(snap *Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap.Rails = slices.Grow(snap.Rails[:0], len(s.rails))[:len(s.rails)]
	for i, r := range s.rails {
		a, to := s.accounts[r.Key()], &snap.Rails[i]
		to.Name, to.Device, to.Port = r.Name, r.Device, r.Port
		to.Tally, to.TCPKnown = a.tally, a.tcp[Receive].exact && a.tcp[Transmit].exact
		for d := range a.history {
			to.Recent[d], to.Rate[d] = a.history[d].rates(to.Recent[d][:0], s.opts.Interval, a.now(d))
			to.TCP[d] = a.tcp[d].total
		}
	}
	snap.Devices = snap.Devices[:0]
	for _, d := range s.devices {
		cost := *d.cost
		if took := d.readFor(); took > stuckAfter {
			cost.Stuck = took
		}
		snap.Devices = append(snap.Devices, cost)
	}
	slices.SortFunc(snap.Devices, func(a, b Device) int { return cmp.Compare(a.Name, b.Name) })
	snap.Dropped = [Reasons]uint64{}
	for _, cost := range s.costs {
		for reason, n := range cost.Dropped {
			snap.Dropped[reason] += n
		}
	}
	snap.Sets = s.sets
	snap.GPUs = s.gpus.appendTo(snap.GPUs[:0])
	snap.Fallback = s.suspect.now
}
