package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// What the simulated adapters say of themselves. The driver's name begins with
// mlx5, as its counters are that driver's.
const (
	hcaType  = "simulated: shaped loopback TCP"
	board    = "railscope demo"
	firmware = "0.0.0"
	driver   = "mlx5_demo"
)

func device(rail int) string     { return fmt.Sprintf("demo%d", rail) }
func netdev(rail int) string     { return fmt.Sprintf("demonet%d", rail) }
func bridge(rail int) string     { return fmt.Sprintf("0000:00:%02x.0", rail+1) }
func nicAddress(rail int) string { return fmt.Sprintf("0000:%02x:00.0", 0x10*(rail+1)) }
func gpuAddress(gpu int) string  { return fmt.Sprintf("0000:%02x:00.0", 0x10*(gpu+1)+2) }
func gpuBridge(gpu int) string   { return fmt.Sprintf("0000:00:%02x.0", 0x10+gpu) }

// The counters that stay 0 on a network without faults, as a ConnectX port has
// them on Linux 6.8 (drivers/infiniband/core/sysfs.c,
// drivers/infiniband/hw/mlx5/counters.c).
const (
	quietCounters = "VL15_dropped excessive_buffer_overrun_errors link_downed link_error_recovery " +
		"local_link_integrity_errors multicast_rcv_packets " +
		"multicast_xmit_packets port_rcv_constraint_errors port_rcv_errors port_rcv_remote_physical_errors " +
		"port_rcv_switch_relay_errors " +
		"port_xmit_constraint_errors port_xmit_discards port_xmit_wait symbol_error"
	quietHardware = "duplicate_request implied_nak_seq_err local_ack_timeout_err out_of_buffer out_of_sequence " +
		"packet_seq_err req_cqe_error " +
		"req_cqe_flush_error req_remote_access_errors req_remote_invalid_request req_rnr_retries_exceeded " +
		"req_transport_retries_exceeded " +
		"resp_cqe_error resp_cqe_flush_error resp_local_length_error resp_remote_access_errors rnr_nak_retry_err " +
		"roce_adp_retrans " +
		"roce_adp_retrans_to roce_slow_restart roce_slow_restart_cnps roce_slow_restart_trans rp_cnp_ignored " +
		"rx_atomic_requests " +
		"rx_dct_connect rx_icrc_encapsulated rx_read_requests"
	quietStatistics = "rx_errors tx_errors rx_dropped tx_dropped rx_missed_errors rx_crc_errors multicast " +
		"tx_carrier_errors"
)

// tree writes files until the first error.
type tree struct {
	root string
	err  error
}

