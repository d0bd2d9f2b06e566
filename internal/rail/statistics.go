package rail

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/sysfs"
)

// driverCounters are the counters that one driver has of an interface. Several names are summed.
type driverCounters struct {
	driver   string               // prefix of the driver's name
	physical [Directions][]string // bytes of the physical port: all functions and protocols
	period   time.Duration        // maximum update interval under load; 0: each read queries the adapter
	stack    [Directions][]string // bytes of this function's network stack, without RDMA
	queues   bool                 // statistics/rx_bytes and tx_bytes are these bytes: the driver adds up its own queues
}

// drivers returns the drivers with known counters. A function that does not own the physical port lacks its bytes.
//
// RDMA bypasses the queues of the network driver. A counter is known to be without RDMA if the driver adds it up in
// software, packet by packet or from statistics of these queues. Counters of a whole function (such as statistics/ of
// ionic, and rx_bytes in ice's ethtool statistics) are the firmware's: the sources do not say what they include.
func drivers() []driverCounters {
	var mana [Directions][]string // mana_phy_stats: per traffic class
	for class := range 8 {
		mana[Receive] = append(mana[Receive], fmt.Sprintf("hc_tc%d_rx_byte_phy", class))
		mana[Transmit] = append(mana[Transmit], fmt.Sprintf("hc_tc%d_tx_byte_phy", class))
	}
	var none [Directions][]string
	return []driverCounters{
		// mlx5/core/en_stats.c, pport_802_3_stats_desc and vport_stats_desc; mlx5e_stats_update
		{"mlx5", [Directions][]string{{"rx_bytes_phy"}, {"tx_bytes_phy"}}, 0,
			[Directions][]string{{"rx_vport_unicast_bytes"}, {"tx_vport_unicast_bytes"}}, false},
		// bnxt_ethtool.c, bnxt_port_stats_arr; bnxt.c, bnxt_timer: BNXT_PERIODIC_STATS_SP_EVENT. bnxt.c,
		// bnxt_get_ring_stats; bnxt_re/main.c, bnxt_re_net_stats_ctx_alloc: RDMA has a statistics context of its own
		{"bnxt_en", [Directions][]string{{"rx_bytes"}, {"tx_bytes"}}, time.Second, none, true},
		// ice_ethtool.c, ice_gstrings_pf_stats; __ice_get_ethtool_stats. ice_main.c, ice_update_vsi_ring_stats
		{"ice", [Directions][]string{{"rx_bytes.nic"}, {"tx_bytes.nic"}}, 0, none, true},
		// i40e_ethtool.c, i40e_gstrings_stats; i40e_get_ethtool_stats. i40e_main.c, i40e_get_netdev_stats_struct
		{"i40e", [Directions][]string{{"port.rx_bytes"}, {"port.tx_bytes"}}, 0, none, true},
		// hns3pf/hclge_main.c, g_mac_stats_string; hns3_get_stats. hns3_enet.c, hns3_nic_get_stats64
		{"hns3", [Directions][]string{{"mac_rx_total_oct_num"}, {"mac_tx_total_oct_num"}}, 0, none, true},
		// ionic_stats.c, ionic_port_stats_desc: memory that the firmware writes; ionic_get_lif_stats: sums of queues
		{"ionic", [Directions][]string{{"octets_rx_ok"}, {"octets_tx_ok"}}, unknownPeriod,
			[Directions][]string{{"rx_bytes"}, {"tx_bytes"}}, false},
		// mana_ethtool.c, mana_phy_stats; mana_en.c, mana_get_stats64
		{"mana", mana, unknownPeriod, none, true},
	}
}

// StatisticsReading holds the driver counters of a port's interfaces.
type StatisticsReading struct {
	Physical    [Directions]uint64 // bytes of the physical port: all functions and protocols
	HasPhysical bool
	Period      time.Duration      // Physical may lack the bytes of this period
	Stack       [Directions]uint64 // bytes of this function's network stack, without RDMA
	HasStack    bool
	Generation  int // values of different generations cannot be compared
	At          time.Time
}

// Statistics reads the driver statistics ("ethtool -S") of a rail's interface; for a bond, of its members. On some
// adapters a read makes the firmware collect all of them. Not safe for concurrent use, and a read may hang.
type Statistics struct {
	net, netdev string
	ioctl       ethtool.Ioctl
	members     []*member
}

// NewStatistics returns a reader of the statistics of an interface in the tree at sysfsRoot, for which ioctl
// answers.
func NewStatistics(sysfsRoot, netdev string, ioctl ethtool.Ioctl) *Statistics {
	return &Statistics{net: filepath.Join(sysfsRoot, "class/net"), netdev: netdev, ioctl: ioctl}
}

