package nccl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestBelow: below the fixed part of a pattern, links are not followed in any part of the path, and .. cannot leave
// it.
func TestBelow(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(dir, "root/a/b"), 0o755))
	must(os.MkdirAll(filepath.Join(dir, "out"), 0o755))
	for _, file := range []string{"root/a/b/x.log", "root/top.log", "out/x.log"} {
		must(os.WriteFile(filepath.Join(dir, file), []byte("x"), 0o644))
	}
	must(os.Symlink("b", filepath.Join(dir, "root/a/link")))
	must(os.Symlink(filepath.Join(dir, "out"), filepath.Join(dir, "root/out")))
	must(os.Symlink("x.log", filepath.Join(dir, "root/a/b/y.log")))
	must(unix.Mkfifo(filepath.Join(dir, "root/pipe"), 0o644))
	must(os.Symlink("root", filepath.Join(dir, "meant"))) // a link in the fixed part is followed
	g := glob{fixed: filepath.Join(dir, "meant")}
	for _, tt := range []struct {
		path string
		want []error // nil: it can be opened
	}{
		{"a/b/x.log", nil}, {"top.log", nil}, {"", nil}, {"a/b", nil}, {"pipe", nil},
		{"a/link/x.log", []error{unix.ELOOP, unix.ENOTDIR}}, {"out/x.log", []error{unix.ELOOP, unix.ENOTDIR}},
		{"a/b/y.log", []error{unix.ELOOP}},
		{"out", []error{unix.ELOOP}}, {"../out/x.log", []error{unix.EXDEV}},
		{"a/../../out/x.log", []error{unix.EXDEV}}, {"..", []error{unix.EXDEV}},
		{"none/x.log", []error{unix.ENOENT}}, {"a/b/none", []error{unix.ENOENT}},
		{"top.log/x", []error{unix.ENOTDIR}},
	} {
		fd, err := g.open(g.fixed+"/"+tt.path, unix.O_RDONLY)
		if err == nil {
			unix.Close(fd)
		}
		if (err == nil) != (tt.want == nil) || err != nil && !slices.ContainsFunc(tt.want,
			func(w error) bool { return errors.Is(err, w) }) {
			t.Errorf("%s: %v, want one of %v", tt.path, err, tt.want)
		}
	}
	before := descriptors(t)
	for range 100 {
		_, _ = g.open(g.fixed+"/a/link/x.log", unix.O_RDONLY)
		_, _ = g.open(g.fixed+"/a/b/none", unix.O_RDONLY)
		_, _ = g.open(g.fixed+"/a/../b", unix.O_RDONLY)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors were left open", after-before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(list)
}

// TestDirectoryLinks: a link to a directory is counted and not followed below the fixed part of a pattern. A link
// in the fixed part is followed.
func TestDirectoryLinks(t *testing.T) {
	l := follow(t, defaultLimits(), "meant/*/*.log", "meant/*/deep/*.log")
	l.must(os.MkdirAll(l.path("real/run/deep"), 0o755))
	l.must(os.MkdirAll(l.path("secret/deep"), 0o755))
	l.append("real/run/a.log", usingIB)
	l.append("secret/b.log", usingSocket)
	l.append("secret/deep/c.log", usingSocket)
	l.must(os.Symlink("real", l.path("meant")))
	l.must(os.Symlink(l.path("secret"), l.path("real/evil")))
	l.must(os.Symlink(l.path("secret/deep"), l.path("real/run/deep/no")))
	l.list()
	l.expect("without what is behind links", `fallback["run/a"] 0`, `network_info["run/a" "IB"] 1`)
	l.counts(map[string]int{"followed": 1, "special": 2}) // the link counts once per pattern
}

// TestSwapped: a directory that is replaced by a link between listing and opening is not followed, even if the link
// leads to the same file.
func TestSwapped(t *testing.T) {
	l := follow(t, defaultLimits(), "logs/*/*.log")
	for _, dir := range []string{"logs/run", "elsewhere"} {
		l.must(os.MkdirAll(l.path(dir), 0o755))
	}
	l.append("logs/run/a.log", usingIB)
	l.must(os.Link(l.path("logs/run/a.log"), l.path("elsewhere/a.log")))
	c := newListing()
	found := l.scan(c, "logs/run")
	if len(found) != 1 {
		t.Fatalf("%+v", found)
	}
	l.must(os.RemoveAll(l.path("logs/run")))
	l.must(os.Symlink(l.path("elsewhere"), l.path("logs/run")))
	l.f.choose(c, found)
	if len(l.f.files) != 0 {
		t.Error("it was followed over a link")
	}
	found = l.scan(c, "logs/run")
	if len(found) != 0 || len(c.faults) > 1 {
		t.Errorf("it was listed over a link: %+v, %v", found, c.faults)
	}
}

