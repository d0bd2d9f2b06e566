// Package why finds what was wrong where a job ran, from the history that Prometheus has of its nodes.
package why

import (
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/railscope/railscope/fleet"
)

// Job selects the series of a job.
type Job struct {
	Name     string // name under which it was asked for
	matchers string
}

var slurmID = regexp.MustCompile(`^[0-9]{1,10}$`)

// NewJob returns the job with the ID of a Slurm job, or the pods namespace/name or name, and those whose names begin
// with that and a dash, as the pods of one job of Kubernetes do.
func NewJob(name string) (Job, error) {
	const longest = 320 // a namespace, a slash and the name of a pod
	switch {
	case name == "" || len(name) > longest || strings.ContainsFunc(name, notGraphic):
		return Job{}, fmt.Errorf("want the ID of a Slurm job or the name of a pod, not %q", name)
	case slurmID.MatchString(name):
		return Job{name, fmt.Sprintf(`container="slurm-%s"`, name)}, nil
	}
	pattern := regexp.QuoteMeta(name) + `(-.*)?`
	if !strings.Contains(name, "/") {
		pattern = `(.*/)?` + pattern
	}
	return Job{name, fmt.Sprintf("pod=~%q", pattern)}, nil
}

func notGraphic(r rune) bool { return r <= ' ' || r > '~' }

// step is the resolution of times: railscope's series are scraped more often than once a minute.
const step = time.Minute

// Data is what Prometheus has of a job.
type Data struct {
	Job      string
	Now      time.Time
	Seen     map[fleet.Node]Span // when it held queue pairs or GPU memory
	Rails    map[fleet.Rail]*Use
	Found    []Found
	Fallback map[fleet.Node]bool    // it held GPUs without a queue pair, or its NCCL used sockets
	Uneven   map[fleet.Node]float64 // highest imbalance of its rails
	BusRates map[fleet.Node]float64 // mean bus bandwidth of its collectives, in bytes per second
	Failed   []string               // questions that were not answered, and why
}

// Span is a time.
type Span struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Use is what a rail carried while the job ran. Negative: unknown.
type Use struct {
	Own  float64 // bytes that the job sent while it was alone on the rail
	Port float64 // bytes that the rail's port sent by RDMA
	Peak float64 // highest rate of them over two minutes, in bytes per second
	TCP  float64 // bytes of its interface that were not RDMA
}

// Found is a finding on a node of the job.
type Found struct {
	fleet.Node
	Check    string `json:"check"`
	Severity string `json:"severity"`
	Subject  string `json:"subject"`
	Rail     string `json:"rail"` // empty: the finding concerns no single rail
	Span
}

const by = "by (cluster, node, instance"

// asker asks the questions about one job.
type asker struct {
	ctx      context.Context
	ask      fleet.Asker
	selector string // further matchers, with a comma before; or empty
	// instances are the labels instance of the job's nodes.
	instances map[string]bool
	data      *Data
}

// Ask asks for a job that ran within the time before now. selector has label matchers, such as cluster="a", or is
// empty. It fails if no series of the job are found.
func Ask(ctx context.Context, job Job, selector string, now time.Time, within time.Duration,
	ask fleet.Asker) (Data, error) {
	d := Data{Job: job.Name, Now: now, Seen: map[fleet.Node]Span{}, Rails: map[fleet.Rail]*Use{},
		Fallback: map[fleet.Node]bool{}, Uneven: map[fleet.Node]float64{}, BusRates: map[fleet.Node]float64{}}
	if selector != "" {
		selector = ", " + selector
	}
	a := &asker{ctx, ask, selector, map[string]bool{}, &d}
	if err := a.seen(job, now, within); err != nil {
		return d, err
	}
	a.use(job)
	a.found()
	return d, nil
}

// seen finds the nodes of the job, and when it ran there.
func (a *asker) seen(job Job, now time.Time, within time.Duration) error {
	series := fmt.Sprintf(`{__name__=~"railscope_process_(queue_pairs|gpu_memory_bytes)", %s%s}`, job.matchers,
		a.selector)
	for _, q := range []struct {
		fn  string
		set func(*Span, time.Time)
	}{{"min", func(s *Span, at time.Time) { s.From = at }}, {"max", func(s *Span, at time.Time) { s.To = at }}} {
		answer, err := a.ask(a.ctx, fmt.Sprintf(`%[1]s %[2]s) (%[1]s_over_time(timestamp(%[3]s)[%[4]ds:%[5]ds]))`,
			q.fn, by, series, int(within.Seconds()), int(step.Seconds())), now)
		if err != nil {
			return err
		}
		for _, s := range answer {
			n := fleet.NodeOf(s)
			span := a.data.Seen[n]
			q.set(&span, time.Unix(int64(s.Value), 0).UTC())
			a.data.Seen[n] = span
			a.instances[regexp.QuoteMeta(string(s.Metric["instance"]))] = true
		}
	}
	if len(a.data.Seen) == 0 {
		return fmt.Errorf("no series of job %s in the last %v: does --source.process run on its nodes?", job.Name,
			within)
	}
	return nil
}

