package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/railscope/railscope/doctor/classes"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/terminal"
)

type qosGroup int

const (
	qosPFC qosGroup = iota
	qosDCQCN
	qosClass
)

// qosRow is one setting that rails should have in common. In its fix NETDEV, DEVICE and PORT are the rail's, VALUE is
// the value as one word, WORDS as several, ON and OFF are the priorities that the value includes and the others, and
// ENABLED is ON with ":on".
type qosRow struct {
	group     qosGroup
	name      string // name of the setting in facts.QoS
	what, why string
	fix       []string
}

const (
	whyPFC = "PFC must be on for the same priorities on each rail, adapter and switch, or RoCE loses packets under " +
		"load."
	whyTrust = "Trust selects the field by which the adapter sorts packets into priorities: RoCE without a VLAN tag " +
		"has only its DSCP, so with pcp all of it is in priority 0, without PFC."
	whyDSCP = "The adapter sorts packets into priorities by their DSCP: with another table RoCE is in another " +
		"priority, without PFC."
	whyPause = "Global pause replaces PFC and stops all priorities at once, also those that PFC would let pass."
	whyDCQCN = "Rails share a job's load: one that reacts differently to congestion is slower, or displaces the others."
	whyClass = "The traffic class selects the queue of adapter and switch: another one leaves the lossless queue."
)

func qosRows() []qosRow {
	const ecn = "; do echo %d > /sys/class/net/NETDEV/ecn/%s/enable/$p; done"
	fixECN := func(side string) []string {
		return []string{fmt.Sprintf("for p in ON"+ecn, 1, side), fmt.Sprintf("for p in OFF"+ecn, 0, side)}
	}
	rows := []qosRow{
		{qosPFC, "pfc", "PFC priorities", whyPFC, []string{"dcb pfc set dev NETDEV prio-pfc all:off ENABLED"}},
		{qosPFC, "trust", "trust", whyTrust, []string{"mlnx_qos -i NETDEV --trust=VALUE"}},
		{qosPFC, "dscp", "priorities by DSCP", whyDSCP, []string{"# dcb app replace dev NETDEV dscp-prio " +
			"DSCP:PRIORITY, for each of VALUE (priority=DSCPs)"}},
		{qosPFC, "pause", "global pause", whyPause, []string{"ethtool -A NETDEV WORDS"}},
		{qosDCQCN, "roce_np", "DCQCN notification point priorities", whyDCQCN, fixECN("roce_np")},
		{qosDCQCN, "roce_rp", "DCQCN reaction point priorities", whyDCQCN, fixECN("roce_rp")},
		{qosClass, "traffic_class", "traffic class", whyClass,
			[]string{"echo VALUE > /sys/class/infiniband/DEVICE/tc/PORT/traffic_class"}},
		{qosClass, "roce_tos", "default TOS of rdma_cm", whyClass,
			[]string{"mkdir -p /sys/kernel/config/rdma_cm/DEVICE && echo VALUE > " +
				"/sys/kernel/config/rdma_cm/DEVICE/ports/PORT/default_roce_tos"}},
	}
	for _, name := range facts.CongestionParameters() {
		rows = append(rows, qosRow{qosDCQCN, name, "DCQCN parameter " + name, whyDCQCN,
			[]string{"echo VALUE > /sys/kernel/debug/mlx5/$(basename $(readlink -f " +
				"/sys/class/infiniband/DEVICE/device))/cc_params/" + name}})
	}
	return rows
}

func (row qosRow) lines(r *facts.Rail, value string) (lines []string) {
	if value == "unset" {
		return []string{note("only reloading the driver of %s unsets the %s: better set one on all rails", r.Device,
			row.what)}
	}
	var words, on, off, enabled []string
	for word := range strings.FieldsSeq(value) {
		words = append(words, shellWord(word))
	}
	list := strings.Split(value, ",")
	for p := range strings.FieldsSeq("0 1 2 3 4 5 6 7") {
		if slices.Contains(list, p) {
			on, enabled = append(on, p), append(enabled, p+":on")
		} else {
			off = append(off, p)
		}
	}
	fill := strings.NewReplacer("NETDEV", shellWord(r.Netdev), "DEVICE", shellWord(r.Device),
		"PORT", fmt.Sprint(r.Port), "VALUE", shellWord(value), "WORDS", strings.Join(words, " "),
		"ON", strings.Join(on, " "), "OFF", strings.Join(off, " "), "ENABLED", strings.Join(enabled, " "))
	for _, line := range row.fix {
		// A loop over no priorities is skipped.
		line = strings.TrimSpace(fill.Replace(line))
		if !strings.HasPrefix(line, "for p in ;") {
			lines = append(lines, line)
		}
	}
	return lines
}

type qosValue struct {
	rail         *facts.Rail
	value, where string
}

// qosValues returns a setting's values on active rails, by kind of rail: only rails of one kind are comparable.
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
				subject, on := subjects(odd)
				report(finding.Finding{Subject: subject, Where: on, Why: row.why, Fix: row.fixAll(odd, want),
					Evidence: fmt.Sprintf("%s: %s, but %s on %s (%s)", row.what, listed(read), want, railsOf(others),
						where)})
			}
		})
	}
}

// fixAll returns the fix for at most 8 rails: it is the same for the others.
func (row qosRow) fixAll(rails []*facts.Rail, value string) (lines []string) {
	for _, r := range rails[:min(len(rails), 8)] {
		lines = append(lines, row.lines(r, value)...)
	}
	return lines
}

