package rdma

import (
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/sysfs"
)

type port struct {
	table  *table
	rail   rail.Rail
	port   *rail.Port
	maxMTU func(device string, port int) int

	limits rail.Limits // limits of the last read; LinkKey and Link are facts
	use    rail.Use    // use of the last read
	facts  collector.Facts

	set        *counterSet
	dirs       []*counterDir // directories of counters, except hw_counters
	hw         *counterDir
	netlink    *rdmanl.Client // nil on a captured tree
	retry      time.Time      // time at which netlink is tried again after an error
	list       []rdmanl.Counter
	hwLifespan collector.Facts

	own        func(netdev string) bool // reports whether a GID's interface is the rail's
	gidHistory *gidHistory
	gidFacts   collector.Facts
}

func (s *Source) open(k key) *port {
	r := k.rail
	dir := filepath.Join(r.Dir, "ports", strconv.Itoa(r.Port))
	history, _ := s.histories.LoadOrStore(r.Name, &gidHistory{})
	p := &port{table: s.table, rail: r, port: rail.NewPort(s.sysfs, r, nil), maxMTU: s.MaxMTU,
		set: newCounterSet([]string{r.Name, r.Device, strconv.Itoa(r.Port)}),
		own: rail.Own(s.sysfs, r.Netdev), gidHistory: history.(*gidHistory)}
	p.hw = &counterDir{path: filepath.Join(dir, "hw_counters"), index: s.ports, set: p.set}
	p.dirs = []*counterDir{{path: filepath.Join(dir, "counters"), index: s.ports, set: p.set}}
	if k.first {
		p.dirs = append(p.dirs, &counterDir{path: filepath.Join(r.Dir, "hw_counters"), index: s.deviceWide,
			set: newCounterSet([]string{r.Device})})
	}
	if s.live {
		p.netlink = rdmanl.New(s.budget)
	}
	return p
}

func (p *port) Close() {
	p.port.Close()
	for _, d := range append(p.dirs, p.hw) {
		d.close()
	}
	if p.netlink != nil {
		p.netlink.Close()
	}
}

// labels returns the labels of the port, followed by more.
func (p *port) labels(more ...string) []string { return slices.Concat(p.set.labels, more) }

func (p *port) Read(r *collector.Reading) {
	r.Add(p.table.info, p.labels(p.rail.Netdev, p.rail.PCIAddress, strconv.Itoa(p.rail.NUMANode), p.rail.LinkLayer,
		p.rail.HCAType, p.rail.BoardID, p.rail.Firmware, p.rail.Role, p.rail.GPU, string(p.rail.GPUDistance)), 1)
	p.readState(r)
	p.readMTU(r)
	for _, d := range p.dirs {
		d.read(p.table, r)
	}
	p.readHWCounters(r)
	p.readBytes(r)
	p.gidFacts.Read(r, func() { p.readGIDs(r) })
}

// readState emits the state, and the rate unless it is meaningless: the port must be active.
func (p *port) readState(r *collector.Reading) {
	labels := p.set.labels
	state, err := p.port.State()
	p.limits.Active, p.limits.Rate = err == nil && state == rail.StateActive, 0
	p.use = rail.Use{}
	r.Record(p.table.state, float64(state), err, labels)
	if err == nil {
		r.Add(p.table.up, labels, collector.Bool(p.limits.Active))
		p.use = p.port.Use(state)
	}
	state, err = p.port.PhysState()
	r.Record(p.table.physState, float64(state), err, labels)
	if !p.limits.Active {
		return
	}
	p.limits.Rate, err = p.port.Rate()
	r.Record(p.table.rate, p.limits.Rate, err, labels)
	p.facts.Read(r, func() { // the pcie source reports errors of the link
		limits := p.port.LimitsIn(rail.StateActive)
		p.limits.PortKey, p.limits.LinkKey, p.limits.Link = limits.PortKey, limits.LinkKey, limits.Link
	})
}

