package rail

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/sysfs"
)

// gidTree is the GID table of port 1 of a device, as files.
type gidTree struct {
	t   *testing.T
	dir string
}

const zeroGID = "0000:0000:0000:0000:0000:0000:0000:0000"

// newGIDTree makes a table of n empty entries. Their types and netdevs, which return EINVAL in sysfs, are absent.
func newGIDTree(t *testing.T, n int) gidTree {
	t.Helper()
	g := gidTree{t, t.TempDir()}
	g.clear(0)
	for i := range n {
		g.file("gids", i, zeroGID)
	}
	return g
}

func (g gidTree) path(name string, index int) string {
	return filepath.Join(g.dir, "ports/1", name, fmt.Sprint(index))
}

func (g gidTree) file(name string, index int, content string) {
	g.t.Helper()
	path := g.path(name, index)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		g.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content+"\n"), 0o644); err != nil {
		g.t.Fatal(err)
	}
}

func (g gidTree) set(list ...GID) {
	g.t.Helper()
	for _, e := range list {
		g.file("gids", e.Index, e.Addr.StringExpanded())
		g.file("gid_attrs/types", e.Index, e.Type)
		g.file("gid_attrs/ndevs", e.Index, e.Netdev)
	}
}

func (g gidTree) clear(index int) {
	g.t.Helper()
	g.file("gids", index, zeroGID)
	os.Remove(g.path("gid_attrs/types", index))
	os.Remove(g.path("gid_attrs/ndevs", index))
}

// read calls Read, which must not return an error.
func (g gidTree) read(table *GIDTable) []GID {
	g.t.Helper()
	list, errs := table.Read()
	if len(errs) > 0 {
		g.t.Error(errs)
	}
	return list
}

func (g gidTree) expect(table *GIDTable, when string, want ...GID) {
	g.t.Helper()
	if diff := cmp.Diff(want, g.read(table), addresses); diff != "" {
		g.t.Errorf("%s: %s", when, diff)
	}
}

// TestGIDTableFollows: entries are added, removed and changed, in fake time.
func TestGIDTableFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := newGIDTree(t, 256)
		var (
			ll           = gid(0, "fe80::1", TypeRoCEv1, "eth0")
			ll2          = gid(1, "fe80::1", TypeRoCEv2, "eth0")
			near         = gid(2, "10.0.0.1", TypeRoCEv2, "eth0")
			far          = gid(200, "10.0.0.9", TypeRoCEv2, "eth0")
			near3, near4 = gid(3, "10.0.0.3", TypeRoCEv2, "eth0"), gid(4, "10.0.0.4", TypeRoCEv2, "eth0")
		)
		tree.set(ll, ll2)
		table := NewGIDTable(tree.dir, 1)
		tree.expect(table, "first", ll, ll2)
		tree.set(near)
		tree.expect(table, "added at the lowest empty index", ll, ll2, near)
		tree.set(near3, near4)
		tree.expect(table, "two at once", ll, ll2, near, near3, near4)

		tree.set(far)
		time.Sleep(fullReadEvery - time.Nanosecond)
		tree.expect(table, "a far one, before the next full read", ll, ll2, near, near3, near4)
		time.Sleep(time.Nanosecond)
		tree.expect(table, "a far one, at the next full read", ll, ll2, near, near3, near4, far)
		tree.expect(table, "a far one that is known", ll, ll2, near, near3, near4, far)

		tree.clear(200)
		tree.expect(table, "a far one removed", ll, ll2, near, near3, near4)
		tree.clear(0)
		tree.expect(table, "the first one removed", ll2, near, near3, near4)
		moved := near
		moved.Netdev = "bond0"
		tree.set(moved)
		tree.expect(table, "one that changed its interface", ll2, moved, near3, near4)
		for i := range 5 {
			tree.clear(i)
		}
		tree.expect(table, "all removed")
		time.Sleep(fullReadEvery)
		tree.expect(table, "a full read of nothing")
		tree.set(ll)
		tree.expect(table, "one again", ll)
	})
}