// comparePeerQoS finds settings that are uniform across the rails of a kind on each node but differ between the nodes.
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
			subject, where := subjects(rails)
			report(finding.Finding{Subject: subject, Where: where, Why: row.why,
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

// Thresholds for RDMA on priorities without PFC.
const (
	lossyAbove = 0.1 // share of the RDMA bytes sent
	lossyRate  = 1e6 // bytes per second that a rail sends for jobs, below which the share says nothing
)

// judgeClass finds a traffic class that leads to a priority without PFC, while another one has it.
func judgeClass(f *facts.Facts, env facts.Env, variable string) verdict {
	class, ok := classes.ClassOf(env, variable)
	if !ok {
		return verdict{}
	}
	var rails []*facts.Rail
	to, on := "", []string(nil)
	for _, r := range f.Judged() {
		priority, known := classes.LeadsTo(f, r, class)
		with, read := classes.Lossless(f, r)
		if known && read && len(with) > 0 && !slices.Contains(with, priority) {
			rails, to, on = append(rails, r), priority, with
		}
	}
	if len(rails) == 0 {
		return verdict{}
	}
	return verdict{severity: warning, why: whyClass,
		what: fmt.Sprintf("DSCP %d is priority %s on %s; PFC is on for %s", class>>2, to, railsOf(rails), listed(on)),
		advice: fmt.Sprintf("start the job with the class of the lossless priority in %s (DSCP x 4), or change the "+
			"table: dcb app show dev %s", variable, shellWord(rails[0].Netdev))}
}

// checkPeerClass finds a class of jobs that only one end treats as lossless, the first of each end. Adapters of one
// kind are compared by their settings (peer_pfc), and a class of a node's own jobs is judged by that node.
func checkPeerClass(p pair, report reporter) {
	if p.a.Kind == p.b.Kind {
		return
	}
	for _, end := range []pair{p, {p.there, p.here, p.b, p.a}} { // the jobs of a, with PFC at a and without it at b
		for _, class := range classes.Set(end.here) {
			at, known := losslessClass(end.here, end.a, class)
			there, knownThere := losslessClass(end.there, end.b, class)
			if !known || !knownThere || !at.lossless || there.lossless || there.some && slices.Contains(
				classes.Set(end.there), class) {
				continue
			}
			report(finding.Finding{Node: end.there.Node, Why: whyClass,
				Evidence: fmt.Sprintf("jobs on %s set the traffic class %d (DSCP %d): priority %s with PFC on %s, "+
					"priority %s without PFC on %s of %s", end.here.Node, class, class>>2, at.priority, end.a,
					there.priority, end.b, end.there.Node),
				Fix: []string{note("turn PFC on for the priority of DSCP %d on %s, or sort that DSCP into a priority "+
					"that has it: dcb app show dev %s; the switches must agree", class>>2, end.b,
					shellWord(end.b.Netdev))}})
			break
		}
	}
}

// sorted is the priority into which a rail sorts a traffic class.
type sorted struct {
	priority string
	lossless bool
	some     bool // some priority of the rail is lossless
}

func losslessClass(f *facts.Facts, r *facts.Rail, class int) (s sorted, known bool) {
	priority, known := classes.LeadsTo(f, r, uint8(class))
	with, read := classes.Lossless(f, r)
	return sorted{priority, slices.Contains(with, priority), len(with) > 0}, known && read
}

// checkLossyPriority finds rails that send RDMA on priorities without PFC while another has it. Others use the physical
// port as well, so that the least that can be RDMA counts: what the rail sent by RDMA, and no lossless priority
// carried. Where no rail has a lossless priority, that is the fabric's choice.
func checkLossyPriority(f *facts.Facts, report reporter) {
	var without []*facts.Rail
	some := false
	for _, r := range f.Judged() {
		on, read := classes.Lossless(f, r)
		sent := classes.SentBy(f.Live, r.Name)
		some = some || len(on) > 0
		if !read || sent.By == nil || sent.RDMA < lossyRate*f.Live.Over.Seconds() {
			continue
		}
		if len(on) == 0 {
			without = append(without, r)
			continue
		}
		lossy := sent.RDMA
		for _, p := range on {
			lossy -= sent.By[p]
		}
		if lossy <= lossyAbove*sent.RDMA {
			continue
		}
		used := slices.DeleteFunc(slices.Sorted(maps.Keys(sent.By)), func(p string) bool {
			return slices.Contains(on, p) || sent.By[p] < lossyAbove*lossy
		})
		report(finding.Finding{Subject: r.Subject(), Where: r.Where(),
			Evidence: fmt.Sprintf("at least %s of the RDMA bytes that it sent in %s were on priorities without PFC "+
				"(%s); PFC is on for "+
				"%s", terminal.Percent(lossy/sent.RDMA), minutes(f.Live.Over), listed(used), listed(on)),
			Why: "Congestion drops packets of such a priority, while the lossless one has room. Queue pairs that a " +
				"GPU makes ignore the traffic class that NCCL sets (NVIDIA/nccl#2383).",
			Fix: []string{note("give the jobs the class of a lossless priority (NCCL_IB_TC, UCX_IB_TRAFFIC_CLASS: "+
				"DSCP x 4), and let %s sort by it: dcb app show dev %[1]s", shellWord(r.Netdev)),
				"# for queue pairs of GPUs, set it for the whole device: " +
					fmt.Sprintf("/sys/class/infiniband/%s/tc/%d/traffic_class, where the driver has it", r.Device,
						r.Port)}})
	}
	if len(without) > 0 && !some {
		subject, where := subjects(without)
		report(finding.Finding{Severity: info, Subject: subject, Where: where,
			Evidence: "RDMA is sent, and PFC is on for no priority of any rail",
			Why: "RoCE works without it if congestion control (ECN) is on along the whole path: then nothing " +
				"is wrong.",
			Fix: []string{"# nothing, if the fabric is meant to be without PFC"}})
	}
}
