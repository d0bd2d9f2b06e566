package probe

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
)

// Time limits of one device, for its status with all of its GID table and for its counters.
const (
	statusBudget = 3 * time.Second
	deviceBudget = time.Second
)

// localRail is one of this node's rails at one moment.
type localRail struct {
	rail.Rail
	status   rail.Status
	err      error      // why status is not known
	traffic  *rail.Port // used in the lane of its rail in Node.trafficLanes
	capacity float64
	expected float64       // bytes per second; 0: nothing is, or the port is not active
	source   expect.Source // of expected; empty: it is the capacity
	// portCapacity is that of all rails of its physical port together.
	portCapacity float64
	prefixes     []netip.Prefix // of its interface
}

// portKey identifies the physical port.
func (r localRail) portKey() string { return cmp.Or(r.status.Limits.PortKey, "rail "+r.Name) }

// rails reads this node's rails, each device in its own lane.
func (n *Node) rails() ([]localRail, error) {
	n.railsMu.Lock()
	defer n.railsMu.Unlock()
	list, err := n.opts.Rails()
	addresses, addrErr := n.opts.Addresses()
	var names []string
	for _, r := range list {
		names = append(names, r.Name)
	}
	ports := n.portsLocked(list)
	rails := make([]localRail, len(list))
	limits := make([]rail.Limits, len(list))
	for i, res := range n.statusLanes.Run(statusBudget, names, func(name string) localRail {
		status, err := ports[name].status.Status()
		return localRail{status: status, err: err}
	}) {
		rails[i] = res.Value
		if res.Err != nil {
			rails[i] = localRail{err: res.Err}
		}
		rails[i].Rail, rails[i].traffic = list[i], ports[list[i].Name].traffic
		rails[i].prefixes = addresses[list[i].Netdev]
		n.netdevs[list[i].Netdev], n.roles[list[i].Name] = true, list[i].Role
		limits[i] = rails[i].status.Limits
	}
	expected := n.opts.Expected(list)
	for i, v := range expect.Capacities(list, limits, expected) {
		if limits[i].Active {
			rails[i].expected, rails[i].source = v, expected[i].Rate.Source
		}
	}
	ofPort := map[string]float64{}
	for i, c := range rail.Capacities(limits) {
		rails[i].capacity = c
		ofPort[rails[i].portKey()] += c
	}
	for i := range rails {
		rails[i].portCapacity = ofPort[rails[i].portKey()]
	}
	return rails, errors.Join(err, addrErr)
}

// railPorts are the readers of one rail, each used in the rail's lane of one group.
type railPorts struct {
	status  *rail.Port // in Node.statusLanes
	traffic *rail.Port // in Node.trafficLanes; between two reads it keeps no file open, but memory
}

