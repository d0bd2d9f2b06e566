package process

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/proc"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
)

// UseTraffic sets the function that returns what the rails of a device have carried, by [rail.Rail.Key]. carried
// must not block. Call UseTraffic before the first Read.
func (p *Source) UseTraffic(carried func(device string) map[string]rail.Carried) {
	p.pairs.carried = carried
}

// jobTraffic attributes the bytes of rails to jobs by the rule in docs/adr/0024-traffic-of-jobs.md.
type jobTraffic struct {
	limit int
	rails map[string]*railUse   // keyed by name
	jobs  map[string]*jobUse    // keyed by holder.group
	sums  map[string]*keptBytes // keyed by labels
}

func newJobTraffic(limit int) jobTraffic {
	return jobTraffic{limit: limit, rails: map[string]*railUse{}, jobs: map[string]*jobUse{},
		sums: map[string]*keptBytes{}}
}

// railUse holds the users of a rail, according to the last lists of queue pairs.
type railUse struct {
	key    string          // rail.Rail.Key
	groups map[string]bool // jobs with queue pairs there
	other  bool            // the kernel, an unknown process or a virtual function has queue pairs there, too
	list   *qpTally        // list of the rail's own function; nil if unknown
	now    rail.Carried    // what the rail had carried when the list began
	known  bool            // now is valid

	job  string        // job that has the rail to itself; empty if none
	from *rail.Carried // up to here its bytes are summed; nil until the first list
}

// keptBytes is a series with its sum of bytes.
type keptBytes struct {
	job    string // labels
	labels []string
	bytes  int64
}

// jobUse is a job, with the time over which its rails are compared.
type jobUse struct {
	labels []string // pod, container, comm
	seen   time.Time

	from  map[string]rail.Carried // what rails had carried at since, by railUse.key
	since time.Time

	compared  time.Time
	imbalance [rail.Directions]map[string]float64 // keyed by role, for the last comparison
}

func (q *qpTally) start() time.Time { return q.ended.Add(-q.took) }

// users finds the users of each rail. A queue pair that was connected counts, and so does one that only receives.
func (p *Source) users(r *processReading) map[string]*railUse {
	all := map[string]*railUse{}
	for _, one := range r.rails {
		all[one.Name] = &railUse{key: one.Key(), groups: map[string]bool{}}
	}
	own, _ := proc.Self(p.opts.Procfs)
	for _, device := range r.devices {
		of, _ := p.railsOf(device, r.rails)
		i := slices.IndexFunc(r.tallies, func(q *qpTally) bool { return q.device == device })
		for _, one := range of {
			u := all[one.Name]
			switch {
			case i < 0 || r.tallies[i].cut != nil:
				u.other = true
			case one.Device == device:
				u.list = r.tallies[i]
				u.now, u.known = u.list.carried[one.Key()]
				u.known = u.known && !one.Software // a software device's counters include TCP
				u.other = u.other || u.list.kernel[uint32(one.Port)]
			default:
				u.other = u.other || len(r.tallies[i].kernel) > 0
			}
		}
		if i < 0 {
			continue
		}
		for key := range r.tallies[i].owners {
			u := all[railName(of, key.port)]
			if u == nil || key.state < rdmanl.RTR {
				continue
			}
			switch o := r.holders[key.thread]; {
			case o == nil:
				u.other = true
			case o.probes(own): // railscope's own bytes are known
			default:
				u.groups[o.group] = true
				u.other = u.other || !slices.ContainsFunc(of, func(one rail.Rail) bool { return one.Device == device })
			}
		}
	}
	return all
}

// attribute emits the bytes that jobs carried over rails that they have to themselves, and adds the number of
// shared rails and the imbalance of jobs.
func (p *Source) attribute(r *processReading, emit func(collector.Sample)) {
	t := &p.traffic
	t.noteJobs(r.holders)
	rails := p.users(r)
	for _, one := range r.rails {
		u := rails[one.Name]
		t.addBytes(one.Name, u)
		for group := range u.groups {
			if u.list != nil {
				p.shared.add(collector.Bool(u.job == ""), slices.Concat([]string{one.Name}, t.jobs[group].labels)...)
			}
		}
	}
	t.rails = rails
	t.emit(p.bytes, emit)
	for group, j := range t.jobs {
		j.compare(group, rails)
		for d, roles := range j.imbalance {
			for role, v := range roles {
				s := p.imbalance.series(slices.Concat([]string{direction(d), role}, j.labels))
				s.value = max(s.value, v)
			}
		}
	}
}

