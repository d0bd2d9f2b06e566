package probe

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/result"
)

// onBond returns a rail's GID table after its interface joined a bond: the kernel enters the bond's addresses for
// the member.
func onBond(addr string) []fakeverbs.GID {
	gids := fakeverbs.RoCE(addr)
	for i := range gids {
		gids[i].Netdev = "bond0"
	}
	return gids
}

// TestBlameGID: a path that fails because of a GID names the GID, on whichever end it is, instead of the symptom.
func TestBlameGID(t *testing.T) {
	t.Parallel()
	linkLocal := func(addr string) []fakeverbs.GID { return fakeverbs.RoCE(addr)[:2] }
	for _, tc := range []struct {
		why, node string
		gids      func(addr string) []fakeverbs.GID
		also      func(*fakeverbs.Device)
		stage     failure.Stage
		want      failure.Reason
		says      string
	}{
		{"the peer's address is gone", "b", linkLocal, nil, failure.StageConnect, failure.PeerGID,
			"the peer's mlx5_1 has no IPv4 GID, only fe80::"},
		{"ours is gone", "a", linkLocal, nil, failure.StageConnect, failure.NoGID, "mlx5_1 has no IPv4 GID, only fe80::"},
		{"a bond there", "b", onBond, func(d *fakeverbs.Device) { d.RTRErrno = uint64(unix.EINVAL) },
			failure.StageConnect, failure.GIDMisbound, "on the peer: the GID 127.7.1.2 of mlx5_1 belongs to bond0"},
		{"a bond here", "a", onBond, func(d *fakeverbs.Device) { d.Blocked = true }, failure.StageReach,
			failure.GIDMisbound, "the GID 127.7.1.1 of mlx5_1 belongs to bond0, not to its own interface fabric1"},
		{"a bond that carries packets", "a", onBond, nil, "", "", ""},
		{"nothing is wrong with GIDs", "b", fakeverbs.RoCE, func(d *fakeverbs.Device) { d.Blocked = true },
			failure.StageReach, failure.RetryExceeded, "UDP port 4791"},
	} {
		t.Run(tc.why, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, 2, func(node string, i int, d *fakeverbs.Device) {
				if node != tc.node || i != 1 {
					return
				}
				d.GIDs = tc.gids(address4(node, i))
				if tc.also != nil {
					tc.also(d)
				}
			})
			res := p.round()
			if tc.want == "" {
				if res.Outcome != result.OK {
					t.Errorf("%s, failures %v", res.Outcome, res.Failures)
				}
				return
			}
			if res.Outcome != result.Degraded || len(res.Failures) != 1 || *res.Rails[1].Failure != res.Failures[0] {
				t.Fatalf("%s, failures %v, of rail 1 %v", res.Outcome, res.Failures, res.Rails[1].Failure)
			}
			if f := res.Failures[0]; f.Stage != tc.stage || f.Reason != tc.want ||
				!strings.Contains(f.Detail, tc.says) {
				t.Errorf("%s; want %s: %s with %q", f.Error(), tc.stage, tc.want, tc.says)
			}
		})
	}
}

// TestBlameGIDGoes: the failure names an address that was removed during a burst.
func TestBlameGIDGoes(t *testing.T) {
	t.Parallel()
	for node, want := range map[string]failure.Reason{"a": failure.GIDChanged, "b": failure.PeerGID} {
		t.Run(node, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, 1, slowly)
			res := p.during(failure.StageSolo, func() {
				p.fabric.SetGIDs(node, "mlx5_0", fakeverbs.RoCE(address4(node, 0))[:2])
			})
			if res.Outcome != result.Fallback || res.Reason != want ||
				!strings.Contains(res.Detail, "mlx5_0 no longer has the GID "+address4(node, 0)) {
				t.Errorf("%s because of %q (%s), %v", res.Outcome, res.Reason, res.Detail, res.Failures)
			}
			p.clean()
		})
	}
}

// TestBlameWorker: when the peer's worker is killed, no rail and no path is blamed, in whichever step writes stay
// unanswered.
func TestBlameWorker(t *testing.T) {
	t.Parallel()
	for _, stage := range []failure.Stage{failure.StageLatency, failure.StageSolo, failure.StageStriped} {
		t.Run(string(stage), func(t *testing.T) {
			t.Parallel()
			p := newPair(t, 2, func(_ string, _ int, d *fakeverbs.Device) {
				d.Rate, d.Latency = 2e6, 10*time.Millisecond
			})
			p.opts.LatencySamples = 50
			killed := make(chan struct{})
			var begun bool
			res := Bench(t.Context(), p.a, p.opts, p.peer, func(g result.Progress) {
				if !begun && g.Stage == stage {
					begun = true
					go func() { defer close(killed); p.signal("b", unix.SIGKILL) }()
				}
			})
			<-killed
			if res.Outcome != result.Fallback || res.Reason != failure.PeerWorker || !res.OfRailscope() ||
				!strings.HasPrefix(res.Detail, "on the peer: the worker process ended") {
				t.Errorf("%s because of %q (%s)", res.Outcome, res.Reason, res.Detail)
			}
			if len(res.Failures) != 1 || slices.ContainsFunc(res.Rails, func(r result.RailResult) bool {
				return r.Failure != nil && r.Failure.Reason != failure.PeerWorker
			}) {
				t.Errorf("failures %v, rails %+v", res.Failures, res.Rails)
			}
			p.clean()
		})
	}
}

