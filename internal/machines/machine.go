package machines

import (
	"fmt"
	"os"
	"slices"
)

// Machine is one machine of the zoo.
type Machine struct {
	Name   string // lower-case, unique
	Source string // public report, driver source or documentation that it is based on
	About  string // description in one line
	Build  func(*Tree)
	Truth  Truth
}

// Truth holds the facts about a machine. They are written from the source, before railscope runs on the machine.
type Truth struct {
	// Rails are lines "device/port interface role capacity counter distance": capacity in Gb/s, counter for
	// received bytes, distance to the nearest GPU; "-" for none. Unused ports have "unused" as their capacity.
	Rails []string
	// LeftOut are lines "device/port reason" of ports that are not rails.
	LeftOut []string
	// Findings are lines "severity check subject" of every finding above info; a healthy machine has none.
	Findings []string
}

// Healthy reports whether the machine has no fault.
func (m Machine) Healthy() bool { return len(m.Truth.Findings) == 0 }

// All returns the zoo, sorted by name.
func All() []Machine {
	list := slices.Concat(mellanox(), guests(), sparks(), vendors(), bare())
	slices.SortFunc(list, func(a, b Machine) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return list
}

// each returns one line for each number from 0 to n-1, the format's first argument.
func each(n int, format string) (lines []string) {
	for i := range n {
		lines = append(lines, fmt.Sprintf(format, i))
	}
	return lines
}

// Kernel answers in place of a live kernel, for machines that need it.
type Kernel struct{ tree *Tree }

// Kernel returns the machine's RDMA netlink answers; nil if it has none, so that the tree is a capture.
func (t *Tree) Kernel() *Kernel {
	if len(t.answers) == 0 && len(t.smi) == 0 {
		return nil
	}
	return &Kernel{t}
}

// PortNetdev answers RDMA_NLDEV_CMD_PORT_GET.
func (k *Kernel) PortNetdev(device string, port int) (string, error) {
	if netdev := k.tree.answers[fmt.Sprintf("%s/%d", device, port)]; netdev != "" {
		return netdev, nil
	}
	return "", os.ErrNotExist
}

// Captured marks the answers as part of a captured tree, so that the finder uses them.
func (k *Kernel) Captured() {}

// SMI answers with the device type of RDMA_NLDEV_CMD_GET.
func (k *Kernel) SMI(device string) (bool, error) { return k.tree.smi[device], nil }
