package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
)

// qosGroup is the check to which a setting belongs.
type qosGroup int

const (
	qosPFC qosGroup = iota
	qosDCQCN
	qosClass
)

// qosRow is one setting that rails should have alike.
type qosRow struct {
	group qosGroup
	name  string // of the setting in facts.QoS
	what  string
	why   string                                     // if the group's does not do
	fix   func(r *facts.Rail, value string) []string // gives the rail this value
}

const (
	whyPFC = "PFC must be on for the same priorities on every rail, adapter and switch: where it is off, RoCE loses " +
		"packets under load, " +
		"and one slow rail slows the whole job."
	whyTrust = "By trust the adapter sorts packets into priorities: RoCE without a VLAN tag has only its DSCP, so " +
		"with " +
		"pcp all of it is in priority 0, without PFC."
	whyPause = "Global pause stops all priorities at once and replaces PFC: a rail that has it blocks what PFC would " +
		"let pass."
	whyDCQCN = "Rails of one job share its load: one that reacts to congestion differently is slower, or displaces " +
		"the " +
		"others."
	whyClass = "The traffic class decides in which queue of adapter and switch packets go: a rail with another one " +
		"leaves the lossless queue."
)

func (row qosRow) reason() string {
	if row.why != "" {
		return row.why
	}
	return [...]string{whyPFC, whyDCQCN, whyClass}[row.group]
}

func qosRows() []qosRow {
	rows := []qosRow{
		{group: qosPFC, name: "pfc", what: "PFC priorities", fix: func(r *facts.Rail, value string) []string {
			words := []string{"all:off"}
			on, _ := splitPriorities(value)
			for _, priority := range on {
				words = append(words, priority+":on")
			}
			return []string{fmt.Sprintf("dcb pfc set dev %s prio-pfc %s", shellWord(r.Netdev),
				strings.Join(words, " "))}
		}},
		{group: qosPFC, name: "trust", what: "trust", why: whyTrust, fix: func(r *facts.Rail, value string) []string {
			return []string{fmt.Sprintf("mlnx_qos -i %s --trust=%s", shellWord(r.Netdev), shellWord(value))}
		}},
		{group: qosPFC, name: "pause", what: "global pause", why: whyPause,
			fix: func(r *facts.Rail, value string) []string {
				return []string{command(append([]string{"ethtool", "-A", r.Netdev}, strings.Fields(value)...)...)}
			}},
		{group: qosDCQCN, name: "roce_np", what: "DCQCN notification point priorities", fix: fixECN("roce_np")},
		{group: qosDCQCN, name: "roce_rp", what: "DCQCN reaction point priorities", fix: fixECN("roce_rp")},
		{group: qosClass, name: "traffic_class", what: "traffic class",
			fix: func(r *facts.Rail, value string) []string {
				if value == "unset" {
					return []string{
						note("only reloading the driver of %s unsets a traffic class: better set one on all rails",
							facts.Clean(r.Device))}
				}
				return []string{fmt.Sprintf("echo %s > /sys/class/infiniband/%s/tc/%d/traffic_class", shellWord(value),
					shellWord(r.Device), r.Port)}
			}},
		{group: qosClass, name: "roce_tos", what: "default TOS of rdma_cm",
			fix: func(r *facts.Rail, value string) []string {
				dir := "/sys/kernel/config/rdma_cm/" + shellWord(r.Device)
				return []string{fmt.Sprintf("mkdir -p %s && echo %s > %s/ports/%d/default_roce_tos", dir,
					shellWord(value), dir,
					r.Port)}
			}},
	}
	for _, name := range facts.CongestionParameters() {
		rows = append(rows, qosRow{group: qosDCQCN, name: name, what: "DCQCN parameter " + name,
			fix: func(r *facts.Rail, value string) []string {
				return []string{fmt.Sprintf("echo %s > /sys/kernel/debug/mlx5/$(basename $(readlink -f "+
					"/sys/class/infiniband/%s/device))/cc_params/%s",
					shellWord(value), shellWord(r.Device), name)}
			}})
	}
	return rows
}

// fixECN enables one side of DCQCN for some priorities and no others.
func fixECN(side string) func(*facts.Rail, string) []string {
	return func(r *facts.Rail, value string) (lines []string) {
		dir := fmt.Sprintf("/sys/class/net/%s/ecn/%s/enable", shellWord(r.Netdev), side)
		on, off := splitPriorities(value)
		set := func(list []string, value int) {
			if len(list) > 0 {
				lines = append(lines, fmt.Sprintf("for p in %s; do echo %d > %s/$p; done", strings.Join(list, " "),
					value, dir))
			}
		}
		set(on, 1)
		set(off, 0)
		return lines
	}
}

