package rail

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"

	"github.com/railscope/railscope/internal/sysfs"
)

// GID types as the kernel prints them in gid_attrs/types
// (drivers/infiniband/core/cache.c, gid_type_str).
const (
	TypeRoCEv1 = "IB/RoCE v1"
	TypeRoCEv2 = "RoCE v2"
)

// GID is one used entry of a port's GID table.
type GID struct {
	Index  int
	Addr   netip.Addr // 128 bits; an IPv4 address is in its mapped form
	Type   string     // TypeRoCEv1, TypeRoCEv2, or whatever the kernel says; empty on InfiniBand
	Netdev string     // interface the entry belongs to; empty on InfiniBand
}

// IPv4 reports whether a connection over this entry is RoCE v2 over IPv4.
func (g GID) IPv4() bool { return g.Type == TypeRoCEv2 && g.Addr.Is4In6() }

// ErrNoTable says that a port has no GID table, as on a captured tree.
var ErrNoTable = errors.New("no GID table")

// GIDTable reads a port's GID table. An mlx5 port has 256 entries, nearly all
// of them empty, at three files each; so it re-reads the used ones and the
// first empty ones, where the kernel puts a new entry
// (drivers/infiniband/core/cache.c, find_gid), and reads all of them only now
// and then. Not safe for concurrent use.
type GIDTable struct {
	dir     string // <device>/ports/<port>
	entries []gidFiles
	used    map[int]bool
	swept   time.Time // when the last sweep began
	next    int       // where it goes on
	full    bool      // more entries are used than every read covers
	none    error     // why there is no table, found at the last sweep
}

// gidFiles is one entry's files, and what they held at the last read: an entry
// hardly ever changes, and what has not need not be parsed again.
type gidFiles struct {
	gid, typ, ndev sysfs.File
	text           string // of gid
	last           GID
	good           bool // last is what the last read said
}

// What a read covers beside the used entries: the first empty ones, and now
// and then all, some at a time. A sweep of rxe's 1024 entries in one read would
// be felt.
const (
	emptyAhead = 2
	usedAhead  = 32 // used entries that every read covers; of a fuller table the others are swept all the time
	sweepEvery = 10 * time.Minute
	sweepStep  = 64
	fullStep   = 32          // of a table that is swept all the time
	noneEvery  = time.Minute // how often a table that was not there is looked for
	maxGIDs    = 4096        // bound on what a tree may claim; the kernel's largest is 1024
)

// NewGIDTable returns the reader for one port of the device at dir.
func NewGIDTable(dir string, port int) *GIDTable {
	return &GIDTable{dir: filepath.Join(dir, "ports", strconv.Itoa(port)), used: map[int]bool{}}
}

// Read returns the used entries in order of index. Entries that cannot be read
// are in the list of errors, which are [*sysfs.Error]; the only one is
// [ErrNoTable], wrapped, when the port has no table.
func (t *GIDTable) Read() (table []GID, errs []error) {
	table, errs, moved := t.scan()
	if moved { // what left its place may be at any other: read all
		t.swept = time.Time{}
		table, errs, _ = t.scan()
	}
	return table, errs
}

// scan is one read, and reports whether an entry that was used is another now, or
// empty.
func (t *GIDTable) scan() (table []GID, errs []error, moved bool) {
	step, every := sweepStep, sweepEvery
	if t.none != nil {
		every = noneEvery
	}
	if now := time.Now(); now.Sub(t.swept) >= every {
		if t.swept.IsZero() {
			step = maxGIDs // the first read sees all
		}
		t.swept, t.next, t.none = now, 0, t.resize()
	}
	if t.none != nil {
		return nil, []error{t.none}, false
	}
	if t.full && step == sweepStep {
		step = fullStep
	}
	from, to, empty, used := t.next, t.next+step, 0, 0
	if t.next = min(to, len(t.entries)); t.next == len(t.entries) && t.full {
		t.next = 0
	}
	for i := range t.entries {
		swept := i >= from && i < to
		if !t.used[i] && !swept && empty >= emptyAhead {
			continue
		}
		if t.used[i] && !swept && used >= usedAhead && t.entries[i].good {
			table = append(table, t.entries[i].last)
			used++
			continue
		}
		before := t.entries[i].last.Addr
		g, ok, err := t.entries[i].read(i)
		moved = moved || t.used[i] && err == nil && (!ok || before.IsValid() && g.Addr != before)
		switch {
		case err != nil:
			errs = append(errs, err)
		case ok:
			table = append(table, g)
		default:
			empty++
		}
		t.used[i] = ok || err != nil // one that fails is read again: it may be in use
		if t.entries[i].good = ok; t.used[i] {
			used++
		}
		if !t.used[i] && empty > emptyAhead || used > usedAhead {
			t.entries[i].close() // do not hold three descriptors for each of 250 entries
		}
	}
	t.full = used > usedAhead
	return table, errs, moved
}

