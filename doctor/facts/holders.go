package facts

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/internal/proc"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/sysfs"
)

const (
	maxHolders = 256
	maxPairs   = 1 << 16 // per device
	maxCPUs    = 1 << 14 // CONFIG_NR_CPUS is at most 8192
)

// readHolders reads which processes have connected queue pairs on the rails, and where they may run. In a PID namespace
// other than the host's, the kernel does not report the owner of a queue pair.
func (g *Gatherer) readHolders(rails []rail.Rail) work {
	if g.kernel.QueuePairs == nil {
		return nil
	}
	return func(r *reader) func(*Facts) {
		threads := map[int][]string{} // thread → rails
		for _, v := range rails[:min(len(rails), maxPorts)] {
			r.at("queue pairs of " + v.Device)
			err := g.kernel.QueuePairs(v.Device, rdmanl.QPLimits{Time: g.o.Budget / 4, Pairs: maxPairs},
				func(qp rdmanl.QP) {
					if tid := int(qp.PID); tid != 0 && !qp.Kernel && qp.State == rdmanl.RTS && int(qp.Port) == v.Port &&
						!slices.Contains(threads[tid], v.Name) {
						threads[tid] = append(threads[tid], v.Name)
					}
				})
			if err != nil && !errors.Is(err, rdmanl.ErrCut) {
				r.say("queue pairs of %s: %v; see dmesg", v, err)
			}
		}
		if len(threads) == 0 {
			return nil
		}
		holders, nodes := map[int]*Holder{}, g.nodeOfCPU(r)
		for tid, names := range threads {
			pid, err := proc.Process(g.o.Procfs, tid)
			if err != nil || pid == os.Getpid() {
				continue // the process has exited
			}
			h := holders[pid]
			if h == nil && len(holders) < maxHolders {
				h = g.holder(pid, nodes)
				holders[pid] = h
			}
			for _, name := range names {
				if h != nil && !slices.Contains(h.Rails, name) {
					h.Rails = append(h.Rails, name)
				}
			}
		}
		return func(f *Facts) { f.Jobs.Holders = arrangeHolders(holders) }
	}
}

func arrangeHolders(byPID map[int]*Holder) (list []Holder) {
	for _, h := range byPID {
		slices.SortFunc(h.Rails, rail.NaturalCompare)
		list = append(list, *h)
	}
	slices.SortFunc(list, func(a, b Holder) int { return a.PID - b.PID })
	return list
}

// holder reads where a process may run. Nodes is empty if unknown.
func (g *Gatherer) holder(pid int, nodes map[uint64]int) *Holder {
	h := &Holder{Process: Process{PID: pid}}
	comm, _ := sysfs.ReadString(g.o.Procfs, strconv.Itoa(pid), "comm")
	h.Comm = clean(comm)
	cpus, _ := proc.AllowedCPUs(g.o.Procfs, pid)
	for _, cpu := range cpus[:min(len(cpus), maxCPUs)] {
		if node, known := nodes[cpu]; known && !slices.Contains(h.Nodes, node) {
			h.Nodes = append(h.Nodes, node)
		}
	}
	slices.Sort(h.Nodes)
	return h
}

// nodeOfCPU reads the NUMA node of each processor (cpulist in Documentation/ABI/stable/sysfs-devices-node).
func (g *Gatherer) nodeOfCPU(r *reader) map[uint64]int {
	of := map[uint64]int{}
	dir := filepath.Join(g.o.Sysfs, "devices/system/node")
	for _, name := range r.names(dir) {
		number, found := strings.CutPrefix(name, "node")
		node, err := strconv.Atoi(number)
		if !found || err != nil {
			continue
		}
		for part := range strings.SplitSeq(r.text(dir, name, "cpulist"), ",") {
			first, last, isRange := strings.Cut(part, "-")
			from, err := strconv.ParseUint(first, 10, 16)
			to, err2 := from, error(nil)
			if isRange {
				to, err2 = strconv.ParseUint(last, 10, 16)
			}
			if err != nil || err2 != nil {
				continue // a node without processors has an empty list
			}
			for cpu := from; cpu <= to; cpu++ {
				of[cpu] = node
			}
		}
	}
	return of
}
