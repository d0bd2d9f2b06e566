package demo

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// driver is the name of the adapters' driver. It begins with mlx5 because the counters are that driver's.
const driver = "mlx5_demo"

func device(rail int) string     { return fmt.Sprintf("demo%d", rail) }
func netdev(rail int) string     { return fmt.Sprintf("demonet%d", rail) }
func bridge(rail int) string     { return fmt.Sprintf("0000:00:%02x.0", rail+1) }
func nicAddress(rail int) string { return fmt.Sprintf("0000:%02x:00.0", 0x10*(rail+1)) }
func gpuAddress(gpu int) string  { return fmt.Sprintf("0000:%02x:00.0", 0x10*(gpu+1)+2) }
func gpuBridge(gpu int) string   { return fmt.Sprintf("0000:00:%02x.0", 0x10+gpu) }

// Counters that stay 0 on a network without faults, for a ConnectX port on Linux 6.8.
const (
	zeroCounters = "VL15_dropped excessive_buffer_overrun_errors link_downed link_error_recovery " +
		"local_link_integrity_errors multicast_rcv_packets multicast_xmit_packets port_rcv_constraint_errors " +
		"port_rcv_errors port_rcv_remote_physical_errors port_rcv_switch_relay_errors port_xmit_constraint_errors " +
		"port_xmit_discards port_xmit_wait symbol_error"
	zeroHardware = "duplicate_request implied_nak_seq_err local_ack_timeout_err out_of_buffer out_of_sequence " +
		"packet_seq_err req_cqe_error req_cqe_flush_error req_remote_access_errors req_remote_invalid_request " +
		"req_rnr_retries_exceeded req_transport_retries_exceeded resp_cqe_error resp_cqe_flush_error " +
		"resp_local_length_error resp_remote_access_errors rnr_nak_retry_err roce_adp_retrans roce_adp_retrans_to " +
		"roce_slow_restart roce_slow_restart_cnps roce_slow_restart_trans rp_cnp_ignored rx_atomic_requests " +
		"rx_dct_connect rx_icrc_encapsulated rx_read_requests"
	zeroStatistics = "rx_errors tx_errors rx_dropped tx_dropped rx_missed_errors rx_crc_errors multicast " +
		"tx_carrier_errors"
)

// tree writes files until the first error.
type tree struct {
	root string
	err  error
}

// path returns the path below the root, and creates its directory.
func (t *tree) path(elem ...string) string {
	path := filepath.Join(t.root, filepath.Join(elem...))
	if t.err == nil {
		t.err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	return path
}

func (t *tree) files(dir string, pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		if path := t.path(dir, pairs[i]); t.err == nil {
			t.err = os.WriteFile(path, []byte(pairs[i+1]+"\n"), 0o644)
		}
	}
}

func (t *tree) zeros(dir, names string) {
	for name := range strings.FieldsSeq(names) {
		t.files(dir, name, "0")
	}
}

// link makes a symbolic link to a target below the root. The link ends with the target's name, as readers of sysfs
// expect.
func (t *tree) link(target string, elem ...string) {
	path := t.path(elem...)
	if t.err != nil {
		return
	}
	to, err := filepath.Rel(filepath.Dir(path), filepath.Join(t.root, filepath.Dir(target)))
	if err == nil {
		err = os.Symlink(filepath.Join(to, filepath.Base(target)), path)
	}
	t.err = err
}

func (n *Node) write() error {
	sys, proc := &tree{root: n.Sysfs}, &tree{root: n.Procfs}
	for r := range Rails {
		n.writeRail(sys, r)
		for _, dir := range []string{netdev(r), "all"} {
			proc.files(filepath.Join("sys/net/ipv4/conf", dir), "arp_ignore", "1", "arp_announce", "2", "arp_filter",
				"0")
		}
	}
	for g := range gpusPerNode {
		sys.function(gpuBridge(g), gpuAddress(g), "0x10de", "0x030200")
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		proc.files("sys/kernel", "osrelease", unix.ByteSliceToString(u.Release[:]))
	}
	proc.files("sys/kernel", "hostname", n.Name)
	proc.files("", "uptime", "100000.00 100000.00")
	for _, t := range []*tree{sys, proc} {
		if t.err != nil {
			return t.err
		}
	}
	for r := range Rails {
		for _, c := range n.counters(r) {
			dir := n.portDir(r)
			if strings.HasPrefix(c.name, "statistics/") {
				dir = n.netdevDir(r)
			}
			f, err := os.Create(filepath.Join(dir, c.name))
			if err != nil {
				return err
			}
			n.files[r] = append(n.files[r], f)
		}
	}
	n.update()
	return nil
}

