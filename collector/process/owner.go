package process

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/kubelet"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/proc"
	"github.com/railscope/railscope/internal/sysfs"
	labeltext "github.com/railscope/railscope/internal/text"
)

type holder struct {
	proc.Stat
	cgroup         proc.Cgroup
	group          string // the job that it is part of: one pod, container, Slurm job or tree of processes
	pod, container string // label values
}

// ownerCache finds owners, and keeps the data that rarely changes. Only the goroutine in its lane uses it.
type ownerCache struct {
	procfs string
	kept   map[int]*keptTask
}

// keptTask holds what was read about a task while its directory had this inode. Another task that reuses the PID
// has another inode.
type keptTask struct {
	proc.Stat
	inode   uint64
	read    time.Time
	process int          // process to which the task belongs; 0: not read yet
	cgroup  *proc.Cgroup // nil: not read yet
}

const (
	// age after which a task is read again: most tasks are moved and renamed soon after they start
	fresh   = 30 * time.Second
	maxKept = 4096 // tasks
	maxTree = 32   // limit of parents that are followed
)

type ownersFound struct {
	holders map[uint32]*holder // keyed by thread or process; ended ones are missing, unidentified ones are nil
	err     error
}

// find identifies owners until deadline, in a lane. A task that started after its time in wanted has reused the ID.
func (b *ownerCache) find(wanted map[uint32]uint64, deadline time.Time) ownersFound {
	out := ownersFound{holders: map[uint32]*holder{}}
	byPID := map[int]*holder{}
	late, hidden := 0, 0
	for pid, before := range wanted {
		if late > 0 || time.Now().After(deadline) {
			out.holders[pid] = nil
			late++
			continue
		}
		o, err := b.holder(int(pid), before, byPID)
		switch {
		case err == nil && o == nil: // the task has ended
		case err == nil:
			out.holders[pid] = o
		case sysfs.Reason(err) != sysfs.ReasonVanished:
			out.holders[pid] = nil
			out.err = cmp.Or(out.err, error(collector.NewFault("", err)))
		case proc.Hidden(b.procfs, int(pid)):
			out.holders[pid] = nil
			hidden++
		}
	}
	switch {
	case out.err != nil:
	case late > 0:
		out.err = &collector.Fault{Reason: sysfs.ReasonTimeout,
			Err: fmt.Errorf("%d of %d processes were not identified in time", late, len(wanted))}
	case hidden > 0:
		out.err = &collector.Fault{Reason: sysfs.ReasonPermission,
			Err: fmt.Errorf("%d processes are hidden: procfs is mounted with hidepid; start railscope as root, or in "+
				"the group of the mount's gid option", hidden)}
	}
	if len(b.kept) > maxKept {
		clear(b.kept)
	}
	return out
}

// task reads /proc/PID/stat, which costs 10 times as much as checking that the process is still the same.
func (b *ownerCache) task(pid int) (*keptTask, error) {
	inode, err := sysfs.Inode(filepath.Join(b.procfs, strconv.Itoa(pid)))
	if err != nil {
		return nil, err
	}
	last := b.kept[pid]
	if last != nil && last.inode == inode && time.Since(last.read) < fresh {
		return last, nil
	}
	st, err := proc.ReadStat(b.procfs, pid)
	if err != nil {
		return nil, err
	}
	t := &keptTask{Stat: st, inode: inode, read: time.Now()}
	if last != nil && last.Instance == st.Instance {
		t.process = last.process
	}
	b.kept[pid] = t
	return t, nil
}