// TestFair: places are given to the owners in turn.
func TestFair(t *testing.T) {
	var list []candidate
	for _, file := range []struct {
		name  string
		owner uint32
		idle  bool
	}{{"a1", 1, false}, {"a2", 1, false}, {"a3", 1, true}, {"a4", 1, false}, {"b1", 2, false},
		{"a5", 1, false}, {"b2", 2, true}, {"c1", 3, false}, {"c2", 3, false}} {
		list = append(list, candidate{path: file.name, owner: file.owner, idle: file.idle})
	}
	got := ""
	for _, c := range interleave(list) {
		got += " " + c.path
	}
	if want := " a1 b1 c1 a2 c2 a4 a5 a3 b2"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// owned changes the owner of files: in the file system if the test runs as root, otherwise only for the tailer.
func (l *logs) owned(uid uint32, names ...string) {
	l.Helper()
	others := map[uint64]uint32{}
	for _, name := range names {
		if os.Geteuid() == 0 {
			l.must(os.Lchown(l.path(name), int(uid), -1))
		} else {
			others[l.id(name).ino] = uid
		}
	}
	l.fake(others)
}

// flood creates many empty logs of a user, with times an hour in the future.
func (l *logs) flood(uid uint32, n int, format string) {
	l.Helper()
	others := map[uint64]uint32{}
	at := unix.NsecToTimeval(time.Now().Add(time.Hour).UnixNano())
	for i := range n {
		fd, err := unix.Open(l.path(fmt.Sprintf(format, i)), unix.O_CREAT|unix.O_WRONLY, 0o644)
		l.must(err)
		l.must(unix.Futimes(fd, []unix.Timeval{at, at}))
		if os.Geteuid() == 0 {
			l.must(unix.Fchown(fd, int(uid), -1))
		} else {
			var st unix.Stat_t
			l.must(unix.Fstat(fd, &st))
			others[st.Ino] = uid
		}
		unix.Close(fd)
	}
	l.fake(others)
}

// fake makes the tailer see other owners of files, by inode.
func (l *logs) fake(others map[uint64]uint32) {
	if before := l.f.owner; len(others) > 0 {
		l.f.owner = func(st *unix.Stat_t) uint32 {
			if uid, ok := others[st.Ino]; ok {
				return uid
			}
			return before(st)
		}
	}
}

// TestOneOwnerManyFiles: 10,000 logs of one user, with times in the future, leave other users their share of the
// places. The same holds for directories.
func TestOneOwnerManyFiles(t *testing.T) {
	lim := defaultLimits()
	lim.files = 64
	l := follow(t, lim, "flat/*.log", "runs/*/*.log")
	l.must(os.MkdirAll(l.path("flat"), 0o755))
	l.flood(1001, 10000, "flat/evil%d.log")
	var evil []string
	for i := range 2 * maxDirs {
		name := fmt.Sprintf("runs/evil%d", i)
		l.must(os.MkdirAll(l.path(name), 0o755))
		l.age(name, -time.Hour)
		evil = append(evil, name)
	}
	l.owned(1001, evil...)
	var good []string
	for i := range 3 {
		dir := fmt.Sprintf("runs/good%d", i)
		l.must(os.MkdirAll(l.path(dir), 0o755))
		for _, name := range []string{fmt.Sprintf("flat/good%d.log", i), dir + "/rank0.log"} {
			l.append(name, usingIB)
			l.age(name, 24*time.Hour)
			good = append(good, name)
		}
		l.age(dir, 24*time.Hour)
	}
	for range 2 {
		l.list()
		for _, name := range good {
			if l.f.files[l.id(name)] == nil {
				t.Errorf("%s is not followed", name)
			}
		}
		if n := len(l.f.files); n != lim.files {
			t.Errorf("%d files are followed, want %d", n, lim.files)
		}
	}
}

// TestFuture: a log with a time in the future ranks like one written now. A followed log that grows is kept.
func TestFuture(t *testing.T) {
	lim := defaultLimits()
	lim.files = 1
	l := follow(t, lim)
	l.append("a.log", usingIB)
	l.list()
	l.append("z.log", usingSocket)
	l.age("z.log", -10*365*24*time.Hour)
	l.list()
	l.expect("beside one of the future", aIB...)
}

// TestNamesOfOthers: if two owners have logs with the same name, each is followed under a name with its owner's
// UID, in any order.
func TestNamesOfOthers(t *testing.T) {
	l := follow(t, defaultLimits(), "*")
	l.append("train.log", usingIB)
	l.list()
	l.append("train", usingSocket)
	l.age("train", -time.Hour)
	l.owned(1001, "train")
	for range 2 {
		l.list()
		l.expect("both", `fallback["train"] 0`, `network_info["train" "IB"] 1`, `fallback["train:1001"] 1`,
			`fallback_reason_info["train:1001" "unknown"] 1`, `network_info["train:1001" "Socket"] 1`)
		l.counts(map[string]int{"followed": 2})
	}
}

// TestListingCut: if a listing reaches a limit, followed files are kept and removed ones are closed.
func TestListingCut(t *testing.T) {
	lim := defaultLimits()
	lim.names, lim.total = 512, 512
	l := follow(t, lim)
	for i := range 100 {
		l.append(fmt.Sprintf("%d.log", i), usingIB)
	}
	l.list()
	followed := map[fileID]string{}
	for id, file := range l.f.files {
		followed[id] = file.path
	}
	if len(followed) != 100 {
		t.Fatalf("%d are followed", len(followed))
	}
	l.flood(1001, 3000, "flood%d.log")
	gone := l.id("7.log")
	l.must(os.Remove(l.path("7.log")))
	l.list()
	for id, path := range followed {
		if (l.f.files[id] == nil) != (id == gone) {
			t.Errorf("%s: is it followed? %v", path, l.f.files[id] != nil)
		}
	}
}
