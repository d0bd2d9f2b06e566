package facts

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func (g *Gatherer) readUptime(r *reader) func(*Facts) {
	seconds, _, _ := strings.Cut(r.text(g.o.Procfs, "uptime"), " ")
	v, _ := strconv.ParseFloat(seconds, 64) // 0: unknown
	return func(f *Facts) { f.Uptime = v }
}

// readGPUs finds the GPUs: PCI display controllers of NVIDIA, with or without a driver.
func (g *Gatherer) readGPUs(r *reader) func(*Facts) {
	var gpus []GPU
	dir := filepath.Join(g.o.Sysfs, "bus/pci/devices")
	for _, address := range r.names(dir) {
		class := r.text(dir, address, "class")
		display := strings.HasPrefix(class, "0x0300") || strings.HasPrefix(class, "0x0302")
		if !display || r.text(dir, address, "vendor") != "0x10de" {
			continue
		}
		node, err := strconv.Atoi(r.text(dir, address, "numa_node"))
		if err != nil {
			node = -1
		}
		gpus = append(gpus, GPU{address, node})
	}
	return func(f *Facts) { f.GPUs = gpus }
}

// readNUMA reads the distances between NUMA nodes; the files have one for each online node (drivers/base/node.c).
func (g *Gatherer) readNUMA(r *reader) func(*Facts) {
	dir := filepath.Join(g.o.Sysfs, "devices/system/node")
	var ids []int
	for _, name := range r.names(dir) {
		number, found := strings.CutPrefix(name, "node")
		if id, err := strconv.Atoi(number); found && err == nil && len(ids) < 256 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	var list []Distance
	for _, id := range ids {
		words := strings.Fields(r.text(dir, "node"+strconv.Itoa(id), "distance"))
		if len(words) != len(ids) {
			continue // it is not known which is which
		}
		for i, word := range words {
			if v, err := strconv.Atoi(word); err == nil {
				list = append(list, Distance{id, ids[i], v})
			}
		}
	}
	return func(f *Facts) { f.NUMA = list }
}

// readAdapters finds PCI functions that support RDMA: of a driver with an RDMA module, or Mellanox's without one.
func (g *Gatherer) readAdapters(r *reader) func(*Facts) {
	var list []Adapter
	dir := filepath.Join(g.o.Sysfs, "bus/pci/devices")
	for _, address := range r.names(dir) {
		if !strings.HasPrefix(r.text(dir, address, "class"), "0x02") { // network controllers
			continue
		}
		a := Adapter{Address: address}
		if target, _ := os.Readlink(r.at(dir, address, "driver")); target != "" {
			a.Driver = filepath.Base(target)
			a.Module = drivers()[a.Driver].module
		} else if r.text(dir, address, "vendor") == "0x15b3" {
			a.Module = "mlx5_core"
		}
		if a.Module != "" {
			list = append(list, a)
		}
	}
	return func(f *Facts) { f.Adapters = list }
}
