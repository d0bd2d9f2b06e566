package round

import (
	"context"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/stats"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/result"
)

// BondLane is a TCP path over a bond of this node.
type BondLane struct {
	TCPLane
	members  []string // member interfaces
	Capacity float64  // sum over all members in bytes per second; 0: unknown
}

// path returns a path that represents the lane.
func (b BondLane) path() *Path {
	p := &Path{lane: true, Result: &result.RailResult{Rail: b.Name, Capacity: stats.Positive(b.Capacity)}}
	p.Local.Name, p.Local.Capacity = b.Name, b.Capacity
	return p
}

// maxBonds is the largest number of bonds measured.
const maxBonds = 4

// bondLanes returns the bonds of this node, each with its first address that shares a subnet with an address of the
// peer. The address is invalid if there is none.
func (r *Round) bondLanes() (list []BondLane) {
	theirs := r.peerAddresses()
	for _, a := range r.Node.Addresses() {
		members := rail.BondMembers(filepath.Join(r.Node.Opts.Sysfs, "class/net", a.Netdev))
		if len(members) == 0 {
			continue
		}
		i := slices.IndexFunc(list, func(b BondLane) bool { return b.netdev == a.Netdev })
		if i < 0 && len(list) == maxBonds {
			continue
		}
		if i < 0 {
			b := BondLane{members: members, Capacity: r.Node.Speed(members)}
			b.Name, b.netdev = "bond "+a.Netdev, a.Netdev
			i, list = len(list), append(list, b)
		}
		if b := &list[i]; !b.Remote.IsValid() {
			b.Local, b.Remote = a.Prefix.Addr(), node.InSubnet(a.Prefix, theirs)
		}
	}
	return list
}

// peerAddresses returns the addresses that the peer reports, except those that this node has itself.
func (r *Round) peerAddresses() (list []netip.Prefix) {
	own := r.ownAddresses()
	for _, a := range r.Remote.Addresses {
		if !own[a.Prefix.Addr().Unmap()] {
			list = append(list, a.Prefix)
		}
	}
	return list
}

// measureBond measures TCP over each bond of this node that shares a subnet with the peer, and what each of its
// members carried. Without a bond it does nothing.
func (r *Round) measureBond(ctx context.Context, _ result.Extra) error {
	bonds := r.bondLanes()
	reached := slices.DeleteFunc(slices.Clone(bonds), func(b BondLane) bool { return !b.Remote.IsValid() })
	if len(bonds) > 0 && len(reached) == 0 {
		return failure.New(failure.StageExtra, failure.NoAddress, "no bond of this node has an address in one subnet with "+
			"one of the peer's")
	}
	for _, b := range reached {
		for _, streams := range BaselineStreams {
			res, err := r.overBond(ctx, b, streams)
			if err == nil && res.BytesPerSecond <= 0 {
				err = tooFewWrites(b.netdev)
			}
			r.Res.Extras = append(r.Res.Extras, result.Measured{Kind: result.Bond, TCP: &res,
				Failure: failure.As(failure.StageExtra, err),
				Flows:   []result.MeasuredFlow{{Rail: b.netdev}}})
			r.Tally.next()
		}
	}
	return nil
}

// overBond runs a burst over a bond, between two readings of its members' counters.
func (r *Round) overBond(ctx context.Context, b BondLane, streams int) (result.TCPResult, error) {
	before, bytes := r.sentBy(b.members), r.Res.Bytes
	res, err := r.tcpOver(ctx, failure.StageBaseline, []TCPLane{b.TCPLane}, []*Path{b.path()}, streams)
	after := r.sentSettled(ctx, b.members, before, r.Res.Bytes-bytes)
	res.Rails = nil
	for i, m := range b.members {
		one := result.TCPRail{Rail: m}
		if before[i] >= 0 && after[i] >= before[i] {
			one.Counted = new(after[i] - before[i])
		}
		res.Rails = append(res.Rails, one)
	}
	return res, err
}

// sentSettled returns sentBy once the counters include the payload, or after a timeout: some drivers update them
// once per second.
func (r *Round) sentSettled(ctx context.Context, netdevs []string, before []int64, payload int64) []int64 {
	for end := time.Now().Add(node.SettleTime); ; {
		now, sum := r.sentBy(netdevs), int64(0)
		for i := range now {
			sum += now[i] - before[i]
		}
		if sum >= payload || time.Now().After(end) {
			return now
		}
		select {
		case <-time.After(node.SettleTime / 10):
		case <-ctx.Done():
			return now
		}
	}
}

// sentBy returns what each interface has sent, in bytes; -1: unknown.
func (r *Round) sentBy(netdevs []string) (sent []int64) {
	for _, name := range netdevs {
		v, err := sysfs.ReadUint(filepath.Join(r.Node.Opts.Sysfs, "class/net", name, "statistics/tx_bytes"))
		if err != nil {
			sent = append(sent, -1)
			continue
		}
		sent = append(sent, int64(v))
	}
	return sent
}
