package process

import (
	"maps"
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

// jobSpan says whether a job is on several nodes, according to the environment of a process.
type jobSpan int

const (
	spanUnknown jobSpan = iota
	spanNode            // all processes are on this node
	spanNodes           // processes are on several nodes
)

// launchers set the size of the whole job and of its part on this node, or only the number of nodes. The first
// match wins: variables of inner launchers precede those of outer ones.
var launchers = []struct{ all, local string }{
	{"WORLD_SIZE", "LOCAL_WORLD_SIZE"},                     // torchrun, accelerate, deepspeed
	{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"}, // Open MPI
	{"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"},   // MVAPICH2
	{"PMI_SIZE", "MPI_LOCALNRANKS"},                        // MPICH, Intel MPI
	{"SLURM_STEP_NUM_NODES", ""},                           // srun
}

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

func sized(name string) bool {
	return slices.ContainsFunc(launchers, func(l struct{ all, local string }) bool {
		return name == l.all || name == l.local && name != ""
	})
}

// spanCache reads the environment of each process once, because reading can wait for a lock of that process.
type spanCache struct {
	procfs string
	lanes  lane.Group[struct{}]

	mu    sync.Mutex // protects known
	known map[proc.Instance]spanKnown
}

// spanKnown holds what is known about a process after an attempt to read its environment, permitted or not.
type spanKnown struct {
	jobSpan
	same      bool     // whether it is in the network namespace of this process
	permitted bool     // its environment could be read
	variables []string // names of the RailVariables that are set there
}

func (b *spanCache) readMissing(budget time.Duration, jobs map[string]*job) {
	var missing []proc.Instance
	for _, j := range jobs {
		for _, h := range j.members {
			if _, read := b.of(h); !read {
				missing = append(missing, h.Instance)
			}
		}
	}
	if len(missing) == 0 {
		return
	}
	b.lanes.Run(budget, []string{"environ"}, func(string) struct{} {
		deadline := time.Now().Add(budget)
		ours, _ := proc.Namespace(b.procfs, "self", "net")
		for _, l := range missing {
			if time.Now().After(deadline) {
				break
			}
			env, _, err := proc.Environ(b.procfs, l.PID, func(name string) bool {
				return sized(name) || slices.Contains(RailVariables(), name)
			}) // empty without the permission
			span := spanKnown{jobSpan: spanOf(env), permitted: err == nil}
			for _, name := range RailVariables() {
				if _, set := env[name]; set {
					span.variables = append(span.variables, name)
				}
			}
			its, err := proc.Namespace(b.procfs, strconv.Itoa(l.PID), "net")
			if now, statErr := proc.ReadStat(b.procfs, l.PID); statErr != nil || now.Instance != l {
				continue // it is, or may be, another process under this PID
			}
			b.mu.Lock()
			if len(b.known) > 4096 {
				clear(b.known)
			}
			span.same = err == nil && its == ours
			b.known[l] = span
			b.mu.Unlock()
		}
		return struct{}{}
	})
}

func (b *spanCache) of(h *holder) (span spanKnown, read bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	span, read = b.known[h.Instance]
	return span, read
}

type job struct {
	members   []*holder
	oldest    *holder
	gpus      map[string]bool
	connected bool // one of its processes has a queue pair that can send
	spans     jobSpan
	unread    bool // the environment of one of its processes was not read yet
	foreign   bool // its queue pairs may be in a network namespace that is not visible here
}

func jobsOf(holdings []*gpuHolding, holders map[uint32]*holder) map[string]*job {
	// Prefixes of the names of programs that hold memory of many GPUs for other processes, or monitor them.
	notJobs := []string{"nvidia-cuda-mps", "nv-hostengine", "dcgm"}
	jobs := map[string]*job{}
	for _, h := range holdings {
		o := holders[h.pid]
		if o == nil || !h.compute {
			continue
		}
		j := jobs[o.group]
		if j == nil {
			j = &job{gpus: map[string]bool{}}
			jobs[o.group] = j
		}
		j.members = append(j.members, o)
		if slices.ContainsFunc(notJobs, func(name string) bool { return strings.HasPrefix(o.Comm, name) }) {
			continue
		}
		j.gpus[h.gpu] = true
		if j.oldest == nil || o.Start < j.oldest.Start || o.Start == j.oldest.Start && o.PID < j.oldest.PID {
			j.oldest = o
		}
	}
	maps.DeleteFunc(jobs, func(_ string, j *job) bool { return j.oldest == nil })
	return jobs
}

// settled reports whether the job is at least two minutes old. A younger one may not have opened its first
// connection.
func (j *job) settled(at uint64) bool { return at-min(at, j.oldest.Start) >= 120*proc.Tick }

// verdict returns how a job spans nodes or GPUs, for which it needs queue pairs. It is empty if the job cannot be
// judged.
func (j *job) verdict(at uint64) string {
	switch {
	case !j.settled(at):
	case j.foreign && !j.connected: // its queue pairs may not be visible here
	case j.spans == spanNodes:
		return "nodes"
	case j.unread: // the environment may show that the job stays on this node
	case j.spans == spanUnknown && len(j.gpus) > 1:
		return "gpus"
	}
	return ""
}

// judge emits the jobs without queue pairs. It emits nothing while the owner of a queue pair that can send is
// unknown.
func (p *Source) judge(r *processReading) {
	if len(r.rails) == 0 || !r.complete {
		return
	}
	at := p.clock()
	connected := map[string]map[string]bool{} // rails by group
	for _, q := range r.tallies {
		of, none := p.railsOf(q.device, r.rails)
		if none && r.allRails {
			continue
		}
		at = min(at, q.begun) // judge the job's age at the time of the lists
		for key := range q.owners {
			if key.state != rdmanl.RTS {
				continue
			}
			o := r.holders[key.thread]
			if o == nil && !r.ended(key.thread) {
				return
			}
			if o == nil {
				continue
			}
			if connected[o.group] == nil {
				connected[o.group] = map[string]bool{}
			}
			if name := railName(of, key.port); name != "" {
				connected[o.group][name] = true
			}
		}
	}
	jobs := jobsOf(r.holdings, r.holders)
	p.spans.readMissing(p.opts.Budget/4, jobs)
	for group, j := range jobs {
		j.connected = connected[group] != nil
		for _, m := range j.members {
			span, read := p.spans.of(m)
			j.unread = j.unread || !read
			j.spans = max(j.spans, span.jobSpan)
			j.foreign = j.foreign || !r.shared && !span.same
		}
		if kind := j.verdict(at); kind != "" {
			o := j.oldest
			p.without.add(collector.Bool(!j.connected), o.pod, o.container, o.Comm, kind)
		}
	}
	p.noteJobs(jobs, connected, at)
}
