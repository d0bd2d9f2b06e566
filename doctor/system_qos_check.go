package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// qosGroup says to which check a setting belongs.
type qosGroup int

const (
	qosPFC qosGroup = iota
	qosDCQCN
	qosClass
)

// qosRow is one setting that rails should have alike.
type qosRow struct {
	group qosGroup
	name  string
	what  string
	debug bool                                     // a file in cc_params
	why   string                                   // where the group\'s does not do
	mend  func(p PortFacts, value string) []string // makes the rail's setting value
}

const (
	whyPFC   = "PFC has to be on for the same priorities on every rail, adapter and switch: where it is off, RoCE loses packets under load, and one slow rail slows the whole job"
	whyTrust = "by trust the adapter sorts packets into priorities: RoCE without a VLAN tag has only its DSCP, so that with pcp all of it is in priority 0, for which PFC is off"
	whyPause = "global pause stops all priorities at once, and takes the place of PFC: a rail that has it holds up what PFC would let pass"
	whyDCQCN = "rails of one job share its load: one that reacts to congestion in another way is slower or pushes the others aside"
	whyClass = "the traffic class decides in which queue of adapter and switch packets go: a rail with another one leaves the lossless queue"
)

func (row qosRow) reason() string {
	if row.why != "" {
		return row.why
	}
	return [...]string{whyPFC, whyDCQCN, whyClass}[row.group]
}

func qosRows() []qosRow {
	rows := []qosRow{
		{group: qosPFC, name: "pfc", what: "PFC priorities", mend: func(p PortFacts, value string) []string {
			words := []string{"all:off"}
			on, _ := splitPriorities(value)
			for _, priority := range on {
				words = append(words, priority+":on")
			}
			return []string{fmt.Sprintf("dcb pfc set dev %s prio-pfc %s", shellWord(p.Netdev), strings.Join(words, " "))}
		}},
		{group: qosPFC, name: "trust", what: "trust", why: whyTrust, mend: func(p PortFacts, value string) []string {
			return []string{fmt.Sprintf("mlnx_qos -i %s --trust=%s", shellWord(p.Netdev), shellWord(value))}
		}},
		{group: qosPFC, name: "pause", what: "global pause", why: whyPause, mend: func(p PortFacts, value string) []string {
			words := strings.Fields(value)
			for i := range words {
				words[i] = shellWord(words[i])
			}
			return []string{fmt.Sprintf("ethtool -A %s %s", shellWord(p.Netdev), strings.Join(words, " "))}
		}},
		{group: qosDCQCN, name: "roce_np", what: "DCQCN notification point priorities", mend: mendECN("roce_np")},
		{group: qosDCQCN, name: "roce_rp", what: "DCQCN reaction point priorities", mend: mendECN("roce_rp")},
		{group: qosClass, name: "traffic_class", what: "traffic class", mend: func(p PortFacts, value string) []string {
			if value == "unset" {
				return []string{fmt.Sprintf("# a traffic class that was set is unset only when the driver of %s is loaded anew: better set one on all rails", clean(p.Device))}
			}
			return []string{fmt.Sprintf("echo %s > /sys/class/infiniband/%s/tc/%d/traffic_class", shellWord(value), shellWord(p.Device), p.Port)}
		}},
		{group: qosClass, name: "roce_tos", what: "default TOS of rdma_cm", mend: func(p PortFacts, value string) []string {
			dir := "/sys/kernel/config/rdma_cm/" + shellWord(p.Device)
			return []string{fmt.Sprintf("mkdir -p %s && echo %s > %s/ports/%d/default_roce_tos", dir, shellWord(value), dir, p.Port)}
		}},
	}
	for _, name := range []string{"np_cnp_dscp", "np_cnp_prio", "np_cnp_prio_mode", "np_min_time_between_cnps", "rp_ai_rate", "rp_hai_rate", "rp_min_rate", "rp_clamp_tgt_rate"} {
		rows = append(rows, qosRow{group: qosDCQCN, name: name, what: "DCQCN parameter " + name, debug: true, mend: func(p PortFacts, value string) []string {
			return []string{fmt.Sprintf("echo %s > /sys/kernel/debug/mlx5/$(basename $(readlink -f /sys/class/infiniband/%s/device))/cc_params/%s", shellWord(value), shellWord(p.Device), name)}
		}})
	}
	return rows
}

