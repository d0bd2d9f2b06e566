package collector

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/sysfs"
)

// rdmaPort is one port's open files.
type rdmaPort struct {
	rail rail.Rail
	own  func(netdev string) bool
	info Sample

	files                                                      *keptDir // state, phys_state, rate
	netdev                                                     *keptDir // mtu, statistics/rx_bytes, statistics/tx_bytes
	pci                                                        *keptDir // current_link_speed, current_link_width
	mtuLabels, activeLabels, maxLabels, hwByNetlink, hwBySysfs []string

	portKey   string // of the physical port; see rail.Rail.PortKey
	keyKnown  bool
	set       *counterSet
	counters  counterDir
	ext       counterDir
	hw        counterDir
	lifespan  counterDir // the one file of hw_counters that is not a counter and netlink does not have
	gids      *rail.GIDTable
	gidLabels []gidLabels // of the entries that are exported, as they were at the last read
	gidTable  []rail.GID  // the table from which usable was made
	usable    []rail.GID
	usableAt  time.Time
	netlink   *rdmanl.Client // nil when the kernel is not asked
	notUntil  time.Time      // when netlink is asked again after it had no answer
	hwScratch []rdmanl.Counter
}

// gidLabels are the labels of one used entry, kept while it stays what it is.
type gidLabels struct {
	of     rail.GID
	values []string
}

// retryNetlink is how long a port whose hw_counters netlink does not have is
// read from sysfs before netlink is asked again.
const retryNetlink = 5 * time.Minute

func newRDMAPort(s *RDMA, r rail.Rail, nl *rdmanl.Client) *rdmaPort {
	dir := filepath.Join(r.Dir, "ports", strconv.Itoa(r.Port))
	netdev := filepath.Join(s.sysfs, "class/net", r.Netdev)
	labels := []string{r.Name, r.Device, strconv.Itoa(r.Port)}
	with := func(more ...string) []string { return append(append([]string{}, labels...), more...) }
	counters := func(name, only string, b *book) counterDir {
		return counterDir{dir: sysfs.Dir{Path: filepath.Join(dir, name)}, book: b, only: only, live: nl != nil}
	}
	return &rdmaPort{
		rail: r, own: rail.Own(s.sysfs, r.Netdev), netlink: nl,
		info:      Sample{s.rows.info, with(r.Netdev, r.PCIAddress, strconv.Itoa(r.NUMANode), r.LinkLayer, r.HCAType, r.BoardID, r.Firmware), 1},
		files:     newKeptDir(dir, "state", "phys_state", "rate"),
		netdev:    newKeptDir(netdev, "mtu", "statistics/rx_bytes", "statistics/tx_bytes"),
		pci:       newKeptDir(filepath.Join(r.Dir, "device"), "current_link_speed", "current_link_width"),
		mtuLabels: with("netdev"), activeLabels: with("active"), maxLabels: with("max"), hwByNetlink: with("netlink"), hwBySysfs: with("sysfs"),
		set:      newCounterSet(labels),
		counters: counters("counters", "", s.ports),
		ext:      counters("counters_ext", "", s.legacy),
		hw:       counters("hw_counters", "", s.ports),
		lifespan: counters("hw_counters", "lifespan", s.ports),
		gids:     rail.NewGIDTable(r.Dir, r.Port),
	}
}

func (p *rdmaPort) close() {
	for _, d := range []*keptDir{p.files, p.netdev, p.pci} {
		d.close()
	}
	for _, d := range []*counterDir{&p.counters, &p.ext, &p.hw, &p.lifespan} {
		d.close(p.set)
	}
	p.gids.Close()
	if p.netlink != nil {
		p.netlink.Close()
	}
}

// read reads the port: state first, because the rate only means something while
// it is ACTIVE.
func (p *rdmaPort) read(s *RDMA, now time.Time, out *reading, fail func(error)) {
	r, labels := s.rows, p.set.labels
	put := out.add
	put(p.info.Metric, p.info.Labels, p.info.Value)
	this := portReading{rail: p.rail}
	const active = 4 // enum ib_port_state, IB_PORT_ACTIVE
	switch replaced, err := p.files.check(); {
	case err != nil:
		fail(err)
	case replaced: // what was below the old directory is not below this one
		for _, d := range []*counterDir{&p.counters, &p.ext, &p.hw, &p.lifespan} {
			d.close(p.set)
		}
	}
	if id, err := readID(&p.files.files[0].File); err != nil {
		fail(err)
	} else {
		this.limits.Active = id == active
		put(r.state, labels, float64(id))
		put(r.up, labels, Bool(id == active))
	}
	if id, err := readID(&p.files.files[1].File); err != nil {
		fail(err)
	} else {
		put(r.physState, labels, float64(id))
	}
	if this.limits.Active {
		if rate, err := readRate(&p.files.files[2].File); err != nil {
			fail(err)
		} else {
			put(r.rate, labels, rate)
			this.limits.Rate = rate
		}
		p.readLink(&this.limits)
	}
	p.readMTU(r, put, fail)
	if mtu := s.maxMTU(p.rail.Device, p.rail.Port); mtu > 0 {
		put(r.mtu, p.maxLabels, float64(mtu))
	}
	p.readCounters(s, now, out, fail)
	p.readGIDs(r, &this, put, fail)
	out.ports = append(out.ports, this)
}

