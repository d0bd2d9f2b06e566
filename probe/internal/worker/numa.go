package worker

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// nodesDir contains the NUMA nodes of the machine (Documentation/ABI/stable/sysfs-devices-node).
const nodesDir = "/sys/devices/system/node"

// onNode calls fn on a thread that runs on the CPUs of a NUMA node: memory that fn touches first is allocated there,
// and polling does not cross sockets. Without these CPUs, or without permission, fn runs anywhere.
func onNode(dir string, node int, fn func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	if list, err := os.ReadFile(fmt.Sprintf("%s/node%d/cpulist", dir, node)); err == nil &&
		unix.SchedGetaffinity(0, &before) == nil {
		if near := among(string(list), before); near.Count() > 0 && unix.SchedSetaffinity(0, &near) == nil {
			defer func() { _ = unix.SchedSetaffinity(0, &before) }() // the previous affinity is valid
		}
	}
	fn()
}

// among returns the CPUs of a list such as "0-31,64-95" that are in allowed.
func among(list string, allowed unix.CPUSet) (set unix.CPUSet) {
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err := strconv.ParseUint(from, 10, 16)
		last, err2 := strconv.ParseUint(to, 10, 16)
		if err != nil || err2 != nil {
			continue
		}
		for cpu := int(first); cpu <= int(last); cpu++ {
			if allowed.IsSet(cpu) {
				set.Set(cpu)
			}
		}
	}
	return set
}

// mostOf returns the NUMA node of most rails, the lowest of several; -1 if none is known.
func mostOf(nodes []int) int {
	best, count := -1, map[int]int{}
	for _, n := range nodes {
		count[n]++
		if n < 0 {
			continue
		}
		if best < 0 || count[n] > count[best] || count[n] == count[best] && n < best {
			best = n
		}
	}
	return best
}
