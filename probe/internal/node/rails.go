package node

import (
	"cmp"
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/worker"
)

// HelloGIDs returns the usable GIDs of an Ethernet rail; see [rail.UsableGIDs].
func (n *Node) HelloGIDs(r LocalRail) (list []protocol.HelloGID) {
	if r.LinkLayer != "Ethernet" {
		return nil
	}
	own := rail.Own(n.Opts.Sysfs, r.Netdev)
	for _, g := range rail.UsableGIDs(r.Status.GIDs, r.LinkLayer, own, protocol.MaxHelloGIDs) {
		list = append(list, protocol.HelloGID{Addr: g.Addr, Type: g.Type, Netdev: g.Netdev, Own: own(g.Netdev)})
	}
	return list
}

// Speed returns the total speed of interfaces in bytes per second; 0 if one is unknown
// (Documentation/ABI/testing/sysfs-class-net, speed).
func (n *Node) Speed(netdevs []string) (sum float64) {
	for _, name := range netdevs {
		megabits, err := sysfs.ReadUint(filepath.Join(n.Opts.Sysfs, "class/net", name, "speed"))
		if err != nil || megabits == 0 { // the speed is -1 without a link
			return 0
		}
		sum += float64(megabits) * 1e6 / 8
	}
	return sum
}

// Time limits per device: one for its status with the whole GID table, one for its counters.
const (
	statusBudget = 3 * time.Second
	deviceBudget = time.Second
)

// LocalRail is one of this node's rails at one moment.
type LocalRail struct {
	rail.Rail
	Status   rail.Status
	Err      error      // reason why the status is unknown
	Traffic  *rail.Port // used in the lane of its rail in Node.trafficLanes
	Capacity float64
	Expected float64       // expected bytes per second; 0: no expectation, or the port is not active
	Source   expect.Source // source of expected; empty: the capacity
	// PortCapacity is the sum of the rails on the same physical port, in bytes per second.
	PortCapacity float64
	Prefixes     []netip.Prefix // addresses of its interface with their subnets
}

// SharedPortKey returns an identifier of the physical port.
func (r LocalRail) SharedPortKey() string { return cmp.Or(r.Status.Limits.PortKey, "rail "+r.Name) }

// Rails reads this node's rails that are in use, each device in its own lane.
func (n *Node) Rails() ([]LocalRail, error) {
	n.railsMu.Lock()
	defer n.railsMu.Unlock()
	list, err := n.Opts.Rails()
	addresses, addrErr := n.Opts.Addresses()
	var names []string
	for _, r := range list {
		names = append(names, r.Name)
	}
	ports := n.portsLocked(list)
	rails := make([]LocalRail, len(list))
	limits := make([]rail.Limits, len(list))
	for i, res := range n.statusLanes.Run(statusBudget, names, func(name string) LocalRail {
		status, err := ports[name].status.Status()
		return LocalRail{Status: status, Err: err}
	}) {
		rails[i] = res.Value
		if res.Err != nil {
			rails[i] = LocalRail{Err: res.Err}
		}
		rails[i].Rail, rails[i].Traffic = list[i], ports[list[i].Name].traffic
		rails[i].Prefixes = addresses[list[i].Netdev]
		n.Netdevs[list[i].Netdev], n.Roles[list[i].Name] = true, list[i].Role
		limits[i] = rails[i].Status.Limits
	}
	expected := n.Opts.Expected(list)
	for i, v := range expect.Capacities(list, limits, expected) {
		if limits[i].Active {
			rails[i].Expected, rails[i].Source = v, expected[i].Rate.Source
		}
	}
	ofPort := map[string]float64{}
	for i, c := range rail.Capacities(limits) {
		rails[i].Capacity = c
		ofPort[rails[i].SharedPortKey()] += c
	}
	for i := range rails {
		rails[i].PortCapacity = ofPort[rails[i].SharedPortKey()]
	}
	return n.withoutUnused(rails, expected), errors.Join(err, addrErr)
}

// withoutUnused leaves out ports without a cable: that they carry nothing is not a failure.
func (n *Node) withoutUnused(rails []LocalRail, expected []expect.Rail) (used []LocalRail) {
	uses := make([]rail.Use, len(rails))
	for i, r := range rails {
		uses[i] = r.Status.Use
	}
	for i, unused := range expect.Unused(uses, expected, n.Opts.AtLeast()) {
		if !unused {
			used = append(used, rails[i])
		}
	}
	return used
}

// railPorts are the readers of one rail. Each is used in the rail's lane of its own group.
type railPorts struct {
	status  *rail.Port // used in Node.statusLanes
	traffic *rail.Port // used in Node.trafficLanes; keeps no files open between reads, only memory
}

