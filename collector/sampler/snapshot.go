package sampler

import (
	"cmp"
	"slices"
	"time"

	"github.com/railscope/railscope/internal/rail"
)

// stuckAfter is how long a read may take before it counts as stuck.
const stuckAfter = time.Second

// Rail is what is known of one rail.
type Rail struct {
	Name, Device string
	Port         int
	Tally        [directions]Tally
	TCP          [directions]uint64 // bytes of its interface that were not RDMA, since the start
	TCPKnown     bool               // the driver counts these apart
	Recent       [directions]Recent // what it carried lately
}

// Snapshot is all that the sampler has at one moment.
type Snapshot struct {
	Rails   []Rail
	Devices []Device        // of these rails, in order of name
	Dropped [Reasons]uint64 // samples, of all devices that there have been
	Sets    [directions]Set
	GPUs    []GPUPeaks

	// Fallback says of each reason, as an index, whether it is suspected, where
	// that can be judged.
	Fallback [suspicions]Suspicion
}

// Snapshot copies what the sampler has into the memory of snap. Nothing is read
// for it, and it waits for nothing that can hang.
func (s *Sampler) Snapshot(snap *Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap.Rails = slices.Grow(snap.Rails[:0], len(s.rails))[:len(s.rails)]
	for i, r := range s.rails {
		key := rail.Key(r.Device, r.Port)
		a, to := s.accounts[key], &snap.Rails[i]
		to.Name, to.Device, to.Port = r.Name, r.Device, r.Port
		a.mu.Lock()
		to.Tally, to.Recent = a.tally, a.recent
		for d := range to.Recent {
			to.Recent[d].rateUpTo(a.bytes[d], a.seconds[d])
		}
		a.mu.Unlock()
		to.TCPKnown = false
		if t := s.tcp[key]; t != nil {
			to.TCPKnown = t[Receive].exact && t[Transmit].exact
			to.TCP = [directions]uint64{t[Receive].total, t[Transmit].total}
		}
	}
	snap.Devices = snap.Devices[:0]
	for _, d := range s.devices {
		snap.Devices = append(snap.Devices, d.state())
	}
	slices.SortFunc(snap.Devices, func(a, b Device) int { return cmp.Compare(a.Name, b.Name) })
	snap.Dropped = [Reasons]uint64{}
	for _, m := range s.meters {
		m.mu.Lock()
		for reason, n := range m.cost.Dropped {
			snap.Dropped[reason] += n
		}
		m.mu.Unlock()
	}
	snap.Sets = s.sets
	snap.GPUs = s.gpus.appendTo(snap.GPUs[:0])
	snap.Fallback = s.suspect.now
}

// state is how sampling the device goes.
func (d *device) state() Device {
	d.meter.mu.Lock()
	c := d.meter.cost
	d.meter.mu.Unlock()
	if took := d.readFor(); took > stuckAfter {
		c.Stuck = took
	}
	return c
}
