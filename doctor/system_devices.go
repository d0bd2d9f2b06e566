package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/sysfs"
)

// DeviceFacts is what this process can open of the RDMA devices.
type DeviceFacts struct {
	Known   bool          `json:"known"`   // the tree says whether ib_uverbs is loaded
	Class   bool          `json:"class"`   // ib_uverbs is: /sys/class/infiniband_verbs is there
	Uverbs  []UverbsFacts `json:"uverbs"`  // one for each device of a rail
	RDMACM  bool          `json:"rdma_cm"` // /dev/infiniband/rdma_cm is there
	NodeDir bool          `json:"dev"`     // /dev is there
}

// UverbsFacts is one device node.
type UverbsFacts struct {
	Device string `json:"device"` // RDMA device, for example mlx5_0
	Node   string `json:"node"`   // for example /dev/infiniband/uverbs0
	State  string `json:"state"`  // one of the uverbs constants
	Mode   string `json:"mode"`   // permissions and owner, when there is one
	Err    string `json:"error"`  // of opening it
}

// What became of opening a device node.
const (
	uverbsGood    = "good"    // it opened, or was not tried
	uverbsMissing = "missing" // there is none
	uverbsDenied  = "denied"  // EACCES: its permissions
	uverbsRules   = "rules"   // EPERM: device rules of a control group
	uverbsOther   = "other"   // anything else; Err says what
)

// readDevices tries what a program would do first: open the device of each rail.
func (s *system) readDevices(context.Context) part {
	var d DeviceFacts
	var unread []string
	class := filepath.Join(s.o.Sysfs, "class/infiniband_verbs")
	entries, err := sysfs.List(class)
	d.Class = err == nil
	d.Known = d.Class || s.live
	if err != nil && sysfs.Reason(err) != sysfs.ReasonVanished {
		d.Known = false
		unread = append(unread, fmt.Sprintf("RDMA devices: %v; mount sysfs", err))
	}
	d.NodeDir = isDir(s.own("dev"))
	d.RDMACM = exists(s.own("dev/infiniband/rdma_cm"))
	slices.SortFunc(entries, func(a, b sysfs.Entry) int { return strings.Compare(a.Name, b.Name) }) // the kernel's order is any
	ours := map[string]bool{}
	for _, r := range s.rails[:min(len(s.rails), maxPorts)] {
		ours[r.Device] = true
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name, "uverbs") {
			continue
		}
		device, err := sysfs.ReadString(class, e.Name, "ibdev")
		if err != nil && sysfs.Reason(err) != sysfs.ReasonVanished {
			unread = append(unread, fmt.Sprintf("RDMA devices: %v; look into dmesg", err))
		}
		if err != nil || !ours[device] {
			continue
		}
		u := s.tryUverbs(device, e.Name)
		if u.State == uverbsOther {
			unread = append(unread, fmt.Sprintf("%s of %s: %s; is the device being reset? look into dmesg", u.Node, device, u.Err))
		}
		d.Uverbs = append(d.Uverbs, u)
	}
	slices.SortFunc(d.Uverbs, func(a, b UverbsFacts) int { return strings.Compare(a.Device, b.Device) })
	return part{put: func(f *SystemFacts) { f.Devices = d }, unread: unread}
}

func (s *system) tryUverbs(device, name string) UverbsFacts {
	u := UverbsFacts{Device: device, Node: "/dev/infiniband/" + name, State: uverbsGood}
	path := s.own(u.Node)
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		if errors.Is(err, unix.ENOENT) {
			u.State, u.Err = uverbsMissing, err.Error()
		} else {
			u.State, u.Err = uverbsOther, err.Error()
		}
		return u
	}
	u.Mode = fmt.Sprintf("mode %04o, owner %d, group %d", st.Mode&0o7777, st.Uid, st.Gid)
	if s.open == nil {
		return u
	}
	if err := s.open(path); err != nil {
		u.Err = err.Error()
		switch {
		case errors.Is(err, unix.EACCES):
			u.State = uverbsDenied
		case errors.Is(err, unix.EPERM):
			u.State = uverbsRules
		default:
			u.State = uverbsOther
		}
	}
	return u
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

func checkUverbsModule(f *Facts, found func(Finding)) {
	if d := f.System.Devices; len(f.System.Ports) == 0 || !d.Known || d.Class {
		return
	}
	found(Finding{
		Severity: Fault, Subject: "this node",
		Read: "there are RDMA devices, and no /sys/class/infiniband_verbs: the module ib_uverbs is not loaded",
		Why:  "programs reach RDMA devices through ib_uverbs: without it libibverbs finds no device, and they go by TCP",
		Mend: []string{"modprobe ib_uverbs", "echo ib_uverbs > /etc/modules-load.d/rdma.conf  # and at every start"},
	})
}