func (t *tree) file(content string, elem ...string) {
	path := filepath.Join(append([]string{t.root}, elem...)...)
	if t.err == nil {
		t.err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if t.err == nil {
		t.err = os.WriteFile(path, []byte(content+"\n"), 0o644)
	}
}

// zeros writes a file with 0 for each name.
func (t *tree) zeros(names string, elem ...string) {
	for name := range strings.FieldsSeq(names) {
		t.file("0", append(elem, name)...)
	}
}

// link makes a symbolic link; the target is below the root too. Its last part is
// the target's name, as in sysfs, where that is what many readers look at.
func (t *tree) link(target string, elem ...string) {
	path := filepath.Join(append([]string{t.root}, elem...)...)
	if t.err == nil {
		t.err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if t.err != nil {
		return
	}
	to, err := filepath.Rel(filepath.Dir(path), filepath.Join(t.root, filepath.Dir(target)))
	if err == nil {
		err = os.Symlink(filepath.Join(to, filepath.Base(target)), path)
	}
	t.err = err
}

// write makes the files of the node.
func (n *Node) write() error {
	sys, proc := &tree{root: n.Sysfs}, &tree{root: n.Procfs}
	for r := range Rails {
		n.writeRail(sys, r)
		for _, key := range []string{"arp_ignore", "arp_announce", "arp_filter"} {
			value := map[string]string{"arp_ignore": "1", "arp_announce": "2", "arp_filter": "0"}[key]
			proc.file(value, "sys/net/ipv4/conf", netdev(r), key)
			proc.file(value, "sys/net/ipv4/conf/all", key)
		}
	}
	for g := range gpusPerNode {
		dir := filepath.Join("devices/pci0000:00", gpuBridge(g), gpuAddress(g))
		sys.function(dir, "0x10de", "0x030200")
		sys.link(dir, "bus/pci/devices", gpuAddress(g))
		sys.links(filepath.Dir(dir))
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		proc.file(unix.ByteSliceToString(u.Release[:]), "sys/kernel/osrelease")
	}
	proc.file(n.Name, "sys/kernel/hostname")
	proc.file("100000.00 100000.00", "uptime")
	for _, t := range []*tree{sys, proc} {
		if t.err != nil {
			return t.err
		}
	}
	return n.open()
}

// function writes a PCI function.
func (t *tree) function(dir, vendor, class string) {
	t.links(dir)
	t.file("0", dir, "numa_node")
	t.file(vendor, dir, "vendor")
	t.file(class, dir, "class")
	for _, s := range []struct{ file, total string }{{"correctable", "COR"}, {"nonfatal", "NONFATAL"},
		{"fatal", "FATAL"}} {
		t.file("TOTAL_ERR_"+s.total+" 0", dir, "aer_dev_"+s.file)
	}
}

// links writes what a PCIe link runs at, and could.
func (t *tree) links(dir string) {
	for _, which := range []string{"current", "max"} {
		t.file("16.0 GT/s PCIe", dir, which+"_link_speed")
		t.file("16", dir, which+"_link_width")
	}
}

// writeRail makes the files of one rail: PCI function, RDMA device, interface.
func (n *Node) writeRail(sys *tree, r int) {
	pci := filepath.Join("devices/pci0000:00", bridge(r), nicAddress(r))
	sys.links(filepath.Dir(pci))
	sys.function(pci, "0x15b3", "0x020000")
	sys.file("", "bus/pci/drivers", driver, "uevent")
	sys.link("bus/pci/drivers/"+driver, pci, "driver")
	sys.link(pci, "bus/pci/devices", nicAddress(r))

	dev := filepath.Join(pci, "infiniband", device(r))
	sys.link(dev, "class/infiniband", device(r))
	sys.link(pci, dev, "device")
	guid := fmt.Sprintf("0000:0000:de00:%02x%02x", n.index+1, r)
	for name, content := range map[string]string{"fw_ver": firmware, "hca_type": hcaType, "board_id": board,
		"node_guid": guid, "sys_image_guid": guid,
		"node_type": "1: CA"} {
		sys.file(content, dev, name)
	}
	port := filepath.Join(dev, "ports/1")
	for name, content := range map[string]string{"state": "4: ACTIVE", "phys_state": "5: LinkUp",
		"link_layer": "Ethernet",
		"rate":       fmt.Sprintf("%g Gb/sec (1X SDR)", n.demo.opts.Rate)} {
		sys.file(content, port, name)
	}
	sys.zeros(quietCounters+" port_xmit_data port_rcv_data port_xmit_packets port_rcv_packets unicast_xmit_packets "+
		"unicast_rcv_packets", port, "counters")
	sys.zeros(quietHardware+" np_ecn_marked_roce_packets np_cnp_sent rp_cnp_handled rx_write_requests", port,
		"hw_counters")
	sys.file("10", port, "hw_counters/lifespan")
	a := address(n.index, r).As4()
	mapped := fmt.Sprintf("0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x", a[0], a[1], a[2], a[3])
	own := fmt.Sprintf("fe80:0000:0000:0000:0000:00ff:fede:%02x%02x", n.index+1, r)
	for i, gid := range []string{own, own, mapped, mapped} {
		at := fmt.Sprint(i)
		sys.file(gid, port, "gids", at)
		sys.file([]string{"IB/RoCE v1", "RoCE v2"}[i%2], port, "gid_attrs/types", at)
		sys.file(netdev(r), port, "gid_attrs/ndevs", at)
	}
	n.writeNetdev(sys, r, pci)
}

// writeNetdev makes the files of a rail's interface.
func (n *Node) writeNetdev(sys *tree, r int, pci string) {
	dir := filepath.Join(pci, "net", netdev(r))
	sys.link(dir, "class/net", netdev(r))
	sys.link(pci, dir, "device")
	for name, content := range map[string]string{"operstate": "up", "carrier": "1", "mtu": "9000",
		"speed":           fmt.Sprintf("%.0f", n.demo.opts.Rate*1000),
		"carrier_changes": "2", "carrier_up_count": "1", "carrier_down_count": "1", "flags": "0x1003", "dev_port": "0",
		"ifindex": fmt.Sprint(10 + r)} {
		sys.file(content, dir, name)
	}
	sys.zeros(quietStatistics+" rx_bytes tx_bytes rx_packets tx_packets", dir, "statistics")
}

// paths of a rail's files in the tree.
func (n *Node) portDir(r int) string {
	return filepath.Join(n.Sysfs, "class/infiniband", device(r), "ports/1")
}
func (n *Node) netdevDir(r int) string { return filepath.Join(n.Sysfs, "class/net", netdev(r)) }

// before is what every port has carried when the demo begins: nobody starts a
// job on adapters that have never been used.
const before = 1 << 42

// open opens the files of all counters that change.
func (n *Node) open() error {
	for r := range Rails {
		l := n.demo.links[r]
		read := func(get func(*port) uint64) func() uint64 {
			return func() uint64 {
				l.mu.Lock()
				defer l.mu.Unlock()
				return get(&l.ports[n.index])
			}
		}
		counters, hardware, statistics := filepath.Join(n.portDir(r), "counters"),
			filepath.Join(n.portDir(r), "hw_counters"), filepath.Join(n.netdevDir(r), "statistics")
		for _, c := range []struct {
			dir, name string
			get       func(*port) uint64
		}{
			{counters, "port_xmit_data", func(p *port) uint64 {
				return (before + p.sent[byRDMA].bytes) / 4
			}}, // in words
			{counters, "port_rcv_data", func(p *port) uint64 { return (before + p.received[byRDMA].bytes) / 4 }},
			{counters, "port_xmit_packets", func(p *port) uint64 {
				return before/rocePayload + p.sent[byRDMA].packets
			}},
			{counters, "port_rcv_packets", func(p *port) uint64 {
				return before/rocePayload + p.received[byRDMA].packets
			}},
			{counters, "unicast_xmit_packets", func(p *port) uint64 {
				return before/rocePayload + p.sent[byRDMA].packets
			}},
			{counters, "unicast_rcv_packets", func(p *port) uint64 {
				return before/rocePayload + p.received[byRDMA].packets
			}},
			{hardware, "np_ecn_marked_roce_packets", func(p *port) uint64 { return p.marked }},
			{hardware, "np_cnp_sent", func(p *port) uint64 { return p.cnps }},
			{hardware, "rp_cnp_handled", func(p *port) uint64 { return p.slowed }},
			{hardware, "rx_write_requests", func(p *port) uint64 {
				return p.received[byRDMA].bytes >> 20 & (1<<32 - 1)
			}},
			{statistics, "tx_bytes", func(p *port) uint64 { return p.sent[byTCP].bytes }},
			{statistics, "rx_bytes", func(p *port) uint64 { return p.received[byTCP].bytes }},
			{statistics, "tx_packets", func(p *port) uint64 { return p.sent[byTCP].packets }},
			{statistics, "rx_packets", func(p *port) uint64 { return p.received[byTCP].packets }},
		} {
			f, err := newCounterFile(filepath.Join(c.dir, c.name), read(c.get))
			if err != nil {
				return err
			}
			n.files = append(n.files, f)
		}
	}
	return nil
}
