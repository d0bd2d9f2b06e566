// Package rdmadev finds, off the hot path, the device nodes that a container needs to use an RDMA device, and the
// RDMA port of a network interface. It verifies the results of github.com/Mellanox/rdmamap, which returns neither
// ports nor a reason if it finds nothing, and may panic on a device that is being removed.
package rdmadev

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/Mellanox/rdmamap"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// Finder finds device nodes and RDMA devices with rdmamap, which reads the running kernel's sysfs; the zero value
// finds nothing.
type Finder struct {
	Sysfs       string // used to verify results
	CharDevices func(device string) []string
	DeviceOf    func(netdev string) (device string, err error)
}

// New returns the finder of this machine. For a captured tree it finds nothing.
func New(root string) Finder {
	if !sysfs.Live(root) {
		return Finder{}
	}
	return Finder{Sysfs: root, CharDevices: rdmamap.GetRdmaCharDevices, DeviceOf: rdmamap.GetRdmaDeviceForNetdevice}
}

// Nodes returns the device nodes that a program needs to use the devices, in order: uverbs of each, and rdma_cm. It
// omits umad and issm, which only privileged subnet managers and diagnostics open.
func (f Finder) Nodes(devices ...string) []string {
	if f.CharDevices == nil {
		return nil
	}
	var nodes []string
	for _, device := range devices {
		for _, node := range safely(func() []string { return f.CharDevices(device) }) {
			if f.belongs(node, device) {
				nodes = append(nodes, node)
			}
		}
	}
	return Sort(nodes)
}

// Sort sorts device nodes, with rdma_cm last, and drops duplicates.
func Sort(nodes []string) []string {
	slices.SortFunc(nodes, func(a, b string) int { // uverbs2 before uverbs10
		isCM := func(node string) int { return strings.Count(node, "rdma_cm") }
		return cmp.Or(isCM(a)-isCM(b), len(a)-len(b), strings.Compare(a, b))
	})
	return slices.Compact(nodes)
}

// Flags returns the options of docker, podman and nerdctl that pass nodes to a container.
func Flags(nodes []string) string {
	words := make([]string, len(nodes))
	for i, node := range nodes {
		words[i] = "--device=" + node
	}
	return strings.Join(words, " ")
}

// safely calls the library, which may panic: the result is then zero.
func safely[T any](call func() T) (result T) {
	defer func() { _ = recover() }()
	return call()
}

// belongs reports whether a node is rdma_cm's, or the uverbs node of exactly this device.
func (f Finder) belongs(node, device string) bool {
	dir, name := filepath.Split(node)
	owner, err := sysfs.ReadString(f.Sysfs, "class/infiniband_verbs", name, "ibdev")
	return dir == "/dev/infiniband/" && (name == "rdma_cm" || err == nil && owner == device)
}

// Port returns an interface's RDMA port in UCX's form, such as mlx5_0:1; false if it has none or it is uncertain.
func (f Finder) Port(netdev string) (name string, ok bool) {
	if f.DeviceOf == nil {
		return "", false
	}
	var err error
	device := safely(func() (device string) { device, err = f.DeviceOf(netdev); return device })
	if device == "" || err != nil {
		return "", false
	}
	dir := filepath.Join(f.Sysfs, "class/infiniband", device)
	ports, _ := sysfs.List(filepath.Join(dir, "ports")) // none: no port
	own := slices.DeleteFunc(slices.Clone(ports), func(p sysfs.Entry) bool {
		return !hasGIDOn(filepath.Join(dir, "ports", p.Name), netdev)
	})
	if len(own) == 0 && sameFunction(dir, filepath.Join(f.Sysfs, "class/net", netdev)) { // IPoIB
		own = ports
	}
	if len(own) != 1 {
		return "", false
	}
	return fmt.Sprintf("%s:%s", device, own[0].Name), true
}

func hasGIDOn(port, netdev string) bool {
	dir := filepath.Join(port, "gid_attrs/ndevs")
	entries, _ := sysfs.List(dir) // none: not RoCE
	return slices.ContainsFunc(entries, func(e sysfs.Entry) bool {
		name, err := sysfs.ReadString(dir, e.Name)
		return err == nil && name == netdev
	})
}

func sameFunction(device, netdev string) bool {
	function := rail.Function(filepath.Join(device, "device"))
	return function != "" && function == rail.Function(filepath.Join(netdev, "device"))
}
