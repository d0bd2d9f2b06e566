package probe

import (
	"context"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/probe/internal/failure"
)

// bondLane is a TCP path over a bond of this node.
type bondLane struct {
	tcpLane
	members  []string // interfaces
	capacity float64  // of all members together, in bytes per second; 0: not known
}

// path stands in for the path of the lane.
func (b bondLane) path() *path {
	p := &path{lane: true, result: &RailResult{Rail: b.name, Capacity: positive(b.capacity)}}
	p.local.Name, p.local.capacity = b.name, b.capacity
	return p
}

// maxBonds is how many bonds are measured.
const maxBonds = 4

// bondLanes are the bonds of this node, each with its first address that is in one subnet with one of the peer's; a
// bond without one has no valid address.
func (r *round) bondLanes() (list []bondLane) {
	theirs := r.peerAddresses()
	for _, a := range r.node.addresses() {
		members := rail.BondMembers(filepath.Join(r.node.opts.Sysfs, "class/net", a.Netdev))
		if len(members) == 0 {
			continue
		}
		i := slices.IndexFunc(list, func(b bondLane) bool { return b.netdev == a.Netdev })
		if i < 0 && len(list) == maxBonds {
			continue
		}
		if i < 0 {
			b := bondLane{members: members, capacity: r.node.speed(members)}
			b.name, b.netdev = "bond "+a.Netdev, a.Netdev
			i, list = len(list), append(list, b)
		}
		if b := &list[i]; !b.remote.IsValid() {
			b.local, b.remote = a.Prefix.Addr(), inSubnet(a.Prefix, theirs)
		}
	}
	return list
}

// peerAddresses are those that the peer reports, without any that are this node's own.
func (r *round) peerAddresses() (list []netip.Prefix) {
	own := r.ownAddresses()
	for _, a := range r.remote.Addresses {
		if !own[a.Prefix.Addr().Unmap()] {
			list = append(list, a.Prefix)
		}
	}
	return list
}

// speed is that of interfaces together, in bytes per second; 0: one is not known (Documentation/ABI/testing/
// sysfs-class-net, speed).
func (n *Node) speed(netdevs []string) (sum float64) {
	for _, name := range netdevs {
		megabits, err := sysfs.ReadUint(filepath.Join(n.opts.Sysfs, "class/net", name, "speed"))
		if err != nil || megabits == 0 { // -1 without a link
			return 0
		}
		sum += float64(megabits) * 1e6 / 8
	}
	return sum
}

// measureBond measures TCP over each bond of this node that has an address in one subnet with one of the peer's, and
// what each of its members carried. Without a bond there is nothing to measure.
func (r *round) measureBond(ctx context.Context, _ Extra) error {
	bonds := r.bondLanes()
	reached := slices.DeleteFunc(slices.Clone(bonds), func(b bondLane) bool { return !b.remote.IsValid() })
	if len(bonds) > 0 && len(reached) == 0 {
		return failure.New(failure.StageExtra, failure.NoAddress, "no bond of this node has an address in one subnet with "+
			"one of the peer's")
	}
	for _, b := range reached {
		for _, streams := range baselineStreams {
			res, err := r.overBond(ctx, b, streams)
			if err == nil && res.BytesPerSecond <= 0 {
				err = failure.New(failure.StageBaseline, failure.Timeout, "fewer than %d writes over %s completed in %d ms",
					tcpWrites, b.netdev, maxTCP.Milliseconds())
			}
			r.res.Extras = append(r.res.Extras, Measured{Kind: Bond, TCP: &res, Failure: failure.As(failure.StageExtra, err),
				Flows: []MeasuredFlow{{Rail: b.netdev}}})
		}
	}
	return nil
}

// overBond makes a burst over a bond, between two readings of its members' counters.
func (r *round) overBond(ctx context.Context, b bondLane, streams int) (TCPResult, error) {
	before, bytes := r.sentBy(b.members), r.res.Bytes
	res, err := r.tcpOver(ctx, failure.StageBaseline, []tcpLane{b.tcpLane}, []*path{b.path()}, streams)
	after := r.sentSettled(ctx, b.members, before, r.res.Bytes-bytes)
	res.Rails = nil
	for i, m := range b.members {
		one := TCPRail{Rail: m}
		if before[i] >= 0 && after[i] >= before[i] {
			one.Counted = new(after[i] - before[i])
		}
		res.Rails = append(res.Rails, one)
	}
	return res, err
}

// sentSettled is sentBy once the interfaces have counted so many bytes more: some drivers update their counters once a
// second.
func (r *round) sentSettled(ctx context.Context, netdevs []string, before []int64, payload int64) []int64 {
	for end := time.Now().Add(settleTime); ; {
		now, sum := r.sentBy(netdevs), int64(0)
		for i := range now {
			sum += now[i] - before[i]
		}
		if sum >= payload || time.Now().After(end) {
			return now
		}
		select {
		case <-time.After(settleTime / 10):
		case <-ctx.Done():
			return now
		}
	}
}

// sentBy returns what interfaces have sent, in bytes; -1: not known.
func (r *round) sentBy(netdevs []string) (sent []int64) {
	for _, name := range netdevs {
		v, err := sysfs.ReadUint(filepath.Join(r.node.opts.Sysfs, "class/net", name, "statistics/tx_bytes"))
		if err != nil {
			sent = append(sent, -1)
			continue
		}
		sent = append(sent, int64(v))
	}
	return sent
}
