package rail

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Choice is the GID that a connection over a rail would use, and why.
type Choice struct {
	GID    GID
	OK     bool // an entry can be used
	Reason string
}

// ChooseGID returns the entry for a connection: RoCE v2 over IPv4 on the rail's own interface if there is one, else the
// next best. own reports whether an interface is the rail's own; see [Own]. Ties go to the lowest index.
func ChooseGID(table []GID, linkLayer string, own func(netdev string) bool) Choice {
	if !isEthernet(linkLayer) {
		if len(table) == 0 {
			return Choice{Reason: "the GID table is empty"}
		}
		return Choice{GID: table[0], OK: true, Reason: "not Ethernet: the port's first GID"}
	}
	for _, rank := range gidRanks(own) {
		for _, g := range table {
			if rank.fits(g) {
				netdev := cmp.Or(g.Netdev, "an unknown interface")
				return Choice{GID: g, OK: true, Reason: strings.ReplaceAll(rank.reason, "NETDEV", netdev)}
			}
		}
	}
	return Choice{Reason: "the GID table is empty: the interface is down, or the driver made no entries"}
}

// isEthernet reports whether the type and interface of GIDs count. EFA's link layer is Unspecified.
func isEthernet(linkLayer string) bool {
	return linkLayer != "InfiniBand" && linkLayer != "Unspecified"
}

// gidRank is one kind of entry of an Ethernet port's GID table.
type gidRank struct {
	tests  []func(GID) bool
	reason string
}

func (r gidRank) fits(g GID) bool {
	return !slices.ContainsFunc(r.tests, func(test func(GID) bool) bool { return !test(g) })
}

// gidRanks are the kinds of entries, best first. The last is RoCE v1.
func gidRanks(own func(netdev string) bool) []gidRank {
	type all = []func(GID) bool
	v2 := func(g GID) bool { return g.Type == TypeRoCEv2 }
	ours := func(g GID) bool { return own(g.Netdev) }
	global := func(g GID) bool { return !linkLocal(g) }
	return []gidRank{
		{all{GID.IPv4, ours, global}, "RoCE v2, IPv4, on the rail's own interface"},
		{all{v2, ours, global}, "RoCE v2, IPv6: the interface has no IPv4 address"},
		{all{GID.IPv4, global}, "RoCE v2, IPv4, but on NETDEV, not on the rail's own interface"},
		{all{v2, ours}, "RoCE v2, link-local only: give the interface an IPv4 address"},
		{all{v2, global}, "RoCE v2, IPv6, and on NETDEV, not on the rail's own interface"},
		{all{v2}, "RoCE v2, link-local only, and on NETDEV, not on the rail's own interface"},
		{all{}, "RoCE v1 only: it cannot be routed, and most fabrics do not prioritise it"},
	}
}

// UsableGIDs returns at most limit entries that a connection could use, in order of the index, the best in the order of
// [ChooseGID]. Up to 1/4 of them are on another interface than the rail's own. If a port has only RoCE v1, it is the
// entry that ChooseGID returns.
func UsableGIDs(table []GID, linkLayer string, own func(netdev string) bool, limit int) []GID {
	if !isEthernet(linkLayer) {
		return table[:min(len(table), limit)]
	}
	ranks := gidRanks(own)
	kinds := make([][]GID, len(ranks))
	for _, g := range table {
		rank := slices.IndexFunc(ranks, func(r gidRank) bool { return r.fits(g) })
		kinds[rank] = append(kinds[rank], g)
	}
	mine, theirs := slices.Concat(kinds[0], kinds[1], kinds[3]), slices.Concat(kinds[2], kinds[4], kinds[5])
	if len(mine)+len(theirs) == 0 {
		return table[:min(len(table), 1)]
	}
	usable := mine[:min(len(mine), max(limit-len(theirs), limit*3/4))]
	usable = append(slices.Clone(usable), theirs[:min(len(theirs), limit-len(usable))]...)
	slices.SortFunc(usable, func(a, b GID) int { return a.Index - b.Index })
	return usable
}

func linkLocal(g GID) bool { return g.Addr.Unmap().IsLinkLocalUnicast() }

// Misbound reports whether all RoCE v2 IPv4 GIDs of the port belong to interfaces that are not the rail's own. This
// happens when the interface joins a bond, and connections then use another port. ok is false without such a GID.
func Misbound(table []GID, own func(netdev string) bool) (misbound, ok bool) {
	for _, g := range table {
		if !g.IPv4() {
			continue
		}
		if own(g.Netdev) {
			return false, true
		}
		ok = true
	}
	return ok, ok
}

// Own returns a function that reports whether an interface is the rail's own: the rail's netdev, or one stacked on it (a
// VLAN, a macvlan), but not a bond or bridge over it, which may send over any of its members.
func Own(sysfsRoot, netdev string) func(string) bool {
	return func(name string) bool {
		if name == netdev {
			return true
		}
		if name == "" || netdev == "" {
			return false
		}
		dir := filepath.Join(sysfsRoot, "class/net", name)
		return exists(dir, "lower_"+netdev) && !exists(dir, "bonding") && !exists(dir, "bridge")
	}
}

func exists(elem ...string) bool {
	_, err := os.Lstat(filepath.Join(elem...))
	return err == nil
}
