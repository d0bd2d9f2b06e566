package rail

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/sysfs"
)

// Choice is the GID for a connection over a rail, and the reason.
type Choice struct {
	GID    GID
	Rank   GIDRank
	Reason string
}

// OK reports whether an entry can be used.
func (c Choice) OK() bool { return c.Rank != NoGID }

// GIDRank says how suitable an entry of an Ethernet port is; higher is better. On other ports it is not used.
type GIDRank int

// Ranks of entries. Other means an interface that is not the rail's own.
const (
	NoGID GIDRank = iota
	OnlyRoCEv1
	OtherLinkLocal
	OtherIPv6
	OwnLinkLocal
	OtherIPv4
	OwnLinkLocalIPv4 // 169.254.0.0/16, which NCCL uses and the other end of a direct cable
	OwnIPv6
	OwnIPv4
)

// LinkLocal reports whether the entry cannot be routed.
func (r GIDRank) LinkLocal() bool {
	return r == OwnLinkLocal || r == OwnLinkLocalIPv4 || r == OtherLinkLocal
}

// ChooseGID returns the entry for a connection: RoCE v2 over IPv4 on the rail's own interface if there is one, else
// the next best. own reports whether an interface is the rail's own; see [Own]. Of equal entries, the lowest index
// is chosen.
func ChooseGID(table []GID, linkLayer string, own func(netdev string) bool) Choice {
	switch {
	case len(table) == 0 && !isEthernet(linkLayer):
		return Choice{Reason: "the GID table is empty"}
	case len(table) == 0:
		return Choice{Reason: "the GID table is empty: the interface is down, or the driver made no entries"}
	case linkLayer == USNIC:
		return Choice{table[0], OwnIPv4, "usNIC, not RoCE: its GID has the address of the interface"}
	case linkLayer == IWARP:
		return Choice{table[0], OwnIPv4, "iWARP, which is RDMA over TCP: its GID is no address"}
	case !isEthernet(linkLayer):
		return Choice{table[0], OwnIPv4, "not Ethernet: the port's first GID"}
	}
	best := Choice{}
	for _, g := range table {
		if rank, reason := rankGID(g, own); rank > best.Rank {
			best = Choice{g, rank, reason}
		}
	}
	best.Reason = strings.ReplaceAll(best.Reason, "NETDEV", cmp.Or(best.GID.Netdev, "an unknown interface"))
	return best
}

// isEthernet reports whether types and interfaces of GIDs are relevant. EFA's link layer is Unspecified in ibverbs,
// and Unknown in sysfs.
func isEthernet(linkLayer string) bool {
	return !slices.Contains([]string{infiniBand, "Unspecified", "Unknown", IWARP, USNIC}, linkLayer)
}

// rankGID returns the rank of an Ethernet port's entry, and the reason for it.
func rankGID(g GID, own func(netdev string) bool) (rank GIDRank, reason string) {
	if g.Type != TypeRoCEv2 {
		return OnlyRoCEv1, "RoCE v1 only: it cannot be routed, and most fabrics do not prioritise it"
	}
	switch ours, global := own(g.Netdev), !g.Addr.Unmap().IsLinkLocalUnicast(); {
	case ours && global && g.IPv4():
		return OwnIPv4, "RoCE v2, IPv4, on the rail's own interface"
	case ours && global:
		return OwnIPv6, "RoCE v2, IPv6: the interface has no IPv4 address"
	case global && g.IPv4():
		return OtherIPv4, "RoCE v2, IPv4, but on NETDEV, not on the rail's own interface"
	case ours && g.IPv4():
		return OwnLinkLocalIPv4, "RoCE v2, IPv4, link-local: it reaches the other end of one cable"
	case ours:
		return OwnLinkLocal, "RoCE v2, link-local only: give the interface an IPv4 address"
	case global:
		return OtherIPv6, "RoCE v2, IPv6, and on NETDEV, not on the rail's own interface"
	}
	return OtherLinkLocal, "RoCE v2, link-local only, and on NETDEV, not on the rail's own interface"
}

// UsableGIDs returns at most limit usable entries sorted by index: the best by [ChooseGID], up to 1/4 of them on
// interfaces other than the rail's. If all are RoCE v1, it returns ChooseGID's entry.
func UsableGIDs(table []GID, linkLayer string, own func(netdev string) bool, limit int) []GID {
	if !isEthernet(linkLayer) {
		return table[:min(len(table), limit)]
	}
	var kinds [OwnIPv4 + 1][]GID
	for _, g := range table {
		rank, _ := rankGID(g, own)
		kinds[rank] = append(kinds[rank], g)
	}
	mine := slices.Concat(kinds[OwnIPv4], kinds[OwnIPv6], kinds[OwnLinkLocalIPv4], kinds[OwnLinkLocal])
	theirs := slices.Concat(kinds[OtherIPv4], kinds[OtherIPv6], kinds[OtherLinkLocal])
	if len(mine)+len(theirs) == 0 {
		return table[:min(len(table), 1)]
	}
	usable := mine[:min(len(mine), max(limit-len(theirs), limit*3/4))]
	usable = append(slices.Clone(usable), theirs[:min(len(theirs), limit-len(usable))]...)
	slices.SortFunc(usable, func(a, b GID) int { return a.Index - b.Index })
	return usable
}

// Misbound reports whether all RoCE v2 IPv4 GIDs of the port belong to interfaces that are not the rail's own. This
// happens when the interface joins a bond, and connections then use another port. ok is false if there is no such
// GID.
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

