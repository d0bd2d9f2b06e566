package events

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector/collectortest"
	"github.com/railscope/railscope/internal/notice"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rtnl"
)

// machine is what a source sees of a machine.
type machine struct {
	rails rail.Snapshot
	names map[uint32]string
	list  []rtnl.Change

	listed, found atomic.Int32 // calls
	refused       atomic.Bool  // nothing is listed

	mu   sync.Mutex
	send map[notice.Group]func(notice.Message)
}

func (m *machine) listen(ctx context.Context, g notice.Group, on func(notice.Message)) error {
	m.mu.Lock()
	m.send[g] = on
	m.mu.Unlock()
	<-ctx.Done()
	return nil
}

// source returns a running source of the machine.
func (m *machine) source(t *testing.T) *Source {
	m.send = map[notice.Group]func(notice.Message){}
	s := New(Options{Rails: func() rail.Snapshot { m.found.Add(1); return m.rails },
		Names: func() (map[uint32]string, error) { return m.names, nil },
		List: func() ([]rtnl.Change, error) {
			m.listed.Add(1)
			if m.refused.Load() {
				return nil, unix.EBUSY
			}
			return m.list, nil
		}, Listen: m.listen})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	synctest.Wait()
	<-s.Changed() // after the first listing
	return s
}

// changed reports whether the source reports a change.
func changed(s *Source) bool {
	select {
	case <-s.Changed():
		return true
	default:
		return false
	}
}

func counts(t *testing.T, s *Source) (lines []string) {
	all, _, err := collectortest.ReadLines(t, s)
	if err != nil {
		t.Error(err)
	}
	for _, line := range all {
		if name, ok := strings.CutPrefix(line, "rail_events_total"); ok {
			lines = append(lines, name)
		}
	}
	return lines
}

// Messages as the kernel lays them out: struct ifinfomsg (16 bytes) or struct ifaddrmsg (8 bytes), and attributes.

func attribute(kind uint16, payload []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(payload)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), payload...)
	return append(b, make([]byte, (4-len(b)%4)%4)...)
}

func number(kind uint16, v int) []byte {
	return attribute(kind, binary.NativeEndian.AppendUint32(nil, uint32(v)))
}

func interfaceMessage(kind uint16, i rtnl.Interface, attributes ...[]byte) notice.Message {
	b := make([]byte, 16)
	binary.NativeEndian.PutUint32(b[4:], uint32(i.Index))
	if i.Carrier {
		binary.NativeEndian.PutUint32(b[8:], unix.IFF_LOWER_UP)
	}
	b = append(b, attribute(unix.IFLA_IFNAME, append([]byte(i.Name), 0))...)
	if i.Master != 0 {
		b = append(b, number(unix.IFLA_MASTER, i.Master)...)
	}
	if i.Lower != 0 {
		b = append(b, number(unix.IFLA_LINK, i.Lower)...)
	}
	return notice.Message{Type: kind, Data: append(b, slices.Concat(attributes...)...)}
}

func up(index int, name string) rtnl.Interface {
	return rtnl.Interface{Index: index, Name: name, Carrier: true}
}

func down(index int, name string) rtnl.Interface { return rtnl.Interface{Index: index, Name: name} }

func addressMessage(kind uint16, index int, address ...byte) notice.Message {
	b := []byte{unix.AF_INET, 24, 0, 0, 0, 0, 0, 0}
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	return notice.Message{Type: kind, Data: append(b, attribute(unix.IFA_LOCAL, address)...)}
}

func deviceMessage(action, subsystem, path, old string) notice.Message {
	text := action + "@" + path + "\x00ACTION=" + action + "\x00DEVPATH=" + path + "\x00SUBSYSTEM=" + subsystem +
		"\x00SEQNUM=4711\x00"
	if old != "" {
		text += "DEVPATH_OLD=" + old + "\x00"
	}
	return notice.Message{Data: []byte(text)}
}

// rdmaMessage is RDMA_NLDEV_CMD_MONITOR (28) of RDMA_NL_NLDEV (5), with the attributes of Linux 6.12: the device's
// index (1), the port (3) and the type of the event (102).
func rdmaMessage(what byte, index, port int) notice.Message {
	return notice.Message{Type: 5<<10 + 28,
		Data: slices.Concat(number(1, index), number(3, port), attribute(102, []byte{what}))}
}

