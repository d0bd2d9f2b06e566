package exporter

import (
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/collector/sampler"
)

// samplerLabels are the label values of the sampler's series, made once for what
// stays the same, so that the table knows them again.
type samplerLabels struct {
	rails   []railLabels
	order   []int // of rails, by name
	devices []deviceLabels
	bonds   []bondLabels
	gpus    []gpuLabels
	sets    [2][]string
	reasons [][]string
	dropped [][]string
}

type railLabels struct {
	name      string
	own       []string
	direction [2][]string
	lines     [2][]string // of the histogram: every line up to its value
}

type deviceLabels struct {
	name string
	own  []string
}

type bondLabels struct {
	name, member string
	values       []string
}

type gpuLabels struct {
	index         int
	start, minute []string
}

// follow brings the labels up to date with a snapshot.
func (l *samplerLabels) follow(snap *sampler.Snapshot) {
	if l.reasons == nil {
		for d := range l.sets {
			l.sets[d] = []string{sampler.Direction(d)}
		}
		for i := range snap.Fallback {
			l.reasons = append(l.reasons, []string{sampler.Reason(i)})
		}
		for i := range sampler.Reasons {
			l.dropped = append(l.dropped, []string{sampler.DropReason(i)})
		}
	}
	follow(&l.rails, len(snap.Rails), func(i int, old *railLabels) bool { return old.name == snap.Rails[i].Name }, func(i int) railLabels {
		l.order = nil
		return newRailLabels(snap.Rails[i].Name)
	})
	if len(l.order) != len(l.rails) {
		l.order = l.order[:0]
		for i := range l.rails {
			l.order = append(l.order, i)
		}
		slices.SortFunc(l.order, func(a, b int) int { return strings.Compare(l.rails[a].name, l.rails[b].name) })
	}
	follow(&l.devices, len(snap.Devices), func(i int, old *deviceLabels) bool { return old.name == snap.Devices[i].Name }, func(i int) deviceLabels {
		return deviceLabels{snap.Devices[i].Name, []string{snap.Devices[i].Name}}
	})
	follow(&l.bonds, len(snap.Bonds), func(i int, old *bondLabels) bool {
		return old.name == snap.Bonds[i].Name && old.member == snap.Bonds[i].Member
	}, func(i int) bondLabels {
		b := snap.Bonds[i]
		made := bondLabels{name: b.Name, member: b.Member, values: []string{b.Name}}
		if b.Member != "" {
			made.values = append(made.values, b.Member)
		}
		return made
	})
	follow(&l.gpus, len(snap.GPUs), func(i int, old *gpuLabels) bool { return old.index == snap.GPUs[i].Index }, func(i int) gpuLabels {
		index := strconv.Itoa(snap.GPUs[i].Index)
		return gpuLabels{snap.GPUs[i].Index, []string{index, "start"}, []string{index, "1m"}}
	})
}

// follow makes list as long as n, and anew what is not the same.
func follow[T any](list *[]T, n int, same func(int, *T) bool, make func(int) T) {
	for i := range n {
		switch {
		case i == len(*list):
			*list = append(*list, make(i))
		case !same(i, &(*list)[i]):
			(*list)[i] = make(i)
		}
	}
	*list = (*list)[:n]
}

func newRailLabels(name string) railLabels {
	l := railLabels{name: name, own: []string{name}}
	for d := range l.direction {
		l.direction[d] = []string{name, sampler.Direction(d)}
		l.lines[d] = utilizationLines(sampler.Direction(d), name)
	}
	return l
}