// holder returns the process of a thread, or nil if another thread has its ID now. byPID are the processes found so
// far.
func (b *ownerCache) holder(tid int, before uint64, byPID map[int]*holder) (*holder, error) {
	thread, err := b.task(tid)
	if err != nil {
		return nil, err
	}
	if thread.Start > before {
		return nil, nil
	}
	if thread.process == 0 {
		pid, err := proc.Process(b.procfs, tid)
		if err != nil {
			return nil, err
		}
		thread.process = pid
	}
	if o := byPID[thread.process]; o != nil {
		return o, nil
	}
	t, err := b.task(thread.process)
	if err != nil {
		return nil, err
	}
	cgroup, err := b.cgroup(t)
	if err != nil {
		return nil, err
	}
	o := &holder{Stat: t.Stat, cgroup: cgroup}
	o.Comm = labeltext.Label(o.Comm) // cleaned before queue pairs are summed: equal labels must be one series
	switch {
	case cgroup.Pod != "":
		o.group = "pod " + cgroup.Pod
	case cgroup.Container != "":
		o.group = "container " + cgroup.Container
	case cgroup.Slurm != "":
		o.group = "slurm " + cgroup.Slurm
	default:
		o.group = "tree " + strconv.Itoa(b.root(t, cgroup.Path))
	}
	byPID[thread.process] = o
	return o, nil
}

func (b *ownerCache) cgroup(t *keptTask) (proc.Cgroup, error) {
	if t.cgroup == nil {
		c, err := proc.ReadCgroup(b.procfs, t.PID)
		if err != nil {
			return c, err
		}
		t.cgroup = &c
	}
	return *t.cgroup, nil
}

// root returns the process that started a job on the host itself: the furthest ancestor in the same cgroup, below
// init and below an interactive shell, which starts unrelated jobs.
func (b *ownerCache) root(t *keptTask, path string) int {
	for range maxTree {
		if t.Parent <= 1 {
			break
		}
		parent, err := b.task(t.Parent)
		if err != nil || parent.PID == parent.Session && parent.TTY {
			break
		}
		if c, err := b.cgroup(parent); err != nil || c.Path != path {
			break
		}
		t = parent
	}
	return t.PID
}

// namesFresh is the minimum time between two reads of the names of pods.
const namesFresh = 10 * time.Second

// podNames finds the names of pods and containers. A pod without a known name has its UID, a container the
// beginning of its ID.
type podNames struct {
	rootfs string
	lanes  lane.Group[podsKnown]
	last   podsKnown
	read   time.Time
}

type podsKnown struct {
	kubelet.Names
	err error // reason why not all logs could be read
}

// known returns the names. If an owner has none, the names are read first, within budget.
func (n *podNames) known(budget time.Duration, holders map[uint32]*holder) (podsKnown, error) {
	if !n.last.complete(holders) && time.Since(n.read) >= namesFresh {
		res := n.lanes.Run(budget, []string{"kubelet"}, func(string) podsKnown {
			names, err := kubelet.ReadNames(n.rootfs)
			return podsKnown{names, err}
		})[0]
		if res.State != lane.Done {
			return n.last, collector.LaneFault("kubelet", res.State, res.Err)
		}
		n.last, n.read = res.Value, time.Now()
	}
	if n.last.err == nil || n.last.complete(holders) { // the failed logs are not needed
		return n.last, nil
	}
	return n.last, unexpected("kubelet", n.last.err)
}

func (k podsKnown) complete(holders map[uint32]*holder) bool {
	for _, o := range holders {
		if o != nil && o.cgroup.Pod != "" && k.Containers[o.cgroup.Container].Pod == "" {
			return false
		}
	}
	return true
}

func (k podsKnown) label(owners map[uint32]*holder) {
	for _, o := range owners {
		if o == nil {
			continue
		}
		c := o.cgroup
		name, known := k.Containers[c.Container]
		if !known {
			name = k.Pods[c.Pod]
		}
		o.pod, o.container = c.Pod, labeltext.Label(name.Container)
		if c.Pod != "" && name.Pod != "" {
			o.pod = labeltext.Label(name.Namespace) + "/" + labeltext.Label(name.Pod)
		}
		switch {
		case o.container != "":
		case c.Container != "":
			o.container = c.Container[:12]
		case c.Slurm != "":
			o.container = "slurm-" + c.Slurm
		}
	}
}