// Read reads all members and returns their sum. ok is false if one of them has none of the statistics, or cannot be
// read.
func (s *Statistics) Read() (sum StatisticsReading, ok bool) {
	names := BondMembers(filepath.Join(s.net, s.netdev))
	if names == nil { // it is not a bond
		names = []string{s.netdev}
	}
	s.setMembers(names)
	sum.HasPhysical, sum.HasStack = len(s.members) > 0, len(s.members) > 0
	for _, m := range s.members {
		if !m.read() {
			return StatisticsReading{}, false
		}
		for d := range Directions {
			sum.Physical[d] += m.physical.values[d]
			sum.Stack[d] += m.stack.values[d]
		}
		sum.HasPhysical = sum.HasPhysical && m.physical.found
		sum.HasStack = sum.HasStack && m.stack.found
		if m.physical.found {
			sum.Period = max(sum.Period, m.counters.period)
		}
		sum.Generation += m.opened
	}
	sum.At = time.Now()
	return sum, sum.HasPhysical || sum.HasStack
}

// Close frees all memory. A later read reopens what it needs.
func (s *Statistics) Close() {
	for _, m := range s.members {
		m.close()
	}
}

// setMembers sets the members. After a change, their sum cannot be compared with earlier ones.
func (s *Statistics) setMembers(names []string) {
	if slices.EqualFunc(names, s.members, func(name string, m *member) bool { return name == m.name }) {
		return
	}
	opened := 1
	for _, m := range s.members {
		opened += m.opened
		m.close()
	}
	s.members = nil
	for _, name := range names {
		s.members = append(s.members, &member{name: name, dir: filepath.Join(s.net, name), ioctl: s.ioctl,
			opened: opened})
	}
}

type member struct {
	name, dir       string
	ioctl           ethtool.Ioctl
	device          *ethtool.Device // nil: not open
	counters        driverCounters  // counters of the driver; none if it is unknown
	inode           uint64
	opened          int
	physical, stack columns
}

// columns holds the indices of some statistics among all, and their sums.
type columns struct {
	found  bool
	at     [Directions][]int
	values [Directions]uint64
}

// find finds the columns of names. If one is missing, it finds none.
func (c *columns) find(all []string, names [Directions][]string) {
	*c = columns{found: len(names[Receive]) > 0}
	for d, list := range names {
		for _, name := range list {
			i := slices.Index(all, name)
			c.found = c.found && i >= 0
			c.at[d] = append(c.at[d], i)
		}
	}
}

func (c *columns) sum(values []uint64) {
	if !c.found {
		return
	}
	for d, list := range c.at {
		c.values[d] = 0
		for _, i := range list {
			c.values[d] += values[i]
		}
	}
}

// read reads the statistics, and reports whether there are any. The bus address proves that sysfs and ethtool refer
// to the same interface.
func (m *member) read() bool {
	inode, err := sysfs.Inode(m.dir)
	if err != nil {
		return false
	}
	if m.device == nil || inode != m.inode {
		m.close()
		m.device, err = ethtool.NewDevice(m.name, m.ioctl)
		if err != nil {
			m.device = nil
			return false
		}
		m.inode = inode
		m.opened++
		target, err := os.Readlink(filepath.Join(m.dir, "device"))
		driver, bus, errDriver := m.device.Driver()
		if err != nil || errDriver != nil || bus != filepath.Base(target) {
			m.close()
			return false
		}
		m.counters = countersOf(driver)
	}
	values, err := m.device.Read(m.find)
	if err != nil {
		return false
	}
	m.physical.sum(values)
	m.stack.sum(values)
	if m.counters.queues {
		m.stack = readQueues(m.dir)
	}
	return m.physical.found || m.stack.found
}

// readQueues reads the bytes of an interface whose driver adds up its own queues.
func readQueues(dir string) (c columns) {
	received, err := sysfs.ReadUint(dir, "statistics/rx_bytes")
	sent, errSent := sysfs.ReadUint(dir, "statistics/tx_bytes")
	if err == nil && errSent == nil {
		c = columns{found: true, values: [Directions]uint64{Receive: received, Transmit: sent}}
	}
	return c
}

func (m *member) find(all []string) {
	m.physical.find(all, m.counters.physical)
	m.stack.find(all, m.counters.stack)
}

// countersOf returns the counters of a driver, and none if it is unknown.
func countersOf(driver string) driverCounters {
	for _, d := range drivers() {
		if strings.HasPrefix(driver, d.driver) {
			return d
		}
	}
	return driverCounters{}
}

func (m *member) close() {
	if m.device != nil {
		_ = m.device.Close() // nothing was written to it
		m.device = nil
	}
}
