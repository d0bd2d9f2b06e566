package sampler

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// tcpEvery is the time between two reads of what a rail carries beside RDMA: on mlx5 each makes the driver ask the
// firmware for all of its statistics.
const tcpEvery = 5 * time.Second

// membersEvery is how many reads are between two listings of a bond's members.
const membersEvery = 10

// frameExtra is what the interface counts of an RDMA packet at most beside what
// its MTU allows: the Ethernet header, with a VLAN tag.
const frameExtra = 18

// tcpRate is what one direction of a rail carried beside RDMA.
type tcpRate struct {
	exact  bool   // total is: the driver counts RDMA apart
	total  uint64 // bytes since the start
	failed int    // reads in a row that found nothing
	// Of the time since the read before, bytes per second.
	known          bool
	least          float64 // that were not RDMA, for certain
	rdma           float64 // that were, at most
	bytes, packets mark    // of the last read
}

// tcpReader reads what one rail carries beside RDMA. It implements [collector.Device].
type tcpReader struct {
	rail  rail.Rail
	id    int // no two readers have the same
	sysfs string
	ioctl ethtool.Ioctl
	open  rail.OpenFile
	last  tcpReading

	members  []*vport // the interface, or the members of the bond
	software *softwareFiles
	stale    int // reads until the members are listed again
}

// tcpReading is what one read found.
type tcpReading struct {
	ok     bool
	exact  bool
	values [directions]uint64 // bytes that are not RDMA where exact, else all
	rdma   [directions]uint64 // packets that are, where not exact
	mtu    uint64
	opens  int // changes when the values do not go on from those before
	at     time.Time
}

// watchTCP reads what all rails carry beside RDMA until ctx is done, each in a lane of its own: ethtool waits for a
// lock that some drivers hold for long.
func (s *Sampler) watchTCP(ctx context.Context) {
	var ids atomic.Int64
	readers := collector.NewSet(tcpBudget, rail.Rail.String, func(r rail.Rail) *tcpReader {
		return &tcpReader{rail: r, id: int(ids.Add(1)), sysfs: s.opts.Sysfs, ioctl: s.ioctl, open: s.open}
	})
	defer readers.Close()
	s.every(ctx, max(tcpEvery, 2*s.opts.Interval), func() {
		s.mu.Lock()
		rails := slices.Clone(s.rails)
		s.mu.Unlock()
		answered, _ := readers.Read(rails, nil) // a fault is a rail of which nothing is known
		readings := map[rail.Rail]tcpReading{}
		for _, r := range answered {
			readings[r.rail] = r.last
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, r := range rails {
			s.addTCP(r, readings[r])
		}
		s.suspectLocked()
	})
}

// addTCP adds a reading of a rail.
func (s *Sampler) addTCP(r rail.Rail, reading tcpReading) {
	key := rail.Key(r.Device, r.Port)
	t := s.tcp[key]
	if t == nil {
		t = &[directions]tcpRate{}
		s.tcp[key] = t
	}
	for d := range t {
		t[d].add(reading, d)
	}
}

// add adds a reading.
func (t *tcpRate) add(r tcpReading, d int) {
	t.known = false
	if !r.ok { // the next one covers both times, unless none comes
		if t.failed++; t.failed >= streakReads {
			t.exact = false
		}
		return
	}
	t.failed = 0
	const most = 12 * tcpEvery
	grew, took, what := t.bytes.advance(mark{value: r.values[d], at: r.at, opens: r.opens}, most)
	if t.exact = r.exact; t.exact {
		if what == counted {
			t.total += grew
			t.known, t.least, t.rdma = true, float64(grew)/took.Seconds(), 0 // the samples have RDMA
		}
		return
	}
	packets, _, also := t.packets.advance(mark{value: r.rdma[d], at: r.at, opens: r.opens}, most)
	if what != counted || also != counted {
		return
	}
	rdma := float64(packets) * float64(r.mtu+frameExtra)
	t.known, t.rdma = true, min(rdma, float64(grew))/took.Seconds()
	t.least = max(0, float64(grew)-rdma) / took.Seconds()
}

// Read implements collector.Device.
func (r *tcpReader) Read(*collector.Reading) { r.last = r.read() }

// read reads the rail.
func (r *tcpReader) read() (reading tcpReading) {
	const most = 1 << 20 // times that a reader opens its files anew
	defer func() { reading.opens += r.id * most }()
	switch {
	case r.rail.Netdev == "":
		return reading
	case r.rail.Software:
		if r.software == nil {
			r.software = newSoftwareFiles(r.open, r.sysfs, r.rail)
		}
		return r.software.read()
	case r.ioctl == nil || !strings.HasPrefix(r.rail.Driver, "mlx5"):
		return reading // which of the interface's bytes are RDMA is not known
	}
	return r.readVports()
}

// readVports adds up what the members carried.
func (r *tcpReader) readVports() (reading tcpReading) {
	if r.stale--; r.stale < 0 {
		r.stale = membersEvery
		r.setMembers(lowers(filepath.Join(r.sysfs, "class/net"), r.rail.Netdev))
	}
	for _, m := range r.members {
		if !m.read() {
			return tcpReading{}
		}
		for d := range reading.values {
			reading.values[d] += m.values[d]
		}
		reading.opens += m.opened
	}
	reading.ok, reading.exact, reading.at = len(r.members) > 0, true, time.Now()
	return reading
}

// setMembers makes the members those of the names. When they are others than before, what they carried does not go on
// from what was.
func (r *tcpReader) setMembers(names []string) {
	if slices.EqualFunc(names, r.members, func(name string, m *vport) bool { return name == m.name }) {
		return
	}
	opened := 1
	for _, m := range r.members {
		opened += m.opened
		m.close()
	}
	r.members = nil
	for _, name := range names {
		net := filepath.Join(r.sysfs, "class/net")
		r.members = append(r.members, &vport{name: name, net: net, ioctl: r.ioctl, opened: opened})
	}
}

// Close implements collector.Device.
func (r *tcpReader) Close() {
	for _, m := range r.members {
		m.close()
	}
	if r.software != nil {
		r.software.close()
	}
}

// lowers returns the members of a bond, or the interface itself where it is
// none.
func lowers(net, name string) (list []string) {
	if !isBond(net, name) {
		return []string{name}
	}
	entries, err := sysfs.List(filepath.Join(net, name))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if member, ok := strings.CutPrefix(e.Name, "lower_"); ok {
			list = append(list, member)
		}
	}
	slices.Sort(list)
	return list
}

