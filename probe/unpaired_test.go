package probe

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/history"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/result"
)

// numbered returns the names of n rails: "0 1 2".
func numbered(n int) string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprint(i))
	}
	return strings.Join(names, " ")
}

// TestFindUnpaired: which rails without a partner are unpaired, and which are faults. Rails are "name@role"; the
// role "?" is unknown, as from an older railscope.
func TestFindUnpaired(t *testing.T) {
	t.Parallel()
	const older = "older" // the peer does not report missing rails
	for _, tc := range []struct {
		why             string
		own, peers      string // name, name@role or name=prefix of each rail
		before, misses  string // "name-partner" of earlier rounds, and the peer's list of missing rails
		unpaired, fault string
		missing         string // rails of the fault that are known to be missing
	}{
		{"equal", numbered(8), numbered(8), "", "", "", "", ""},
		{"8 against 2", numbered(8), numbered(2), "", "", "2 3 4 5 6 7", "", ""},
		{"8 against 2 of an older version", numbered(8), numbered(2), "", older, "2 3 4 5 6 7", "", ""},
		{"2 against 8", numbered(2), numbered(8), "", "", "", "", ""},
		{"16 against 8", numbered(16), numbered(8), "", "", "8 9 10 11 12 13 14 15", "", ""},
		{"8 against 1", numbered(8), "0", "", "", "1 2 3 4 5 6 7", "", ""},
		{"8 against the last of 8", numbered(8), "7", "", "", "0 1 2 3 4 5 6", "", ""},
		{"no rail there", "0 1", "", "", "", "", "0 1", ""},
		{"other names, as many", "0 1 2", "0 a b", "", "", "", "1 2", ""},
		{"other names, fewer", "0 1 2 3", "0 a", "", "", "", "1 2 3", ""},
		{"other names, none in common", "0 1 2", "a b", "", "", "", "0 1 2", ""},
		{"the peer misses one of those that it had", numbered(4), "0 1", "", "2", "3", "2", "2"},
		{"it misses one, and has as many else", numbered(3), "0 1", "", "2", "", "2", "2"},
		{"it misses one under another name", numbered(4), "0 1", "3-x", "x", "2", "3", "3"},
		{"it misses one of no known partner", numbered(4), "0 1", "", "east", "", "2 3", ""},
		{"an earlier round used one more", numbered(4), "0 1", "2-2", "", "3", "2", ""},
		{"an earlier round used one more, of an older peer", numbered(4), "0 1", "2-2", older, "3", "2", "2"},
		{"an earlier round used the same otherwise", numbered(3), "0 1", "2-1", older, "2", "", ""},
		{"a rail for storage is left there", numbered(4), "0 1 s@storage", "", "", "2 3", "", ""},
		{"our rail for storage", "0 1 s@storage", "0 1", "", "", "s", "", ""},
		{"a ring of three nodes, without a switch", "0=10.0.0.1/24 1=10.0.2.1/24 2=10.0.1.1/24 3=10.0.3.1/24",
			"0=10.0.4.1/24 1=10.0.0.2/24 2=10.0.5.1/24 3=10.0.1.2/24", "", "", "1 3", "", ""},
		{"crossed cables, one of which has wrong addresses", "0=10.0.0.1/24 1=10.0.1.1/24", "0 1=10.0.0.2/24", "", "", "",
			"1", ""},
		{"straight cables, one of which has wrong addresses", "0=10.0.0.1/24 1=10.0.1.1/24", "0=10.0.0.2/24 1=10.0.2.2/24",
			"", "", "", "", ""},
		{"a rail of unknown role is left there", numbered(4), "0 1 a@?", "", "", "", "2 3", ""},
	} {
		n := bareNode(t, "self")
		r := &round.Round{Pairing: round.Pairing{Node: n, Client: &control.Client{}, Past: &history.PastPeer{}}}
		for name := range strings.FieldsSeq(tc.own) {
			l := node.LocalRail{Rail: rail.Rail{Role: rail.Compute}}
			l.Name = name
			if strings.Contains(name, "@") {
				l.Name, l.Role, _ = strings.Cut(name, "@")
			}
			l.Name, l.Prefixes = withPrefix(t, l.Name)
			r.Rails = append(r.Rails, l)
		}
		for name := range strings.FieldsSeq(tc.peers) {
			h := protocol.HelloRail{Name: name, Role: rail.Compute}
			if strings.Contains(name, "@") {
				h.Name, h.Role, _ = strings.Cut(name, "@")
				h.Role = strings.TrimPrefix(h.Role, "?")
			}
			h.Name, h.Prefixes = withPrefix(t, h.Name)
			r.Remote.Rails = append(r.Remote.Rails, h)
		}
		for pair := range strings.FieldsSeq(tc.before) {
			name, partner, _ := strings.Cut(pair, "-")
			r.Past.Rails = append(r.Past.Rails, history.PastRail{Name: name, Partner: partner})
		}
		if tc.misses != older {
			r.Remote.Missing = []protocol.HelloMissing{}
			for name := range strings.FieldsSeq(tc.misses) {
				r.Remote.Missing = append(r.Remote.Missing, protocol.HelloMissing{Name: name})
			}
		}
		r.Res.Rails = r.Pair()
		r.Res.Missing = r.FindMissing()
		r.FindUnpaired()
		var fault, missing []string
		for _, p := range r.Live() {
			if p.Peer == nil {
				fault = append(fault, p.Local.Name)
			}
		}
		for _, m := range r.Res.Missing {
			missing = append(missing, m.Rail)
		}
		for what, v := range map[string][2]string{"unpaired": {strings.Join(r.Res.Unpaired(), " "), tc.unpaired},
			"fault": {strings.Join(fault, " "), tc.fault}, "missing": {strings.Join(missing, " "), tc.missing}} {
			if v[0] != v[1] {
				t.Errorf("%s: %s %q, want %q", tc.why, what, v[0], v[1])
			}
		}
	}
}

