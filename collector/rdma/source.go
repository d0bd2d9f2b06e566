// Package rdma reads /sys/class/infiniband: state, rate, MTU, counters and GIDs of every rail.
package rdma

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// Source is the source of RDMA ports.
type Source struct {
	*table
	// MaxMTU returns the largest RDMA MTU of a port in bytes, which the kernel reports only to a process that opens
	// the device; 0 if unknown. It must not block and must be safe for concurrent use. Set it before the first
	// Read.
	MaxMTU func(device string, port int) int
	// Leaf returns the switch that a rail is plugged into, where the configuration has none; empty if unknown. It must
	// not block. Set it before the first Read.
	Leaf func(rail string) string
	// Expected returns the expected values of the rails, in the order of the rails. Set it before the first Read.
	Expected func([]rail.Rail) []expect.Rail
	// Node returns the expected values of the node. Set it before the first Read.
	Node func() expect.Node

	sysfs  string
	find   func() rail.Snapshot
	budget time.Duration
	live   bool // sysfs is the running kernel's

	set     *collector.Set[key, *port]
	virtual *collector.Set[rail.VirtualFunction, *virtualPort]
	limits  map[string]rail.Limits // keyed by rail name, as of the last read
	uses    map[string]rail.Use    // keyed by rail name, as of the last read

	histories sync.Map // rail name → *gidHistory, kept when a device goes
}

// key identifies a port. The first port of a device reads the counters of the whole device, too.
type key struct {
	rail  rail.Rail
	first bool
}

// New returns the source for the tree at sysfsRoot. A port that does not answer within budget is missing from that
// read.
func New(sysfsRoot string, find func() rail.Snapshot, budget time.Duration) *Source {
	s := &Source{sysfs: sysfsRoot, find: find, budget: budget, live: sysfs.Live(sysfsRoot), table: newTable(),
		MaxMTU: func(string, int) int { return 0 }, limits: map[string]rail.Limits{}, uses: map[string]rail.Use{},
		Leaf:     func(string) string { return "" },
		Node:     func() expect.Node { return expect.Node{} },
		Expected: func(rails []rail.Rail) []expect.Rail { return make([]expect.Rail, len(rails)) }}
	s.set = collector.NewSet(budget, func(k key) string { return k.rail.Device }, s.open)
	s.virtual = collector.NewSet(budget, func(v rail.VirtualFunction) string { return v.Device }, s.openVirtual)
	return s
}

// Read implements [collector.Source].
func (s *Source) Read(emit func(collector.Sample)) error {
	found := s.find()
	rails := found.Rails
	for _, device := range found.Excluded {
		emit(collector.Sample{Metric: s.excluded, Labels: []string{device}, Value: 1})
	}
	for _, m := range found.Missing {
		labels := []string{m.Name, m.Device, strconv.Itoa(m.Port), m.PCIAddress}
		emit(collector.Sample{Metric: s.missing, Labels: labels, Value: 1})
	}
	s.emitLeftOut(found.LeftOut, emit)
	keys := make([]key, len(rails))
	for i, r := range rails {
		keys[i] = key{r, i == 0 || rails[i-1].ID != r.ID}
		if leaf := cmp.Or(r.Leaf, s.Leaf(r.Name)); leaf != "" {
			labels := []string{r.Name, r.Device, strconv.Itoa(r.Port), leaf}
			emit(collector.Sample{Metric: s.leaf, Labels: labels, Value: 1})
		}
	}
	answered, faults := s.set.Read(keys, emit)
	faults = append(faults, s.readVirtual(found.Virtual, emit)...)
	if len(rails) == 0 && found.Err == nil {
		return fmt.Errorf("no RDMA port below %s that is a rail: %w", s.sysfs, collector.ErrAbsent)
	}
	s.emitCapacity(rails, answered, emit)
	s.emitUnused(rails, answered, emit)
	return errors.Join(append(faults, found.Err)...)
}

// emitLeftOut emits the number of ports that are not rails.
func (s *Source) emitLeftOut(ports []rail.LeftOut, emit func(collector.Sample)) {
	for _, c := range rail.CountReasons(ports) {
		emit(collector.Sample{Metric: s.leftOut, Labels: []string{string(c.Reason)}, Value: float64(c.Ports)})
	}
}

// emitUnused emits whether the rails that answered are unused. A rail that does not answer keeps its last state.
func (s *Source) emitUnused(rails []rail.Rail, answered []*port, emit func(collector.Sample)) {
	labels := make(map[string][]string, len(answered))
	for _, p := range answered {
		s.uses[p.rail.Name], labels[p.rail.Name] = p.use, p.set.labels
	}
	uses := make([]rail.Use, len(rails))
	for i, r := range rails {
		uses[i] = s.uses[r.Name]
	}
	for i, unused := range expect.Unused(uses, s.Expected(rails), s.Node().ConfiguredRails()) {
		if l := labels[rails[i].Name]; unused && l != nil {
			emit(collector.Sample{Metric: s.unused, Labels: l, Value: 1})
		}
	}
}

// emitCapacity emits the capacity of each rail that answered. A port that does not answer keeps its last share.
func (s *Source) emitCapacity(rails []rail.Rail, answered []*port, emit func(collector.Sample)) {
	labels := make(map[string][]string, len(answered)) // keyed by rail name
	for _, p := range answered {
		s.limits[p.rail.Name] = p.limits
		labels[p.rail.Name] = p.set.labels
	}
	limits := make([]rail.Limits, len(rails))
	for i, r := range rails {
		limits[i] = s.limits[r.Name]
	}
	for i, c := range rail.Capacities(limits) {
		if l := labels[rails[i].Name]; c > 0 && l != nil {
			emit(collector.Sample{Metric: s.capacity, Labels: l, Value: c})
		}
	}
	s.emitExpected(rails, limits, emit)
}
