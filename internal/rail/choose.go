package rail

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Choice is the GID that a connection over a rail would use, and why that one.
type Choice struct {
	GID    GID
	OK     bool   // false: no entry will do
	Reason string // plain words, for people
}

// ChooseGID picks the entry for a connection: RoCE v2 over IPv4 on the rail's
// own interface, and only for want of that something else. own reports whether an
// interface is the rail's own; see [Own]. Ties go to the lowest index.
func ChooseGID(table []GID, linkLayer string, own func(netdev string) bool) Choice {
	if linkLayer == "InfiniBand" || linkLayer == "Unspecified" { // the latter is EFA's
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

// gidRank is one kind of entry of an Ethernet port's GID table.
type gidRank struct {
	tests  []func(GID) bool
	reason string
}

func (r gidRank) fits(g GID) bool {
	return !slices.ContainsFunc(r.tests, func(test func(GID) bool) bool { return !test(g) })
}

// gidRanks are the kinds of entries, the best first. The last is RoCE v1.
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

// UsableGIDs returns the entries that a connection could use, in order of the
// index: most of them at most, the best in the order of [ChooseGID]. A quarter
// of the places is for entries on another interface than the rail's own, where
// there are that many. Of a port that has nothing better it is the one entry
// that ChooseGID takes.
func UsableGIDs(table []GID, linkLayer string, own func(netdev string) bool, most int) []GID {
	if linkLayer == "InfiniBand" || linkLayer == "Unspecified" {
		return table[:min(len(table), most)]
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
	usable := mine[:min(len(mine), max(most-len(theirs), most*3/4))]
	usable = append(slices.Clone(usable), theirs[:min(len(theirs), most-len(usable))]...)
	slices.SortFunc(usable, func(a, b GID) int { return a.Index - b.Index })
	return usable
}

func linkLocal(g GID) bool { return g.Addr.Unmap().IsLinkLocalUnicast() }

// Misbound reports whether the port's RoCE v2 IPv4 GIDs all sit on an interface
// that is not the rail's own: what enslaving the interface to a bond does, and
// what makes a connection leave by another port. ok is false when the port has
// no such GID, and there is nothing to say.
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

// Own returns the test whether an interface is the rail's own: the rail's
// netdev, or one stacked on it (a VLAN, a macvlan), but not a bond or bridge
// over it, because those send by whichever member they like.
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
