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
	why   string
	fix   func(r *facts.Rail, value string) []string // gives the rail this value
}

const (
	whyPFC = "PFC must be on for the same priorities on every rail, adapter and switch: where it is off, RoCE loses " +
		"packets under load, and one slow rail slows the whole job."
	whyTrust = "Trust selects the field by which the adapter sorts packets into priorities: RoCE without a VLAN tag has " +
		"only its DSCP, so with pcp all of it is in priority 0, without PFC."
	whyPause = "Global pause stops all priorities at once and replaces PFC: a rail that has it blocks what PFC would " +
		"let pass."
	whyDCQCN = "Rails of one job share its load: one that reacts to congestion differently is slower, or displaces the " +
		"others."
	whyClass = "The traffic class decides in which queue of adapter and switch packets go: a rail with another one " +
		"leaves the lossless queue."
)

func qosRows() []qosRow {
	rows := []qosRow{
		{qosPFC, "pfc", "PFC priorities", whyPFC, func(r *facts.Rail, value string) []string {
			words := []string{"all:off"}
			on, _ := splitPriorities(value)
			for _, priority := range on {
				words = append(words, priority+":on")
			}
			return []string{sh("dcb pfc set dev %s prio-pfc ", r.Netdev) + strings.Join(words, " ")}
		}},
		{qosPFC, "trust", "trust", whyTrust, func(r *facts.Rail, value string) []string {
			return []string{sh("mlnx_qos -i %s --trust=%s", r.Netdev, value)}
		}},
		{qosPFC, "pause", "global pause", whyPause, func(r *facts.Rail, value string) []string {
			line := sh("ethtool -A %s", r.Netdev)
			for word := range strings.FieldsSeq(value) {
				line += " " + shellWord(word)
			}
			return []string{line}
		}},
		{qosDCQCN, "roce_np", "DCQCN notification point priorities", whyDCQCN, fixECN("roce_np")},
		{qosDCQCN, "roce_rp", "DCQCN reaction point priorities", whyDCQCN, fixECN("roce_rp")},
		{qosClass, "traffic_class", "traffic class", whyClass, func(r *facts.Rail, value string) []string {
			if value == "unset" {
				return []string{note("only reloading the driver of %s unsets a traffic class: better set one on all rails",
					r.Device)}
			}
			return []string{sh("echo %s > /sys/class/infiniband/%s/tc/%v/traffic_class", value, r.Device, r.Port)}
		}},
		{qosClass, "roce_tos", "default TOS of rdma_cm", whyClass, func(r *facts.Rail, value string) []string {
			dir := "/sys/kernel/config/rdma_cm/" + shellWord(r.Device)
			return []string{"mkdir -p " + dir + sh(" && echo %s > ", value) + dir +
				sh("/ports/%v/default_roce_tos", r.Port)}
		}},
	}
	for _, name := range facts.CongestionParameters() {
		rows = append(rows, qosRow{qosDCQCN, name, "DCQCN parameter " + name, whyDCQCN,
			func(r *facts.Rail, value string) []string {
				return []string{sh("echo %s > /sys/kernel/debug/mlx5/$(basename $(readlink -f /sys/class/infiniband/%s/"+
					"device))/cc_params/%s", value, r.Device, name)}
			}})
	}
	return rows
}

// fixECN enables one side of DCQCN for some priorities and no others.
func fixECN(side string) func(*facts.Rail, string) []string {
	return func(r *facts.Rail, value string) (lines []string) {
		on, off := splitPriorities(value)
		for i, list := range [][]string{on, off} {
			if len(list) > 0 {
				lines = append(lines, "for p in "+strings.Join(list, " ")+
					sh("; do echo %v > /sys/class/net/%s/ecn/%s/enable/$p; done", 1-i, r.Netdev, side))
			}
		}
		return lines
	}
}

// splitPriorities parses a list of priorities; it ignores what is not a priority.
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

// qosValue is the value of one setting of one rail.
type qosValue struct {
	rail         *facts.Rail
	value, where string
}

// qosValues returns the values of a setting on active rails, by kind of rail: only for adapters of one kind is it
// certain that they mean the same by it and do the same work.
func qosValues(f *facts.Facts, name string) map[string][]qosValue {
	out := map[string][]qosValue{}
	for _, r := range f.Where(func(r *facts.Rail) bool { return r.Active() && r.Kind != "" }) {
		for _, q := range f.QoS {
			if q.Device != r.Device || q.Port != r.Port {
				continue
			}
			for _, set := range q.Settings {
				if set.Name == name {
					out[r.Kind] = append(out[r.Kind], qosValue{r, set.Value, set.Where})
				}
			}
		}
	}
	return out
}

// usual is the most frequent value, the first of several.
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
func checkQoS(group qosGroup) func(*facts.Facts, reporter) {
	return func(f *facts.Facts, report reporter) {
		eachSetting(group, f, func(row qosRow, _ string, values []qosValue) {
			want := usual(values)
			var odd, others []*facts.Rail
			var read []string
			where := ""
			for _, v := range values {
				if v.value == want {
					others, where = append(others, v.rail), v.where
					continue
				}
				odd = append(odd, v.rail)
				read = append(read, fmt.Sprintf("%s on %s (%s)", v.value, v.rail, v.where))
			}
			if len(odd) > 0 {
				report(Finding{Subject: railsOf(odd), Why: row.why, Fix: row.fixAll(odd, want),
					Evidence: fmt.Sprintf("%s: %s, but %s on %s (%s)", row.what, listed(read), want, railsOf(others), where)})
			}
		})
	}
}

// fixAll prints the fix of a few of many rails: it is the same for the others.
func (row qosRow) fixAll(rails []*facts.Rail, value string) (lines []string) {
	for _, r := range rails[:min(len(rails), 8)] {
		lines = append(lines, row.fix(r, value)...)
	}
	return lines
}

// comparePeerQoS finds settings that two nodes each have alike on all rails of a kind, but unlike each other. If the
// rails of one node differ, that is the finding.
func comparePeerQoS(group qosGroup) func(here, there *facts.Facts, report reporter) {
	return func(here, there *facts.Facts, report reporter) {
		eachSetting(group, here, func(row qosRow, kind string, a []qosValue) {
			b := qosValues(there, row.name)[kind]
			if len(b) == 0 || !uniform(a) || !uniform(b) || a[0].value == b[0].value {
				return
			}
			var rails []*facts.Rail
			for _, v := range a {
				rails = append(rails, v.rail)
			}
			report(Finding{Subject: railsOf(rails), Why: row.why,
				Evidence: fmt.Sprintf("%s: %s here (%s), %s on the peer (%s)", row.what, a[0].value, a[0].where,
					b[0].value, b[0].where),
				Fix: append([]string{"# sets the peer's value; make sure first that the switches use it, too"},
					row.fixAll(rails, b[0].value)...)})
		})
	}
}

func uniform(list []qosValue) bool {
	return !slices.ContainsFunc(list, func(v qosValue) bool { return v.value != list[0].value })
}
