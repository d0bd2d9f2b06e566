package collector

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/sysfs"
)

// rdmaDevice is one device while it lives: its open files and the state of its
// counters. Only the goroutine in the device's lane touches what mu protects.
type rdmaDevice struct {
	name   string
	rails  []rail.Rail
	labels map[int][]string // by port: the labels of its series

	mu    sync.Mutex // protects all following fields
	ports []*rdmaPort
	set   *counterSet // of the device as a whole
	dir   counterDir
	out   reading // of the last read; its memory is used again
}

func newRDMADevice(s *RDMA, rails []rail.Rail) *rdmaDevice {
	first := rails[0]
	d := &rdmaDevice{name: first.Device, rails: rails, labels: map[int][]string{},
		set: newCounterSet([]string{first.Device}, false),
		dir: counterDir{path: filepath.Join(first.Dir, "hw_counters"), book: s.deviceWide, live: sysfs.Live(first.Dir)}}
	var nl *rdmanl.Client
	if d.dir.live {
		nl = rdmanl.New(s.budget)
	}
	for _, r := range rails {
		p := newRDMAPort(s, r, nl)
		d.ports = append(d.ports, p)
		d.labels[r.Port] = p.set.labels
	}
	return d
}

// same reports whether the device's rails are still what they were.
func (d *rdmaDevice) same(rails []rail.Rail) bool {
	if len(rails) != len(d.rails) {
		return false
	}
	for i := range rails {
		if rails[i] != d.rails[i] {
			return false
		}
	}
	return true
}

// gone closes the device's files: at once, or when the read that is stuck in
// them returns.
func (d *rdmaDevice) gone() { closeUnlocked(&d.mu, d.closeLocked) }

func (d *rdmaDevice) closeLocked() {
	d.dir.close(d.set)
	for _, p := range d.ports {
		p.close()
	}
}

// read reads the whole device. What it returns is valid until the next read.
func (d *rdmaDevice) read(s *RDMA) reading {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := reading{samples: d.out.samples[:0], ports: d.out.ports[:0]}
	now := time.Now()
	fail := func(err error) { out.faults = append(out.faults, NewFault(d.name, err)) }
	d.dir.read(d.set, now, func(c *counter, raw uint64) {
		out.samples = append(out.samples, Sample{c.metric, c.labels, c.value(raw)})
	}, fail)
	for _, p := range d.ports {
		p.read(s, now, &out, fail)
	}
	d.out = out
	return out
}

// rdmaPort is one port's open files.
type rdmaPort struct {
	rail     rail.Rail
	software bool // rxe, siw: a device without a PCI function, on a netdev
	own      func(netdev string) bool
	info     Sample

	state, physState, rate, netdevMTU               sysfs.File
	netdevRx, netdevTx                              sysfs.File
	linkSpeed, linkWidth                            sysfs.File
	mtuLabels, activeLabels, hwByNetlink, hwBySysfs []string

	portKey   string // of the physical port; see rail.Rail.PortKey
	keyKnown  bool
	set       *counterSet
	counters  counterDir
	ext       counterDir
	hw        counterDir
	lifespan  counterDir // the one file of hw_counters that is not a counter and netlink does not have
	gids      *rail.GIDTable
	netlink   *rdmanl.Client // nil when the kernel is not asked
	notUntil  time.Time      // when netlink is asked again after it had no answer
	hwScratch []rdmanl.Counter
}

// retryNetlink is how long a port whose hw_counters netlink does not have is
// read from sysfs before netlink is asked again.
const retryNetlink = 5 * time.Minute

