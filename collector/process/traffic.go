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

// UseTraffic lets the source ask what the rails of a device have carried, by [rail.Rail.Key]. carried must not block.
// It is called before the first Read.
func (p *Source) UseTraffic(carried func(device string) map[string]rail.Carried) {
	p.pairs.carried = carried
}

// jobTraffic attributes the bytes of rails to jobs: docs/adr/0024-traffic-of-jobs.md has the rule.
type jobTraffic struct {
	limit int
	rails map[string]*railUse   // by name
	jobs  map[string]*jobUse    // by holder.group
	sums  map[string]*keptBytes // by labels
}

func newJobTraffic(limit int) jobTraffic {
	return jobTraffic{limit: limit, rails: map[string]*railUse{}, jobs: map[string]*jobUse{},
		sums: map[string]*keptBytes{}}
}

// railUse is who uses a rail, by the last lists of queue pairs.
type railUse struct {
	key    string          // rail.Rail.Key
	groups map[string]bool // jobs with queue pairs there
	other  bool            // so have the kernel, an unknown process or a virtual function
	list   *qpTally        // the rail's own; nil: unknown
	now    rail.Carried    // when the list began
	known  bool            // now is

	job  string        // that has it alone; empty: none
	from *rail.Carried // up to where its bytes are summed; nil: from nowhere yet
}

// keptBytes are the bytes of a series.
type keptBytes struct {
	job    string // its labels
	labels []string
	bytes  int64
}

// jobUse is a job, and the time over which its rails are compared.
type jobUse struct {
	labels []string // pod, container, comm
	seen   time.Time

	from  map[string]rail.Carried // at since, by railUse.key
	since time.Time

	compared  time.Time
	imbalance [rail.Directions]map[string]float64 // by role, since the comparison before
}

func (q *qpTally) start() time.Time { return q.ended.Add(-q.took) }

// users finds who has queue pairs on each rail. One that was connected and one that only receives count as well.
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
				u.known = u.known && !one.Software // whose counters have TCP too
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
			case o.probes(own): // its bytes are known
			default:
				u.groups[o.group] = true
				u.other = u.other || !slices.ContainsFunc(of, func(one rail.Rail) bool { return one.Device == device })
			}
		}
	}
	return all
}

// attribute emits what jobs carried over the rails that they have alone, and adds how many do not and how they balance.
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

// noteJobs adds the jobs that have begun, and removes what has ended with its series.
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
		if j == nil { // the name of a job stays when its oldest process ends
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

// addBytes adds what a rail carried between two lists to the job that had it alone in both, and in all between them.
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
	// With an old list of its own, it may have been used on a virtual function since.
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

// sum returns the sum of a series, that of the overflow if there are too many.
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

// emit emits the series of rails that a job has alone now, and the overflow.
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
