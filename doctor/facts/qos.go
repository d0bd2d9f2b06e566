package facts

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// CongestionParameters are the files of mlx5's cc_params that are read
// (drivers/infiniband/hw/mlx5/cong.c).
func CongestionParameters() []string {
	return []string{"np_cnp_dscp", "np_cnp_prio", "np_cnp_prio_mode", "np_min_time_between_cnps",
		"rp_ai_rate", "rp_hai_rate", "rp_min_rate", "rp_clamp_tgt_rate"}
}

// unreadDebug says that the kernel's debugging files were refused; once for all
// rails.
const unreadDebug = "DCQCN parameters below /sys/kernel/debug/mlx5: permission denied; run doctor as root"

// readQoS reads the settings of a rail that is Ethernet hardware. Some are
// questions to the firmware.
func (g *Gatherer) readQoS(r *reader, v rail.Rail) func(*Facts) {
	q := QoS{Device: v.Device, Port: v.Port}
	denied := g.readSettings(r, v, &q)
	return func(f *Facts) {
		f.QoS = append(f.QoS, q)
		if denied && !slices.Contains(f.Unread, unreadDebug) {
			f.Unread = append(f.Unread, unreadDebug)
		}
	}
}

func (q *QoS) add(name, value, where string) {
	q.Settings = append(q.Settings, Setting{name, Clean(value), where})
}

// addFile adds a setting that is one file, without the prefix of its content.
func (q *QoS) addFile(sysfsRoot, name, prefix string, elem ...string) {
	path := filepath.Join(elem...)
	text, err := sysfs.ReadString(sysfsRoot, path)
	if err != nil {
		return
	}
	value, _, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text), prefix)), "\n")
	if value == "" {
		value = "unset"
	}
	q.add(name, value, "/sys/"+path)
}

// readSettings reads the settings of one rail, and reports whether the kernel's
// debugging files were refused.
func (g *Gatherer) readSettings(r *reader, v rail.Rail, q *QoS) (denied bool) {
	if v.Netdev != "" {
		g.readFlowControl(r, v, q)
		g.readNetdevSettings(v.Netdev, q)
	}
	port := strconv.Itoa(v.Port)
	q.addFile(g.o.Sysfs, "traffic_class", "Global tclass=", "class/infiniband", v.Device, "tc", port, "traffic_class")
	q.addFile(g.o.Sysfs, "roce_tos", "", "kernel/config/rdma_cm", v.Device, "ports", port, "default_roce_tos")
	if v.PCIAddress == "" || v.Driver != "mlx5_core" {
		return false
	}
	dir := filepath.Join("kernel/debug/mlx5", v.PCIAddress, "cc_params")
	if _, err := os.Stat(filepath.Join(g.o.Sysfs, dir)); errors.Is(err, os.ErrPermission) {
		return true
	}
	for _, name := range CongestionParameters() {
		q.addFile(g.o.Sysfs, name, "", dir, name)
	}
	return false
}

// readFlowControl asks the kernel for PFC and global pause.
func (g *Gatherer) readFlowControl(r *reader, v rail.Rail, q *QoS) {
	fail := func(err error) {
		if !unsupported(err) {
			r.say("PFC and DCQCN of %s: %v; compare by hand: dcb pfc show dev %s", rail.Key(v.Device, v.Port),
				firstLine(err),
				v.Netdev)
		}
	}
	if g.kernel.PFC != nil {
		if enabled, err := g.kernel.PFC(v.Netdev); err == nil {
			q.add("pfc", priorities(func(p int) bool { return enabled>>p&1 == 1 }), "dcb pfc show dev "+v.Netdev)
		} else {
			fail(err)
		}
	}
	if g.kernel.Pause != nil {
		if rx, tx, err := g.kernel.Pause(v.Netdev); err == nil {
			q.add("pause", "rx "+onOff(rx)+" tx "+onOff(tx), "ethtool -a "+v.Netdev)
		} else {
			fail(err)
		}
	}
}

// readNetdevSettings reads what MLNX_OFED and DOCA put beside a netdev.
func (g *Gatherer) readNetdevSettings(netdev string, q *QoS) {
	dir := filepath.Join("class/net", netdev)
	q.addFile(g.o.Sysfs, "trust", "", dir, "qos/trust")
	for _, side := range []string{"roce_np", "roce_rp"} {
		enable := filepath.Join(dir, "ecn", side, "enable")
		var on [8]bool
		known := true
		for p := range on {
			text, err := sysfs.ReadString(g.o.Sysfs, enable, strconv.Itoa(p))
			known, on[p] = known && err == nil, text == "1"
		}
		if known {
			q.add(side, priorities(func(p int) bool { return on[p] }), "/sys/"+enable)
		}
	}
}

// unsupported says that a driver does not have what was asked for.
func unsupported(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL)
}

// priorities lists which of the eight are on.
func priorities(on func(int) bool) string {
	var list []string
	for p := range 8 {
		if on(p) {
			list = append(list, strconv.Itoa(p))
		}
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ",")
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
