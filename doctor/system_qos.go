package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// QoSFacts is how one rail is set for lossless traffic and congestion.
type QoSFacts struct {
	Device   string       `json:"device"`
	Port     int          `json:"port"`
	Settings []QoSSetting `json:"settings"` // those that could be read
}

// QoSSetting is one of them, as text: two rails are alike when their texts are.
type QoSSetting struct {
	Name  string `json:"name"` // id of a row of qosRows
	Value string `json:"value"`
	Where string `json:"where"`
}

// qosAnswer is what one rail's lane found.
type qosAnswer struct {
	facts  QoSFacts
	denied bool
	err    error
}

// readQoS reads the settings of all rails that are Ethernet hardware, each in a
// lane of its own: some are questions to the firmware.
func (s *system) readQoS(ctx context.Context) part {
	byName, names := map[string]rail.Rail{}, []string{}
	for _, r := range s.rails[:min(len(s.rails), maxPorts)] {
		if r.LinkLayer == "Ethernet" && !r.Software {
			name := fmt.Sprintf("%s/%d", r.Device, r.Port)
			byName[name], names = r, append(names, name)
		}
	}
	var all []QoSFacts
	var unread []string
	denied := false
	for _, res := range s.lanes.qos.Run(remaining(ctx), names, func(name string) qosAnswer {
		r := byName[name]
		a := qosAnswer{facts: QoSFacts{Device: r.Device, Port: r.Port}}
		a.denied, a.err = s.settingsOf(r, &a.facts)
		return a
	}) {
		err := res.Err
		if res.State == lane.Done {
			all = append(all, res.Value.facts)
			denied, err = denied || res.Value.denied, res.Value.err
		}
		if err != nil {
			unread = append(unread, fmt.Sprintf("PFC and DCQCN of %s: %v; compare by hand: dcb pfc show dev %s", res.Key, firstLine(err), byName[res.Key].Netdev))
		}
	}
	if denied {
		unread = append(unread, "DCQCN parameters below /sys/kernel/debug/mlx5: permission denied; run doctor as root")
	}
	return part{put: func(f *SystemFacts) { f.QoS = all }, unread: unread}
}

// remaining is how long a reader may take; some time where nothing bounds it.
func remaining(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return time.Until(end) * 9 / 10 // so that what did come is still there in time
	}
	return defaultBudget
}

// settingsOf reads the settings of one rail, and tells whether the kernel's
// debugging files were refused.
func (s *system) settingsOf(r rail.Rail, q *QoSFacts) (denied bool, err error) {
	add := func(name, value, where string) {
		q.Settings = append(q.Settings, QoSSetting{name, clean(value), where})
	}
	var faults []error
	if s.pfc != nil && r.Netdev != "" {
		enabled, err := s.pfc(r.Netdev)
		if err == nil {
			add("pfc", priorities(func(p int) bool { return enabled>>p&1 == 1 }), "dcb pfc show dev "+r.Netdev)
		} else if !notThere(err) {
			faults = append(faults, err)
		}
	}
	if s.pause != nil && r.Netdev != "" {
		rx, tx, err := s.pause(r.Netdev)
		if err == nil {
			add("pause", "rx "+onOff(rx)+" tx "+onOff(tx), "ethtool -a "+r.Netdev)
		} else if !notThere(err) {
			faults = append(faults, err)
		}
	}
	if r.Netdev != "" {
		s.netdevSettings(r.Netdev, add)
	}
	port := fmt.Sprint(r.Port)
	s.textSetting("traffic_class", func(text string) string {
		return strings.TrimPrefix(strings.TrimSpace(text), "Global tclass=")
	}, add, s.o.Sysfs, "class/infiniband", r.Device, "tc", port, "traffic_class")
	s.textSetting("roce_tos", strings.TrimSpace, add, s.o.Sysfs, "kernel/config/rdma_cm", r.Device, "ports", port, "default_roce_tos")
	return s.debugSettings(r, add), errors.Join(faults...)
}

// netdevSettings reads what MLNX_OFED and DOCA put beside a netdev.
func (s *system) netdevSettings(netdev string, add func(name, value, where string)) {
	dir := filepath.Join(s.o.Sysfs, "class/net", netdev)
	s.textSetting("trust", strings.TrimSpace, add, dir, "qos/trust")
	for _, side := range []string{"roce_np", "roce_rp"} {
		var on [8]bool
		known := true
		for p := range on {
			text, err := sysfs.ReadString(dir, "ecn", side, "enable", fmt.Sprint(p))
			known, on[p] = known && err == nil, text == "1"
		}
		if known {
			add(side, priorities(func(p int) bool { return on[p] }), "/sys/class/net/"+netdev+"/ecn/"+side+"/enable")
		}
	}
}

// textSetting adds a setting that is one file.
func (s *system) textSetting(name string, value func(string) string, add func(name, value, where string), elem ...string) {
	text, err := sysfs.ReadString(elem...)
	if err != nil {
		return
	}
	first, _, _ := strings.Cut(value(text), "\n")
	if first == "" {
		first = "unset"
	}
	where, err := filepath.Rel(s.o.Sysfs, filepath.Join(elem...))
	if err != nil {
		return
	}
	add(name, first, "/sys/"+where)
}

// debugSettings reads parameters of DCQCN from the kernel's debugging files
// (drivers/infiniband/hw/mlx5/cong.c), a question to the firmware each.
func (s *system) debugSettings(r rail.Rail, add func(name, value, where string)) (denied bool) {
	if r.PCIAddress == "" || r.Driver != "mlx5_core" {
		return false
	}
	dir := filepath.Join(s.o.Sysfs, "kernel/debug/mlx5", r.PCIAddress, "cc_params")
	if _, err := os.Stat(dir); errors.Is(err, os.ErrPermission) {
		return true
	}
	for _, row := range qosRows() {
		if row.debug {
			s.textSetting(row.name, strings.TrimSpace, add, dir, row.name)
		}
	}
	return false
}

// notThere says that a driver does not have what was asked for.
func notThere(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL)
}

// priorities writes which of the eight are on.
func priorities(on func(int) bool) string {
	var list []string
	for p := range 8 {
		if on(p) {
			list = append(list, fmt.Sprint(p))
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

// splitPriorities is the reverse of priorities; what is no priority is left out.
func splitPriorities(text string) (on, off []string) {
	listed := strings.Split(text, ",")
	for p := range 8 {
		if name := fmt.Sprint(p); slices.Contains(listed, name) {
			on = append(on, name)
		} else {
			off = append(off, name)
		}
	}
	return on, off
}