// uverbsIn reports one finding for all devices whose node is in a state.
func uverbsIn(f *Facts, state string, finding func([]UverbsFacts) Finding, found func(Finding)) {
	var hit []UverbsFacts
	var ports []PortFacts
	for _, u := range f.System.Devices.Uverbs {
		if u.State != state {
			continue
		}
		hit = append(hit, u)
		for _, p := range f.System.Ports {
			if p.Device == u.Device {
				ports = append(ports, p)
			}
		}
	}
	if len(hit) > 0 && len(ports) > 0 && f.System.Devices.NodeDir {
		one := finding(hit)
		one.Severity, one.Subject = Fault, railsOf(ports)
		found(one)
	}
}

func nodes(list []UverbsFacts) string {
	var names []string
	for _, u := range list {
		names = append(names, u.Node)
	}
	return listed(names)
}

func checkUverbsMissing(f *Facts, found func(Finding)) {
	uverbsIn(f, uverbsMissing, func(list []UverbsFacts) Finding {
		return Finding{
			Read: fmt.Sprintf("%s: no such file, though %s is there", nodes(list), "/sys/class/infiniband_verbs/"+filepath.Base(list[0].Node)),
			Why:  "programs open this file to reach the RDMA device; without it libibverbs does not find the device, and they go by TCP",
			Mend: []string{
				"udevadm trigger --action=add --subsystem-match=infiniband_verbs && udevadm settle",
				"# in a container: docker run --device=/dev/infiniband; in Kubernetes ask for the resource of an RDMA device plugin, for example rdma/hca_shared_devices_a: 1",
			},
		}
	}, found)
}

func checkUverbsPermission(f *Facts, found func(Finding)) {
	uverbsIn(f, uverbsDenied, func(list []UverbsFacts) Finding {
		return Finding{
			Read: fmt.Sprintf("open %s: %s (%s)", nodes(list), clean(list[0].Err), clean(list[0].Mode)),
			Why:  "the kernel makes this file for everybody (mode 0666); somebody took that away, and this user's programs cannot reach the RDMA device",
			Mend: []string{
				`echo 'SUBSYSTEM=="infiniband_verbs", MODE="0666"' > /etc/udev/rules.d/90-rdma.rules && udevadm control --reload && udevadm trigger --action=add --subsystem-match=infiniband_verbs`,
				"# or, for one group alone: GROUP=\"rdma\", MODE=\"0660\" in that rule, and usermod -aG rdma USER",
			},
		}
	}, found)
}

func checkUverbsRules(f *Facts, found func(Finding)) {
	uverbsIn(f, uverbsRules, func(list []UverbsFacts) Finding {
		return Finding{
			Read: fmt.Sprintf("open %s: %s, though its permissions allow it (%s)", nodes(list), clean(list[0].Err), clean(list[0].Mode)),
			Why:  "device rules of the control group refuse the device (a container that has only the file, or a service with DevicePolicy), or the device belongs to another network namespace",
			Mend: []string{
				"# a container: docker run --device=/dev/infiniband, which makes file and rule; a volume of /dev/infiniband makes the file alone",
				"# Kubernetes: ask for the resource of an RDMA device plugin, for example rdma/hca_shared_devices_a: 1; a hostPath of /dev/infiniband is not enough",
				"# a service: systemctl edit NAME, add [Service] DeviceAllow=char-infiniband_verbs rw, then systemctl restart NAME",
				"rdma system show  # netns exclusive: rdma dev set DEVICE netns NAME moves the device to the job's namespace",
			},
		}
	}, found)
}

func checkRDMACM(f *Facts, found func(Finding)) {
	d := f.System.Devices
	node := slices.ContainsFunc(d.Uverbs, func(u UverbsFacts) bool { return u.State != uverbsMissing })
	if onlyEFA(f) || !d.Known || !d.NodeDir || d.RDMACM || !node { // where no node is there at all, that is the finding
		return
	}
	found(Finding{
		Severity: Warning, Subject: "this node",
		Read: "/dev/infiniband/rdma_cm: no such file",
		Why:  "programs that connect through librdmacm (UCX with rdmacm, perftest with -R, NVMe over RDMA tools) fail; NCCL does not need it",
		Mend: []string{
			"modprobe rdma_ucm",
			"echo rdma_ucm > /etc/modules-load.d/rdma-cm.conf  # and at every start",
			"# in a container: docker run --device=/dev/infiniband/rdma_cm",
		},
	})
}
