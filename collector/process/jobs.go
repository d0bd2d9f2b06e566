package process

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/internal/proc"
	"github.com/railscope/railscope/internal/rdmanl"
)

// Job is a job that holds GPU memory and has connected queue pairs: one pod, container, Slurm job or tree of processes.
type Job struct {
	Name  string   // name of the pod or container; otherwise of the oldest process
	Comm  string   // name of its oldest process
	GPUs  int      // number of GPUs on which it holds memory
	Rails []string // names of the rails on which it has connected queue pairs, sorted

	EnvironmentRead bool     // true if the environment of every process that holds GPU memory was read
	Variables       []string // variables of RailVariables that are set there, sorted
}

// RailVariables returns the variables that select the rails of a job or limit their number (from NCCL's and UCX's
// documentation of environment variables).
func RailVariables() []string {
	return []string{"NCCL_IB_HCA", "NCCL_NET_GDR_LEVEL", "UCX_MAX_RMA_RAILS", "UCX_NET_DEVICES"}
}

// dated is the result of a read, with its time.
type dated[T any] struct {
	at    time.Time
	value T
}

func recent[T any](p *atomic.Pointer[dated[T]]) (value T, known bool) {
	if d := p.Load(); d != nil && time.Since(d.at) < qpFresh {
		return d.value, true
	}
	return value, false
}

// Jobs returns the jobs of the last read, sorted by name. known is false if no read of the last two minutes could
// attribute every queue pair. It reads nothing, and is safe for concurrent use.
func (p *Source) Jobs() (list []Job, known bool) { return recent(&p.jobs) }

// RailsInUse returns the rails on which processes other than railscope have queue pairs that are or were connected, as
// of the last read, by name, with a key of each job, sorted. An unknown process is a job on one rail alone. known is
// false without a complete list in the last two minutes. It reads nothing, and is safe for concurrent use.
func (p *Source) RailsInUse() (jobs map[string][]string, known bool) { return recent(&p.used) }

// noteRails keeps the rails in use. A queue pair in an error state was connected: its rail is still expected to
// carry a part of the job's traffic.
func (p *Source) noteRails(r *processReading) {
	if len(r.rails) == 0 || !r.complete {
		return
	}
	own, _ := proc.Self(p.opts.Procfs)
	used := map[string][]string{}
	for _, q := range r.tallies {
		of, _ := p.railsOf(q.device, r.rails)
		for key := range q.owners {
			o, name := r.holders[key.thread], railName(of, key.port)
			probe := o != nil && o.probes(own)
			if name == "" || key.state < rdmanl.RTS || r.ended(key.thread) || probe {
				continue
			}
			job := "unknown on rail " + name
			if o != nil {
				job = o.group
			}
			used[name] = append(used[name], job)
		}
	}
	for name, jobs := range used {
		slices.Sort(jobs)
		used[name] = slices.Compact(jobs)
	}
	p.used.Store(&dated[map[string][]string]{time.Now(), used})
}

// noteJobs keeps the jobs that are old enough to have connected. rails are the rails of each group's connected
// queue pairs.
func (p *Source) noteJobs(jobs map[string]*job, rails map[string]map[string]bool, at uint64) {
	var list []Job
	for group, j := range jobs {
		if !j.connected || !j.settled(at) {
			continue
		}
		of := Job{Name: j.oldest.name(), Comm: j.oldest.Comm, GPUs: len(j.gpus), EnvironmentRead: true,
			Rails: slices.Sorted(maps.Keys(rails[group]))}
		for _, m := range j.members {
			known, read := p.spans.of(m)
			of.EnvironmentRead = of.EnvironmentRead && read && known.permitted
			of.Variables = append(of.Variables, known.variables...)
		}
		slices.Sort(of.Variables)
		of.Variables = slices.Compact(of.Variables)
		list = append(list, of)
	}
	slices.SortFunc(list, func(a, b Job) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.GPUs, b.GPUs))
	})
	p.jobs.Store(&dated[[]Job]{time.Now(), list})
}

// probes reports whether the process is railscope, whose PID is own, or its worker.
func (h *holder) probes(own int) bool { return h.PID == own || h.Parent == own }

// name returns the name of the pod or container; otherwise of the process.
func (h *holder) name() string { return cmp.Or(h.pod, h.container, h.Comm) }
