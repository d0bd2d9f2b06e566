package amdgpu

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/sysfs"
)

const (
	kfdNodes     = "class/kfd/kfd/topology/nodes"
	kfdProcesses = "class/kfd/kfd/proc"
)

// Node is a GPU or a partition of one, as amdkfd presents it to ROCm.
type Node struct {
	ID       uint64 // gpu_id
	Location string // PCI address without the function
	Function uint64 // bits of the function: the partition, or in some guests the function
	SIMDs    uint64 // 0: a processor
}

// Nodes reads the nodes of amdkfd; none without amdkfd. The error is about the first node that could not be read; in a
// container, these are the nodes whose devices it may not open (EPERM).
func (f *Finder) Nodes() (list []Node, err error) {
	dir := filepath.Join(f.sysfs, kfdNodes)
	entries, err := sysfs.List(dir)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	for _, e := range entries {
		n, oneErr := readNode(filepath.Join(dir, e.Name))
		switch {
		case errors.Is(oneErr, unix.ENOENT): // the partitions changed
		case oneErr != nil && err == nil:
			err = oneErr
		case oneErr == nil && n.SIMDs > 0:
			list = append(list, n)
		}
	}
	return list, err
}

func readNode(dir string) (Node, error) {
	text, err := sysfs.ReadString(dir, "properties")
	if err != nil {
		return Node{}, err
	}
	n, err := ParseNode(text)
	if err == nil && n.SIMDs > 0 {
		n.ID, err = sysfs.ReadUint(dir, "gpu_id")
	}
	return n, sysfs.At(filepath.Join(dir, "properties"), err)
}

// ParseNode parses the properties of a node: lines of a name and a number (node_show in amdkfd/kfd_topology.c). Its ID
// is in another file.
func ParseNode(text string) (n Node, err error) {
	var location, domain uint64
	fields := map[string]*uint64{"simd_count": &n.SIMDs, "location_id": &location, "domain": &domain}
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(strings.TrimSpace(line), " ")
		field := fields[name]
		if field == nil {
			continue
		}
		*field, err = sysfs.ParseUint([]byte(value))
		if !found || err != nil {
			return Node{}, sysfs.Invalid("", []byte(line), "not a property")
		}
	}
	if location >= 1<<16 {
		return Node{}, sysfs.Invalid("", fmt.Append(nil, location), "not a location on PCI")
	}
	// location_id is PCI_DEVID, with the partition in the bits of the function (kfd_topology_add_device).
	n.Location = fmt.Sprintf("%04x:%02x:%02x", domain, location>>8, location>>3&0x1f)
	n.Function = location & 7
	return n, nil
}

// IDs returns the IDs of the nodes of the GPU: one, or one for each partition. Of GPUs that are functions of one slot,
// as in some guests, each has the node of its function.
func (g GPU) IDs(nodes []Node) (ids []uint64) {
	location, function, _ := strings.Cut(g.PCIAddress, ".")
	for _, n := range nodes {
		if n.Location == location && (!g.sharesSlot || strconv.FormatUint(n.Function, 16) == function) {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// Process is the memory that a process uses on a GPU.
type Process struct {
	PID    uint32 // in the host's namespace
	Memory uint64 // bytes
}

// Processes returns the processes that allocated memory through amdkfd on the nodes with these IDs. A process has a
// file for every GPU that it may use, with 0 for those that it does not use (kfd_procfs_show in amdkfd/kfd_process.c).
func (f *Finder) Processes(ids []uint64) (list []Process, err error) {
	dir := filepath.Join(f.sysfs, kfdProcesses)
	entries, err := sysfs.List(dir)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	for _, e := range entries {
		pid, parseErr := strconv.ParseUint(e.Name, 10, 32)
		if parseErr != nil {
			continue
		}
		p := Process{PID: uint32(pid)}
		for _, id := range ids {
			v, oneErr := sysfs.ReadUint(dir, e.Name, "vram_"+strconv.FormatUint(id, 10))
			if oneErr != nil && sysfs.Reason(oneErr) != sysfs.ReasonVanished {
				err = oneErr
			}
			p.Memory += v
		}
		if p.Memory > 0 {
			list = append(list, p)
		}
	}
	return list, err
}