// CloseFiles closes all files, and keeps what is known of the table. For who reads
// it seldom.
func (t *GIDTable) CloseFiles() {
	for i := range t.entries {
		t.entries[i].close()
	}
}

// Close closes all files.
func (t *GIDTable) Close() {
	t.CloseFiles()
	t.entries, t.swept = nil, time.Time{}
}

// resize makes the list of entries as long as the kernel's table.
func (t *GIDTable) resize() error {
	list, err := sysfs.List(filepath.Join(t.dir, "gids"))
	if err != nil {
		t.Close()
		if sysfs.Reason(err) == sysfs.ReasonVanished {
			return fmt.Errorf("%w: %w", ErrNoTable, err)
		}
		return err
	}
	n := 0
	for _, e := range list {
		if i, err := strconv.Atoi(e.Name); err == nil && i >= n && i < maxGIDs {
			n = i + 1
		}
	}
	if n == len(t.entries) {
		return nil
	}
	t.Close()
	t.entries = make([]gidFiles, n)
	for i := range t.entries {
		name := strconv.Itoa(i)
		t.entries[i] = gidFiles{
			gid:  sysfs.File{Path: filepath.Join(t.dir, "gids", name)},
			typ:  sysfs.File{Path: filepath.Join(t.dir, "gid_attrs/types", name)},
			ndev: sysfs.File{Path: filepath.Join(t.dir, "gid_attrs/ndevs", name)},
		}
	}
	return nil
}

// read returns the entry, or false when it is empty. An empty entry's gid
// reads as zeros, and its type and netdev as EINVAL. One whose type or netdev
// cannot be read is an error: without them it looks like another entry.
func (f *gidFiles) read(index int) (g GID, used bool, err error) {
	var buf [64]byte
	b, err := f.gid.Read(buf[:])
	if err != nil {
		if r := sysfs.Reason(err); r == sysfs.ReasonVanished || r == sysfs.ReasonUnsupported {
			return g, false, nil
		}
		return g, false, err
	}
	if text := bytes.TrimSpace(b); f.text == "" || string(text) != f.text {
		addr, err := netip.ParseAddr(string(text))
		if err != nil || !addr.Is6() {
			f.text = ""
			return g, false, &sysfs.Error{Path: f.gid.Path, Reason: sysfs.ReasonInvalid,
				Err: fmt.Errorf("%q is not a GID", string(text))}
		}
		f.text, f.last.Addr = string(text), addr
	}
	if f.last.Addr.IsUnspecified() {
		return g, false, nil
	}
	f.last.Index = index
	if f.last.Type, err = word(&f.typ, f.last.Type, buf[:]); err != nil {
		return g, false, err
	}
	if f.last.Netdev, err = word(&f.ndev, f.last.Netdev, buf[:]); err != nil {
		return g, false, err
	}
	return f.last, true, nil
}

// word reads a file that holds one word, which was last the last time; empty
// where the kernel has none.
func word(f *sysfs.File, last string, buf []byte) (string, error) {
	b, err := f.Read(buf)
	if err != nil {
		if r := sysfs.Reason(err); r == sysfs.ReasonVanished || r == sysfs.ReasonUnsupported {
			err = nil
		}
		return "", err
	}
	b = bytes.TrimSpace(b)
	if string(b) == last {
		return last, nil
	}
	if s := string(b); printable(s) {
		return s, nil
	}
	return "", nil
}

func (f *gidFiles) close() {
	f.gid.Close()
	f.typ.Close()
	f.ndev.Close()
}
