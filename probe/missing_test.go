package probe

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
)

// remove is unplug after a round.
func (p *pairOfNodes) remove(node, device string) {
	p.t.Helper()
	p.unplug(node, device)
	time.Sleep(50 * time.Millisecond) // longer than the finder keeps a listing
}

// TestMissingRail: a rail that is gone at either end makes the round degraded and imbalanced, and it says what is gone,
// whoever remembers it.
func TestMissingRail(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		why     string
		prepare func(p *pairOfNodes)
		want    MissingRail
	}{
		{"deleted here", func(p *pairOfNodes) { p.round(); p.remove("a", "mlx5_1") },
			MissingRail{Rail: "1", Device: "mlx5_1", Known: true, Role: rail.Compute,
				Detail: "this node had it before"}},
		{"deleted there", func(p *pairOfNodes) { p.round(); p.remove("b", "mlx5_1") },
			MissingRail{Rail: "1", Device: "mlx5_1", Peer: true, Known: true, Role: rail.Compute,
				Detail: "the peer had it before"}},
		{"deleted there before this node started", func(p *pairOfNodes) {
			p.round()
			p.remove("b", "mlx5_1")
			p.a = p.node("a", 2)
		}, MissingRail{Rail: "1", Device: "mlx5_1", Peer: true, Known: true, Role: rail.Compute,
			Detail: "the peer had it before"}},
		{"deleted there, and the peer does not know what it had", func(p *pairOfNodes) {
			p.round()
			p.remove("b", "mlx5_1")
			p.stopServing()
			p.b = p.node("b", 2)
			p.b.opts.Missing = nil
			p.serve()
			p.a.past.peers[p.peer] = slices.Collect(func(yield func(*pastPeer) bool) {
				for _, one := range p.a.past.peers { // it may answer at another port
					yield(one)
				}
			})[0]
		}, MissingRail{Rail: "1", Peer: true, Known: true, Role: rail.Compute,
			Detail: "an earlier round used the peer's rail 1"}},
		{"deleted here before this node started", func(p *pairOfNodes) {
			p.remove("a", "mlx5_1")
			p.a = p.node("a", 2)
		}, MissingRail{Rail: "1", Role: rail.Compute,
			Detail: "fabric1 is in the subnet of the peer's rail 1 and has no RDMA device"}},
	} {
		t.Run(tc.why, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, 2, nil)
			tc.prepare(p)
			res := p.round()
			if res.Outcome != Degraded || res.Transport != RDMA || !slices.Equal(res.Missing, []MissingRail{tc.want}) {
				t.Errorf("%s because of %q (%s), missing %+v, failures %v", res.Outcome, res.Reason, res.Detail,
					res.Missing, res.Failures)
			}
			if res.Imbalance == nil || *res.Imbalance != 1 || res.Scaling != nil {
				t.Errorf("imbalance %v, scaling %v", value(res.Imbalance), value(res.Scaling))
			}
		})
	}
}

// TestMissingNot: rails that were never there are not missing.
func TestMissingNot(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, nil)
	p.remove("a", "mlx5_1")
	p.a = p.node("a", 1) // nor is its interface
	if res := p.round(); res.Outcome != OK || len(res.Missing) > 0 {
		t.Errorf("%s, missing %+v", res.Outcome, res.Missing)
	}
	p.b.opts.Missing = func() []rail.Missing { return []rail.Missing{} } // reset there: gone on purpose
	p.remove("b", "mlx5_0")
	if res := p.round(); len(res.Missing) > 0 || len(res.Failures) == 0 {
		t.Errorf("missing on purpose: %+v, failures %v", res.Missing, res.Failures)
	}
	p.b.opts.Missing, p.a.opts.Missing = nil, nil
	p.a.past.peers = nil
	res := p.round()
	if len(res.Missing) > 0 || len(res.Failures) == 0 || res.Failures[0].Reason != failure.NoPeerRail {
		t.Errorf("%s, missing %+v, failures %v", res.Outcome, res.Missing, res.Failures)
	}
}