// The kernel determines the table's size, which is checked with each full read.
func TestGIDTableGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := newGIDTree(t, 2)
		first, tenth := gid(0, "10.0.0.1", TypeRoCEv2, "eth0"), gid(10, "10.0.0.10", TypeRoCEv2, "eth0")
		tree.set(first)
		tree.file("gids", maxGIDs, "2001:0db8:0000:0000:0000:0000:0000:0001") // beyond the limit: ignored
		table := NewGIDTable(tree.dir, 1)
		tree.expect(table, "small", first)
		tree.set(tenth)
		time.Sleep(fullReadEvery)
		tree.expect(table, "grown", first, tenth)
	})
}

func TestGIDTableIncomplete(t *testing.T) {
	tree := newGIDTree(t, 6)
	tree.file("gids", 0, "fe80:0000:0000:0000:a288:c2ff:fe18:0100") // InfiniBand: neither type nor interface
	tree.set(gid(1, "10.0.0.1", TypeRoCEv2, "eth0"), gid(2, "10.0.0.2", "RoCE v\x01", "eth\xff"))
	os.Remove(tree.path("gid_attrs/ndevs", 1))
	os.Remove(tree.path("gids", 3)) // an unused index
	tree.set(gid(4, "10.0.0.4", TypeRoCEv2, "eth0"))
	table := NewGIDTable(tree.dir, 1)
	tree.expect(table, "incomplete", gid(0, "fe80::a288:c2ff:fe18:100", "", ""), gid(1, "10.0.0.1", TypeRoCEv2, ""),
		gid(2, "10.0.0.2", "", ""), gid(4, "10.0.0.4", TypeRoCEv2, "eth0"))
}

