//go:build cgo

package verbs

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// pathSpec returns the spec of a rail with two queue pairs.
func pathSpec(gidIndex int, pkey uint16) Spec {
	return Spec{Device: "mlx5_0", Port: 1, GIDIndex: gidIndex, QueuePairs: 2, Depth: 8, PKey: pkey}
}

// pathOf connects mlx5_0 of A to mlx5_0 of B, and returns how the queue pairs of A were connected.
func pathOf(t *testing.T, a, b fakeverbs.Device, s Spec, attr Attr) []fakeverbs.QueuePair {
	t.Helper()
	f, l := fakeverbs.New(t), fake(t)
	f.Add("A", a)
	f.Add("B", b)
	f.Use(t, "B")
	peer := must(l.OpenRail(s))
	defer peer.Close()
	f.Use(t, "A")
	r := must(l.OpenRail(s))
	defer r.Close()
	if err := r.Connect(peer.Info().End, attr); err != nil {
		t.Fatal(err)
	}
	return f.QueuePairs("A", "mlx5_0")
}

func infiniBand(gid string, knobs fakeverbs.Knobs, pkeys ...uint16) fakeverbs.Device {
	return fakeverbs.Device{Name: "mlx5_0", InfiniBand: true, Knobs: knobs, PKeys: pkeys,
		GIDs: []fakeverbs.GID{{Addr: netip.MustParseAddr(gid), Type: "IB/RoCE v1"}}}
}