// readLink reads what the rail's PCIe link and physical port allow. The pcie
// source tells what is wrong with them; here a figure is known or it is not.
func (p *rdmaPort) readLink(l *rail.Limits) {
	if !p.keyKnown {
		id, _ := sysfs.ReadString(p.netdev.dir.Path, "phys_switch_id")
		name, _ := sysfs.ReadString(p.netdev.dir.Path, "phys_port_name")
		p.portKey, p.keyKnown = p.rail.PortKey(id, name), true
	}
	l.PortKey, l.LinkKey = p.portKey, rail.LinkKey(p.rail.PCIAddress)
	if p.rail.PCIAddress == "" {
		return
	}
	if _, err := p.pci.check(); err != nil {
		return
	}
	if link, err := readPCILink(&p.pci.files[0].File, &p.pci.files[1].File); err == nil {
		l.Link = link.BytesPerSecond()
	}
}

func (p *rdmaPort) readMTU(r rdmaRows, put func(*Metric, []string, float64), fail func(error)) {
	if p.rail.Netdev == "" {
		return
	}
	if _, err := p.netdev.check(); err != nil {
		return // the interface is going, or a captured tree does not have it
	}
	var buf [64]byte
	mtu, ok, err := p.netdev.uint(0, buf[:])
	switch {
	case err != nil:
		fail(err)
		return
	case !ok:
		return
	case mtu > math.MaxInt32:
		fail(&sysfs.Error{Path: p.netdev.files[0].Path, Reason: sysfs.ReasonRange, Err: fmt.Errorf("an MTU of %d", mtu)})
		return
	}
	put(r.mtu, p.mtuLabels, float64(mtu))
	if active := p.rail.ActiveMTU(int(mtu)); active > 0 && p.rail.LinkLayer == "Ethernet" {
		put(r.mtu, p.activeLabels, float64(active))
	}
}

// readCounters reads counters/, counters_ext/ and hw_counters/, the last by
// netlink where the kernel answers.
func (p *rdmaPort) readCounters(s *RDMA, now time.Time, out *reading, fail func(error)) {
	emit := func(c *counter, raw uint64) {
		out.add(c.metric, c.labels, c.value(raw))
		if c.saturated(raw) {
			out.add(s.rows.saturated, append(append([]string{}, c.labels...), c.name), 1)
		}
	}
	first := len(out.samples)
	p.counters.read(p.set, now, emit, fail)
	p.ext.read(p.set, now, emit, fail)
	if p.readNetlink(s, now, emit) {
		p.lifespan.read(p.set, now, emit, fail)
		out.add(s.rows.hwSource, p.hwByNetlink, 1)
	} else {
		p.hw.read(p.set, now, emit, fail)
		if len(p.hw.list) > 0 {
			out.add(s.rows.hwSource, p.hwBySysfs, 1)
		}
	}
	p.addUp(s, now, out, first)
	if p.rail.Software {
		p.readNetdevBytes(s, out, fail)
	}
}

// addUp gives a port whose driver counts bytes by IP version (irdma) the counter
// of all its bytes, from the samples since first; it takes both to know it.
func (p *rdmaPort) addUp(s *RDMA, now time.Time, out *reading, first int) {
	for _, sum := range s.sums {
		own := p.set.owner[sum.of]
		refused := own != nil && now.Before(own.notUntil) // i40iw has the file, and no value in it
		if own != nil && !refused || p.set.owner[sum.parts[0]] == nil {
			continue
		}
		total, parts := 0.0, 0
		for _, sample := range out.samples[first:] {
			if sample.Metric == sum.parts[0] || sample.Metric == sum.parts[1] {
				total += sample.Value
				parts++
			}
		}
		if parts == len(sum.parts) {
			out.add(sum.of, p.set.labels, total)
		}
	}
}

