package rail

import (
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// unknownPeriod is the assumed period of counters whose driver does not document one.
const unknownPeriod = time.Second

// sharedPeriod is the assumed period of an interface's counters if its driver is unknown: some update them every 2
// s.
const sharedPeriod = 2 * time.Second

// bytesPeriods is the interval at which the bytes of [Port.Bytes] are updated under load, by the prefix of the PCI
// function's driver. 0: a read queries the adapter (process_mad, get_hw_stats). ionic and unlisted drivers have
// unknownPeriod.
var bytesPeriods = []struct {
	driver string
	period time.Duration
}{
	{"mlx5", 0}, {"mlx4", 0},
	{"bnxt", time.Second}, // the adapter writes them to memory (bnxt_re, update_period_ms)
	{"ice", 0}, {"i40e", 0}, {"irdma", 0},
	{"efa", 0}, {"mana", 0}, {"erdma", 0},
	{"hfi1", 0}, {"hns3", 0}, {"cxgb4", 0}, {"qede", 0},
}

// currentInterfaces are the drivers whose interfaces count in the kernel, or query the adapter at each read
// (ndo_get_stats64): their counters are never late.
var currentInterfaces = []string{"virtio_net", "mlx5_core", "ena", "ice", "ixgbe", "igb", "igc", "e1000e", "vmxnet3",
	"hv_netvsc", "gve"}

// interfacePeriod returns the update interval of the counters of the interface at dir under load. A stacked
// interface has that of its lower interfaces.
func interfacePeriod(dir string) time.Duration {
	driver := driverOf(filepath.Join(dir, "device"))
	if driver == "" && len(LowerInterfaces(dir)) == 0 || slices.Contains(currentInterfaces, driver) {
		return 0
	}
	return sharedPeriod
}

// bytesPeriod returns the period of the rail's counters. Without a driver's link, as in a tree without PCI
// functions, a read counts as current: a running kernel has the link for each function with an RDMA device.
func (r Rail) bytesPeriod(shared bool) time.Duration {
	switch {
	case shared:
		return r.NetdevPeriod
	case r.Driver == "" && !r.Software:
		return 0
	}
	for _, d := range bytesPeriods {
		if strings.HasPrefix(r.Driver, d.driver) {
			return d.period
		}
	}
	return unknownPeriod
}

// Pace estimates the update interval of a counter from its readings.
type Pace struct {
	Least int // consecutive moves that prove a period; at least 2

	value uint64
	last  time.Time     // time of the last reading
	start time.Time     // time of the reading before the consecutive moves
	moves int           // number of consecutive moves
	seen  time.Duration // shortest proven period; 0: none
	stall time.Duration // longest time without a move under load
}

// Note notes a reading. It returns whether the counter moved since the last one, and its period: known, which is
// that of its driver, or less if it has moved more often.
func (p *Pace) Note(value uint64, at time.Time, known time.Duration) (period time.Duration, moved bool) {
	moved = !p.last.IsZero() && value != p.value
	switch {
	case !moved:
		p.moves = 0
	case p.moves == 0:
		p.moves, p.start = 1, p.last
	default:
		p.moves++
	}
	if least := max(p.Least, 2); p.moves >= least {
		proven := at.Sub(p.start) / time.Duration(least-1) // the first move may belong to the time before
		if p.seen == 0 || proven < p.seen {
			p.seen = proven
		}
		p.moves, p.start = 1, p.last
	}
	p.value, p.last = value, at
	if p.seen > 0 {
		known = min(known, p.seen)
	}
	return max(known, p.stall), moved
}

// Stalled notes that the counter did not move for a time under load. From then on its period is at least that time,
// up to 2 s.
func (p *Pace) Stalled(d time.Duration) { p.stall = max(p.stall, min(d, sharedPeriod)) }
