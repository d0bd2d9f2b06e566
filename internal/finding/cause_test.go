package finding

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// list makes findings of "severity check, subject".
func list(texts ...string) (out []Finding) {
	for _, text := range texts {
		severity, rest, _ := strings.Cut(text, " ")
		check, subject, _ := strings.Cut(rest, ", ")
		out = append(out, Finding{Check: check, Severity: Severity(severity), Subject: subject})
	}
	return out
}

func texts(found []Finding) (out []string) {
	for _, f := range found {
		out = append(out, string(f.Severity)+" "+f.Check+", "+f.Subject)
	}
	return out
}

// TestCauses: a cause hides the findings that it explains, and no others.
func TestCauses(t *testing.T) {
	for _, tc := range []struct {
		why   string
		found []string
		gone  []string // names of the hidden ones
	}{
		{"a rail that is down", []string{"critical port_down, rail 1", "warning rail_failed, rail 1",
			"warning single_rail, node", "warning traffic_uneven, node", "warning link_flapping, rail 1"},
			[]string{"warning rail_failed, rail 1", "warning single_rail, node", "warning traffic_uneven, node",
				"warning link_flapping, rail 1"}},
		{"an interface taken down", []string{"critical netdev_down, rail 1", "warning rail_failed, rail 1"},
			[]string{"warning rail_failed, rail 1"}},
		{"another rail failed", []string{"critical port_down, rail 1", "warning rail_failed, rail 2"}, nil},
		{"two failed, one is down", []string{"critical port_down, rail 1", "warning rail_failed, rails 1 and 2"}, nil},
		{"three are down", []string{"critical port_down, rail 1", "critical port_down, rail 2",
			"critical rail_missing, rail 10", "warning rail_failed, rails 1, 2 and 10"},
			[]string{"warning rail_failed, rails 1, 2 and 10"}},
		{"a peer's rail", []string{"warning rail_failed, rail 1", "warning single_rail, node"},
			[]string{"warning single_rail, node"}},
		{"a rail that trained down", []string{"critical rate_lost, rail 1", "warning goodput_below_expected, rail 1",
			"warning imbalance, rail 1", "warning traffic_uneven, node"}, []string{
			"warning goodput_below_expected, rail 1", "warning imbalance, rail 1", "warning traffic_uneven, node"}},
		{"a rail that lags, which a round measured", []string{"warning goodput_below_expected, rail 1",
			"warning rail_lags, rail 1", "warning rail_lags, rail 2"}, []string{"warning rail_lags, rail 1"}},
		{"rails that lag, for known reasons", []string{"critical rate_lost, rail 1", "warning rail_lags, rail 1",
			"warning lossy_rail, rail 2", "warning rail_lags, rail 2", "warning pfc_pause, rail 3",
			"warning rail_lags, rail 3"}, []string{"warning rail_lags, rail 1", "warning rail_lags, rail 2",
			"warning rail_lags, rail 3"}},
		{"traffic that is uneven beside a rail that lags", []string{"warning rail_lags, rail 1",
			"warning traffic_uneven, rail 1"}, []string{"warning traffic_uneven, rail 1"}},
		{"a slow host", []string{"warning host_bottleneck, rail 1", "warning goodput_below_expected, rail 1",
			"warning imbalance, rail 1"}, []string{"warning goodput_below_expected, rail 1", "warning imbalance, rail 1"}},
		{"a lossy link", []string{"warning link_errors, rail 1", "warning lossy_rail, rail 1",
			"warning goodput_degraded, rail 1"}, []string{"warning lossy_rail, rail 1", "warning goodput_degraded, rail 1"}},
		{"reordering, and writes that are repeated for it", []string{"warning out_of_sequence, rail 1",
			"warning lossy_rail, rail 1"}, []string{"warning lossy_rail, rail 1"}},
		{"two findings of goodput", []string{"warning goodput_below_expected, rail 1",
			"warning goodput_degraded, rail 1"}, nil},
		{"a cause and a finding that is about no rail", []string{"warning link_errors, rail 1",
			"warning lossy_rail, node"}, nil},
		{"an information explains no warning", []string{"info lossy_rail, rail 1", "warning imbalance, rail 1"}, nil},
		{"a bond over both, of the node and of the round", []string{"critical gid_misbound, rail 0",
			"critical gid_misbound, rail 1", "critical gid_misbound, rails 0 and 1"},
			[]string{"critical gid_misbound, rails 0 and 1"}},
		{"uneven for no reason", []string{"warning traffic_uneven, node", "warning single_rail, node"}, nil},
		{"a shared link", []string{"warning pcie_shared, rails 0 and 1", "warning shared_bottleneck, peer b"},
			[]string{"warning shared_bottleneck, peer b"}},
		{"no rails", []string{"critical no_rails, node", "critical fallback, peer b", "critical fallback, peer c"},
			[]string{"critical fallback, peer b", "critical fallback, peer c"}},
	} {
		var want []string
		for _, text := range tc.found {
			if !strings.Contains(strings.Join(tc.gone, ";")+";", text+";") {
				want = append(want, text)
			}
		}
		if diff := cmp.Diff(want, texts(Causes(list(tc.found...)))); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tc.why, diff)
		}
		for i, f := range list(tc.found...) { // a finding does not explain itself
			if got := Causes([]Finding{f}, list(tc.found...)...); (len(got) == 0) !=
				(len(Causes(list(tc.found...))) < len(tc.found) &&
					!strings.Contains(strings.Join(want, ";")+";", tc.found[i]+";")) {
				t.Errorf("%s: %s: %v", tc.why, tc.found[i], got)
			}
		}
	}
	elsewhere := list("critical port_down, rail 1", "warning rail_failed, rail 1")
	elsewhere[0].Node = "b"
	if got := Causes(elsewhere); len(got) != 2 {
		t.Errorf("a cause on another node: %v", got)
	}
}

