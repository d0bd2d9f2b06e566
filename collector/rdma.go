package collector

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/rail"
)

// portLabels are on every series of a port.
var portLabels = []string{"rail", "device", "port"}

// netdevBytes is the origin of a software device's byte counters.
const netdevBytes = "statistics/{rx,tx}_bytes of the netdev"

// rdmaRows are the rows that are not one counter file each.
type rdmaRows struct {
	info, excluded, missing                   *Metric
	up, state, physState, rate, mtu, capacity *Metric
	saturated, hwSource                       *Metric
	gid, gids, misbound, gidChanges           *Metric
	native, deviceNative                      *Metric
}

func newRDMARows() rdmaRows {
	with := func(more ...string) []string { return append(append([]string{}, portLabels...), more...) }
	return rdmaRows{
		info:      &Metric{Name: "rail_info", Kind: Gauge, Labels: with("netdev", "pci_address", "numa_node", "link_layer", "hca_type", "board_id", "firmware"), Help: "What a rail is and where it sits; always 1. numa_node is -1 where the machine does not say.", Ref: refABI},
		excluded:  &Metric{Name: "rail_excluded_info", Kind: Gauge, Labels: []string{"device"}, Help: "A device that is there, and whose ports are no rails because rails.include leaves it out; always 1. Virtual functions are not told.", Ref: refABI},
		missing:   &Metric{Name: "rail_missing_info", Kind: Gauge, Labels: []string{"rail", "device", "port", "pci_address"}, Help: "A rail that is remembered, or named in rails.names, and is not there; always 1. device and pci_address are those of its last sighting. Not a function that a bond took, nor a device that rails.include leaves out or that does not answer.", Ref: "docs/rails.md"},
		up:        &Metric{Name: "port_up", Kind: Gauge, Labels: portLabels, From: from("state"), Help: "1 when the port is ACTIVE, 0 when it is in any other state.", Ref: refABI},
		state:     &Metric{Name: "port_state_id", Kind: Gauge, Labels: portLabels, From: from("state"), Help: "Logical state: 0 no change, 1 down, 2 init, 3 armed, 4 active, 5 active defer.", Ref: refABI},
		physState: &Metric{Name: "port_physical_state_id", Kind: Gauge, Labels: portLabels, From: from("phys_state"), Help: "Physical state: 1 sleep, 2 polling, 3 disabled, 4 training, 5 link up, 6 error recovery, 7 phy test.", Ref: refABI},
		rate:      &Metric{Name: "port_rate_bytes_per_second", Kind: Gauge, Labels: portLabels, From: []Origin{{Name: "rate", Scale: 125e6}}, Help: "Signalling rate of the port, absent unless the port is ACTIVE: a port that is down tells a rate it does not have. A software device (rxe) tells its network interface's, or 2.5 Gb/s where that has none.", Ref: refABI},
		mtu:       &Metric{Name: "port_mtu_bytes", Kind: Gauge, Labels: with("kind"), From: from("mtu"), Help: "kind=netdev: MTU of the rail's network interface. kind=active: the RoCE MTU that the kernel derives from it. kind=max: what the port could do; only the probe can ask, so absent until its first round.", Ref: "include/rdma/ib_addr.h iboe_get_mtu; ibv_query_port(3) max_mtu"},
		capacity:  &Metric{Name: "rail_capacity_bytes_per_second", Kind: Gauge, Labels: portLabels, From: from("rate", "current_link_speed", "current_link_width"), Help: "What the rail could carry in one direction with all ACTIVE rails loaded: the least of port rate and PCIe link, each divided by the rails that share it. Absent unless the port is ACTIVE.", Ref: "docs/adr/0004-capacity.md"},
		saturated: &Metric{Name: "port_saturated_info", Kind: Gauge, Labels: with("counter"), Help: "1 for a narrow counter that stands at its greatest value, where it stays until it is cleared; no series otherwise.", Ref: "IBTA spec vol. 1, 16.1.3.5"},
		hwSource:  &Metric{Name: "port_hw_counters_source_info", Kind: Gauge, Labels: with("source"), Help: "How the values of hw_counters are read: netlink (one request) or sysfs (a file each); always 1.", Ref: "drivers/infiniband/core/nldev.c stat_get_doit"},

		gid:        &Metric{Name: "gid_info", Kind: Gauge, Labels: with("index", "type", "gid", "netdev"), From: from("gids", "gid_attrs/types", "gid_attrs/ndevs"), Help: "An entry of the port's GID table that a connection could use, or would use by mistake: RoCE v2, its own and misbound ones, at most 16 a port, the best first; what is left where there is none. Always 1.", Ref: refABI},
		gids:       &Metric{Name: "gid_entries", Kind: Gauge, Labels: portLabels, From: from("gids"), Help: "Used entries of the port's GID table, also those that gid_info leaves out.", Ref: refABI},
		misbound:   &Metric{Name: "gid_misbound", Kind: Gauge, Labels: portLabels, From: from("gid_attrs/ndevs"), Help: "1 when the port's RoCE v2 IPv4 GIDs all sit on another interface than the rail's, as after enslaving it to a bond: connections then leave by another port. Absent when it has no such GID.", Ref: "drivers/infiniband/core/roce_gid_mgmt.c"},
		gidChanges: &Metric{Name: "gid_changes_total", Kind: Counter, Labels: portLabels, From: from("gids"), Help: "Entries of the GID table that appeared, went or changed since railscope started. Applications that keep a GID index break when it moves.", Ref: "drivers/infiniband/core/roce_gid_mgmt.c"},

		native:       &Metric{Name: "port_native_counter", Kind: Untyped, Labels: with("counter"), From: from("any other file of counters/ and hw_counters/"), Help: "A counter that has no name of its own here, under the driver's name, in the driver's unit.", Ref: refABI},
		deviceNative: &Metric{Name: "device_native_value", Kind: Untyped, Labels: []string{"device", "counter"}, From: from("any other file of <device>/hw_counters/"), Help: "A counter of the whole device that has no name of its own here, under the driver's name, in the driver's unit.", Ref: refABI},
	}
}