// isBond goes by the directory that every bond has.
func isBond(net, name string) bool {
	var st unix.Stat_t
	return unix.Stat(filepath.Join(net, name, "bonding"), &st) == nil
}

// vport is one function's part of an mlx5 port: rx_vport_unicast_bytes and its
// twin count what went to and from the network stack, and RDMA is counted apart
// in {rx,tx}_vport_rdma_unicast_bytes
// (drivers/net/ethernet/mellanox/mlx5/core/en_stats.c, vport_stats_desc).
type vport struct {
	name, net string
	ioctl     ethtool.Ioctl
	stats     *ethtool.Device
	at        [directions]int // of the counters among the statistics; -1 where it has none
	values    [directions]uint64
	ino       uint64
	opened    int
}

// read reads the counters, and reports whether they exist. Its PCI address proves that sysfs and ethtool mean the same
// interface.
func (v *vport) read() bool {
	dir := filepath.Join(v.net, v.name)
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return false
	}
	if v.stats == nil || st.Ino != v.ino {
		v.close()
		d, err := ethtool.NewDevice(v.name, v.ioctl)
		if err != nil {
			return false
		}
		v.stats, v.ino = d, st.Ino
		v.opened++
		target, err := os.Readlink(filepath.Join(dir, "device"))
		if _, bus, errDriver := d.Driver(); err != nil || errDriver != nil || bus != filepath.Base(target) {
			v.close()
			return false
		}
	}
	values, err := v.stats.Read(v.find)
	if err != nil || v.at[Receive] < 0 || v.at[Transmit] < 0 {
		return false
	}
	for d, at := range v.at {
		v.values[d] = values[at]
	}
	return true
}

func (v *vport) find(names []string) {
	v.at[Receive] = slices.Index(names, "rx_vport_unicast_bytes")
	v.at[Transmit] = slices.Index(names, "tx_vport_unicast_bytes")
}

func (v *vport) close() {
	if v.stats != nil {
		_ = v.stats.Close() // nothing was written to it
		v.stats = nil
	}
}