// fewer starts two nodes and leaves b only some rails before it has read any, so it never had the others. Their
// interfaces stay.
func fewer(t *testing.T, a, b int) *pairOfNodes {
	t.Helper()
	p := newPair(t, max(a, b), nil)
	for i := range max(a, b) {
		for node, rails := range map[string]int{"a": a, "b": b} {
			if i >= rails {
				p.unplug(node, fmt.Sprintf("mlx5_%d", i))
			}
		}
	}
	return p
}

// TestUnpaired: with a peer that has fewer rails, the paired rails decide the round, over RDMA and over TCP.
func TestUnpaired(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ a, b int }{{4, 2}, {8, 1}} {
		t.Run(fmt.Sprint(tc.a, "-", tc.b), func(t *testing.T) {
			t.Parallel()
			p := fewer(t, tc.a, tc.b)
			res := p.round()
			if want := strings.Fields(numbered(tc.a))[tc.b:]; res.Outcome != result.OK || len(res.Failures) > 0 ||
				len(res.Missing) > 0 || !slices.Equal(res.Unpaired(), want) || res.PeerRails != tc.b {
				t.Fatalf("%s because of %q (%s), failures %v, missing %+v, unpaired %q, %d rails there", res.Outcome,
					res.Reason, res.Detail, res.Failures, res.Missing, res.Unpaired(), res.PeerRails)
			}
			for _, one := range res.Rails[tc.b:] {
				if one.Failure != nil || one.Expected != nil || one.Loss != nil || one.Share != nil || one.Bytes > 0 {
					t.Errorf("%+v", one)
				}
			}
			if (res.Imbalance != nil) != (tc.b > 1) || (res.Scaling != nil) != (tc.b > 1) {
				t.Errorf("imbalance %v, scaling %v", value(res.Imbalance), value(res.Scaling))
			}
			for _, tcp := range res.TCP {
				if len(tcp.Rails) != tc.b {
					t.Errorf("a baseline over %+v", tcp.Rails)
				}
			}
		})
	}
}

// exclude excludes devices of a node by its configuration.
func (p *pairOfNodes) exclude(name string, n *node.Node, devices string) {
	finder := rail.NewFinder(p.fabric.Sysfs(name), rail.Options{Exclude: regexp.MustCompile(devices)}, nil, time.Second)
	n.Opts.Rails, n.Opts.Missing = finder.Rails, func() []rail.Missing { return finder.Snapshot().Missing }
}

// TestUnpairedReverse: a node with fewer rails than its peer lacks nothing, even if its configuration excludes
// some.
func TestUnpairedReverse(t *testing.T) {
	t.Parallel()
	for why, prepare := range map[string]func(p *pairOfNodes){
		"it never had more": func(p *pairOfNodes) {
			p.unplug("a", "mlx5_2")
			p.unplug("a", "mlx5_3")
			p.a = p.node("a", 2) // their interfaces do not exist either
		},
		"it excludes them": func(p *pairOfNodes) {
			p.exclude("a", p.a, "[23]$")
		},
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, 4, nil)
			prepare(p)
			res := p.round()
			if res.Outcome != result.OK || len(res.Rails) != 2 || len(res.Failures)+len(res.Missing)+
				len(res.Unpaired()) > 0 {
				t.Errorf("%s, %d rails, failures %v, missing %+v, unpaired %q", res.Outcome, len(res.Rails),
					res.Failures, res.Missing, res.Unpaired())
			}
		})
	}
}

// TestUnpairedExcluded: a peer whose configuration excludes rails, from its start or since a reload, has fewer.
// After a reload, earlier rounds contradict that for a day.
func TestUnpairedExcluded(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, nil)
	p.exclude("b", p.b, "1$")
	if res := p.round(); res.Outcome != result.OK || !slices.Equal(res.Unpaired(), []string{"1"}) {
		t.Errorf("from the start: %s, failures %v, unpaired %q", res.Outcome, res.Failures, res.Unpaired())
	}
	past := p.a.Past.Of(p.peer, "b")
	past.Rails = append(past.Rails, history.PastRail{Name: "1", Partner: "1", At: time.Now().Add(-history.KeepPast + time.Minute)})
	if res := p.round(); res.Outcome != result.Degraded || len(res.Unpaired()) > 0 {
		t.Errorf("since a reload: %s, failures %v, unpaired %q", res.Outcome, res.Failures, res.Unpaired())
	}
	past.Rail("1").At = time.Now().Add(-history.KeepPast)
	p.round() // drops the excluded rails
	if res := p.round(); res.Outcome != result.OK || !slices.Equal(res.Unpaired(), []string{"1"}) {
		t.Errorf("a day later: %s, failures %v, unpaired %q", res.Outcome, res.Failures, res.Unpaired())
	}
}