func (p *port) readMTU(r *collector.Reading) {
	netdev, active, err := p.port.MTU()
	// not a fault if the interface was removed or a captured tree lacks it
	if err != nil && sysfs.Reason(err) != sysfs.ReasonVanished {
		r.Fail(err)
	}
	for kind, mtu := range map[string]int{
		"netdev": netdev, "active": active, "max": p.maxMTU(p.rail.Device, p.rail.Port),
	} {
		if mtu > 0 {
			r.Add(p.table.mtu, p.labels(kind), float64(mtu))
		}
	}
}

func (p *port) readHWCounters(r *collector.Reading) {
	if p.readNetlink(r) {
		p.hwLifespan.Read(r, func() { // not a counter, so netlink does not have it
			if v, err := sysfs.ReadUint(p.hw.path, "lifespan"); err == nil {
				r.Add(p.table.lifespan, p.set.labels, p.table.lifespan.From[0].Value(v))
			}
		})
		return
	}
	p.hw.read(p.table, r)
}

// readNetlink reads the port's hardware counters by netlink, and reports whether that succeeded.
func (p *port) readNetlink(r *collector.Reading) bool {
	if p.netlink == nil || r.Time.Before(p.retry) {
		return false
	}
	var err error
	p.list, err = p.netlink.HWCounters(p.list[:0], p.rail.Device, p.rail.Port)
	if err != nil || len(p.list) == 0 {
		p.retry = r.Time.Add(5 * time.Minute) // fall back to sysfs
		return false
	}
	p.hw.close()
	for _, n := range p.list {
		if c := p.set.get(p.table.ports, "hw_counters", n.Name); c != nil {
			c.add(p.table, r, n.Value)
		}
	}
	return true
}

// readBytes emits the bytes of a port whose counters must be summed, and whether bytes are counted at all.
func (p *port) readBytes(r *collector.Reading) {
	counted := true
	for direction, row := range [...]*collector.Metric{
		rail.Receive: p.table.receiveBytes, rail.Transmit: p.table.transmitBytes,
	} {
		if own := p.set.owner[row]; own != nil && !own.file.Resting(r.Time) {
			continue
		}
		v, _, err := p.port.Bytes(direction)
		switch {
		case err == nil:
			r.Add(row, p.set.labels, float64(v))
		case errors.Is(err, rail.ErrUncounted):
			counted = false
		case p.rail.Software:
			r.Fail(err) // otherwise each counter by IP version reports its own error
		}
	}
	r.Add(p.table.bytesCounted, p.set.labels, collector.Bool(counted))
}

func (p *port) readGIDs(r *collector.Reading) {
	t, labels := p.table, p.set.labels
	list, errs := p.port.GIDs()
	for _, err := range errs {
		if errors.Is(err, rail.ErrNoTable) {
			return
		}
		r.Fail(err)
	}
	for _, gid := range rail.UsableGIDs(list, p.rail.LinkLayer, p.own, 16) { // a table may have hundreds of GIDs
		r.Add(t.gid, p.labels(strconv.Itoa(gid.Index), gid.Type, gid.Addr.StringExpanded(), gid.Netdev), 1)
	}
	if len(errs) > 0 {
		return
	}
	r.Add(t.gidChanges, labels, float64(p.gidHistory.update(list)))
	if p.rail.Netdev == "" || p.rail.LinkLayer == "InfiniBand" {
		return
	}
	if misbound, ok := rail.Misbound(list, p.own); ok {
		r.Add(t.misbound, labels, collector.Bool(misbound))
	}
}

// gidHistory counts the changes of a rail's GID table, also when a device is recreated. Safe for concurrent use: a
// read of an old device that hangs may overlap with that of the new one.
type gidHistory struct {
	mu      sync.Mutex
	table   map[int]rail.GID // nil before the first update
	changes uint64
}

func (h *gidHistory) update(list []rail.GID) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.table
	h.table = make(map[int]rail.GID, len(list))
	for _, g := range list {
		h.table[g.Index] = g
		if before != nil && before[g.Index] != g {
			h.changes++
		}
	}
	for i := range before {
		if _, exists := h.table[i]; !exists {
			h.changes++
		}
	}
	return h.changes
}