// Whole is the time in which the job ran on any node.
func (d *Data) Whole() (whole Span) {
	for _, s := range d.Seen {
		if whole.From.IsZero() || s.From.Before(whole.From) {
			whole.From = s.From
		}
		if s.To.After(whole.To) {
			whole.To = s.To
		}
	}
	return whole
}

// over asks a question about the time of the job on its nodes. %[1]s in it is the selector of these nodes, %[2]s the
// time as a range, %[3]s the resolution. add is called for each sample.
func (a *asker) over(what, question string, add func(n fleet.Node, s *model.Sample)) {
	whole := a.data.Whole()
	length := max(whole.To.Sub(whole.From), 2*step)
	answer, err := a.ask(a.ctx, fmt.Sprintf(question, a.nodes(), fmt.Sprintf("%ds", int(length.Seconds())),
		fmt.Sprintf("%ds", int(step.Seconds()))), whole.To)
	if err != nil {
		a.data.Failed = append(a.data.Failed, what+": "+err.Error())
		return
	}
	for _, s := range answer {
		n := fleet.NodeOf(s)
		if _, ran := a.data.Seen[n]; ran && !math.IsNaN(float64(s.Value)) {
			add(n, s)
		}
	}
}

// nodes returns the matchers of the job's nodes.
func (a *asker) nodes() string {
	list := strings.Join(slices.Sorted(maps.Keys(a.instances)), "|")
	return fmt.Sprintf(`instance=~%q%s`, list, a.selector)
}

// use asks what the rails carried.
func (a *asker) use(job Job) {
	rail := func(set func(*Use, float64)) func(fleet.Node, *model.Sample) {
		return func(n fleet.Node, s *model.Sample) {
			r := fleet.Rail{Node: n, Rail: string(s.Metric["rail"])}
			if r.Rail == "" {
				return
			}
			if a.data.Rails[r] == nil {
				a.data.Rails[r] = &Use{-1, -1, -1, -1}
			}
			set(a.data.Rails[r], float64(s.Value))
		}
	}
	a.over("bytes of the rails", `sum `+by+`, rail) (increase(railscope_port_transmit_bytes_total{%[1]s}[%[2]s]))`,
		rail(func(u *Use, v float64) { u.Port = v }))
	a.over("peaks of the rails", `max `+by+
		`, rail) (max_over_time(rate(railscope_port_transmit_bytes_total{%[1]s}[2m])[%[2]s:%[3]s]))`,
		rail(func(u *Use, v float64) { u.Peak = v }))
	a.over("bytes by TCP", `sum `+by+
		`, rail) (increase(railscope_rail_tcp_bytes_total{direction="transmit", %[1]s}[%[2]s]))`,
		rail(func(u *Use, v float64) { u.TCP = v }))
	own := strings.ReplaceAll(job.matchers, "%", "%%")
	a.over("bytes of the job", `sum `+by+
		`, rail) (increase(railscope_process_job_rail_bytes_total{direction="transmit", `+own+
		`, %[1]s}[%[2]s]))`, rail(func(u *Use, v float64) { u.Own = v }))
	a.over("imbalance", `max `+by+`) (max_over_time(railscope_process_job_rails_imbalance_ratio{`+own+
		`, %[1]s}[%[2]s]))`,
		func(n fleet.Node, s *model.Sample) { a.data.Uneven[n] = float64(s.Value) })
	fallback := func(n fleet.Node, s *model.Sample) {
		a.data.Fallback[n] = a.data.Fallback[n] || s.Value > 0
	}
	a.over("GPUs without RDMA", `max `+by+`) (max_over_time(railscope_process_gpu_without_rdma{spans="nodes", `+own+
		`, %[1]s}[%[2]s]))`, fallback)
	if slurmID.MatchString(job.Name) { // logs are named after the job, if at all
		a.over("fallbacks in NCCL's log", `max `+by+`) (max_over_time(railscope_nccl_fallback{job=~".*`+job.Name+
			`.*", %[1]s}[%[2]s]))`, fallback)
	}
	a.over("bus bandwidth", `avg `+by+`) (avg_over_time(nccl_bus_bandwidth_gbs{%[1]s}[%[2]s]))`,
		func(n fleet.Node, s *model.Sample) { a.data.BusRates[n] = float64(s.Value) * 1e9 })
}

// found asks for findings of the nodes, and when each was there.
func (a *asker) found() {
	all := map[Found]Span{}
	for _, q := range []struct {
		fn  string
		set func(*Span, time.Time)
	}{{"min", func(s *Span, at time.Time) { s.From = at }}, {"max", func(s *Span, at time.Time) { s.To = at }}} {
		a.over("findings", q.fn+` `+by+`, check, severity, subject, rail) (`+q.fn+
			`_over_time(timestamp(railscope_finding{severity=~"critical|warning", %[1]s})[%[2]s:%[3]s]))`,
			func(n fleet.Node, s *model.Sample) {
				f := Found{Node: n, Check: string(s.Metric["check"]), Severity: string(s.Metric["severity"]),
					Subject: string(s.Metric["subject"]), Rail: string(s.Metric["rail"])}
				span := all[f]
				q.set(&span, time.Unix(int64(s.Value), 0).UTC())
				all[f] = span
			})
	}
	for f, span := range all {
		f.Span = span
		a.data.Found = append(a.data.Found, f)
	}
	slices.SortFunc(a.data.Found, compareFound)
}