// A value that a driver lacks is EINVAL in sysfs, which is not a fault: an empty entry's type and interface, and on
// some kernels its GID. The loopback interface's speed returns EINVAL on every machine.
func TestGIDTableUnsupported(t *testing.T) {
	const speed = "/sys/class/net/lo/speed"
	if _, err := os.ReadFile(speed); !errors.Is(err, unix.EINVAL) {
		t.Skipf("%s: %v", speed, err)
	}
	tree := newGIDTree(t, 3)
	tree.file("gids", 1, "2001:0db8:0000:0000:0000:0000:0000:0001")
	for _, name := range []string{"gids/0", "gid_attrs/types/1", "gid_attrs/ndevs/1"} {
		path := filepath.Join(tree.dir, "ports/1", name)
		os.Remove(path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(speed, path); err != nil {
			t.Fatal(err)
		}
	}
	table := NewGIDTable(tree.dir, 1)
	tree.expect(table, "unsupported", gid(1, "2001:db8::1", "", ""))
}

// A file that fails is reported by every read, at any index, and hides no other entry.
func TestGIDTableErrors(t *testing.T) {
	tree := newGIDTree(t, 256)
	well, far := gid(1, "10.0.0.1", TypeRoCEv2, "eth0"), gid(201, "10.0.0.9", TypeRoCEv2, "eth0")
	tree.set(well, far)
	tree.file("gids", 0, "garbage")
	tree.file("gids", 2, "10.0.0.1") // an address that is not a GID
	tree.file("gids", 3, "")
	tree.file("gids", 200, strings.Repeat("f", 100))
	tree.set(gid(4, "10.0.0.4", TypeRoCEv2, "eth0"), gid(5, "10.0.0.5", TypeRoCEv2, "eth0"))
	for _, kind := range []string{"gid_attrs/types/4",
		"gid_attrs/ndevs/5"} { // without these files it would look like another entry
		path := filepath.Join(tree.dir, "ports/1", kind)
		if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	table := NewGIDTable(tree.dir, 1)
	for _, when := range []string{"full read", "next read"} {
		list, errs := table.Read()
		if diff := cmp.Diff([]GID{well, far}, list, addresses); diff != "" {
			t.Errorf("%s: %s", when, diff)
		}
		got := []string{}
		for _, err := range errs {
			var e *sysfs.Error
			if !errors.As(err, &e) {
				t.Fatal(err)
			}
			got = append(got, strings.TrimPrefix(e.Path, tree.dir)+": "+e.Reason+": "+e.Err.Error())
		}
		want := []string{
			`/ports/1/gids/0: invalid: "garbage" is not a GID`,
			`/ports/1/gids/2: invalid: "10.0.0.1" is not a GID`,
			`/ports/1/gids/3: empty: the file is empty`,
			`/ports/1/gid_attrs/types/4: not_regular: not a regular file (mode 040755)`,
			`/ports/1/gid_attrs/ndevs/5: not_regular: not a regular file (mode 040755)`,
			`/ports/1/gids/200: invalid: "` + strings.Repeat("f", 40) + `..." is not a GID`,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", when, diff)
		}
	}
}

// An entry that fails once is not treated as empty.
func TestGIDTableFailsOnce(t *testing.T) {
	tree := newGIDTree(t, 256)
	far := gid(100, "10.0.0.1", TypeRoCEv2, "eth0")
	tree.set(far)
	table := NewGIDTable(tree.dir, 1)
	tree.expect(table, "at first", far)
	tree.file("gids", 100, "garbage")
	if list, errs := table.Read(); len(list) != 0 || len(errs) != 1 {
		t.Errorf("%v, %v", list, errs)
	}
	tree.set(far)
	tree.expect(table, "well again", far)
}

func TestGIDTableAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := newGIDTree(t, 1)
		table := NewGIDTable(tree.dir, 2)
		for range 2 {
			list, errs := table.Read()
			if len(list) != 0 || len(errs) != 1 || !errors.Is(errs[0], ErrNoTable) ||
				sysfs.Reason(errs[0]) != sysfs.ReasonVanished {
				t.Errorf("%v, %v", list, errs)
			}
		}
		if err := os.Rename(filepath.Join(tree.dir, "ports/1"), filepath.Join(tree.dir, "ports/2")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(fullReadEvery)
		tree.expect(table, "there now")
	})
}

// TestGIDTableGap: a read stops after a long run of empty entries, but not before the last one in use.
func TestGIDTableGap(t *testing.T) {
	tree := newGIDTree(t, 256)
	table := NewGIDTable(tree.dir, 1)
	tree.expect(table, "empty")
	near, edge := gid(1, "10.0.0.1", TypeRoCEv2, "eth0"), gid(1+gidGap, "10.0.0.2", TypeRoCEv2, "eth1")
	tree.set(near, edge, gid(2+2*gidGap, "10.0.0.3", TypeRoCEv2, "far"))
	tree.expect(table, "the last one is too far", near, edge)
	tree.clear(1)
	tree.expect(table, "the first one removed", edge)
}

// TestGIDTableFull: all entries in use are read.
func TestGIDTableFull(t *testing.T) {
	tree := newGIDTree(t, 256)
	var want []GID
	for i := range 256 {
		want = append(want, gid(i, netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}).String(), TypeRoCEv2, "eth0"))
	}
	tree.set(want...)
	table := NewGIDTable(tree.dir, 1)
	tree.expect(table, "first", want...)
	for _, changed := range []int{3, 100, 255} {
		want[changed] = gid(changed, netip.AddrFrom4([4]byte{10, 0, 2, byte(changed)}).String(), TypeRoCEv2, "eth1")
		tree.set(want[changed])
		tree.expect(table, fmt.Sprintf("after entry %d changed", changed), want...)
	}
	for i := 40; i < 256; i++ {
		tree.clear(i)
	}
	tree.expect(table, "after most were removed", want[:40]...)
}