// portsLocked returns the readers of rails, by name. They are kept: only the first reading of a large GID table is
// slow, and a counter that the driver refused is not tried again.
func (n *Node) portsLocked(list []rail.Rail) map[string]*railPorts {
	ports := map[string]*railPorts{}
	for _, r := range list {
		if n.ports[r] == nil {
			n.ports[r] = &railPorts{rail.NewPort(n.Opts.Sysfs, r, nil), rail.NewPort(n.Opts.Sysfs, r, nil)}
			n.ports[r].traffic.UseStatistics(n.Opts.Ethtool)
		}
		ports[r.Name] = n.ports[r]
	}
	for r, p := range n.ports {
		if ports[r.Name] == p {
			continue
		}
		closed := n.statusLanes.Run(deviceBudget, []string{r.Name}, func(string) LocalRail {
			p.status.Close()
			return LocalRail{}
		})
		freed := n.trafficLanes.Run(deviceBudget, []string{r.Name}, func(string) *rail.Traffic {
			p.traffic.Close()
			return nil
		})
		if closed[0].State == lane.Done && freed[0].State == lane.Done {
			delete(n.ports, r)
		}
	}
	return ports
}

// GID chooses the GID for a connection to a peer with these addresses by [rail.ChooseGID], from those in the peer's
// subnet if there are any.
func (n *Node) GID(r LocalRail, peer []netip.Prefix) rail.Choice {
	own := rail.Own(n.Opts.Sysfs, r.Netdev)
	choice := rail.ChooseGID(r.Status.GIDs, r.LinkLayer, own)
	if !choice.OK() || r.LinkLayer == "InfiniBand" {
		return choice
	}
	near := slices.DeleteFunc(slices.Clone(r.Status.GIDs), func(g rail.GID) bool {
		i := slices.IndexFunc(r.Prefixes, func(p netip.Prefix) bool { return p.Addr() == g.Addr.Unmap() })
		return i < 0 || !InSubnet(r.Prefixes[i], peer).IsValid()
	})
	if better := rail.ChooseGID(near, r.LinkLayer, own); better.OK() && better.GID.Type == rail.TypeRoCEv2 {
		better.Reason += ", in the peer's subnet"
		return better
	}
	return choice
}

// Unusable returns why a rail cannot take part, or nil.
func (r LocalRail) Unusable(choice rail.Choice) (f *failure.Failure) {
	switch {
	case r.Err != nil:
		f = failure.New(failure.StageOpen, failure.Other, "read the status of %s: %v", r.Device, r.Err)
	case !r.Status.Limits.Active:
		f = failure.New(failure.StageOpen, failure.PortDown,
			"%s port %d is %q: check its cable, and run `ip link show %s`", r.Device, r.Port, r.Status.State, r.Netdev)
	case r.LinkLayer == rail.IWARP:
		f = failure.New(failure.StageOpen, failure.IWARP, "%s is an iWARP device: the probe measures RoCE and "+
			"InfiniBand", r.Device)
	case !choice.OK():
		f = failure.New(failure.StageOpen, failure.NoGID, "%s: %s", r.Device, choice.Reason)
	default:
		return nil
	}
	f.Rail = r.Name
	return f
}

// IsSoftware reports whether the rail's device is not an adapter (rxe, siw): its rate is only a configured number, and
// nothing can be expected of it.
func (r LocalRail) IsSoftware() bool { return r.Software || r.PCIAddress == "" }

// remembered returns what is expected of the rail, or 0 if that is only its present capacity.
func (r LocalRail) remembered() float64 {
	if r.Source == "" {
		return 0
	}
	return r.Expected
}

// SharedPrefix returns one of our addresses, with its subnet, that shares a subnet with one of theirs, or the zero
// value. IPv4 comes before IPv6. Link-local addresses are ignored: every interface has one.
func SharedPrefix(ours, theirs []netip.Prefix) netip.Prefix {
	for _, v4 := range []bool{true, false} {
		for _, o := range ours {
			if o.Addr().Is4() == v4 && !o.Addr().IsLinkLocalUnicast() && InSubnet(o, theirs).IsValid() {
				return o
			}
		}
	}
	return netip.Prefix{}
}

// InSubnet returns the first address of list that is in the subnet of p and is not p's own.
func InSubnet(p netip.Prefix, list []netip.Prefix) netip.Addr {
	for _, q := range list {
		if p.Masked().Contains(q.Addr()) && q.Addr() != p.Addr() {
			return q.Addr()
		}
	}
	return netip.Addr{}
}

// RDMARail returns how the worker opens a rail, with the GID that was chosen.
func RDMARail(own LocalRail, choice rail.Choice) worker.RailArg {
	return worker.RailArg{Name: own.Name, Device: own.Device, Port: own.Port, GIDIndex: choice.GID.Index,
		GID: choice.GID.Addr, NUMANode: own.NUMANode, GPU: own.GPU, Netdev: own.Netdev}
}

// PathMTU returns the smaller MTU of both ends, in bytes.
func PathMTU(a, b worker.End) int {
	if b.ActiveMTU == 0 {
		return a.ActiveMTU
	}
	return min(a.ActiveMTU, b.ActiveMTU)
}