// mendECN enables one side of DCQCN for some priorities and no others.
func mendECN(side string) func(PortFacts, string) []string {
	return func(p PortFacts, value string) []string {
		dir := fmt.Sprintf("/sys/class/net/%s/ecn/%s/enable", shellWord(p.Netdev), side)
		on, off := splitPriorities(value)
		var lines []string
		for _, part := range []struct {
			list  []string
			value int
		}{{on, 1}, {off, 0}} {
			if len(part.list) > 0 {
				lines = append(lines, fmt.Sprintf("for p in %s; do echo %d > %s/$p; done", strings.Join(part.list, " "), part.value, dir))
			}
		}
		return lines
	}
}

// qosValue is what one rail has of one setting.
type qosValue struct {
	port         PortFacts
	value, where string
}

// qosValues returns the values of a setting on active rails, by kind of rail:
// only adapters of one kind are sure to mean the same by it, and to do the same
// work.
func qosValues(f *Facts, name string) map[string][]qosValue {
	out := map[string][]qosValue{}
	for _, p := range f.System.Ports[:min(len(f.System.Ports), maxPorts)] { // a peer's is not to be trusted
		if !p.Active || p.Kind == "" {
			continue
		}
		for _, q := range f.System.QoS[:min(len(f.System.QoS), maxPorts)] {
			if q.Device != p.Device || q.Port != p.Port {
				continue
			}
			for _, set := range q.Settings[:min(len(q.Settings), 64)] {
				if set.Name == name {
					out[p.Kind] = append(out[p.Kind], qosValue{p, clean(set.Value), clean(set.Where)})
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

// checkQoS finds rails of one kind that differ.
func checkQoS(group qosGroup) func(*Facts, func(Finding)) {
	return func(f *Facts, found func(Finding)) {
		for _, row := range qosRows() {
			if row.group != group {
				continue
			}
			values := qosValues(f, row.name)
			for _, kind := range slices.Sorted(maps.Keys(values)) {
				if finding, ok := row.odd(values[kind]); ok {
					found(finding)
				}
			}
		}
	}
}

// odd is the finding that some have another value than most.
func (row qosRow) odd(list []qosValue) (Finding, bool) {
	want := usual(list)
	var odd, others []PortFacts
	var read, mend []string
	where := ""
	for _, v := range list {
		if v.value == want {
			others, where = append(others, v.port), v.where
			continue
		}
		odd = append(odd, v.port)
		read = append(read, fmt.Sprintf("%s on %s (%s)", v.value, v.port.name(), v.where))
		if len(odd) <= 8 {
			mend = append(mend, row.mend(v.port, want)...)
		}
	}
	return Finding{
		Severity: Warning, Subject: railsOf(odd),
		Read: fmt.Sprintf("%s: %s, but %s on %s (%s)", row.what, listed(read), want, railsOf(others), where),
		Why:  row.reason(),
		Mend: mend,
	}, len(odd) > 0
}

// comparePeerQoS finds settings that two nodes have, each on all of its rails of
// a kind alike, and unlike each other. A node whose own rails differ hears that
// first.
func comparePeerQoS(group qosGroup) func(here, there *Facts, found func(Finding)) {
	return func(here, there *Facts, found func(Finding)) {
		for _, row := range qosRows() {
			if row.group != group {
				continue
			}
			ours, theirs := qosValues(here, row.name), qosValues(there, row.name)
			for _, kind := range slices.Sorted(maps.Keys(ours)) {
				a, b := ours[kind], theirs[kind]
				if len(b) == 0 || !uniform(a) || !uniform(b) || a[0].value == b[0].value {
					continue
				}
				var ports []PortFacts
				var mend []string
				for _, v := range a {
					ports = append(ports, v.port)
					if len(ports) <= 8 {
						mend = append(mend, row.mend(v.port, b[0].value)...)
					}
				}
				found(Finding{
					Severity: Warning, Subject: railsOf(ports),
					Read: fmt.Sprintf("%s: %s here (%s), %s on the peer (%s)", row.what, a[0].value, a[0].where, b[0].value, b[0].where),
					Why:  row.reason(),
					Mend: append([]string{"# this makes it as it is on the peer; make sure first that the peer's is what the switches have"}, mend...),
				})
			}
		}
	}
}

func uniform(list []qosValue) bool {
	return !slices.ContainsFunc(list, func(v qosValue) bool { return v.value != list[0].value })
}
