// Package trafficclass finds the traffic class and service level that this node's RDMA traffic uses, so that the
// probe measures the same queues of switches and adapters.
package trafficclass

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/proc"
	"github.com/railscope/railscope/internal/rdmanl"
)

// UCXDefault is UCX's traffic class on RoCE v2 if UCX_IB_TRAFFIC_CLASS is not set: DSCP 26 with ECN capable
// transport (uct_ib_iface_config_table in UCX, src/uct/ib/base/ib_iface.c). NCCL's is 0.
const UCXDefault = 106

const (
	held       = time.Hour        // time that a choice outlives the processes on which it is based
	every      = 30 * time.Second // interval of readings
	budget     = 2 * time.Second  // time limit of one reading
	maxPairs   = 1 << 16
	maxProcs   = 256     // limit of processes with queue pairs; those with the most come first
	maxMapping = 4 << 20 // bytes of /proc/PID/maps that are searched for libraries
)

// probeWorker is the name of the probe's own worker process, on this node or of a bench.
const probeWorker = "railscope-probe"

// Choice holds the values for the probe's packets.
type Choice struct {
	TrafficClass uint8  `json:"traffic_class"` // DSCP<<2 and ECN
	ServiceLevel uint8  `json:"service_level"` // InfiniBand's; on RoCE it is the priority of a VLAN
	Source       string `json:"source"`        // origin, for people: "NCCL_IB_TC of python (PID 4711)"
}

// Kernel lists queue pairs; [*rdmanl.Client] implements it.
type Kernel interface {
	Devices() ([]string, error)
	QueuePairs(device string, limits rdmanl.QPLimits, each func(rdmanl.QP)) error
	Close()
}

// Reader chooses the traffic class. Safe for concurrent use.
type Reader struct {
	procfs string
	kernel Kernel // used only in the lane

	lane  lane.Group[reading]
	mu    sync.Mutex // protects all following fields
	last  Choice
	taken time.Time // time of the last reading that found a process; zero: none did
	read  time.Time // time of the last reading
}

// New returns a reader of the processes under procfs.
func New(procfs string, kernel Kernel) *Reader { return &Reader{procfs: procfs, kernel: kernel} }

// Choose returns the values of the processes with the most queue pairs. Without such processes, it returns their
// last values for an hour, and then 0. It takes at most two seconds, and reads at most every 30 s.
func (r *Reader) Choose(ctx context.Context) Choice {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if !r.read.IsZero() && now.Sub(r.read) < every || ctx.Err() != nil {
		return r.last
	}
	r.read = now
	res := r.lane.Run(budget, []string{"processes"}, func(string) reading { return r.inspect(now.Add(budget)) })[0]
	switch found := res.Value; {
	case res.State == lane.Done && found.users > 0:
		r.last, r.taken = found.choice, now
	case !r.taken.IsZero() && now.Sub(r.taken) < held:
	case res.State != lane.Done:
		r.last = Choice{Source: fmt.Sprintf("default: processes cannot be read: %v", res.Err)}
	case found.err != nil:
		r.last = Choice{Source: fmt.Sprintf("default: processes cannot be read: %v", found.err)}
	default:
		r.last = Choice{Source: "default: no process has queue pairs"}
	}
	return r.last
}

type reading struct {
	choice Choice
	users  int   // number of processes on which choice is based
	err    error // reason why processes were not read
}

type user struct{ pid, pairs int }

// inspect reads the values of the processes with queue pairs, and chooses those with the most queue pairs. Equal
// values of several processes add up; the source is the process with the most.
func (r *Reader) inspect(deadline time.Time) (found reading) {
	users, err := r.users()
	if err != nil {
		return reading{err: err}
	}
	type class struct{ tc, sl uint8 }
	pairs, sources := map[class]int{}, map[class]string{}
	for _, u := range users {
		if time.Now().After(deadline) {
			break
		}
		c, err := r.classOf(u.pid)
		if err != nil {
			if !errors.Is(err, os.ErrNotExist) {
				found.err = err
			}
			continue
		}
		found.users++
		key := class{c.TrafficClass, c.ServiceLevel}
		pairs[key] += u.pairs
		sources[key] = cmp.Or(sources[key], c.Source)
	}
	if found.users > 0 {
		best := slices.MaxFunc(slices.Collect(maps.Keys(pairs)), func(a, b class) int {
			return cmp.Or(pairs[a]-pairs[b], int(b.tc)-int(a.tc), int(b.sl)-int(a.sl))
		})
		found.choice = Choice{best.tc, best.sl, sources[best]}
	}
	return found
}