// TestUnpairedAndMissing: a rail that the peer loses is a fault in every later round, beside the rails that it
// never had, even for a node that starts later.
func TestUnpairedAndMissing(t *testing.T) {
	t.Parallel()
	p := fewer(t, 4, 2)
	if res := p.round(); res.Outcome != result.OK {
		t.Fatalf("%s, failures %v", res.Outcome, res.Failures)
	}
	p.remove("b", "mlx5_1")
	for _, who := range []string{"which knows both", "which knows both", "which starts now"} {
		if who == "which starts now" {
			p.a = p.node("a", 4)
		}
		res := p.round()
		if res.Outcome != result.Degraded || len(res.Missing) != 1 || res.Missing[0].Rail != "1" ||
			len(res.Failures) != 1 ||
			res.Failures[0].Rail != "1" || res.Failures[0].Reason != failure.NoPeerRail ||
			!slices.Equal(res.Unpaired(), []string{"2", "3"}) {
			t.Errorf("a node %s: %s, failures %v, missing %+v, unpaired %q", who, res.Outcome, res.Failures,
				res.Missing, res.Unpaired())
		}
	}
}

// TestUnpairedFailed: when all paired rails fail, the round falls back because of them.
func TestUnpairedFailed(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, func(node string, i int, d *fakeverbs.Device) { d.Down = node == "b" && i == 1 })
	p.unplug("b", "mlx5_0")
	res := p.round()
	if res.Outcome != result.Fallback || res.Reason != failure.PortDown ||
		!slices.Equal(res.Unpaired(), []string{"0"}) {
		t.Errorf("%s because of %q (%s), unpaired %q", res.Outcome, res.Reason, res.Detail, res.Unpaired())
	}
}

// TestUnpairedLoss: losses of jobs on an unpaired rail do not count as the round's. Nor do those of a rail that has
// only one reading.
func TestUnpairedLoss(t *testing.T) {
	t.Parallel()
	r := twoRails(&history.PastPeer{}, false)
	r.Res.Rails[1].Unpaired = true
	reading := func(sent uint64) map[string]rail.Traffic {
		now := rail.Traffic{Transmit: sent << 20, Retransmits: 9 * sent, CountsRetransmits: true}
		return map[string]rail.Traffic{"0": now, "1": now}
	}
	round.CountLoss(r.Flows, nil, reading(0)) // without a reference nothing is counted
	round.CountLoss(r.Flows, reading(0), reading(1))
	late := twoRails(&history.PastPeer{}, false)
	round.CountLoss(late.Flows, map[string]rail.Traffic{"1": {CountsRetransmits: true}},
		map[string]rail.Traffic{"0": {Retransmits: 9, CountsRetransmits: true}})
	if late.Res.Rails[0].Loss != nil || late.Res.Rails[1].Loss != nil {
		t.Errorf("rails with one reading each: %+v, %+v", late.Res.Rails[0].Loss, late.Res.Rails[1].Loss)
	}
	if l := r.Res.Rails[0].Loss; l == nil || l.Retransmits != 9 || r.Res.Rails[1].Loss != nil {
		t.Errorf("%+v, unpaired %+v", l, r.Res.Rails[1].Loss)
	}
}

// TestMissingRemembered: a rail whose partner is missing is remembered while rounds report it missing.
func TestMissingRemembered(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var p history.PastPeer
	p.Note(resultOf(2, now), false)
	gone := func(missing bool) *result.Result {
		now = now.Add(history.KeepPast - time.Hour)
		res := resultOf(2, now)
		res.Rails[1].PeerRail = ""
		if missing {
			res.Missing = []result.MissingRail{{Rail: "1", Peer: true, Known: true}}
		}
		return res
	}
	for range 3 {
		p.Note(gone(true), false)
		if p.Partner("1") != "1" {
			t.Fatal("a missing rail was forgotten")
		}
	}
	p.Note(gone(false), false)
	p.Note(gone(false), false)
	if p.Partner("1") != "" {
		t.Error("a rail that is not missing is remembered for more than a day")
	}
}

// withPrefix divides name=prefix.
func withPrefix(t *testing.T, text string) (name string, prefixes []netip.Prefix) {
	t.Helper()
	name, prefix, ok := strings.Cut(text, "=")
	if !ok {
		return name, nil
	}
	p, err := netip.ParsePrefix(prefix)
	if err != nil {
		t.Fatal(err)
	}
	return name, []netip.Prefix{p}
}
