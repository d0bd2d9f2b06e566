package process

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/railscope/railscope/collector"

	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/proc"
	"github.com/railscope/railscope/internal/rdmanl"
)

// processGrace is how old a job is before it is judged: until then it may still
// be on its way to its first connection.
const processGrace = 2 * time.Minute

// notJobs are the beginnings of the names of programs that hold memory of many
// GPUs for others, or to watch them.
var notJobs = []string{"nvidia-cuda-mps", "nv-hostengine", "dcgm"}

// jobSpan is the size of a job, by the environment of a process.
type jobSpan int

const (
	spanUnknown jobSpan = iota
	spanNode            // all of it is on this node
	spanNodes           // it is on several nodes
)

// launchers set the size of the whole job and of its part on this node, or the
// number of nodes alone. The first that a process has decides: the innermost
// launcher sets the variables that are named first.
var launchers = []struct{ all, local string }{
	{"WORLD_SIZE", "LOCAL_WORLD_SIZE"},                     // torchrun, accelerate, deepspeed
	{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"}, // Open MPI
	{"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"},   // MVAPICH2
	{"PMI_SIZE", "MPI_LOCALNRANKS"},                        // MPICH, Intel MPI
	{"SLURM_STEP_NUM_NODES", ""},                           // srun
}

// spanOf reads the size of a job out of an environment.
func spanOf(env map[string]string) jobSpan {
	for _, l := range launchers {
		all, err1 := strconv.Atoi(env[l.all])
		local, err2 := 1, error(nil)
		if l.local != "" {
			local, err2 = strconv.Atoi(env[l.local])
		}
		switch {
		case err1 != nil || err2 != nil || all < 1 || local < 1:
		case all > local:
			return spanNodes
		default:
			return spanNode
		}
	}
	return spanUnknown
}

// sized reports whether a variable is one of the launchers'.
func sized(name string) bool {
	return slices.ContainsFunc(launchers, func(l struct{ all, local string }) bool {
		return name == l.all || name == l.local && name != ""
	})
}

// spanCache keeps what the environments show, which are read once per process:
// reading one can wait for a lock of that process.
type spanCache struct {
	procfs string
	lanes  lane.Group[struct{}]

	mu    sync.Mutex // protects all following fields
	known map[proc.Instance]jobSpan
	same  map[proc.Instance]bool // in our network namespace
}

// learn reads the environments that are not known yet, for at most budget.
func (b *spanCache) learn(budget time.Duration, holders []*holder) {
	var missing []proc.Instance
	b.mu.Lock()
	for _, h := range holders {
		if _, known := b.known[h.Instance]; !known {
			missing = append(missing, h.Instance)
		}
	}
	b.mu.Unlock()
	if len(missing) == 0 {
		return
	}
	b.lanes.Run(budget, []string{"environ"}, func(string) struct{} {
		deadline := time.Now().Add(budget)
		for _, l := range missing {
			if time.Now().After(deadline) {
				break
			}
			env, _, _ := proc.Environ(b.procfs, l.PID, sized) // without the permission it is empty
			same, err := proc.SameNetwork(b.procfs, l.PID)
			if now, statErr := proc.ReadStat(b.procfs, l.PID); statErr != nil || now.Instance != l {
				continue // it was, or may have been, another process under this PID
			}
			b.mu.Lock()
			if len(b.known) > 4096 {
				clear(b.known)
				clear(b.same)
			}
			b.known[l], b.same[l] = spanOf(env), err == nil && same
			b.mu.Unlock()
		}
		return struct{}{}
	})
}

// of returns what is known of a process; read is false until its environment
// was read, whether or not that was permitted.
func (b *spanCache) of(h *holder) (span jobSpan, same, read bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := h.Instance
	span, read = b.known[l]
	return span, b.same[l], read
}

// job is one group of processes that hold GPU memory.
type job struct {
	oldest    *holder
	gpus      map[string]bool
	connected bool // one of its processes has a queue pair that can send
	spans     jobSpan
	unread    bool // the environment of one of its processes was not read yet
	foreign   bool // its queue pairs may be in a network namespace that we do not see
}

// jobsOf gathers the processes that compute into jobs, in a fixed order.
func jobsOf(holdings []gpuHolding, holders map[uint32]*holder) []*job {
	byGroup := map[string]*job{}
	var list []*job
	for _, h := range holdings {
		o := holders[h.pid]
		if o == nil || !h.compute || slices.ContainsFunc(notJobs,
			func(name string) bool { return strings.HasPrefix(o.Comm, name) }) {
			continue
		}
		j := byGroup[o.group]
		if j == nil {
			j = &job{oldest: o, gpus: map[string]bool{}}
			byGroup[o.group] = j
			list = append(list, j)
		}
		j.gpus[h.gpu] = true
		if o.Start < j.oldest.Start || o.Start == j.oldest.Start && o.PID < j.oldest.PID {
			j.oldest = o
		}
	}
	slices.SortFunc(list, func(a, b *job) int { return cmp.Compare(a.oldest.PID, b.oldest.PID) })
	return list
}

// verdict judges a job at a time; kind is empty if it cannot be judged.
func (j *job) verdict(at uint64) (kind string, without bool) {
	switch age := at - min(at, j.oldest.Start); {
	case age < uint64(processGrace/time.Second)*proc.Tick:
		return "", false
	case j.foreign && !j.connected: // it may have some that we do not see
		return "", false
	}
	switch {
	case j.spans == spanNodes:
		return "nodes", !j.connected
	case j.unread: // it may say that it stays on this node
		return "", false
	case j.spans == spanUnknown && len(j.gpus) > 1:
		return "gpus", !j.connected
	}
	return "", false
}

// judge emits the jobs without queue pairs. It emits nothing while a queue pair
// that can send may be anybody's.
func (p *Source) judge(r *processReading) {
	if len(r.rails) == 0 || !r.complete {
		return
	}
	at, err := p.clock()
	if err != nil {
		return
	}
	connected := map[string]bool{}
	rails := railNames{p.opts.Sysfs, r.rails}
	for _, q := range r.pairs {
		if r.allRails && rails.none(q.device) {
			continue
		}
		at = min(at, q.tally.begun) // the age of a job when its queue pairs were listed
		for key := range q.tally.owners {
			if key.state != rdmanl.RTS {
				continue
			}
			o := r.holders[key.thread]
			if o == nil && !r.ended(key.thread) {
				return
			}
			if o != nil {
				connected[o.group] = true
			}
		}
	}
	jobs := jobsOf(r.holdings, r.holders)
	var members []*holder
	for _, h := range r.holdings {
		if o := r.holders[h.pid]; o != nil && h.compute {
			members = append(members, o)
		}
	}
	p.spans.learn(p.opts.Budget/4, members)
	for _, j := range jobs {
		j.connected = connected[j.oldest.group]
		for _, m := range members {
			if m.group != j.oldest.group {
				continue
			}
			span, same, read := p.spans.of(m)
			j.unread = j.unread || !read
			j.spans = max(j.spans, span)
			j.foreign = j.foreign || !r.shared && !same
		}
		kind, without := j.verdict(at)
		if kind == "" {
			continue
		}
		pod, container := r.label(j.oldest)
		p.without.add(collector.Bool(without), pod, container, j.oldest.Comm, kind)
	}
}