// readNetlink reports whether the port's hardware counters came by netlink.
func (p *rdmaPort) readNetlink(s *RDMA, now time.Time, emit func(*counter, uint64)) bool {
	if p.netlink == nil || now.Before(p.notUntil) {
		return false
	}
	list, err := p.netlink.HWCounters(p.hwScratch[:0], p.rail.Device, p.rail.Port)
	p.hwScratch = list
	if err != nil || len(list) == 0 {
		p.notUntil = now.Add(retryNetlink)
		return false
	}
	p.hw.release()
	for _, n := range list {
		emit(p.set.get(s.ports, "hw_counters", n.Name), n.Value)
	}
	return true
}

// readNetdevBytes gives a software device the byte counters that it lacks.
// readMTU has checked the directory.
func (p *rdmaPort) readNetdevBytes(s *RDMA, out *reading, fail func(error)) {
	for file, row := range map[int]*Metric{1: s.receiveBytes, 2: s.transmitBytes} {
		if p.set.owner[row] != nil {
			continue // a kernel whose rxe counts bytes
		}
		var buf [64]byte
		switch v, ok, err := p.netdev.uint(file, buf[:]); {
		case err != nil:
			fail(err)
		case ok:
			out.add(row, p.set.labels, float64(v))
		}
	}
}

func (p *rdmaPort) readGIDs(r rdmaRows, this *portReading, put func(*Metric, []string, float64), fail func(error)) {
	table, errs := p.gids.Read()
	for _, err := range errs {
		if errors.Is(err, rail.ErrNoTable) {
			return
		}
		fail(err)
	}
	this.gids, this.gidsOK = table, len(errs) == 0
	put(r.gids, p.set.labels, float64(len(table)))
	for i, g := range p.usableGIDs(table) {
		if i == len(p.gidLabels) {
			p.gidLabels = append(p.gidLabels, gidLabels{})
		}
		if l := &p.gidLabels[i]; l.of != g || l.values == nil {
			*l = gidLabels{g, append(append([]string{}, p.set.labels...), strconv.Itoa(g.Index), g.Type, g.Addr.StringExpanded(), g.Netdev)}
		}
		put(r.gid, p.gidLabels[i].values, 1)
	}
	if p.rail.Netdev == "" || p.rail.LinkLayer == "InfiniBand" || len(errs) > 0 {
		return
	}
	if misbound, ok := rail.Misbound(table, remember(p.own)); ok {
		put(r.misbound, p.set.labels, Bool(misbound))
	}
}

// Bounds on what is exported of a GID table, which may have hundreds of entries:
// how many, and how long it is believed which interfaces are the rail's own.
const (
	maxGIDSeries = 16
	usableFresh  = time.Minute
)

// usableGIDs are the entries of a table that are exported.
func (p *rdmaPort) usableGIDs(table []rail.GID) []rail.GID {
	if now := time.Now(); !slices.Equal(table, p.gidTable) || now.Sub(p.usableAt) >= usableFresh {
		p.gidTable, p.usable, p.usableAt = slices.Clone(table), rail.UsableGIDs(table, p.rail.LinkLayer, remember(p.own), maxGIDSeries), now
	}
	return p.usable
}

// remember asks once for each interface: entries of a table have few.
func remember(own func(netdev string) bool) func(netdev string) bool {
	known := map[string]bool{}
	return func(netdev string) bool {
		is, asked := known[netdev]
		if !asked {
			is = own(netdev)
			known[netdev] = is
		}
		return is
	}
}

// readID reads "4: ACTIVE" as 4.
func readID(f *sysfs.File) (uint64, error) {
	var buf [64]byte
	b, err := f.Read(buf[:])
	if err != nil {
		return 0, err
	}
	id, err := parseID(b)
	return id, sysfs.At(f.Path, err)
}

func parseID(b []byte) (uint64, error) {
	number, _, found := bytes.Cut(b, []byte(":"))
	id, err := sysfs.ParseUint(number)
	if err == nil && (!found || id > 255) {
		return 0, &sysfs.Error{Reason: sysfs.ReasonInvalid, Err: fmt.Errorf("%q is not a number, a colon and a word", bytes.TrimSpace(b))}
	}
	return id, err
}

// readRate reads "400 Gb/sec (4X NDR)" as bytes per second.
func readRate(f *sysfs.File) (float64, error) {
	var buf [128]byte
	b, err := f.Read(buf[:])
	if err != nil {
		return 0, err
	}
	rate, err := parseRate(string(bytes.TrimSpace(b)))
	return rate, sysfs.At(f.Path, err)
}

func parseRate(text string) (float64, error) {
	rate, err := rail.ParseRate(text)
	if err != nil {
		return 0, &sysfs.Error{Reason: invalidOrEmpty(text), Err: err}
	}
	return rate, nil
}