// TestOrdinaryInterface: which interfaces of this node make a rail of the peer one that this node lacks.
func TestOrdinaryInterface(t *testing.T) {
	t.Parallel()
	for why, tc := range map[string]struct {
		role, control string
		want          int
	}{
		"a rail for compute":           {rail.Compute, "192.0.2.2", 1},
		"an older peer":                {"", "192.0.2.2", 1},
		"a rail for storage":           {"storage", "192.0.2.2", 0},
		"in the control channel's net": {rail.Compute, "10.0.0.2", 0},
	} {
		n := bareNode(t, "self")
		n.opts.Addresses = func() (map[string][]netip.Prefix, error) {
			return map[string][]netip.Prefix{"eth0": {netip.MustParsePrefix("10.0.0.1/24")}}, nil
		}
		r := &round{node: n, client: &client{}, past: &pastPeer{}}
		r.client.remote.Store(new(netip.MustParseAddr(tc.control)))
		r.remote.Rails = []helloRail{{Name: "4", Role: tc.role,
			Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")}}}
		if list := r.findMissing(); len(list) != tc.want {
			t.Errorf("%s: %+v", why, list)
		}
	}
}

// TestMissingLoad: beside which rails a missing one counts as one that carries nothing.
func TestMissingLoad(t *testing.T) {
	t.Parallel()
	for why, tc := range map[string]struct {
		missing MissingRail
		want    bool
	}{
		"of their role":         {MissingRail{Known: true, Role: rail.Compute}, true},
		"of another role":       {MissingRail{Known: true, Role: "storage"}, false},
		"its role is not known": {MissingRail{Known: true}, false},
		"not known before":      {MissingRail{Role: rail.Compute}, true},
	} {
		r := twoRails(&pastPeer{}, false)
		r.res.Missing = []MissingRail{tc.missing}
		for i, p := range r.paths {
			p.local.Role, r.res.Rails[i].Stealing = rail.Compute, &Flow{Bytes: 1e9, Active: time.Second}
		}
		if r.judge(); (value(r.res.Imbalance) == 1) != tc.want {
			t.Errorf("%s: imbalance %v", why, value(r.res.Imbalance))
		}
	}
}

// TestPastBounded: what 1,000 peers with 8 rails cost, and that peers and rails that are gone are forgotten.
func TestPastBounded(t *testing.T) {
	var m past
	now := time.Now()
	peers := map[string]*peer{}
	for i := range 1000 {
		address := fmt.Sprintf("node-%04d:10092", i)
		peers[address] = nil
		for round := range 20 {
			m.of(address, "n").note(resultOf(8, now.Add(time.Duration(round)*time.Minute)), false, false)
		}
	}
	one := m.of("node-0000:10092", "n")
	if len(one.rails) != 8 || one.partner("3") != "3" || one.partner("8") != "" {
		t.Errorf("%+v", one.rails)
	}
	one.note(resultOf(2, now.Add(keepPast+time.Hour)), false, false)
	if len(one.rails) != 2 {
		t.Errorf("%d rails a day later", len(one.rails))
	}
	if other := m.of("node-0000:10092", "other"); len(other.rails) != 0 {
		t.Errorf("another node at the address has %+v", other.rails)
	}
	m.keep(map[string]*peer{"node-0001:10092": {}})
	if len(m.peers) != 1 {
		t.Errorf("%d peers", len(m.peers))
	}
}

// resultOf is that of a round over so many rails.
func resultOf(rails int, at time.Time) *Result {
	res := &Result{Start: at, Outcome: OK, Transport: RDMA}
	for i := range rails {
		name := fmt.Sprint(i)
		res.Rails = append(res.Rails, RailResult{Rail: name, PeerRail: name})
	}
	return res
}
