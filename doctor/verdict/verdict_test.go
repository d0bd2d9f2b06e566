package verdict

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/proof"
	"github.com/railscope/railscope/internal/status"
)

func raised(check string, severity finding.Severity, subject string) finding.Raised {
	return finding.Raised{Finding: finding.Finding{Check: check, Severity: severity, Subject: subject}}
}

// statusOf returns the status of a node with 8 rails that are up, and these findings.
func statusOf(found ...finding.Raised) status.Status {
	at, up := time.Now(), true
	s := status.Status{Version: status.Version, At: at, Examination: status.Examination{At: &at, Done: 2},
		Findings: found}
	for range 8 {
		s.Rails = append(s.Rails, status.Rail{Up: &up})
	}
	return s
}

// provedBefore returns a good state whose rails were proved so long ago, and the last one at another time, or never if
// that is negative.
func provedBefore(all, last time.Duration) status.Status {
	s := statusOf()
	for i := range s.Rails {
		s.Rails[i].Proof = &proof.Proof{By: proof.ByTraffic, Rate: 1, At: s.At.Add(-all)}
	}
	s.Rails[7].Proof.At = s.At.Add(-last)
	if last < 0 {
		s.Rails[7].Proof = nil
	}
	return s
}

func unused(s status.Status) status.Status {
	s.Rails[7].Unused = true
	return s
}

func withFound(s status.Status, found ...finding.Raised) status.Status {
	s.Findings = found
	return s
}

// TestJudge: the state of a node that its status shows is judged in one line.
func TestJudge(t *testing.T) {
	down, slow := raised("port_down", finding.Critical, "rail 3"), raised("pcie_link_low", finding.Warning, "rail 1")
	lost, benign := raised("rate_lost", finding.Critical, "rail 5"), raised("step_failed", finding.Info, "peer a")
	fallen, also := raised("fallback", finding.Critical, "peer a"), raised("fallback", finding.Critical, "peer b")
	peersOf := func(n int, found ...finding.Raised) status.Status {
		s := statusOf(found...)
		s.Peers = make([]status.Peer, n)
		return s
	}
	silenced := down
	silenced.Silenced = "known"
	long := raised("port_down", finding.Critical, "rail "+strings.Repeat("ü", 100))
	started := statusOf()
	started.Examination = status.Examination{}
	failed, old, drained, degraded := statusOf(), statusOf(), statusOf(down), statusOf(slow, benign)
	why := "context deadline exceeded"
	failed.Examination.Error = &why
	old.At = old.At.Add(6 * time.Minute)
	drained.Maintenance = true
	is := false
	oneDown := func(found ...finding.Raised) status.Status {
		s := statusOf(found...)
		s.Rails[3].Name, s.Rails[3].Up = "3", &is
		return s
	}
	noCable := oneDown()
	noCable.Rails[3].Unused = true
	recovering, half := down, raised("half_unused", finding.Warning, "rail 3")
	recovering.Recovering = true
	unread, badUnread, oldDown, oldNow := statusOf(), statusOf(down), statusOf(down), statusOf(down)
	unread.Rails[2].Name, unread.Rails[2].Up, badUnread.Rails[2].Up = "2", nil, nil
	oldDown.At, oldNow.At = oldDown.At.Add(6*time.Minute), oldNow.At.Add(6*time.Minute)
	oldNow.Examination.Hard = &oldNow.At
	for _, tt := range []struct {
		name   string
		status status.Status
		change func(*Criteria)
		want   string
		exit   int
	}{
		{"nothing", statusOf(), nil, "ok: 8 rails up", 0},
		{"proofs of all rails", provedBefore(time.Second, 13*time.Minute), nil, "ok: 8 rails up, proved 13 min ago", 0},
		{"proofs of some", provedBefore(time.Second, -1), nil, "ok: 8 rails up, 7 proved", 0},
		{"proofs, and an unused rail without", unused(provedBefore(time.Second, -1)), nil,
			"ok: 7 rails up, 1 unused, proved less than 1 min ago", 0},
		{"proofs beside a warning", withFound(provedBefore(time.Second, time.Hour), slow), nil,
			"ok: 8 rails up, proved 1 h 0 min ago, 1 warning", 0},
		{"a rail that no finding is about", oneDown(), nil, "critical: rail 3: port down", 1},
		{"one that recovers by its finding, and is down", oneDown(recovering), nil, "critical: rail 3: port down", 1},
		{"one that recovers", statusOf(recovering), nil, "ok: 8 rails up, 1 recovering", 0},
		{"one that recovers, asked for", statusOf(recovering), func(c *Criteria) { c.Only = []string{"port_down"} },
			"ok: 8 rails up, 1 recovering", 0},
		{"a port without cable", noCable, nil, "ok: 7 rails up, 1 unused", 0},
		{"one that is down, and silenced", oneDown(silenced), nil, "ok: 7 rails up, 1 down and silenced", 0},
		{"one that is down, and ignored", oneDown(down), func(c *Criteria) { c.Ignore = []string{"port_down"} },
			"ok: 7 rails up, 1 down and ignored", 0},
		{"one that is down, and not asked for", oneDown(down), func(c *Criteria) { c.Only = []string{"rate_lost"} },
			"ok: 7 rails up, 1 down and ignored", 0},
		{"one that is down by less than asked for", oneDown(half, slow), nil,
			"warning: rail 3: half unused, 7 of 8 rails up", 0},
		{"one that is down beside a bond that is empty", oneDown(raised("bond_empty", finding.Warning, "bond b")), nil,
			"critical: rail 3: port down", 1},
		{"one that is down in a bond", oneDown(raised("bond_member_down", finding.Critical, "bond b")), nil,
			"critical: bond b: bond member down", 1},
		{"a rail that could not be read", unread, nil, "unknown: rail 2: its state could not be read", 2},
		{"a rail that could not be read, and another is down", badUnread, nil, "critical: rail 3: port down", 1},
		{"what railscope itself lacks, asked for", statusOf(raised("memlock", finding.Critical, "node")),
			func(c *Criteria) { c.Only = []string{"memlock"} }, "critical: node: memlock", 1},
		{"what railscope itself lacks", statusOf(raised("memlock", finding.Critical, "node")), nil,
			"ok: 8 rails up, 1 critical", 0},
		{"one", statusOf(down), nil, "critical: rail 3: port down", 1},
		{"more", statusOf(slow, down, lost), nil, "critical: rail 3: port down (+1 more)", 1},
		{"more that count", statusOf(slow, down, lost), func(c *Criteria) { c.Min = "warning" },
			"critical: rail 3: port down (+2 more)", 1},
		{"a warning", degraded, nil, "ok: 8 rails up, 1 warning", 0},
		{"a warning that counts", degraded, func(c *Criteria) { c.Min = "warning" },
			"warning: rail 1: pcie link low", 1},
		{"info that counts", statusOf(benign), func(c *Criteria) { c.Min = "info" },
			"info: peer a: step failed", 1},
		{"one peer of two", peersOf(2, fallen), nil, "ok: 8 rails up, 1 critical", 0},
		{"one peer of two, and a rail", peersOf(2, fallen, down), nil, "critical: rail 3: port down", 1},
		{"two peers of three", peersOf(3, fallen, also), nil, "critical: peer a: fallback (+1 more)", 1},
		{"the only peer", peersOf(1, fallen), nil, "critical: peer a: fallback", 1},
		{"silenced", statusOf(silenced), nil, "ok: 8 rails up", 0},
		{"ignored", statusOf(down, slow), func(c *Criteria) { c.Ignore = []string{"port_down", "pcie_link_low"} },
			"ok: 8 rails up", 0},
		{"others only", statusOf(down, lost), func(c *Criteria) { c.Only = []string{"rate_lost"} },
			"critical: rail 5: rate lost", 1},
		{"a long name", statusOf(long, lost), nil,
			"critical: rail " + strings.Repeat("ü", 20) + "... (+1 more)", 1},
		{"maintenance", drained, nil, "ok: maintenance, nothing is judged", 0},
		{"the examination failed", failed, nil,
			"unknown: the last examination failed: context deadline exceeded", 2},
		{"the examination hangs", old, nil, "unknown: the last examination ended 6m0s ago", 2},
		{"the examination hangs, and a rail was down", oldDown, nil, "unknown: the last examination ended 6m0s ago", 2},
		{"the examination hangs, and a rail is down now", oldNow, nil, "critical: rail 3: port down", 1},
		{"just started", started, nil, "unknown: railscope has not examined the node yet", 2},
	} {
		c := Criteria{Min: finding.Critical}
		if tt.change != nil {
			tt.change(&c)
		}
		got := c.Judge(FromStatus(&tt.status))
		if got.Text != "railscope: "+tt.want || got.Exit != tt.exit || len(got.Text) > 80 {
			t.Errorf("%s: %q, exit %d, want %q, exit %d", tt.name, got.Text, got.Exit, tt.want, tt.exit)
		}
	}
}