// TestEvents: each announcement of the kernel that is about a rail is counted for it and reported; repetitions are
// reported, but not counted.
func TestEvents(t *testing.T) {
	const newLink, delLink, newAddr, delAddr = unix.RTM_NEWLINK, unix.RTM_DELLINK, unix.RTM_NEWADDR, unix.RTM_DELADDR
	failover := number(unix.IFLA_EVENT, 3) // IFLA_EVENT_BONDING_FAILOVER
	route, device, rdma := notice.Routes(), notice.Devices(), notice.RDMA()
	for _, test := range []struct {
		name     string
		group    notice.Group
		messages []notice.Message
		want     map[string]int // by "rail event"
		quiet    bool           // nothing is reported
	}{
		{"link down", route, []notice.Message{interfaceMessage(newLink, down(2, "eth0"))},
			map[string]int{"0 link_down": 1}, false},
		{"link down, repeated", route, []notice.Message{interfaceMessage(newLink, down(2, "eth0")),
			interfaceMessage(newLink, down(2, "eth0"))}, map[string]int{"0 link_down": 1}, false},
		{"down and up", route, []notice.Message{interfaceMessage(newLink, down(2, "eth0")),
			interfaceMessage(newLink, up(2, "eth0"))}, map[string]int{"0 link_down": 1, "0 link_up": 1}, false},
		{"another attribute", route, []notice.Message{interfaceMessage(newLink, up(2, "eth0"))}, nil, false},
		{"interface removed", route, []notice.Message{interfaceMessage(delLink, up(2, "eth0"))},
			map[string]int{"0 link_down": 1}, false},
		{"interface of no rail", route, []notice.Message{interfaceMessage(newLink, down(9, "veth9")),
			interfaceMessage(newLink, up(9, "veth9")), addressMessage(newAddr, 9, 10, 1, 1, 1)}, nil, true},
		{"container with a rail's index below", route, []notice.Message{interfaceMessage(newLink,
			rtnl.Interface{Index: 10, Name: "veth10", Lower: 2, Carrier: true}, number(unix.IFLA_LINK_NETNSID, 1))},
			nil, true},
		{"port of a bridge", route, []notice.Message{func() notice.Message {
			m := interfaceMessage(newLink, down(2, "eth0"))
			m.Data[0] = unix.AF_BRIDGE
			return m
		}()}, nil, true},
		{"address added", route, []notice.Message{addressMessage(newAddr, 2, 10, 0, 0, 2)},
			map[string]int{"0 address_added": 1}, false},
		{"known address", route, []notice.Message{addressMessage(newAddr, 2, 10, 0, 0, 1)}, nil, false},
		{"address removed and back", route, []notice.Message{addressMessage(delAddr, 2, 10, 0, 0, 1),
			addressMessage(newAddr, 2, 10, 0, 0, 1)},
			map[string]int{"0 address_removed": 1, "0 address_added": 1}, false},
		{"carrier of a VLAN, and of a bond", route, []notice.Message{interfaceMessage(newLink,
			rtnl.Interface{Index: 5, Name: "vlan5", Lower: 2}), interfaceMessage(newLink, down(4, "bond0"))},
			map[string]int{"bond link_down": 1}, false},
		{"address of a VLAN", route, []notice.Message{addressMessage(newAddr, 5, 10, 0, 5, 1)},
			map[string]int{"0 address_added": 1}, false},
		{"failover of a bond", route, []notice.Message{interfaceMessage(newLink, up(4, "bond0"), failover)},
			map[string]int{"1 bond_failover": 1, "bond bond_failover": 1}, false},
		{"address of a VLAN over a bond", route, []notice.Message{addressMessage(newAddr, 6, 10, 0, 6, 1)},
			map[string]int{"1 address_added": 1, "bond address_added": 1}, false},
		{"another event of a bond", route, []notice.Message{interfaceMessage(newLink, up(4, "bond0"),
			number(unix.IFLA_EVENT, 4))}, nil, false},
		{"member of a bond", route, []notice.Message{interfaceMessage(newLink,
			rtnl.Interface{Index: 3, Name: "eth1", Master: 4})},
			map[string]int{"1 link_down": 1, "bond link_down": 1}, false},
		{"member leaves its bond", route, []notice.Message{interfaceMessage(newLink, up(3, "eth1")),
			interfaceMessage(newLink, up(4, "bond0"), failover)}, map[string]int{"bond bond_failover": 1}, false},
		{"route without attributes", route, []notice.Message{{Type: newLink, Data: make([]byte, 16)}, {Type: newAddr}},
			nil, true},

		{"device removed", device, []notice.Message{deviceMessage("remove", "infiniband", "/devices/x/infiniband/mlx5_0",
			"")}, map[string]int{"0 device_removed": 1}, false},
		{"device added", device,
			[]notice.Message{deviceMessage("add", "infiniband", "/devices/x/infiniband/mlx5_9", "")},
			map[string]int{"gone device_added": 1}, false},
		{"device renamed", device, []notice.Message{deviceMessage("move", "infiniband", "/devices/x/infiniband/a",
			"/devices/x/infiniband/mlx5_0")}, nil, false},
		{"its character device", device, []notice.Message{deviceMessage("remove", "infiniband_verbs",
			"/devices/x/infiniband_verbs/uverbs0", "")}, nil, true},
		{"PCI function", device,
			[]notice.Message{deviceMessage("remove", "pci", "/devices/pci0000:00/0000:00:01.0", "")},
			nil, false},
		{"another device", device, []notice.Message{deviceMessage("add", "net", "/devices/x/net/mlx5_0", "")},
			nil, true},
		{"of udev", device, []notice.Message{{Data: []byte("libudev\x00\xfe\xed\xca\xfe")}}, nil, true},

		{"interface detached", rdma, []notice.Message{rdmaMessage(3, 7, 1)},
			map[string]int{"0 netdev_detached": 1}, false},
		{"interface attached", rdma, []notice.Message{rdmaMessage(2, 7, 1)},
			map[string]int{"0 netdev_attached": 1}, false},
		{"registered", rdma, []notice.Message{rdmaMessage(0, 7, 0)}, nil, false},
		{"unknown index", rdma, []notice.Message{rdmaMessage(3, 70, 1)}, nil, false},
		{"an announcement of a later kernel", rdma, []notice.Message{rdmaMessage(77, 7, 1)}, nil, false},
		{"another message", rdma, []notice.Message{{Type: 5<<10 + 1, Data: number(1, 7)}}, nil, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &machine{rails: rail.Snapshot{Rails: []rail.Rail{
					{Name: "0", Device: "mlx5_0", Port: 1, Netdev: "eth0"},
					{Name: "1", Device: "mlx5_1", Port: 1, Netdev: "eth1"}, {Name: "bond", Device: "mlx5_bond_0", Port: 1,
						Netdev: "bond0"}}, Missing: []rail.Missing{{Name: "gone", Device: "mlx5_9", Port: 1}}},
					names: map[uint32]string{7: "mlx5_0"}}
				for _, one := range []notice.Message{interfaceMessage(newLink, up(2, "eth0")), interfaceMessage(newLink,
					rtnl.Interface{Index: 3, Name: "eth1", Master: 4, Carrier: true}),
					interfaceMessage(newLink, up(4, "bond0")),
					interfaceMessage(newLink, rtnl.Interface{Index: 5, Name: "vlan5", Lower: 2, Carrier: true}),
					interfaceMessage(newLink, rtnl.Interface{Index: 6, Name: "vlan6", Lower: 4, Carrier: true}),
					addressMessage(newAddr, 2, 10, 0, 0, 1)} {
					c, ok := rtnl.ParseChange(one.Type, one.Data)
					if !ok {
						t.Fatalf("%+v", one)
					}
					m.list = append(m.list, c)
				}
				s := m.source(t)
				for _, one := range test.messages {
					m.send[test.group](one)
				}
				got := map[string]int{}
				for k, n := range s.counts {
					got[k.rail+" "+string(k.event)] = int(n)
				}
				if diff := cmp.Diff(test.want, got); diff != "" && len(test.want)+len(got) > 0 {
					t.Errorf("-want +got:\n%s", diff)
				}
				if changed(s) == test.quiet {
					t.Errorf("reported: %v", !test.quiet)
				}
			})
		})
	}
}