// users returns the processes with queue pairs, those with the most first.
func (r *Reader) users() ([]user, error) {
	defer r.kernel.Close()
	devices, err := r.kernel.Devices()
	if err != nil {
		return nil, err
	}
	threads, hidden := map[uint32]int{}, 0
	for _, device := range devices {
		err := r.kernel.QueuePairs(device, rdmanl.QPLimits{Time: budget / 2, Pairs: maxPairs}, func(qp rdmanl.QP) {
			switch {
			case qp.Kernel || int(qp.PID) == os.Getpid():
			case qp.PID == 0:
				hidden++
			default:
				threads[qp.PID]++
			}
		})
		if err != nil && !errors.Is(err, rdmanl.ErrCut) {
			return nil, fmt.Errorf("device %s: %w", device, err)
		}
	}
	if len(threads) == 0 && hidden > 0 {
		return nil, fmt.Errorf("%d queue pairs belong to processes of another PID namespace, or that ended", hidden)
	}
	byProcess := map[int]int{}
	for tid, pairs := range threads {
		pid, err := proc.Process(r.procfs, int(tid))
		if err == nil {
			byProcess[pid] += pairs
		}
	}
	var list []user
	for pid, pairs := range byProcess {
		if stat, _ := proc.ReadStat(r.procfs, pid); stat.Comm != probeWorker {
			list = append(list, user{pid, pairs})
		}
	}
	slices.SortFunc(list, func(a, b user) int { return cmp.Or(b.pairs-a.pairs, a.pid-b.pid) })
	return list[:min(len(list), maxProcs)], nil
}

func (r *Reader) classOf(pid int) (Choice, error) {
	variables := []string{"NCCL_IB_TC", "NCCL_IB_SL", "UCX_IB_TRAFFIC_CLASS", "UCX_IB_SL"}
	vars, _, err := proc.Environ(r.procfs, pid, func(name string) bool { return slices.Contains(variables, name) })
	if err != nil {
		return Choice{}, err
	}
	stat, _ := proc.ReadStat(r.procfs, pid) // only for messages
	of := func(what string) string { return fmt.Sprintf("%s of %s (PID %d)", what, stat.Comm, pid) }
	for _, family := range []struct{ tc, sl string }{{"NCCL_IB_TC", "NCCL_IB_SL"},
		{"UCX_IB_TRAFFIC_CLASS", "UCX_IB_SL"}} {
		tc, hasTC := number(vars[family.tc], 255)
		sl, hasSL := number(vars[family.sl], 15)
		switch {
		case hasTC:
			return Choice{tc, sl, of(family.tc)}, nil
		case hasSL && family.tc == "UCX_IB_TRAFFIC_CLASS":
			return Choice{UCXDefault, sl, of(family.sl)}, nil
		case hasSL:
			return Choice{0, sl, of(family.sl)}, nil
		}
	}
	if ucx, nccl := r.libraries(pid); ucx && !nccl {
		return Choice{TrafficClass: UCXDefault, Source: of("UCX's default")}, nil
	}
	return Choice{Source: of("default")}, nil
}

// number parses a variable's value. Like NCCL and UCX, it rejects values out of range. UCX's "auto" is not a value.
func number(s string, most uint64) (uint8, bool) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 0, 8)
	return uint8(n), err == nil && n <= most
}

// libraries reports whether a process has mapped UCX's InfiniBand transport, and NCCL. A process with both, such as
// PyTorch beside MPI, uses NCCL for its tensors.
func (r *Reader) libraries(pid int) (ucx, nccl bool) {
	f, err := os.Open(filepath.Join(r.procfs, strconv.Itoa(pid), "maps"))
	if err != nil {
		return false, false
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for read := 0; lines.Scan() && read < maxMapping; read += len(lines.Bytes()) {
		ucx = ucx || strings.Contains(lines.Text(), "/libuct_ib")
		nccl = nccl || strings.Contains(lines.Text(), "/libnccl")
	}
	return ucx, nccl
}
