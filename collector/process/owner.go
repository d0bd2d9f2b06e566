package process

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/proc"
	"github.com/railscope/railscope/internal/sysfs"
	labeltext "github.com/railscope/railscope/internal/text"
)

// holder is a process that has queue pairs or GPU memory, and its identity.
type holder struct {
	proc.Stat
	cgroup proc.Cgroup
	group  string // the job that it is part of: one pod, container, Slurm job or tree of processes
}

// ownerQuery is a thread or process whose owner is wanted.
type ownerQuery struct {
	pid    uint32
	before uint64 // ticks: a process that started later is another one under the same pid
}

// ownerCache finds owners, and keeps what does not change about them. It belongs
// to the goroutine in its lane.
type ownerCache struct {
	procfs  string
	threads map[proc.Instance]int // the process of a thread
	cgroups map[proc.Instance]keptCgroup
	kept    map[int]keptStat
}

// keptStat is /proc/PID/stat as read when that directory had this inode; another
// process under the PID has another one.
type keptStat struct {
	proc.Stat
	inode uint64
	read  time.Time
}

type keptCgroup struct {
	proc.Cgroup
	read time.Time
}

// fresh is how long a cgroup and a name are believed: processes are moved and
// renamed soon after they start, if at all.
const fresh = 30 * time.Second

// maxTree bounds how many parents are followed.
const maxTree = 32

// ownersFound is the result of one lookup.
type ownersFound struct {
	holders map[uint32]*holder // by thread or process; those that have ended are not in it
	unseen  map[uint32]bool    // those that exist, or may, and could not be identified
	err     error
}

// find identifies the owners, until deadline. It runs in a lane of its own.
func (b *ownerCache) find(wanted []ownerQuery, deadline time.Time) ownersFound {
	l := ownerLookup{ownerCache: b, stats: map[int]statResult{}, byPID: map[int]*holder{}}
	out := ownersFound{holders: map[uint32]*holder{}, unseen: map[uint32]bool{}}
	late, hidden := 0, 0
	for _, w := range wanted {
		if late > 0 || time.Now().After(deadline) {
			out.unseen[w.pid] = true
			late++
			continue
		}
		o, err := l.holder(w)
		switch {
		case err == nil:
			out.holders[w.pid] = o
		case sysfs.Reason(err) != sysfs.ReasonVanished:
			out.unseen[w.pid] = true
			out.err = cmp.Or(out.err, error(collector.NewFault("", err)))
		case !errors.Is(err, errReused) && proc.Hidden(b.procfs, int(w.pid)):
			out.unseen[w.pid] = true
			hidden++
		}
	}
	switch {
	case out.err != nil:
	case late > 0:
		out.err = &collector.Fault{Reason: sysfs.ReasonTimeout,
			Err: fmt.Errorf("%d of %d processes were not identified "+
				"in time", late, len(wanted))}
	case hidden > 0:
		out.err = &collector.Fault{Reason: sysfs.ReasonPermission,
			Err: fmt.Errorf("%d processes are hidden: procfs is "+
				"mounted with hidepid; start railscope as root, or in the group of the mount's gid option", hidden)}
	}
	b.forget(l.byPID)
	return out
}

// forget drops what is kept of processes that are not wanted any more.
func (b *ownerCache) forget(now map[int]*holder) {
	const most = 4096
	if len(b.threads) > most {
		clear(b.threads)
	}
	if len(b.kept) > most {
		clear(b.kept)
	}
	for l := range b.cgroups {
		if o := now[l.PID]; (o == nil || o.Start != l.Start) && len(b.cgroups) > most {
			delete(b.cgroups, l)
		}
	}
}

// ownerLookup is one lookup, in which every file is read once.
type ownerLookup struct {
	*ownerCache
	stats map[int]statResult
	byPID map[int]*holder
}

type statResult struct {
	proc.Stat
	err error
}

func (l *ownerLookup) stat(pid int) (proc.Stat, error) {
	r, known := l.stats[pid]
	if !known {
		r.Stat, r.err = l.ownerCache.stat(pid)
		l.stats[pid] = r
	}
	return r.Stat, r.err
}

// stat reads /proc/PID/stat, which costs ten times as much as asking whether the
// process is still the same.
func (b *ownerCache) stat(pid int) (proc.Stat, error) {
	inode, err := sysfs.Inode(filepath.Join(b.procfs, strconv.Itoa(pid)))
	if err != nil {
		return proc.Stat{}, err
	}
	if kept, known := b.kept[pid]; known && kept.inode == inode && time.Since(kept.read) < fresh {
		return kept.Stat, nil
	}
	st, err := proc.ReadStat(b.procfs, pid)
	if err == nil {
		b.kept[pid] = keptStat{st, inode, time.Now()}
	}
	return st, err
}

// errReused is a pid that is another process's by now.
var errReused = &sysfs.Error{Reason: sysfs.ReasonVanished, Err: errors.New("another process has this PID now")}

// holder finds the process that a thread belongs to.
func (l *ownerLookup) holder(w ownerQuery) (*holder, error) {
	st, err := l.stat(int(w.pid))
	if err != nil {
		return nil, err
	}
	if st.Start > w.before {
		return nil, errReused
	}
	key := st.Instance
	pid, known := l.threads[key]
	if !known {
		if pid, err = proc.Process(l.procfs, int(w.pid)); err != nil {
			return nil, err
		}
		l.threads[key] = pid
	}
	return l.process(pid)
}

func (l *ownerLookup) process(pid int) (*holder, error) {
	if o := l.byPID[pid]; o != nil {
		return o, nil
	}
	st, err := l.stat(pid)
	if err != nil {
		return nil, err
	}
	cgroup, err := l.cgroup(st)
	if err != nil {
		return nil, err
	}
	st.Comm = labeltext.Label(st.Comm) // before queue pairs are added up: alike names are one series
	o := &holder{Stat: st, cgroup: cgroup}
	switch {
	case cgroup.Pod != "":
		o.group = "pod " + cgroup.Pod
	case cgroup.Container != "":
		o.group = "container " + cgroup.Container
	case cgroup.Slurm != "":
		o.group = "slurm " + cgroup.Slurm
	default:
		o.group = "tree " + strconv.Itoa(l.root(st, cgroup.Path))
	}
	l.byPID[pid] = o
	return o, nil
}

func (l *ownerLookup) cgroup(st proc.Stat) (proc.Cgroup, error) {
	key := st.Instance
	if kept, known := l.cgroups[key]; known && time.Since(kept.read) < fresh {
		return kept.Cgroup, nil
	}
	c, err := proc.ReadCgroup(l.procfs, st.PID)
	if err == nil {
		l.cgroups[key] = keptCgroup{c, time.Now()}
	}
	return c, err
}

// root returns the process from which a job on the host itself was started: the
// furthest ancestor in the same cgroup, below init and below a shell that a
// person types into, which starts jobs that have nothing to do with one another.
func (l *ownerLookup) root(st proc.Stat, path string) int {
	for range maxTree {
		if st.Parent <= 1 {
			break
		}
		parent, err := l.stat(st.Parent)
		if err != nil || parent.PID == parent.Session && parent.TTY {
			break
		}
		if c, err := l.cgroup(parent); err != nil || c.Path != path {
			break
		}
		st = parent
	}
	return st.PID
}