// TestExplain: the state of both ends decides, and the nearest cause comes first. A peer that does not report its
// GIDs is judged by the GID that it uses.
func TestExplain(t *testing.T) {
	t.Parallel()
	gid := func(addr, netdev string, own bool) protocol.HelloGID {
		return protocol.HelloGID{Addr: netip.AddrFrom16(netip.MustParseAddr(addr).As16()), Type: "RoCE v2",
			Netdev: netdev, Own: own}
	}
	four, six, local := gid("10.0.0.1", "eth0", true), gid("fd00::1", "eth0", true), gid("fe80::1", "eth0", true)
	theirs, bonded := gid("10.0.0.2", "eth0", true), gid("10.0.0.9", "bond0", false)
	for _, tc := range []struct {
		why       string
		own, peer []protocol.HelloGID
		used, far protocol.HelloGID
		change    func(*round.Flow, *round.State)
		want      failure.Reason
	}{
		{"nothing", []protocol.HelloGID{four}, []protocol.HelloGID{theirs}, four, theirs, nil, ""},
		{"an older peer", []protocol.HelloGID{four}, nil, four, theirs, nil, ""},
		{"an older peer without an address", []protocol.HelloGID{four}, nil, four, local, nil, failure.PeerGID},
		{"the peer has only IPv6", []protocol.HelloGID{four}, []protocol.HelloGID{six}, four, six, nil, failure.PeerGID},
		{"we have only IPv6", []protocol.HelloGID{six}, []protocol.HelloGID{theirs}, six, theirs, nil, failure.NoGID},
		{"both have only IPv6", []protocol.HelloGID{six}, []protocol.HelloGID{six}, six, six, nil, ""},
		{"the peer's is gone", []protocol.HelloGID{four}, []protocol.HelloGID{six}, four, theirs, nil, failure.PeerGID},
		{"ours is gone", []protocol.HelloGID{six}, []protocol.HelloGID{theirs}, four, theirs, nil, failure.GIDChanged},
		{"a bond here", []protocol.HelloGID{local, bonded}, []protocol.HelloGID{theirs}, bonded, theirs, nil, failure.GIDMisbound},
		{"a bond there", []protocol.HelloGID{four}, []protocol.HelloGID{bonded}, four, bonded, nil, failure.GIDMisbound},
		{"a bond beside an own address", []protocol.HelloGID{four, bonded}, []protocol.HelloGID{theirs}, four, theirs, nil, ""},
		{"a bond over a port of another network namespace", []protocol.HelloGID{bonded}, []protocol.HelloGID{theirs}, bonded, theirs,
			func(p *round.Flow, _ *round.State) { p.Local.Netdev = "" }, ""},
		{"the peer's port went down", []protocol.HelloGID{four}, nil, four, theirs, func(p *round.Flow, _ *round.State) { p.Peer.Active = false },
			failure.PortDown},
		{"ours went down", []protocol.HelloGID{bonded}, nil, four, theirs, func(p *round.Flow, _ *round.State) {
			p.Local.Status.Limits.Active = false
		}, failure.PortDown},
		{"the peer's rail is gone", []protocol.HelloGID{bonded}, nil, four, theirs, func(_ *round.Flow, now *round.State) { now.Gone = true },
			failure.NoPeerRail},
		{"InfiniBand", nil, nil, four, local, func(p *round.Flow, _ *round.State) { p.Local.LinkLayer = "InfiniBand" }, ""},
	} {
		p := &round.Flow{Peer: &protocol.HelloRail{Device: "mlx5_0", Netdev: "eth0", Active: true,
			GIDs: tc.peer},
			Theirs: tc.far.Addr}
		p.Local.Device, p.Local.Netdev, p.Local.LinkLayer = "mlx5_0", "eth0", "Ethernet"
		p.Local.Status.Limits.Active, p.GID.GID.Addr = true, tc.used.Addr
		now := round.State{GIDs: tc.own}
		if tc.change != nil {
			tc.change(p, &now)
		}
		var got failure.Reason
		if f := p.Explain(failure.Failure{Reason: failure.RetryExceeded, Detail: "the symptom"}, now); f != nil {
			got = f.Reason
			if !strings.HasSuffix(f.Detail, " (the symptom)") {
				t.Errorf("%s: %s", tc.why, f.Detail)
			}
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", tc.why, got, tc.want)
		}
	}
}

// TestHelloGIDs: GIDs are an optional field of protocol 3, and their number is limited.
func TestHelloGIDs(t *testing.T) {
	t.Parallel()
	const text = `{"node":"b","instance":"i","rails":[{"name":"0","port":1%s}],"addresses":[]}`
	for field, good := range map[string]bool{
		``:             true,
		`,"gids":null`: true,
		`,"gids":[{"addr":"::ffff:10.0.0.1","type":"RoCE v2","netdev":"eth0","own":true,"later":1}]`: true,
		`,"gids":[{"addr":"fe80::1%\u0007","type":"RoCE v2","netdev":"eth0"}]`:                       false,
		`,"gids":[{"addr":"fe80::1","type":"RoCE v2","netdev":"\u001b[2J"}]`:                         false,
		`,"gids":[` + strings.Repeat(`{},`, 300) + `{}]`:                                             false,
	} {
		var h protocol.Hello
		err := json.Unmarshal([]byte(strings.Replace(text, "%s", field, 1)), &h)
		if err == nil {
			err = h.Check()
		}
		if (err == nil) != good {
			t.Errorf("%.80s: %v", field, err)
		}
	}
	p := newPair(t, 1, nil)
	h, f := askHello(t, p.peer, p.opts.Security)
	if f != nil || len(h.Rails) != 1 || len(h.Rails[0].GIDs) != 2 ||
		h.Rails[0].GIDs[1].Addr != netip.MustParseAddr("::ffff:"+address4("b", 0)) || !h.Rails[0].GIDs[1].Own {
		t.Errorf("%+v, %v", h, f)
	}
}