func direction(d int) string { return [rail.Directions]string{"receive", "transmit"}[d] }

// noteJobs adds the jobs that have begun, and removes those that have ended with their series.
func (t *jobTraffic) noteJobs(holders map[uint32]*holder) {
	oldest, unknown := map[string]*holder{}, false
	for _, o := range holders {
		if o == nil {
			unknown = true
		} else if first := oldest[o.group]; first == nil || o.Start < first.Start ||
			o.Start == first.Start && o.PID < first.PID {
			oldest[o.group] = o
		}
	}
	for group, o := range oldest {
		j := t.jobs[group]
		if j == nil { // a job keeps its name when its oldest process ends
			j = &jobUse{labels: []string{"", "", o.Comm}}
			t.jobs[group] = j
		}
		j.labels[0], j.labels[1], j.seen = o.pod, o.container, time.Now()
	}
	live := map[string]bool{seriesKey(overflow()[2:]): true}
	for group, j := range t.jobs {
		if oldest[group] == nil && !(unknown && time.Since(j.seen) < qpFresh) {
			delete(t.jobs, group)
			continue
		}
		live[seriesKey(j.labels)] = true
	}
	maps.DeleteFunc(t.sums, func(_ string, s *keptBytes) bool { return !live[s.job] })
}

func overflow() []string { return slices.Repeat([]string{"other"}, 5) }

func seriesKey(labels []string) string { return strings.Join(labels, "\x00") }

// addBytes adds what a rail carried between two lists to the job that had the rail to itself in both, and in all
// lists between.
func (t *jobTraffic) addBytes(name string, u *railUse) {
	if u.list == nil || u.other || len(u.groups) != 1 {
		return
	}
	for group := range u.groups {
		u.job = group
	}
	was := t.rails[name]
	if was != nil && was.key == u.key && was.job == u.job {
		u.from = was.from
	}
	// If the rail's own list is old, a virtual function may have used it since.
	if was != nil && was.list == u.list || !u.known || !u.now.Settled {
		return
	}
	for d := range rail.Directions {
		sum := t.sum(name, direction(d), t.jobs[u.job].labels)
		if u.from != nil {
			bytes, _ := u.now.Since(*u.from, d)
			sum.bytes += max(bytes, 0)
		}
	}
	from := u.now
	u.from = &from
}

// sum returns the sum of a series, or of the overflow if there are too many series.
func (t *jobTraffic) sum(railName, direction string, job []string) *keptBytes {
	labels := slices.Concat([]string{railName, direction}, job)
	key := seriesKey(labels)
	most, rest := t.limit-1, seriesKey(overflow())
	if t.sums[rest] != nil {
		most++
	}
	if t.sums[key] == nil && len(t.sums) >= most {
		key, labels = rest, overflow()
	}
	s := t.sums[key]
	if s == nil {
		s = &keptBytes{job: seriesKey(labels[2:]), labels: labels}
		t.sums[key] = s
	}
	return s
}

// emit emits the series of rails that a job has to itself now, and the overflow.
func (t *jobTraffic) emit(row *collector.Metric, emit func(collector.Sample)) {
	keys := map[string]bool{seriesKey(overflow()): true}
	for name, u := range t.rails {
		if u.job == "" || u.from == nil {
			continue
		}
		for d := range rail.Directions {
			keys[seriesKey(slices.Concat([]string{name, direction(d)}, t.jobs[u.job].labels))] = true
		}
	}
	for key := range keys {
		if s := t.sums[key]; s != nil {
			emit(collector.Sample{Metric: row, Labels: s.labels, Value: float64(s.bytes)})
		}
	}
}