// portsLocked returns the readers of rails, by name. They are kept: only the first reading of a large GID table is
// slow, and a counter that the driver refused is not read again.
func (n *Node) portsLocked(list []rail.Rail) map[string]*railPorts {
	ports := map[string]*railPorts{}
	for _, r := range list {
		if n.ports[r] == nil {
			n.ports[r] = &railPorts{rail.NewPort(n.opts.Sysfs, r, nil), rail.NewPort(n.opts.Sysfs, r, nil)}
			n.ports[r].traffic.UseStatistics(n.opts.Ethtool)
		}
		ports[r.Name] = n.ports[r]
	}
	for r, p := range n.ports {
		if ports[r.Name] == p {
			continue
		}
		closed := n.statusLanes.Run(deviceBudget, []string{r.Name}, func(string) localRail {
			p.status.Close()
			return localRail{}
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

// gid chooses the GID for a connection to a peer with these addresses: by [rail.ChooseGID], among those in the peer's
// subnet if there are any.
func (n *Node) gid(r localRail, peer []netip.Prefix) rail.Choice {
	own := rail.Own(n.opts.Sysfs, r.Netdev)
	choice := rail.ChooseGID(r.status.GIDs, r.LinkLayer, own)
	if !choice.OK() || r.LinkLayer == "InfiniBand" {
		return choice
	}
	near := slices.DeleteFunc(slices.Clone(r.status.GIDs), func(g rail.GID) bool {
		i := slices.IndexFunc(r.prefixes, func(p netip.Prefix) bool { return p.Addr() == g.Addr.Unmap() })
		return i < 0 || !inSubnet(r.prefixes[i], peer).IsValid()
	})
	if better := rail.ChooseGID(near, r.LinkLayer, own); better.OK() && better.GID.Type == rail.TypeRoCEv2 {
		better.Reason += ", in the peer's subnet"
		return better
	}
	return choice
}

// unusable returns why a rail cannot take part, or nil.
func (r localRail) unusable(choice rail.Choice) (f *failure.Failure) {
	switch {
	case r.err != nil:
		f = failure.New(failure.StageOpen, failure.Other, "read the status of %s: %v", r.Device, r.err)
	case !r.status.Limits.Active:
		f = failure.New(failure.StageOpen, failure.PortDown,
			"%s port %d is %q: check its cable, and run `ip link show %s`", r.Device, r.Port, r.status.State, r.Netdev)
	case r.LinkLayer == rail.IWARP:
		f = failure.New(failure.StageOpen, failure.IWARP, "%s is an iWARP device: the probe measures RoCE and InfiniBand",
			r.Device)
	case !choice.OK():
		f = failure.New(failure.StageOpen, failure.NoGID, "%s: %s", r.Device, choice.Reason)
	default:
		return nil
	}
	f.Rail = r.Name
	return f
}

// software reports whether the rail's device is not an adapter (rxe, siw): its rate is only a configured number, and
// nothing can be expected of it.
func (r localRail) software() bool { return r.Software || r.PCIAddress == "" }

// remembered is what is expected of the rail, unless that is only what it could carry now.
func (r localRail) remembered() float64 {
	if r.source == "" {
		return 0
	}
	return r.expected
}

// expectation is what is expected of the path, nil for nothing: the lower of both ends. What the peer could carry now
// does not lower a rate that is configured here: it may be what is wrong.
func (p *path) expectation() *float64 {
	ours := p.local.expected
	switch theirs := p.peer.Expected; {
	case ours == 0:
		return nil
	case theirs > 0:
		ours = min(ours, theirs)
	case p.local.source == expect.Configured:
	case p.peer.Software:
		return nil
	case p.peer.Capacity > 0:
		ours = min(ours, p.peer.Capacity)
	}
	return &ours
}

// pairRails returns for each of this node's rails the index of the peer's rail to measure it with; -1: none. Rails are
// paired by name and subnet. If these disagree, as with crossed cables, the subnet decides; rails that are left over
// are paired by name, because a router may connect them.
func pairRails(own []localRail, peers []helloRail) []int {
	pairs := slices.Repeat([]int{-1}, len(own))
	taken := make([]bool, len(peers))
	pair := func(match func(i, j int) bool) {
		for i := range own {
			for j := range peers {
				if pairs[i] < 0 && !taken[j] && match(i, j) {
					pairs[i], taken[j] = j, true
				}
			}
		}
	}
	sameName := func(i, j int) bool { return own[i].Name == peers[j].Name }
	sameNet := func(i, j int) bool { return sharedPrefix(own[i].prefixes, peers[j].Prefixes).IsValid() }
	pair(func(i, j int) bool { return sameName(i, j) && sameNet(i, j) })
	pair(sameNet)
	pair(sameName)
	return pairs
}

// sharedPrefix returns one of our addresses that is in one subnet with one of theirs, with that subnet; the zero value
// if there is none. IPv4 precedes IPv6. Link-local addresses do not count: every interface has one.
func sharedPrefix(ours, theirs []netip.Prefix) netip.Prefix {
	for _, v4 := range []bool{true, false} {
		for _, o := range ours {
			if o.Addr().Is4() == v4 && !o.Addr().IsLinkLocalUnicast() && inSubnet(o, theirs).IsValid() {
				return o
			}
		}
	}
	return netip.Prefix{}
}

// inSubnet returns the first address of list that is in p's subnet and is not p's own.
func inSubnet(p netip.Prefix, list []netip.Prefix) netip.Addr {
	for _, q := range list {
		if p.Masked().Contains(q.Addr()) && q.Addr() != p.Addr() {
			return q.Addr()
		}
	}
	return netip.Addr{}
}