// Own returns a function that reports whether an interface is the rail's own: the rail's netdev, or one stacked on
// it (a VLAN, a macvlan), but not a bond or bridge over it, which may send over any of its members.
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

// GID types in the kernel's format, gid_attrs/types (drivers/infiniband/core/cache.c, gid_type_str).
const (
	TypeRoCEv1 = "IB/RoCE v1"
	TypeRoCEv2 = "RoCE v2"
)

// GID is one used entry of a port's GID table.
type GID struct {
	Index  int        `json:"index"`
	Addr   netip.Addr `json:"addr"`   // 128 bits; an IPv4 address is in its mapped form
	Type   string     `json:"type"`   // TypeRoCEv1, TypeRoCEv2, or another text from the kernel; empty on InfiniBand
	Netdev string     `json:"netdev"` // interface of the entry; empty on InfiniBand
}

// IPv4 reports whether a connection over this entry is RoCE v2 over IPv4.
func (g GID) IPv4() bool { return g.Type == TypeRoCEv2 && g.Addr.Is4In6() }

// ErrNoTable is returned if a port has no GID table, as in a captured tree.
var ErrNoTable = errors.New("no GID table")

// GIDTable reads a port's GID table. An mlx5 port has 256 entries and rxe 1024, most of them empty, and the kernel uses
// the first empty index for a new one (cache.c, find_gid). A read therefore stops after a long run of empty entries;
// the first read and one every 10 minutes cover the whole table. Not safe for concurrent use.
type GIDTable struct {
	dir     string    // <device>/ports/<port>
	size    int       // number of entries, at the last full read
	last    int       // highest index in use, at the last read
	wasFull time.Time // time of the last full read
}

const (
	gidGap        = 32 // run of empty entries after which a read stops
	fullReadEvery = 10 * time.Minute
	maxGIDs       = 4096 // limit for untrusted trees; the kernel's largest table has 1024 entries
)

// NewGIDTable returns the reader for one port of the device at dir.
func NewGIDTable(dir string, port int) *GIDTable {
	return &GIDTable{dir: filepath.Join(dir, "ports", strconv.Itoa(port))}
}

// Read returns the used entries in order, and a [*sysfs.Error] for each that failed, or only [ErrNoTable].
func (t *GIDTable) Read() (table []GID, errs []error) {
	full := time.Since(t.wasFull) >= fullReadEvery
	if full {
		if err := t.resize(); err != nil {
			return nil, []error{err}
		}
		t.wasFull = time.Now()
	}
	return t.read(full)
}

// ReadUntil is like Read, but stops early: if enough accepts the entries before the first long gap, the rest of up
// to 1024 is not read.
func (t *GIDTable) ReadUntil(enough func([]GID) bool) (table []GID, errs []error) {
	if t.size == 0 {
		if err := t.resize(); err != nil {
			return nil, []error{err}
		}
	}
	table, errs = t.read(false)
	if enough(table) || time.Since(t.wasFull) < fullReadEvery {
		return table, errs
	}
	return t.Read()
}

func (t *GIDTable) read(full bool) (table []GID, errs []error) {
	last := 0
	for i := 0; i < t.size && (full || i <= max(last, t.last)+gidGap); i++ {
		g, used, err := t.entry(strconv.Itoa(i))
		switch {
		case err != nil:
			errs = append(errs, err)
		case used:
			g.Index = i
			table = append(table, g)
		default:
			continue
		}
		last = i
	}
	t.last = last
	return table, errs
}

func (t *GIDTable) resize() error {
	list, err := sysfs.List(filepath.Join(t.dir, "gids"))
	if sysfs.Reason(err) == sysfs.ReasonVanished {
		return fmt.Errorf("%w: %w", ErrNoTable, err)
	}
	t.size = 0
	for _, e := range list {
		if i, err := strconv.Atoi(e.Name); err == nil && i < maxGIDs {
			t.size = max(t.size, i+1)
		}
	}
	if err == nil && t.size == 0 { // the uplink of an adapter in switchdev mode
		err = fmt.Errorf("%w: %s is empty", ErrNoTable, filepath.Join(t.dir, "gids"))
	}
	return err
}

// entry reads an entry, and reports whether it is in use: the GID of an empty one is all zeros.
func (t *GIDTable) entry(index string) (g GID, used bool, err error) {
	text, err := sysfs.ReadString(t.dir, "gids", index)
	if err != nil {
		return g, false, unlessEmpty(err)
	}
	g.Addr, err = netip.ParseAddr(text)
	if err != nil || !g.Addr.Is6() {
		return g, false, sysfs.Invalid(filepath.Join(t.dir, "gids", index), []byte(text), "not a GID")
	}
	if g.Addr.IsUnspecified() {
		return g, false, nil
	}
	g.Type, err = t.attribute("types", index)
	if err == nil {
		g.Netdev, err = t.attribute("ndevs", index)
	}
	return g, err == nil, err
}

// attribute reads the type or interface of an entry; empty if the kernel has none.
func (t *GIDTable) attribute(name, index string) (string, error) {
	text, err := sysfs.ReadString(t.dir, "gid_attrs", name, index)
	if err != nil || !printable(text) {
		return "", unlessEmpty(err)
	}
	return text, nil
}

// unlessEmpty returns err, or nil if err means an empty entry, whose files fail with EINVAL or do not exist.
func unlessEmpty(err error) error {
	if r := sysfs.Reason(err); r == sysfs.ReasonVanished || r == sysfs.ReasonUnsupported {
		return nil
	}
	return err
}
