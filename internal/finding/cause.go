package finding

import (
	"regexp"
	"slices"
	"strings"
)

// A consequence is a finding that another one explains: it is not shown beside its cause. The alerts omit the same
// ones.
type consequence struct {
	causes, checks []string
	anywhere       bool // a cause on any rail of the node explains it; otherwise each of its rails needs a cause
}

// Checks whose findings stop the traffic of a rail, make it slower, or only report effects on such a rail.
var (
	dead = []string{"port_down", "netdev_down", "rail_missing", "half_unused", "gid_missing", "gid_link_local",
		"gid_misbound", "bond_no_lag", "bond_mode", "bond_lacp", "bond_member_down"}
	slower   = []string{"rate_lost", "pcie_lost", "pcie_link_low"}
	failing  = []string{"link_flapping", "link_errors", "pfc_storm", "pfc_pause"}
	losing   = []string{"lossy_rail", "out_of_sequence"}
	short    = []string{"host_bottleneck", "goodput_below_expected", "goodput_degraded"}
	carrying = slices.Concat(losing, short, []string{"lossy_path", "latency_uneven", "imbalance", "rail_lags"})
)

var consequences = []consequence{
	{causes: dead, checks: slices.Concat(carrying, failing, []string{"rail_failed", "peer_gid", "gid_misbound",
		"carrier_flapping", "receive_discards", "rnr_naks", "queue_pairs_failed"})},
	{causes: slower, checks: append(slices.Clone(short), "imbalance", "latency_uneven", "rail_lags")},
	{causes: failing, checks: carrying},
	{causes: []string{"link_flapping"}, checks: []string{"carrier_flapping"}},
	{causes: losing, checks: append(slices.Clone(short), "imbalance", "latency_uneven", "lossy_path", "rail_lags")},
	{causes: losing[1:], checks: losing[:1]},
	{causes: short[:1], checks: short[1:]},
	{causes: short, checks: []string{"imbalance", "latency_uneven", "rail_lags"}},
	{causes: []string{"pcie_shared"}, checks: []string{"shared_bottleneck"}, anywhere: true},
	{causes: []string{"no_rails"}, checks: []string{"fallback", "rail_failed"}, anywhere: true},
	{causes: slices.Concat(dead, slower, failing, short, []string{"rail_failed", "no_rails", "fallback",
		"nccl_fallback", "imbalance", "rail_lags"}), checks: []string{"traffic_uneven", "single_rail"}, anywhere: true},
	{causes: []string{"nccl_fallback", "no_rails"}, checks: []string{"rdma_idle_tcp_busy"}, anywhere: true},
}

// Causes returns the findings that neither another finding of the list nor one of beside explains. A finding is
// kept if its cause is less severe.
func Causes(list []Finding, beside ...Finding) []Finding {
	all := slices.Concat(list, beside)
	return slices.DeleteFunc(slices.Clone(list), func(f Finding) bool { return explained(f, all) })
}

func explained(f Finding, all []Finding) bool {
	about := f.rails()
	for _, c := range consequences {
		if !slices.Contains(c.checks, f.Check) {
			continue
		}
		causes := slices.DeleteFunc(slices.Clone(all), func(o Finding) bool {
			wide := o.Check == f.Check && len(o.rails()) >= len(about) // a finding about several rails is less exact
			return wide || o.Node != f.Node || !slices.Contains(c.causes, o.Check) || o.Severity.Compare(f.Severity) > 0
		})
		on := func(rail string) bool {
			return slices.ContainsFunc(causes, func(o Finding) bool { return slices.Contains(o.rails(), rail) })
		}
		some := len(causes) > 0 && (c.anywhere || len(about) > 0)
		if some && (c.anywhere || !slices.ContainsFunc(about, func(rail string) bool { return !on(rail) })) {
			return true
		}
	}
	return false
}

// rails returns the names of the rails that the finding is about.
func (f Finding) rails() []string {
	if one := f.Rail(); one != "" {
		return []string{one}
	}
	names, ok := strings.CutPrefix(f.Subject, "rails ")
	if !ok {
		return nil
	}
	return strings.Split(strings.ReplaceAll(names, " and ", ", "), ", ")
}

// figure matches a word with a digit: a name, an address, a number.
var figure = regexp.MustCompile(`[^\s"]*\d[^\s"]*`)

// shape returns a text without its names and figures.
func shape(text string) string { return figure.ReplaceAllString(text, "#") }

// Joined merges equal findings of several rails for people: those that differ only in names and figures. Each line
// of a fix occurs once.
func Joined(list []Finding) (out []Finding) {
	const joint = "; "
	at, said := map[string]int{}, map[string]bool{}
	for _, f := range list {
		key := strings.Join([]string{f.Node, f.Check, string(f.Severity), f.Why, shape(f.Evidence)}, "\xff")
		i, known := at[key]
		if !known || f.Rail() == "" {
			if f.Rail() != "" {
				at[key] = len(out)
			}
			out, said[key+f.Evidence] = append(out, f), true
			continue
		}
		o := &out[i]
		o.Subject = "rails " + and(append(o.rails(), f.Rail()))
		o.Where = strings.Trim(o.Where+joint+f.Where, joint)
		if !said[key+f.Evidence] {
			o.Evidence, said[key+f.Evidence] = o.Evidence+joint+f.Evidence, true
		}
		o.Fix = slices.Clone(o.Fix)
		for _, line := range f.Fix {
			if !slices.Contains(o.Fix, line) {
				o.Fix = append(o.Fix, line)
			}
		}
	}
	return out
}

func and(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
