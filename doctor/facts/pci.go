package facts

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// modules are the kernel modules that make RDMA devices of the functions of a
// network driver (drivers/infiniband/hw).
func modules(driver string) string {
	switch driver {
	case "mlx5_core":
		return "mlx5_ib"
	case "mlx4_core":
		return "mlx4_ib"
	case "bnxt_en":
		return "bnxt_re"
	case "ice", "i40e":
		return "irdma"
	case "qede":
		return "qedr"
	case "cxgb4":
		return "iw_cxgb4"
	}
	return ""
}

// readUptime reads how long the kernel has been up.
func (g *Gatherer) readUptime(r *reader) func(*Facts) {
	seconds, _, _ := strings.Cut(r.text(g.o.Procfs, "uptime"), " ")
	v, _ := strconv.ParseFloat(seconds, 64) // 0: unknown
	return func(f *Facts) { f.Uptime = v }
}

// readGPUs finds the GPUs: PCI display controllers of NVIDIA, with or without a
// driver.
func (g *Gatherer) readGPUs(r *reader) func(*Facts) {
	var gpus []GPU
	dir := filepath.Join(g.o.Sysfs, "bus/pci/devices")
	for _, address := range r.names(dir) {
		class := r.text(dir, address, "class")
		display := strings.HasPrefix(class, "0x0300") || strings.HasPrefix(class, "0x0302")
		if !display || r.text(dir, address, "vendor") != "0x10de" {
			continue
		}
		gpus = append(gpus, GPU{Address: address, NUMANode: r.int(-1, dir, address, "numa_node")})
	}
	return func(f *Facts) { f.GPUs = gpus }
}

// readNUMA reads the distances between NUMA nodes: node/distance has a figure for
// each node that is online, in their order (drivers/base/node.c).
func (g *Gatherer) readNUMA(r *reader) func(*Facts) {
	dir := filepath.Join(g.o.Sysfs, "devices/system/node")
	var ids []int
	for _, name := range r.names(dir) {
		number, found := strings.CutPrefix(name, "node")
		if id, err := strconv.Atoi(number); found && err == nil && len(ids) < maxRails {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	var nodes []NUMANode
	for _, id := range ids {
		words := strings.Fields(r.text(dir, "node"+strconv.Itoa(id), "distance"))
		if len(words) != len(ids) {
			continue // which is which is not known
		}
		n := NUMANode{ID: id}
		for i, word := range words {
			if v, err := strconv.Atoi(word); err == nil {
				n.Distances = append(n.Distances, Distance{ids[i], v})
			}
		}
		nodes = append(nodes, n)
	}
	return func(f *Facts) { f.NUMA = nodes }
}

// readAdapters finds the PCI functions that support RDMA, if there is no rail:
// those of a driver with an RDMA module, and Mellanox's without a driver.
func (g *Gatherer) readAdapters(r *reader) func(*Facts) {
	var list []Adapter
	dir := filepath.Join(g.o.Sysfs, "bus/pci/devices")
	for _, address := range r.names(dir) {
		if !strings.HasPrefix(r.text(dir, address, "class"), "0x02") { // network controllers
			continue
		}
		link := filepath.Join(dir, address, "driver")
		r.at.Store(&link)
		target, _ := os.Readlink(link) // none: no driver
		a := Adapter{Address: address}
		if target != "" {
			a.Driver = filepath.Base(target)
			a.Module = modules(a.Driver)
		} else if r.text(dir, address, "vendor") == "0x15b3" {
			a.Module = "mlx5_core"
		}
		if a.Module != "" {
			list = append(list, a)
		}
	}
	return func(f *Facts) { f.Adapters = list }
}