func newRDMAPort(s *RDMA, r rail.Rail, nl *rdmanl.Client) *rdmaPort {
	dir := filepath.Join(r.Dir, "ports", strconv.Itoa(r.Port))
	netdev := filepath.Join(s.sysfs, "class/net", r.Netdev)
	file := func(elem ...string) sysfs.File { return sysfs.File{Path: filepath.Join(elem...)} }
	labels := []string{r.Name, r.Device, strconv.Itoa(r.Port)}
	with := func(more ...string) []string { return append(append([]string{}, labels...), more...) }
	_, err := sysfs.ReadString(r.Dir, "parent")
	counters := func(name, only string, b *book) counterDir {
		return counterDir{path: filepath.Join(dir, name), book: b, only: only, live: nl != nil}
	}
	return &rdmaPort{
		rail: r, software: err == nil && r.Netdev != "", own: rail.Own(s.sysfs, r.Netdev), netlink: nl,
		info:  Sample{s.rows.info, with(r.Netdev, r.PCIAddress, strconv.Itoa(r.NUMANode), r.LinkLayer, r.HCAType, r.BoardID, r.Firmware), 1},
		state: file(dir, "state"), physState: file(dir, "phys_state"), rate: file(dir, "rate"),
		netdevMTU: file(netdev, "mtu"), netdevRx: file(netdev, "statistics/rx_bytes"), netdevTx: file(netdev, "statistics/tx_bytes"),
		linkSpeed: file(r.Dir, "device/current_link_speed"), linkWidth: file(r.Dir, "device/current_link_width"),
		mtuLabels: with("netdev"), activeLabels: with("active"), hwByNetlink: with("netlink"), hwBySysfs: with("sysfs"),
		set:      newCounterSet(labels, strings.HasPrefix(r.Driver, "mlx") || r.Driver == "" && strings.HasPrefix(r.HCAType, "MT")),
		counters: counters("counters", "", s.ports),
		ext:      counters("counters_ext", "", s.legacy),
		hw:       counters("hw_counters", "", s.ports),
		lifespan: counters("hw_counters", "lifespan", s.ports),
		gids:     rail.NewGIDTable(r.Dir, r.Port),
	}
}

