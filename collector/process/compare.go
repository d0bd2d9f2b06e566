package process

import (
	"slices"
	"time"

	"github.com/railscope/railscope/internal/rail"
)

// Thresholds of a comparison of a job's rails.
const (
	compareOver = 10 * time.Second // minimum duration
	compareSkew = time.Second      // maximum time between the lists of two rails
	// share of its capacity above which a group's rail is busy; the group is idle if no rail is
	compareBusy = 0.01
)

// compare compares the job's rails since the last comparison, if the job had all of them to itself during that
// time.
func (j *jobUse) compare(group string, rails map[string]*railUse) {
	used := map[string]*railUse{} // keyed by railUse.key
	var first, last time.Time     // times of the rails' lists
	alone, settled, same := true, true, true
	for _, u := range rails {
		if !u.groups[group] {
			continue
		}
		alone = alone && u.job == group && u.known && u.from != nil
		if !alone {
			break
		}
		at := u.list.start()
		if len(used) == 0 {
			first, last = at, at
		}
		if at.Before(first) {
			first = at
		} else if at.After(last) {
			last = at
		}
		_, compared := j.from[u.key]
		settled, same = settled && u.now.Settled, same && compared
		used[u.key] = u
	}
	alone = alone && len(used) > 1
	same = same && len(used) == len(j.from)
	if !alone || !same {
		j.from = nil
	}
	if !alone || !same || time.Since(j.compared) > qpFresh {
		j.imbalance = [rail.Directions]map[string]float64{}
	}
	if !alone || !settled || last.Sub(first) > compareSkew || same && last.Sub(j.since) < compareOver {
		return
	}
	if same {
		j.imbalance, j.compared = imbalances(used, j.from), time.Now()
	}
	j.from, j.since = map[string]rail.Carried{}, last
	for key, u := range used {
		j.from[key] = u.now
	}
}

func imbalances(used map[string]*railUse, from map[string]rail.Carried) (of [rail.Directions]map[string]float64) {
	for d := range of {
		var loads []rail.Load
		busy := map[rail.Group]bool{}
		for key, u := range used {
			bytes, seconds := u.now.Since(from[key], d)
			if seconds <= 0 || u.now.Capacity <= 0 {
				continue
			}
			l := rail.Load{Group: u.now.Group, Rate: max(float64(bytes), 0) / seconds, Capacity: u.now.Capacity}
			busy[l.Group] = busy[l.Group] || l.Rate > compareBusy*l.Capacity
			loads = append(loads, l)
		}
		of[d] = rail.Imbalances(slices.DeleteFunc(loads, func(l rail.Load) bool { return !busy[l.Group] }))
	}
	return of
}