// TestConsequencesEnd: no two findings explain each other.
func TestConsequencesEnd(t *testing.T) {
	explains := map[string][]string{}
	for _, c := range consequences {
		for _, cause := range c.causes {
			explains[cause] = append(explains[cause], c.checks...)
		}
	}
	var follow func(check string, from []string)
	follow = func(check string, from []string) {
		for _, before := range from {
			if before == check {
				t.Fatalf("a circle: %s, %s", strings.Join(from, ", "), check)
			}
		}
		for _, next := range explains[check] {
			if next != check { // a finding may explain the same check on fewer rails
				follow(next, append(from, check))
			}
		}
	}
	for check := range explains {
		follow(check, nil)
	}
}

// TestJoined: equal findings of several rails are merged.
func TestJoined(t *testing.T) {
	down := func(rail, netdev string) Finding {
		return Finding{Check: "port_down", Severity: Critical, Subject: "rail " + rail, Where: "mlx5_" + rail,
			Evidence: `the port is "1: DOWN"; ` + netdev + " has no carrier", Why: "It carries nothing.",
			Fix: []string{"# plug in the cable", "ip link set dev " + netdev + " up"}}
	}
	other := down("2", "eth2")
	other.Evidence = "the port waits for a subnet manager"
	node := Finding{Check: "memlock", Subject: "node"}
	got := Joined([]Finding{down("0", "eth0"), node, down("1", "eth1"), other, down("3", "eth3"), node})
	want := []Finding{{Check: "port_down", Severity: Critical, Subject: "rails 0, 1 and 3", Where: "mlx5_0; mlx5_1; mlx5_3",
		Evidence: `the port is "1: DOWN"; eth0 has no carrier; the port is "1: DOWN"; eth1 has no carrier; ` +
			`the port is "1: DOWN"; eth3 has no carrier`, Why: "It carries nothing.",
		Fix: []string{"# plug in the cable", "ip link set dev eth0 up", "ip link set dev eth1 up", "ip link set dev eth3 up"}},
		node, other, node}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestStoreCauses: the store shows causes of one source and hides their consequences of another, also while the
// cause is silenced.
func TestStoreCauses(t *testing.T) {
	s := NewStore(nil)
	show := func(why string, want ...string) {
		t.Helper()
		found, _ := s.List(at(9))
		var got []string
		for _, f := range found {
			got = append(got, f.Check)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", why, diff)
		}
	}
	for i := range 2 {
		s.Update("peer b", at(i), list("warning rail_failed, rail 1"))
	}
	show("the round alone", "rail_failed")
	for i := range 2 {
		s.Update("node", at(2+i), list("critical port_down, rail 1", "warning traffic_uneven, node"))
	}
	show("the node as well", "port_down")
	s.SetSilences([]Silence{{Check: "port_down", Until: at(99)}})
	show("silenced", "port_down")
}