// function writes a PCI function behind a bridge, and returns its directory.
func (t *tree) function(bridge, address, vendor, class string) string {
	dir := filepath.Join("devices/pci0000:00", bridge, address)
	for _, link := range []string{filepath.Dir(dir), dir} {
		t.files(link, "current_link_speed", "16.0 GT/s PCIe", "current_link_width", "16",
			"max_link_speed", "16.0 GT/s PCIe", "max_link_width", "16")
	}
	t.files(dir, "numa_node", "0", "vendor", vendor, "class", class, "aer_dev_correctable", "TOTAL_ERR_COR 0",
		"aer_dev_nonfatal", "TOTAL_ERR_NONFATAL 0", "aer_dev_fatal", "TOTAL_ERR_FATAL 0")
	t.link(dir, "bus/pci/devices", address)
	return dir
}

func (n *Node) writeRail(sys *tree, r int) {
	pci := sys.function(bridge(r), nicAddress(r), "0x15b3", "0x020000")
	sys.files(filepath.Join("bus/pci/drivers", driver), "uevent", "")
	sys.link("bus/pci/drivers/"+driver, pci, "driver")

	dev := filepath.Join(pci, "infiniband", device(r))
	sys.link(dev, "class/infiniband", device(r))
	sys.link(pci, dev, "device")
	guid := fmt.Sprintf("0000:0000:de00:%02x%02x", n.index+1, r)
	sys.files(dev, "fw_ver", "0.0.0", "hca_type", "simulated: shaped loopback TCP", "board_id", "railscope demo",
		"node_guid", guid, "sys_image_guid", guid, "node_type", "1: CA")
	port := filepath.Join(dev, "ports/1")
	sys.files(port, "state", "4: ACTIVE", "phys_state", "5: LinkUp", "link_layer", "Ethernet",
		"rate", fmt.Sprintf("%g Gb/sec (1X SDR)", n.demo.opts.Rate), "hw_counters/lifespan", "10")
	sys.zeros(filepath.Join(port, "counters"), zeroCounters)
	sys.zeros(filepath.Join(port, "hw_counters"), zeroHardware)
	mapped := netip.AddrFrom16(address(n.index, r).As16()).StringExpanded()
	own := fmt.Sprintf("fe80:0000:0000:0000:0000:00ff:fede:%02x%02x", n.index+1, r)
	for i, gid := range []string{own, own, mapped, mapped} {
		at := strconv.Itoa(i)
		sys.files(port, "gids/"+at, gid, "gid_attrs/types/"+at, []string{"IB/RoCE v1", "RoCE v2"}[i%2],
			"gid_attrs/ndevs/"+at, netdev(r))
	}

	dir := filepath.Join(pci, "net", netdev(r))
	sys.link(dir, "class/net", netdev(r))
	sys.link(pci, dir, "device")
	sys.files(dir, "operstate", "up", "carrier", "1", "mtu", "9000", "speed",
		fmt.Sprintf("%.0f", n.demo.opts.Rate*1000),
		"carrier_changes", "2", "carrier_up_count", "1", "carrier_down_count", "1", "flags", "0x1003", "dev_port", "0",
		"ifindex", strconv.Itoa(10+r))
	sys.zeros(filepath.Join(dir, "statistics"), zeroStatistics)
}

func (n *Node) portDir(r int) string {
	return filepath.Join(n.Sysfs, "class/infiniband", device(r), "ports/1")
}

func (n *Node) netdevDir(r int) string { return filepath.Join(n.Sysfs, "class/net", netdev(r)) }

// overwrite replaces the first line of a file in place, because readers keep it open. A shorter line is padded with
// blanks.
func overwrite(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%-*s\n", int(st.Size())-1, text)
	return err
}

// fail takes down the ports of the first node that are configured to fail.
func (d *Demo) fail() {
	n := d.Nodes[0]
	for r := range d.opts.Fail {
		l := d.links[r]
		l.mu.Lock()
		l.ports[n.index].down = true
		l.mu.Unlock()
		port, netdev := n.portDir(r), n.netdevDir(r)
		for path, text := range map[string]string{
			port + "/state": "1: DOWN", port + "/phys_state": "2: Polling", port + "/counters/link_downed": "1",
			netdev + "/operstate": "down", netdev + "/carrier": "0", netdev + "/speed": "-1",
			netdev + "/carrier_changes": "3", netdev + "/carrier_down_count": "2",
		} {
			_ = overwrite(path, text) // an error here would have occurred in New
		}
	}
}