// splitPriorities reads a list of priorities; what is no priority is left out.
func splitPriorities(text string) (on, off []string) {
	listed := strings.Split(text, ",")
	for p := range 8 {
		if name := fmt.Sprint(p); slices.Contains(listed, name) {
			on = append(on, name)
		} else {
			off = append(off, name)
		}
	}
	return on, off
}

// qosValue is what one rail has of one setting.
type qosValue struct {
	rail         *facts.Rail
	value, where string
}

// Bounds on what is compared: a peer's facts are not to be trusted.
const (
	maxCompared = 128 // rails, versions
	maxSettings = 64
)

// qosValues returns the values of a setting on active rails, by kind of rail:
// only adapters of one kind are sure to mean the same by it, and to do the same
// work.
func qosValues(f *facts.Facts, name string) map[string][]qosValue {
	out := map[string][]qosValue{}
	for i := range f.Rails[:min(len(f.Rails), maxCompared)] {
		r := &f.Rails[i]
		for _, q := range f.QoS[:min(len(f.QoS), maxCompared)] {
			if !r.Active() || r.Kind == "" || q.Device != r.Device || q.Port != r.Port {
				continue
			}
			for _, set := range q.Settings[:min(len(q.Settings), maxSettings)] {
				if set.Name == name {
					out[r.Kind] = append(out[r.Kind], qosValue{r, facts.Clean(set.Value), facts.Clean(set.Where)})
				}
			}
		}
	}
	return out
}

// usual is the value that most have, the first such.
func usual(list []qosValue) string {
	count, best := map[string]int{}, ""
	for _, v := range list {
		count[v.value]++
	}
	for _, v := range list {
		if best == "" || count[v.value] > count[best] {
			best = v.value
		}
	}
	return best
}

// eachSetting calls do for each setting of a group, by kind of rail.
func eachSetting(group qosGroup, f *facts.Facts, do func(row qosRow, kind string, values []qosValue)) {
	for _, row := range qosRows() {
		if row.group != group {
			continue
		}
		values := qosValues(f, row.name)
		for _, kind := range slices.Sorted(maps.Keys(values)) {
			do(row, kind, values[kind])
		}
	}
}

// checkQoS finds rails of one kind that differ.
func checkQoS(group qosGroup) func(*facts.Facts, func(Finding)) {
	return func(f *facts.Facts, report func(Finding)) {
		eachSetting(group, f, func(row qosRow, _ string, values []qosValue) {
			if finding, ok := row.odd(values); ok {
				report(finding)
			}
		})
	}
}

// odd is the finding that some have another value than most.
func (row qosRow) odd(list []qosValue) (Finding, bool) {
	want := usual(list)
	var odd, others []*facts.Rail
	var read []string
	where := ""
	for _, v := range list {
		if v.value == want {
			others, where = append(others, v.rail), v.where
			continue
		}
		odd = append(odd, v.rail)
		read = append(read, fmt.Sprintf("%s on %s (%s)", v.value, v.rail, v.where))
	}
	return Finding{Severity: Warning, Subject: railsOf(odd),
		Evidence: fmt.Sprintf("%s: %s, but %s on %s (%s)", row.what, listed(read), want, railsOf(others), where),
		Why:      row.reason(), Fix: row.fixAll(odd, want)}, len(odd) > 0
}

// fixAll fixes a few of many rails: the others are fixed likewise.
func (row qosRow) fixAll(rails []*facts.Rail, value string) (lines []string) {
	for _, r := range rails[:min(len(rails), 8)] {
		lines = append(lines, row.fix(r, value)...)
	}
	return lines
}

// comparePeerQoS finds settings that two nodes have, each on all of its rails of
// a kind alike, and unlike each other. On a node whose own rails differ, that is
// the finding.
func comparePeerQoS(group qosGroup) func(here, there *facts.Facts, report func(Finding)) {
	return func(here, there *facts.Facts, report func(Finding)) {
		eachSetting(group, here, func(row qosRow, kind string, a []qosValue) {
			b := qosValues(there, row.name)[kind]
			if len(b) == 0 || !uniform(a) || !uniform(b) || a[0].value == b[0].value {
				return
			}
			var rails []*facts.Rail
			for _, v := range a {
				rails = append(rails, v.rail)
			}
			report(Finding{Severity: Warning, Subject: railsOf(rails),
				Evidence: fmt.Sprintf("%s: %s here (%s), %s on the peer (%s)", row.what, a[0].value, a[0].where,
					b[0].value,
					b[0].where),
				Why: row.reason(),
				Fix: append([]string{"# sets the peer's value; make sure first that the switches use it, too"},
					row.fixAll(rails, b[0].value)...)})
		})
	}
}

func uniform(list []qosValue) bool {
	return !slices.ContainsFunc(list, func(v qosValue) bool { return v.value != list[0].value })
}