// TestContradict: a finding that a round with a peer did not repeat recovers if no other peer can have raised it.
// Findings from examining the node do not.
func TestContradict(t *testing.T) {
	found := func(check, subject string) finding.Finding { return finding.Finding{Check: check, Subject: subject} }
	round := &Round{Peer: "a", Found: []finding.Finding{found("latency_uneven", "rail 1")}}
	raised := func() []finding.Finding {
		return []finding.Finding{found("latency_uneven", "rail 1"), found("imbalance", "rail 1"), found("fallback", "peer a"),
			found("fallback", "peer b"), found("rail_missing", "rail 2"), found("lossy_rail", "rail 0"), found("mtu_lost", "rail 0")}
	}
	for _, tc := range []struct {
		name  string
		round *Round
		peers []string
		want  []string
	}{
		{"the only peer", round, []string{"a"}, []string{"imbalance rail 1", "fallback peer a"}},
		{"one of two peers", round, []string{"a", "b"}, []string{"fallback peer a"}},
		{"a round that was skipped", &Round{Peer: "a", Skipped: "busy"}, []string{"a"}, nil},
		{"no round", nil, []string{"a"}, nil},
	} {
		at := &status.Status{}
		for _, p := range tc.peers {
			at.Peers = append(at.Peers, status.Peer{Name: p})
		}
		var got []string
		for _, f := range tc.round.Contradict(raised(), at) {
			if f.Recovering {
				got = append(got, f.Check+" "+f.Subject)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}