// TestPathInfiniBand: packets have a GRH if the port requires it or a router needs it. B's LID is 2.
func TestPathInfiniBand(t *testing.T) {
	const near, far, flid = "fe80::e8eb:d303:a0:2", "fe80:0:0:7:e8eb:d303:a0:2", "fe80:0:31:7:e8eb:d303:a0:2"
	demands := fakeverbs.Knobs{GRHRequired: true}
	partitions := []uint16{0xffff, 0, 0x0001, 0x8001, 0x0002}
	for _, c := range []struct {
		name  string
		peer  string
		knobs fakeverbs.Knobs
		pkey  uint16
		want  fakeverbs.QueuePair
	}{
		{"one subnet", near, fakeverbs.Knobs{}, 0, fakeverbs.QueuePair{Timeout: 14, DLID: 2, ServiceLevel: 3, PKey: 0xffff}},
		{"GRH required", near, demands, 0,
			fakeverbs.QueuePair{Timeout: 14, DLID: 2, ServiceLevel: 3, PKey: 0xffff, Global: true, TrafficClass: 106}},
		{"another subnet", far, fakeverbs.Knobs{}, 0,
			fakeverbs.QueuePair{Timeout: 14, DLID: 2, ServiceLevel: 3, PKey: 0xffff, Global: true, TrafficClass: 106}},
		{"another subnet with a FLID", flid, fakeverbs.Knobs{}, 0,
			fakeverbs.QueuePair{Timeout: 14, DLID: 0x31, ServiceLevel: 3, PKey: 0xffff, Global: true,
				TrafficClass: 106}},
		{"full member", near, fakeverbs.Knobs{}, 0x8001,
			fakeverbs.QueuePair{Timeout: 14, DLID: 2, ServiceLevel: 3, PKey: 0x8001}},
		{"full before limited", near, fakeverbs.Knobs{}, 1,
			fakeverbs.QueuePair{Timeout: 14, DLID: 2, ServiceLevel: 3, PKey: 0x8001}},
		{"limited member", near, fakeverbs.Knobs{}, 2, fakeverbs.QueuePair{Timeout: 14, DLID: 2, ServiceLevel: 3, PKey: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := pathOf(t, infiniBand("fe80::e8eb:d303:a0:1", c.knobs, partitions...),
				infiniBand(c.peer, fakeverbs.Knobs{}, partitions...), pathSpec(0, c.pkey),
				Attr{PathMTU: 4096, Timeout: 14, RetryCount: 6, TrafficClass: 106, ServiceLevel: 3})
			for i := range got {
				if labeled := got[i].FlowLabel > 0; labeled != c.want.Global {
					t.Errorf("flow label %#x", got[i].FlowLabel)
				}
				got[i].FlowLabel = 0
			}
			if want := []fakeverbs.QueuePair{c.want, c.want}; !slices.Equal(got, want) {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}

// TestPathRoCE: queue pairs have the traffic class, and each its own flow label, which is the same in every round.
// Partitions apply only to InfiniBand.
func TestPathRoCE(t *testing.T) {
	path := func(to string) []fakeverbs.QueuePair {
		return pathOf(t, fakeverbs.Device{Name: "mlx5_0", GIDs: fakeverbs.RoCE("192.0.2.1")},
			fakeverbs.Device{Name: "mlx5_0", GIDs: fakeverbs.RoCE(to)}, pathSpec(3, 0x8001),
			Attr{PathMTU: 4096, Timeout: 14, RetryCount: 6, TrafficClass: 106, ServiceLevel: 3})
	}
	first, again, other := path("192.0.2.2"), path("192.0.2.2"), path("192.0.2.3")
	if !slices.Equal(first, again) {
		t.Errorf("first %+v, then %+v", first, again)
	}
	labels := map[uint32]bool{}
	for _, q := range slices.Concat(first, other) {
		if q.FlowLabel == 0 || q.FlowLabel>>20 != 0 || labels[q.FlowLabel] {
			t.Errorf("flow label %#x", q.FlowLabel)
		}
		labels[q.FlowLabel] = true
		q.FlowLabel = 0
		want := fakeverbs.QueuePair{Timeout: 14, Global: true, ServiceLevel: 3, TrafficClass: 106, PKey: 0xffff}
		if q != want {
			t.Errorf("%+v, want %+v", q, want)
		}
	}
}

// TestFlow: rails between the same ends have other flow labels if they start at another index.
func TestFlow(t *testing.T) {
	labels := func(flow int) (labels []uint32) {
		spec := pathSpec(3, 0)
		spec.Flow = flow
		for _, q := range pathOf(t, fakeverbs.Device{Name: "mlx5_0", GIDs: fakeverbs.RoCE("192.0.2.1")},
			fakeverbs.Device{Name: "mlx5_0", GIDs: fakeverbs.RoCE("192.0.2.2")}, spec, attr()) {
			labels = append(labels, q.FlowLabel)
		}
		return labels
	}
	zero, one, two := labels(0), labels(1), labels(2)
	if all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(zero, two)))); len(all) != 4 {
		t.Errorf("from 0 %x, from 2 %x", zero, two)
	}
	if one[0] != zero[1] || one[1] != two[0] {
		t.Errorf("from 0 %x, from 1 %x, from 2 %x", zero, one, two)
	}
	spec := pathSpec(3, 0)
	spec.Flow = -1
	if _, err := fake(t).OpenRail(spec); reason(err) != failure.Other {
		t.Errorf("from -1: %v", err)
	}
}

// TestFlowLabels: pairs of rails, and their queue pairs, spread over the UDP source ports that the kernel derives from
// the labels.
func TestFlowLabels(t *testing.T) {
	ports := map[uint32]bool{}
	const pairs, qps = 64, 16
	for i := range pairs {
		for q := range qps {
			label := flowLabel(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr(fmt.Sprintf("198.51.100.%d", i)), q)
			ports[0xc000|(label&0x3fff^label>>14)] = true
		}
	}
	if len(ports) < pairs*qps*95/100 { // there are 16384 ports: random labels would reach 97 %
		t.Errorf("%d ports for %d queue pairs", len(ports), pairs*qps)
	}
}

// TestUnsupported: a device that cannot be probed reports the reason.
func TestUnsupported(t *testing.T) {
	errno := func(e syscall.Errno) fakeverbs.Knobs { return fakeverbs.Knobs{CreateQPErrno: uint64(e)} }
	roce := fakeverbs.Device{Name: "mlx5_0", GIDs: fakeverbs.RoCE("192.0.2.1")}
	with := func(k fakeverbs.Knobs) fakeverbs.Device { d := roce; d.Knobs = k; return d }
	for _, c := range []struct {
		name   string
		device fakeverbs.Device
		spec   Spec
		want   failure.Reason
		says   string
	}{
		{"EFA", with(errno(syscall.EOPNOTSUPP)), pathSpec(3, 0), failure.NoRC, "create QP"},
		{"EINVAL", with(errno(syscall.EINVAL)), pathSpec(3, 0), failure.Other, "create QP"},
		{"without inline data", with(fakeverbs.Knobs{InlineErrno: uint64(syscall.EINVAL)}), pathSpec(3, 0), "", ""},
		{"another error", with(fakeverbs.Knobs{InlineErrno: uint64(syscall.ENOMEM)}), pathSpec(3, 0), failure.Memlock,
			"create QP"},
		{"iWARP", with(fakeverbs.Knobs{IWARP: true}), pathSpec(3, 0), failure.IWARP, "enable_roce"},
		{"no such partition", infiniBand("fe80::1", fakeverbs.Knobs{}, 0xffff, 0x8001), pathSpec(0, 0x8002), failure.PKey,
			"mlx5_0: find pkey: not in the port's table; compare probe.pkey"},
		{"only a limited member", infiniBand("fe80::1", fakeverbs.Knobs{}, 0xffff, 0x0001), pathSpec(0, 0x8001),
			failure.PKey, "pkeys"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fakeverbs.New(t)
			f.Add("A", c.device)
			f.Use(t, "A")
			r, err := fake(t).OpenRail(c.spec)
			if got := reason(err); got != c.want || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v; want %q with %q", err, c.want, c.says)
			}
			if err == nil {
				r.Close()
			}
			if left := f.Left(); left != nil {
				t.Errorf("left open: %q", left)
			}
		})
	}
}