// RDMA is the source of everything below /sys/class/infiniband: state, rate,
// MTU, counters and GIDs of every rail.
type RDMA struct {
	sysfs    string
	rails    func() ([]rail.Rail, error)
	excluded func() []string                   // nil: none
	missing  func() []rail.Missing             // nil: none
	maxMTU   func(device string, port int) int // 0: nobody knows
	budget   time.Duration

	rows                        rdmaRows
	metrics                     []*Metric
	receiveBytes, transmitBytes *Metric
	sums                        []counterSum
	ports                       *book // counters/ and hw_counters/
	legacy                      *book // counters_ext/
	deviceWide                  *book // <device>/hw_counters/

	lanes   lane.Group[*reading]
	devices map[string]*rdmaDevice // by Rail.ID
	gids    map[string]*gidHistory // by rail name, kept when the device goes
	limits  map[string]rail.Limits // by rail name, of the last reading
}

// counterSum is a row that two others add up to.
type counterSum struct {
	of    *Metric
	parts [2]*Metric
}

// NewRDMA returns the source for the tree at sysfsRoot. A device that has not
// answered within budget is left out until it does.
func NewRDMA(sysfsRoot string, rails func() ([]rail.Rail, error), budget time.Duration) *RDMA {
	s := &RDMA{sysfs: sysfsRoot, rails: rails, budget: budget, rows: newRDMARows(), maxMTU: func(string, int) int { return 0 },
		devices: map[string]*rdmaDevice{}, gids: map[string]*gidHistory{}, limits: map[string]rail.Limits{}}
	r := s.rows
	port, legacy, device := portCounters(), legacyCounters(), deviceCounters()
	byName := map[string]*Metric{}
	for _, m := range port {
		byName[m.Name] = m
	}
	s.receiveBytes, s.transmitBytes = byName["port_receive_bytes_total"], byName["port_transmit_bytes_total"]
	s.sums = []counterSum{
		{s.receiveBytes, [2]*Metric{byName["port_ipv4_receive_bytes_total"], byName["port_ipv6_receive_bytes_total"]}},
		{s.transmitBytes, [2]*Metric{byName["port_ipv4_transmit_bytes_total"], byName["port_ipv6_transmit_bytes_total"]}},
	}
	s.ports, s.legacy, s.deviceWide = newBook(port, r.native), newBook(legacy, r.native), newBook(device, r.deviceNative)
	s.metrics = []*Metric{r.info, r.excluded, r.missing, r.up, r.state, r.physState, r.rate, r.capacity, r.mtu}
	s.metrics = append(s.metrics, port...)
	s.metrics = append(s.metrics, legacy...)
	s.metrics = append(s.metrics, r.native, r.saturated, r.hwSource, r.gid, r.gids, r.misbound, r.gidChanges)
	s.metrics = append(s.metrics, device...)
	s.metrics = append(s.metrics, r.deviceNative)
	return s
}

// Excluded makes the source tell the devices that the configuration leaves out,
// so that they are not taken for devices that are gone. Before the first Read.
func (s *RDMA) Excluded(devices func() []string) { s.excluded = devices }

// Missing makes the source report the rails that are known and not there. Before
// the first Read.
func (s *RDMA) Missing(rails func() []rail.Missing) { s.missing = rails }

