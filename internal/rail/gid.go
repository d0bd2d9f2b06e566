package rail

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"

	"github.com/railscope/railscope/internal/sysfs"
)

// GID types as the kernel prints them in gid_attrs/types (drivers/infiniband/core/cache.c, gid_type_str).
const (
	TypeRoCEv1 = "IB/RoCE v1"
	TypeRoCEv2 = "RoCE v2"
)

// GID is one used entry of a port's GID table.
type GID struct {
	Index  int        `json:"index"`
	Addr   netip.Addr `json:"addr"`   // 128 bits; an IPv4 address is in its mapped form
	Type   string     `json:"type"`   // TypeRoCEv1, TypeRoCEv2, or another text of the kernel; empty on InfiniBand
	Netdev string     `json:"netdev"` // interface of the entry; empty on InfiniBand
}

// IPv4 reports whether a connection over this entry is RoCE v2 over IPv4.
func (g GID) IPv4() bool { return g.Type == TypeRoCEv2 && g.Addr.Is4In6() }

// ErrNoTable means that a port has no GID table, as on a captured tree.
var ErrNoTable = errors.New("no GID table")

// GIDTable reads a port's GID table. An mlx5 port has 256 entries and rxe 1024, most of them empty, and the kernel puts
// a new one at the first empty index (drivers/infiniband/core/cache.c, find_gid). So a read stops after a long run of
// empty entries, and only the first one and one every 10 minutes cover the table. Not safe for concurrent use.
type GIDTable struct {
	dir   string    // <device>/ports/<port>
	size  int       // entries, at the last full read
	last  int       // highest index in use, at the last read
	swept time.Time // last full read
}

const (
	gidGap     = 32 // empty entries after which a read stops
	sweepEvery = 10 * time.Minute
	maxGIDs    = 4096 // bound for untrusted trees; the kernel's largest table has 1024 entries
)

// NewGIDTable returns the reader for one port of the device at dir.
func NewGIDTable(dir string, port int) *GIDTable {
	return &GIDTable{dir: filepath.Join(dir, "ports", strconv.Itoa(port))}
}

// Read returns the used entries in order, and a [*sysfs.Error] for each that failed, or one [ErrNoTable].
func (t *GIDTable) Read() (table []GID, errs []error) {
	sweep := time.Since(t.swept) >= sweepEvery
	if sweep {
		if err := t.resize(); err != nil {
			return nil, []error{err}
		}
		t.swept = time.Now()
	}
	last := 0
	for i := 0; i < t.size && (sweep || i <= max(last, t.last)+gidGap); i++ {
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
	return err
}

// entry reads an entry, and reports whether it is in use: the GID of an empty one is all zeros.
func (t *GIDTable) entry(index string) (g GID, used bool, err error) {
	text, err := sysfs.ReadString(t.dir, "gids", index)
	if err != nil {
		return g, false, unlessEmpty(err)
	}
	if g.Addr, err = netip.ParseAddr(text); err != nil || !g.Addr.Is6() {
		return g, false, sysfs.Invalid(filepath.Join(t.dir, "gids", index), []byte(text), "not a GID")
	}
	if g.Addr.IsUnspecified() {
		return g, false, nil
	}
	if g.Type, err = t.attribute("types", index); err == nil {
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

// unlessEmpty returns err, or nil if it means an empty entry, whose files fail with EINVAL or do not exist.
func unlessEmpty(err error) error {
	if r := sysfs.Reason(err); r == sysfs.ReasonVanished || r == sysfs.ReasonUnsupported {
		return nil
	}
	return err
}