// TestEventsOfDevices: the rows, with events of open devices; a rail whose device is gone keeps its interface.
func TestEventsOfDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		both := []rail.Rail{{Name: "0", Device: "mlx5_0", Port: 1, Netdev: "eth0"},
			{Name: "1", Device: "mlx5_0", Port: 2}}
		m := &machine{rails: rail.Snapshot{Rails: both}, list: []rtnl.Change{{Interface: new(up(2, "eth0"))}}}
		s := m.source(t)
		s.Note("mlx5_0", 2, "port_error", 3)
		s.Note("mlx5_0", 0, "device_fatal", 1)
		s.Note("mlx5_0", 3, "port_error", 1) // a port that is no rail
		s.Note("other", 0, "device_fatal", 1)
		m.rails = rail.Snapshot{Missing: []rail.Missing{{Name: "0", Device: "mlx5_0", Port: 1}}}
		time.Sleep(time.Second)
		m.send[notice.Routes()](interfaceMessage(unix.RTM_NEWLINK, down(2, "eth0")))
		lines, _, _ := collectortest.ReadLines(t, s)
		if diff := cmp.Diff(collectortest.TextLines(`
			rail_events_lost_total{} 0
			rail_events_total{rail="0",event="device_fatal"} 1
			rail_events_total{rail="0",event="link_down"} 1
			rail_events_total{rail="1",event="device_fatal"} 1
			rail_events_total{rail="1",event="port_error"} 3
			rail_last_event_timestamp_seconds{rail="0"} 9.46684801e+08
			rail_last_event_timestamp_seconds{rail="1"} 9.466848e+08
		`), lines); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// TestEventsLost: after a loss the interfaces are listed again, at most once a second, and what differs is not counted.
func TestEventsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{rails: rail.Snapshot{Rails: []rail.Rail{{Name: "0", Device: "mlx5_0", Port: 1, Netdev: "eth0"}}},
			list: []rtnl.Change{{Interface: new(up(2, "eth0"))}}}
		s := m.source(t)
		m.list = []rtnl.Change{{Interface: new(down(2, "eth0"))}}
		m.refused.Store(true)
		m.send[notice.Routes()](notice.Message{Lost: true})
		time.Sleep(10 * time.Second)
		m.refused.Store(false)
		time.Sleep(2 * time.Second)
		m.send[notice.Routes()](interfaceMessage(unix.RTM_NEWLINK, down(2, "eth0")))
		if got := counts(t, s); got != nil {
			t.Errorf("after a listing that failed for a while: %q", got)
		}
		m.listed.Store(0)
		for range 10_000 {
			m.send[notice.Routes()](notice.Message{Lost: true})
			m.send[notice.Routes()](interfaceMessage(unix.RTM_NEWLINK, down(9, "veth")))
			m.send[notice.Routes()](interfaceMessage(unix.RTM_NEWLINK, up(9, "veth")))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		if !changed(s) || m.listed.Load() > 12 || m.found.Load() > 60 || s.lost != 10_001 {
			t.Errorf("listed %d times, rails found %d times; %d losses", m.listed.Load(), m.found.Load(), s.lost)
		}
		m.send[notice.Routes()](interfaceMessage(unix.RTM_NEWLINK, down(2, "eth0")))
		if got := counts(t, s); got != nil {
			t.Errorf("a link that was down before: %q", got)
		}
		m.send[notice.Routes()](interfaceMessage(unix.RTM_NEWLINK, up(2, "eth0")))
		if got := counts(t, s); len(got) != 1 || got[0] != `{rail="0",event="link_up"} 1` {
			t.Errorf("%q", got)
		}
	})
}

// TestEventsBounds: thousands of interfaces and addresses of containers are not remembered without limit.
func TestEventsBounds(t *testing.T) {
	l := newLinks()
	for i := range 2 * maxLinks {
		l.apply(rtnl.Change{Interface: &rtnl.Interface{Index: i + 1, Name: "x", Master: 1}})
	}
	for i := range 2 * maxAddresses {
		c, _ := rtnl.ParseChange(unix.RTM_NEWADDR, addressMessage(unix.RTM_NEWADDR, 1, 10, byte(i>>8), byte(i), 1).Data)
		l.apply(c)
	}
	n := len(l.below(1))
	if len(l.byIndex) != maxLinks || len(l.byIndex[1].addresses) != maxAddresses || n != maxRelated {
		t.Errorf("%d interfaces, %d addresses, %d related", len(l.byIndex), len(l.byIndex[1].addresses), n)
	}
	for i := range 2 * maxLinks {
		l.apply(rtnl.Change{Removed: true, Interface: &rtnl.Interface{Index: i + 1, Name: "x"}})
	}
	if len(l.byIndex) != 0 || len(l.below(1)) != 0 {
		t.Errorf("after their removal: %v", slices.Collect(maps.Keys(l.byIndex)))
	}
}