// MaxMTU makes the source tell the largest RDMA MTU of ports, in bytes, which
// the kernel tells nobody but who opens the device; 0 is unknown. Before the
// first Read. It must not wait, and be safe for concurrent use.
func (s *RDMA) MaxMTU(of func(device string, port int) int) { s.maxMTU = of }

// Name implements [Source].
func (s *RDMA) Name() string { return "rdma" }

// Metrics implements [Source].
func (s *RDMA) Metrics() []*Metric { return s.metrics }

// reading is what one device said.
type reading struct {
	laneRead
	ports []portReading
}

// portReading is what is kept of a port beyond its samples.
type portReading struct {
	rail   rail.Rail
	limits rail.Limits
	gids   []rail.GID
	gidsOK bool
}

// Read implements [Source].
func (s *RDMA) Read(emit func(Sample)) error {
	rails, err := s.rails()
	errs := FinderFaults(err)
	keys := s.follow(rails)
	if s.excluded != nil {
		for _, device := range s.excluded() {
			emit(Sample{s.rows.excluded, []string{device}, 1})
		}
	}
	if s.missing != nil {
		for _, m := range s.missing() {
			emit(Sample{s.rows.missing, []string{m.Name, m.Device, strconv.Itoa(m.Port), m.PCIAddress}, 1})
		}
	}
	if len(rails) == 0 {
		if err == nil {
			return fmt.Errorf("no RDMA port below %s that is a rail: %w", s.sysfs, ErrAbsent)
		}
		return errors.Join(errs...)
	}
	answered := make(map[string]bool, len(keys))
	devices := maps.Clone(s.devices) // a lane that starts late must not meet the next follow
	for _, res := range s.lanes.Run(s.budget, keys, func(key string) *reading { return devices[key].read(s) }) {
		if res.Err != nil {
			errs = append(errs, LaneFault(s.devices[res.Key].name, res.State, res.Err))
			continue
		}
		answered[res.Key] = true
		for _, sample := range res.Value.samples {
			emit(sample)
		}
		errs = append(errs, res.Value.faults...)
		for _, p := range res.Value.ports {
			s.limits[p.rail.Name] = p.limits
			s.emitGIDChanges(p, emit)
		}
	}
	s.emitCapacity(rails, answered, emit)
	return errors.Join(errs...)
}

// follow makes the set of devices that of the rails, and returns their keys in
// order. It runs while no lane is entered, except ones that are stuck.
func (s *RDMA) follow(rails []rail.Rail) []string {
	var keys []string
	ports := map[string][]rail.Rail{}
	for _, r := range rails {
		if ports[r.ID] == nil {
			keys = append(keys, r.ID)
		}
		ports[r.ID] = append(ports[r.ID], r)
	}
	for key, d := range s.devices {
		if ports[key] == nil {
			d.gone()
			delete(s.devices, key)
		}
	}
	for key, rs := range ports {
		d := s.devices[key]
		if d == nil || !d.same(rs) {
			if d != nil {
				d.gone()
			}
			s.devices[key] = newRDMADevice(s, rs)
		}
	}
	return keys
}

// emitCapacity tells what each rail that answered could carry. A device that is
// stuck keeps its share: its port is as it was, for all that is known.
func (s *RDMA) emitCapacity(rails []rail.Rail, answered map[string]bool, emit func(Sample)) {
	limits := make([]rail.Limits, len(rails))
	for i, r := range rails {
		limits[i] = s.limits[r.Name]
	}
	for i, c := range rail.Capacities(limits) {
		if r := rails[i]; c > 0 && answered[r.ID] {
			emit(Sample{s.rows.capacity, s.devices[r.ID].labels[r.Port], c})
		}
	}
}

// gidHistory counts the changes of a rail's GID table over the lives of its
// device.
type gidHistory struct {
	known   bool
	table   map[int]rail.GID
	changes uint64
}

func (s *RDMA) emitGIDChanges(p portReading, emit func(Sample)) {
	if !p.gidsOK {
		return
	}
	h := s.gids[p.rail.Name]
	if h == nil {
		h = &gidHistory{}
		s.gids[p.rail.Name] = h
	}
	now := make(map[int]rail.GID, len(p.gids))
	for _, g := range p.gids {
		now[g.Index] = g
	}
	if h.known {
		for i, g := range now {
			if h.table[i] != g {
				h.changes++
			}
		}
		for i := range h.table {
			if _, still := now[i]; !still {
				h.changes++
			}
		}
	}
	h.known, h.table = true, now
	emit(Sample{s.rows.gidChanges, s.devices[p.rail.ID].labels[p.rail.Port], float64(h.changes)})
}
