package probe

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/history"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/internal/schedule"
	"github.com/railscope/railscope/probe/result"
)

// remove unplugs a device after a round.
func (p *pairOfNodes) remove(node, device string) {
	p.t.Helper()
	p.unplug(node, device)
	time.Sleep(50 * time.Millisecond) // longer than the finder caches a listing
}

// TestMissingRail: a rail that is gone at either end makes the round degraded and imbalanced. The result names the
// rail, whichever end remembers it.
func TestMissingRail(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		why     string
		prepare func(p *pairOfNodes)
		want    result.MissingRail
	}{
		{"deleted here", func(p *pairOfNodes) { p.round(); p.remove("a", "mlx5_1") },
			result.MissingRail{Rail: "1", Device: "mlx5_1", Known: true, Role: rail.Compute,
				Detail: "this node had it before"}},
		{"deleted there", func(p *pairOfNodes) { p.round(); p.remove("b", "mlx5_1") },
			result.MissingRail{Rail: "1", Device: "mlx5_1", Peer: true, Known: true, Role: rail.Compute,
				Detail: "the peer had it before"}},
		{"deleted there before this node started", func(p *pairOfNodes) {
			p.round()
			p.remove("b", "mlx5_1")
			p.a = p.node("a", 2)
		}, result.MissingRail{Rail: "1", Device: "mlx5_1", Peer: true, Known: true, Role: rail.Compute,
			Detail: "the peer had it before"}},
		{"deleted there, and the peer does not know what it had", func(p *pairOfNodes) {
			p.round()
			p.remove("b", "mlx5_1")
			p.stopServing()
			p.b = p.node("b", 2)
			p.b.Opts.Missing = nil
			p.serve()
			p.a.Past.Peers[p.peer] = slices.Collect(func(yield func(*history.PastPeer) bool) {
				for _, one := range p.a.Past.Peers { // the peer may answer at another port
					yield(one)
				}
			})[0]
		}, result.MissingRail{Rail: "1", Peer: true, Known: true, Role: rail.Compute,
			Detail: "an earlier round used the peer's rail 1"}},
		{"deleted here before this node started", func(p *pairOfNodes) {
			p.remove("a", "mlx5_1")
			p.a = p.node("a", 2)
		}, result.MissingRail{Rail: "1", Role: rail.Compute,
			Detail: "fabric1 is in the subnet of the peer's rail 1 and has no RDMA device"}},
	} {
		t.Run(tc.why, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, 2, nil)
			tc.prepare(p)
			res := p.round()
			if res.Outcome != result.Degraded || res.Transport != result.RDMA || !slices.Equal(res.Missing,
				[]result.MissingRail{tc.want}) {
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
	p.a = p.node("a", 1) // its interface does not exist either
	if res := p.round(); res.Outcome != result.OK || len(res.Missing) > 0 {
		t.Errorf("%s, missing %+v", res.Outcome, res.Missing)
	}
	// After a reset on b, its rail counts as removed on purpose.
	p.b.Opts.Missing = func() []rail.Missing { return []rail.Missing{} }
	p.remove("b", "mlx5_0")
	if res := p.round(); len(res.Missing) > 0 || len(res.Failures) == 0 {
		t.Errorf("missing on purpose: %+v, failures %v", res.Missing, res.Failures)
	}
	p.b.Opts.Missing, p.a.Opts.Missing = nil, nil
	p.a.Past.Peers = nil
	res := p.round()
	if len(res.Missing) > 0 || len(res.Failures) == 0 || res.Failures[0].Reason != failure.NoPeerRail {
		t.Errorf("%s, missing %+v, failures %v", res.Outcome, res.Missing, res.Failures)
	}
}

// TestOrdinaryInterface: which interfaces of this node show that it lacks the partner of a peer's rail.
func TestOrdinaryInterface(t *testing.T) {
	t.Parallel()
	subnet := netip.MustParsePrefix("10.0.0.1/24")
	for why, tc := range map[string]struct {
		role, control string
		own           []node.LocalRail
		want          int
	}{
		"a rail for compute":           {rail.Compute, "192.0.2.2", nil, 1},
		"an older peer":                {"", "192.0.2.2", nil, 1},
		"a rail for storage":           {"storage", "192.0.2.2", nil, 0},
		"in the control channel's net": {rail.Compute, "10.0.0.2", nil, 0},
		"the interface of a rail": {rail.Compute, "192.0.2.2", []node.LocalRail{{Rail: rail.Rail{Netdev: "eth0"}}},
			0},
		"the address of a rail": {rail.Compute, "192.0.2.2", []node.LocalRail{{Rail: rail.Rail{Netdev: "eth1"},
			Prefixes: []netip.Prefix{subnet}}}, 0},
		"beside another rail": {rail.Compute, "192.0.2.2", []node.LocalRail{{Rail: rail.Rail{Netdev: "eth1"}}}, 1},
	} {
		n := bareNode(t, "self")
		n.Opts.Addresses = func() (map[string][]netip.Prefix, error) {
			return map[string][]netip.Prefix{"eth0": {subnet}}, nil
		}
		r := round.Pairing{Node: n, Client: &control.Client{}, Past: &history.PastPeer{}, Rails: tc.own}
		r.Client.Remote.Store(new(netip.MustParseAddr(tc.control)))
		r.Remote.Rails = []protocol.HelloRail{{Name: "4", Role: tc.role,
			Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")}}}
		list := slices.DeleteFunc(r.FindMissing(), func(m result.MissingRail) bool { return m.Rail != "4" })
		if len(list) != tc.want {
			t.Errorf("%s: %+v", why, list)
		}
	}
}

// TestMissingLoad: beside which rails a missing rail counts as a load of 0.
func TestMissingLoad(t *testing.T) {
	t.Parallel()
	for why, tc := range map[string]struct {
		missing result.MissingRail
		want    bool
	}{
		"of their role":         {result.MissingRail{Known: true, Role: rail.Compute}, true},
		"of another role":       {result.MissingRail{Known: true, Role: "storage"}, false},
		"its role is not known": {result.MissingRail{Known: true}, false},
		"not known before":      {result.MissingRail{Role: rail.Compute}, true},
	} {
		r := twoRails(&history.PastPeer{}, false)
		r.Res.Missing = []result.MissingRail{tc.missing}
		for i, p := range r.Flows {
			p.Local.Role, r.Res.Rails[i].Striped = rail.Compute, &result.Flow{Bytes: 1e9, Active: time.Second}
		}
		round.Judge(&r.Res, r.Flows)
		if (value(r.Res.Imbalance) == 1) != tc.want {
			t.Errorf("%s: imbalance %v", why, value(r.Res.Imbalance))
		}
	}
}

// TestPastBounded limits the memory for 1,000 peers with 8 rails, and checks that peers and rails that are gone are
// dropped.
func TestPastBounded(t *testing.T) {
	var m history.Past
	now := time.Now()
	peers := map[string]*schedule.Peer{}
	for i := range 1000 {
		address := fmt.Sprintf("node-%04d:10092", i)
		peers[address] = nil
		for round := range 20 {
			m.Of(address, "n").Note(resultOf(8, now.Add(time.Duration(round)*time.Minute)), false)
		}
	}
	one := m.Of("node-0000:10092", "n")
	if len(one.Rails) != 8 || one.Partner("3") != "3" || one.Partner("8") != "" {
		t.Errorf("%+v", one.Rails)
	}
	one.Note(resultOf(2, now.Add(history.KeepPast+time.Hour)), false)
	if len(one.Rails) != 2 {
		t.Errorf("%d rails a day later", len(one.Rails))
	}
	if other := m.Of("node-0000:10092", "other"); len(other.Rails) != 0 {
		t.Errorf("another node at the address has %+v", other.Rails)
	}
	m.Keep(func(address string) bool { return address == "node-0001:10092" })
	if len(m.Peers) != 1 {
		t.Errorf("%d peers", len(m.Peers))
	}
}

// resultOf returns the result of a round over this number of rails.
func resultOf(rails int, at time.Time) *result.Result {
	res := &result.Result{Start: at, Outcome: result.OK, Transport: result.RDMA}
	for i := range rails {
		name := fmt.Sprint(i)
		res.Rails = append(res.Rails, result.RailResult{Rail: name, PeerRail: name})
	}
	return res
}
