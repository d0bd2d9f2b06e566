// Package rdmadev finds what belongs to an RDMA device outside of the hot path:
// the device nodes that a container needs to use it, and the RDMA port of a
// network interface. It asks github.com/Mellanox/rdmamap and verifies the
// answers, because that library reports neither why it found nothing nor ports,
// and may panic about a device that is going away.
package rdmadev

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/Mellanox/rdmamap"

	"github.com/railscope/railscope/internal/sysfs"
)

// devDir has the device nodes of RDMA.
const devDir = "/dev/infiniband"

// Finder finds device nodes and RDMA devices. The zero value finds nothing. Its
// functions are rdmamap's, which read the running kernel's sysfs and nothing
// else; a test replaces them.
type Finder struct {
	Sysfs       string // where answers are verified
	CharDevices func(device string) []string
	DeviceOf    func(netdev string) (device string, err error)
}

// New returns the finder of this machine; on a captured tree it finds nothing.
func New(root string) Finder {
	if !sysfs.Live(root) {
		return Finder{}
	}
	return Finder{Sysfs: root, CharDevices: rdmamap.GetRdmaCharDevices, DeviceOf: rdmamap.GetRdmaDeviceForNetdevice}
}

// Nodes returns the device nodes that a program needs to use the devices, in
// order: uverbs of each, and rdma_cm. umad and issm are left out: only a subnet
// manager and its diagnostics open them, and need privileges.
func (f Finder) Nodes(devices ...string) []string {
	var nodes []string
	for _, device := range devices {
		for _, node := range f.charDevices(device) {
			if f.belongs(node, device) && !slices.Contains(nodes, node) {
				nodes = append(nodes, node)
			}
		}
	}
	slices.SortFunc(nodes, compare)
	return nodes
}

// Flags are the options by which docker, podman and nerdctl hand nodes to a
// container.
func Flags(nodes []string) string {
	words := make([]string, len(nodes))
	for i, node := range nodes {
		words[i] = "--device=" + node
	}
	return strings.Join(words, " ")
}

// charDevices asks the library, whose panic is no answer.
func (f Finder) charDevices(device string) (nodes []string) {
	defer func() {
		if recover() != nil {
			nodes = nil
		}
	}()
	if f.CharDevices == nil {
		return nil
	}
	return f.CharDevices(device)
}

// belongs reports whether a node is rdma_cm's, or the uverbs node of exactly this
// device.
func (f Finder) belongs(node, device string) bool {
	dir, name := filepath.Split(node)
	if dir != devDir+"/" {
		return false
	}
	if name == "rdma_cm" {
		return true
	}
	owner, err := sysfs.ReadString(f.Sysfs, "class/infiniband_verbs", name, "ibdev")
	return err == nil && owner == device
}

// compare puts uverbs2 before uverbs10, and rdma_cm last.
func compare(a, b string) int {
	last := func(s string) int {
		if strings.HasSuffix(s, "rdma_cm") {
			return 1
		}
		return 0
	}
	if d := last(a) - last(b); d != 0 {
		return d
	}
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// Port returns the RDMA port of a network interface as UCX names it, for example
// mlx5_0:1; false if it has none, or which one is not certain.
func (f Finder) Port(netdev string) (name string, ok bool) {
	defer func() {
		if recover() != nil { // of the library
			name, ok = "", false
		}
	}()
	if f.DeviceOf == nil {
		return "", false
	}
	device, err := f.DeviceOf(netdev)
	if err != nil || device == "" {
		return "", false
	}
	dir := filepath.Join(f.Sysfs, "class/infiniband", device)
	ports, err := sysfs.List(filepath.Join(dir, "ports"))
	if err != nil {
		return "", false
	}
	var own []string
	for _, p := range ports {
		if hasGIDOn(filepath.Join(dir, "ports", p.Name), netdev) {
			own = append(own, p.Name)
		}
	}
	if len(own) == 0 && len(ports) == 1 && sameFunction(dir, filepath.Join(f.Sysfs, "class/net", netdev)) { // IPoIB
		own = []string{ports[0].Name}
	}
	if len(own) != 1 {
		return "", false
	}
	return fmt.Sprintf("%s:%s", device, own[0]), true
}

// hasGIDOn reports whether a GID of the port belongs to the interface.
func hasGIDOn(port, netdev string) bool {
	dir := filepath.Join(port, "gid_attrs/ndevs")
	entries, _ := sysfs.List(dir) // none: no RoCE
	return slices.ContainsFunc(entries, func(e sysfs.Entry) bool {
		name, err := sysfs.ReadString(dir, e.Name)
		return err == nil && name == netdev
	})
}

// sameFunction reports whether an RDMA device and an interface are of one PCI
// function.
func sameFunction(device, netdev string) bool {
	a, errA := filepath.EvalSymlinks(filepath.Join(device, "device"))
	b, errB := filepath.EvalSymlinks(filepath.Join(netdev, "device"))
	return errA == nil && errB == nil && a == b
}