func (p *rdmaPort) close() {
	for _, f := range []*sysfs.File{&p.state, &p.physState, &p.rate, &p.netdevMTU, &p.netdevRx, &p.netdevTx, &p.linkSpeed, &p.linkWidth} {
		f.Close()
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
	put := func(m *Metric, labels []string, v float64) { out.samples = append(out.samples, Sample{m, labels, v}) }
	out.samples = append(out.samples, p.info)
	this := portReading{rail: p.rail}
	const active = 4 // enum ib_port_state, IB_PORT_ACTIVE
	if id, err := readID(&p.state); err != nil {
		fail(err)
	} else {
		this.limits.Active = id == active
		put(r.state, labels, float64(id))
		put(r.up, labels, oneIf(id == active))
	}
	if id, err := readID(&p.physState); err != nil {
		fail(err)
	} else {
		put(r.physState, labels, float64(id))
	}
	if this.limits.Active {
		if rate, err := readRate(&p.rate); err != nil {
			fail(err)
		} else {
			put(r.rate, labels, rate)
			this.limits.Rate = rate
		}
		p.readLink(&this.limits)
	}
	p.readMTU(r, put, fail)
	p.readCounters(s, now, out, fail)
	p.readGIDs(r, &this, put, fail)
	out.ports = append(out.ports, this)
}

// readLink reads what the rail's PCIe link and physical port allow. The pcie
// source tells what is wrong with them; here a figure is known or it is not.
func (p *rdmaPort) readLink(l *rail.Limits) {
	if !p.keyKnown {
		dir := filepath.Join(filepath.Dir(p.netdevMTU.Path))
		id, _ := sysfs.ReadString(dir, "phys_switch_id")
		name, _ := sysfs.ReadString(dir, "phys_port_name")
		p.portKey, p.keyKnown = p.rail.PortKey(id, name), true
	}
	l.PortKey, l.LinkKey = p.portKey, rail.LinkKey(p.rail.PCIAddress)
	if p.rail.PCIAddress == "" {
		return
	}
	link, err := readPCILink(&p.linkSpeed, &p.linkWidth)
	if err == nil {
		l.Link = link.BytesPerSecond()
	}
}

func (p *rdmaPort) readMTU(r rdmaRows, put func(*Metric, []string, float64), fail func(error)) {
	if p.rail.Netdev == "" {
		return
	}
	mtu, err := p.netdevMTU.ReadUint()
	switch {
	case err != nil:
		if sysfs.Reason(err) != sysfs.ReasonVanished { // a captured tree may not have the interface
			fail(err)
		}
		return
	case mtu > math.MaxInt32:
		fail(&sysfs.Error{Path: p.netdevMTU.Path, Reason: sysfs.ReasonRange, Err: fmt.Errorf("an MTU of %d", mtu)})
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
		out.samples = append(out.samples, Sample{c.metric, c.labels, c.value(raw)})
		if c.saturated(raw) {
			out.samples = append(out.samples, Sample{s.rows.saturated, append(append([]string{}, c.labels...), c.name), 1})
		}
	}
	p.counters.read(p.set, now, emit, fail)
	p.ext.read(p.set, now, emit, fail)
	if p.readNetlink(s, now, emit) {
		p.lifespan.read(p.set, now, emit, fail)
		out.samples = append(out.samples, Sample{s.rows.hwSource, p.hwByNetlink, 1})
	} else {
		p.hw.read(p.set, now, emit, fail)
		if len(p.hw.list) > 0 {
			out.samples = append(out.samples, Sample{s.rows.hwSource, p.hwBySysfs, 1})
		}
	}
	if p.software {
		p.readNetdevBytes(s, out, fail)
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
	p.hw.close(p.set)
	for _, n := range list {
		emit(p.set.get(s.ports, "hw_counters", n.Name), n.Value)
	}
	return true
}

// readNetdevBytes gives a software device the byte counters that it lacks.
func (p *rdmaPort) readNetdevBytes(s *RDMA, out *reading, fail func(error)) {
	for _, way := range []struct {
		file *sysfs.File
		row  *Metric
	}{{&p.netdevRx, s.receiveBytes}, {&p.netdevTx, s.transmitBytes}} {
		if p.set.owner[way.row] != nil {
			continue // a kernel whose rxe counts bytes
		}
		v, err := way.file.ReadUint()
		if err != nil {
			fail(err)
			continue
		}
		out.samples = append(out.samples, Sample{way.row, p.set.labels, float64(v)})
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
	for _, g := range table {
		labels := append(append([]string{}, p.set.labels...), strconv.Itoa(g.Index), g.Type, g.Addr.StringExpanded(), g.Netdev)
		put(r.gid, labels, 1)
	}
	if p.rail.Netdev == "" || p.rail.LinkLayer == "InfiniBand" || len(errs) > 0 {
		return
	}
	if misbound, ok := rail.Misbound(table, p.own); ok {
		put(r.misbound, p.set.labels, oneIf(misbound))
	}
}

// readID reads "4: ACTIVE" as 4.
func readID(f *sysfs.File) (uint64, error) {
	var buf [64]byte
	b, err := f.Read(buf[:])
	if err != nil {
		return 0, err
	}
	number, _, found := strings.Cut(string(b), ":")
	id, err := sysfs.ParseUint([]byte(number))
	if err == nil && (!found || id > 255) {
		err = &sysfs.Error{Reason: sysfs.ReasonInvalid, Err: fmt.Errorf("%q is not a number, a colon and a word", strings.TrimSpace(string(b)))}
	}
	return id, at(f.Path, err)
}

// readRate reads "400 Gb/sec (4X NDR)" as bytes per second.
func readRate(f *sysfs.File) (float64, error) {
	var buf [128]byte
	b, err := f.Read(buf[:])
	if err != nil {
		return 0, err
	}
	text := strings.TrimSpace(string(b))
	number, _, found := strings.Cut(text, " Gb/sec")
	v, err := strconv.ParseFloat(number, 64)
	if text == "" {
		return 0, &sysfs.Error{Path: f.Path, Reason: sysfs.ReasonEmpty, Err: errors.New("the file is empty")}
	}
	if !found || err != nil || !(v > 0) || v > 1e6 {
		return 0, &sysfs.Error{Path: f.Path, Reason: sysfs.ReasonInvalid, Err: fmt.Errorf("%q is not a rate in Gb/sec", text)}
	}
	return v * 125e6, nil
}

// at fills in the path of a parse error.
func at(path string, err error) error {
	var e *sysfs.Error
	if errors.As(err, &e) && e.Path == "" {
		e.Path = path
	}
	return err
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