// TestEvents: the worst event since the last call becomes the reason of a failing call, and lets a successful call
// fail.
func TestEvents(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []fakeverbs.Event
		want   failure.Reason
		says   string
	}{
		{"none", nil, "", ""},
		{"not a failure", []fakeverbs.Event{fakeverbs.EventGIDChange, fakeverbs.EventPortActive}, "", ""},
		{"port", []fakeverbs.Event{fakeverbs.EventPortErr, fakeverbs.EventPortActive}, failure.PortDown,
			"mlx5_0: IBV_EVENT_PORT_ERR reported by the device; the link failed"},
		{"queue pair", []fakeverbs.Event{fakeverbs.EventQPAccess}, failure.QPError, "IBV_EVENT_QP_ACCESS_ERR"},
		{"all", []fakeverbs.Event{fakeverbs.EventQPAccess, fakeverbs.EventDeviceFatal, fakeverbs.EventPortErr},
			failure.DeviceFatal, "IBV_EVENT_DEVICE_FATAL"},
	} {
		for _, rtr := range []syscall.Errno{0, syscall.ETIMEDOUT} {
			t.Run(fmt.Sprintf("%s, RTR %d", c.name, rtr), func(t *testing.T) {
				f, l := fakeverbs.New(t), fake(t)
				f.Add("A", fakeverbs.Device{Name: "mlx5_0", GIDs: fakeverbs.RoCE("192.0.2.1"),
					Knobs: fakeverbs.Knobs{RTRErrno: uint64(rtr)}})
				f.Use(t, "A")
				r := must(l.OpenRail(pathSpec(3, 0)))
				defer r.Close()
				for _, e := range c.events {
					f.Raise("A", "mlx5_0", e)
				}
				want := c.want
				if want == "" && rtr != 0 {
					want = failure.RTRUnreachable
				}
				err := r.Connect(r.Info().End, Attr{PathMTU: 4096, Timeout: 14, RetryCount: 6})
				if got := reason(err); got != want || err != nil && !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v; want %q with %q", err, want, c.says)
				}
				if c.want != "" && rtr != 0 && !strings.Contains(err.Error(), "then mlx5_0: RTR") {
					t.Errorf("%v does not say what failed", err)
				}
			})
		}
	}
}

// TestEventsInUse: an event is the failure of a burst whose writes completed, of a latency measurement, and of a
// target.
func TestEventsInUse(t *testing.T) {
	for _, c := range []struct {
		name, node string
		do         func(e *ends) error
	}{
		{"burst", "A", func(e *ends) error {
			done, err := e.run.Burst(e.rails, transfer.BurstArgs{Loads: e.loads(4096, 2), Slow: time.Second,
				Deadline: 2 * time.Second})
			return cmp.Or(err, error(done.Rails[0].Failure))
		}},
		{"latency", "A", func(e *ends) error {
			_, _, err := e.run.Latency(e.rails[0], 8, 2, time.Second)
			return err
		}},
		{"target", "B", func(e *ends) error { return NewRun(1).Arrived(e.peers[0], 1, time.Millisecond) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := connected(t, 1<<20, 1, 4, fakeverbs.Knobs{})
			e.fabric.Raise(c.node, "mlx5_0", fakeverbs.EventPortErr)
			if err := c.do(e); reason(err) != failure.PortDown {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestOddMTU: an MTU that InfiniBand does not define is unknown.
func TestOddMTU(t *testing.T) {
	f := fakeverbs.New(t)
	f.Add("A", fakeverbs.Device{Name: "mlx5_0", GIDs: fakeverbs.RoCE("192.0.2.1"), Knobs: fakeverbs.Knobs{OddMTU: 40,
		AckDelay: 16}})
	f.Use(t, "A")
	r := must(fake(t).OpenRail(pathSpec(3, 0)))
	defer r.Close()
	got := r.Info().End
	got.QPNs, got.PSNs = nil, nil
	want := transfer.End{GID: got.GID, MaxMTU: 4096, AckDelay: 16, Reads: 16}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
