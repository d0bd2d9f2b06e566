package facts

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// readDevices does what a program does first: it opens the device of each rail.
func (g *Gatherer) readDevices(r *reader, rails []rail.Rail) func(*Facts) {
	class := filepath.Join(g.o.Sysfs, "class/infiniband_verbs")
	entries, err := sysfs.List(class)
	d := Devices{Class: err == nil, Known: err == nil || g.kernel.Live, NodeDir: isDir(g.own("dev")),
		RDMACM: exists(g.own("dev/infiniband/rdma_cm"))}
	if err != nil && !absent(err) {
		d.Known = false
		r.say("RDMA devices: %v; mount sysfs", err)
	}
	var ours []string
	for _, one := range rails[:min(len(rails), maxPorts)] {
		if !slices.Contains(ours, one.Device) {
			ours = append(ours, one.Device)
		}
	}
	d.Nodes = g.kernel.RDMA.Nodes(ours...)
	slices.SortFunc(entries, func(a, b sysfs.Entry) int { return strings.Compare(a.Name, b.Name) }) // the kernel does not
	for _, e := range entries {
		if !strings.HasPrefix(e.Name, "uverbs") {
			continue
		}
		device, err := sysfs.ReadString(class, e.Name, "ibdev")
		if err != nil && !absent(err) {
			r.say("RDMA devices: %v; see dmesg", err)
		}
		if err != nil || !slices.Contains(ours, device) {
			continue
		}
		u := g.openUverbs(device, e.Name)
		if u.State == UverbsOther {
			r.say("%s of %s: %s; is the device being reset? see dmesg", u.Node, device, u.Err)
		}
		d.Uverbs = append(d.Uverbs, u)
	}
	slices.SortFunc(d.Uverbs, func(a, b Uverbs) int { return strings.Compare(a.Device, b.Device) })
	return func(f *Facts) { f.Devices = d }
}

func (g *Gatherer) openUverbs(device, name string) Uverbs {
	u := Uverbs{Device: device, Node: "/dev/infiniband/" + name, State: UverbsGood}
	path := g.own(u.Node)
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		u.State, u.Err = UverbsOther, err.Error()
		if errors.Is(err, unix.ENOENT) {
			u.State = UverbsMissing
		}
		return u
	}
	u.Mode = fmt.Sprintf("mode %04o, owner %d, group %d", st.Mode&0o7777, st.Uid, st.Gid)
	if g.kernel.OpenDevice == nil {
		return u
	}
	err := g.kernel.OpenDevice(path)
	switch {
	case err == nil:
		return u
	case errors.Is(err, unix.EACCES):
		u.State = UverbsDenied
	case errors.Is(err, unix.EPERM):
		u.State = UverbsRules
	default:
		u.State = UverbsOther
	}
	u.Err = err.Error()
	return u
}
