package nccl

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/sysfs"
)

// TestSpecial: opening a pipe does not block, and only regular files are read.
func TestSpecial(t *testing.T) {
	l := follow(t, defaultLimits())
	l.append("a.log", usingIB)
	l.append("elsewhere", usingSocket)
	l.must(unix.Mkfifo(l.path("pipe.log"), 0o644))
	l.must(os.Mkdir(l.path("dir.log"), 0o755))
	l.must(os.Symlink("elsewhere", l.path("link.log")))
	l.must(os.Symlink("loop.log", l.path("loop.log")))
	l.must(os.Symlink("/dev/zero", l.path("zero.log")))
	socket, err := net.Listen("unix", l.path("s.log"))
	l.must(err)
	defer socket.Close()
	l.must(os.Link(l.path("a.log"), l.path("b.log"))) // a second name of the same file is read once
	l.list()
	l.expect("all but one", aIB...)
	l.counts(map[string]int{"followed": 1, "special": 6})
}

// TestReplaced: a file that is replaced before it is opened does not block and is not read.
func TestReplaced(t *testing.T) {
	l := follow(t, defaultLimits())
	l.append("a.log", usingIB)
	var st unix.Stat_t
	l.must(unix.Lstat(l.path("a.log"), &st))
	l.must(unix.Mkfifo(l.path("pipe"), 0o644))
	l.must(os.Symlink("a.log", l.path("link")))
	l.append("other", usingSocket)
	for _, name := range []string{"pipe", "link", "other"} {
		c := candidate{glob: &l.f.globs[0], path: l.path(name), id: statID(&st)}
		if _, err := l.f.add(&c, name, 0); err == nil && name == "link" {
			t.Error("a link was followed")
		}
	}
	if n := len(l.f.files); n != 0 {
		t.Errorf("%d files are followed, want none", n)
	}
}

// TestMoved: a file that is removed or renamed between listing and opening is not a fault, and no line is counted
// twice.
func TestMoved(t *testing.T) {
	l := follow(t, defaultLimits())
	l.list()
	l.append("a.log", usingIB+timedOut)
	l.list()
	l.f.drop(l.f.files[l.id("a.log")])
	l.f.before[l.id("a.log")] = int64(len(usingIB + timedOut))
	c := newListing()
	found := l.scan(c, "")
	l.must(os.Rename(l.path("a.log"), l.path("b.log")))
	l.f.choose(c, found)
	if c.files[unreadable] != 0 || len(c.faults) != 0 {
		t.Errorf("%d unreadable, faults %v", c.files[unreadable], c.faults)
	}
	l.list()
	l.expect("after", `fallback["b"] 0`, `network_info["b" "IB"] 1`, oneWarned)
}

// scan lists the files of one directory.
func (l *logs) scan(c *listing, dir string) []candidate {
	g := &l.f.globs[0]
	return l.f.scan(c, nil, g, l.path(dir), g.pattern, unix.S_IFREG)
}

func (l *logs) id(name string) fileID {
	l.Helper()
	var st unix.Stat_t
	l.must(unix.Lstat(l.path(name), &st))
	return statID(&st)
}

// TestUnreadable: a file without read permission is reported, and others are still read.
func TestUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	l := follow(t, defaultLimits())
	l.append("a.log", usingIB)
	l.append("b.log", usingIB)
	l.must(os.Chmod(l.path("b.log"), 0))
	l.list()
	faults := collector.Faults(l.Read(func(collector.Sample) {}))
	if len(faults) != 1 || faults[0].Device != "" || faults[0].Reason != sysfs.ReasonPermission ||
		!strings.Contains(faults[0].Error(), l.path("b.log")) {
		t.Errorf("faults %v, want that b is not readable", faults)
	}
	l.counts(map[string]int{"followed": 1, "unreadable": 1})
}

// TestDirectoryUnreadable: a pattern whose directory cannot be read is a fault, not a pattern without files.
func TestDirectoryUnreadable(t *testing.T) {
	l := follow(t, defaultLimits(), "loop/*/*.log")
	l.list()
	if err := l.Read(func(collector.Sample) {}); !errors.Is(err, collector.ErrAbsent) {
		t.Errorf("no such directory: %v, want ErrAbsent", err)
	}
	l.must(os.Symlink("loop", l.path("loop")))
	l.list()
	err := l.Read(func(collector.Sample) {})
	if faults := collector.Faults(err); len(faults) != 1 || !errors.Is(err,
		unix.ELOOP) || !strings.Contains(err.Error(), l.path("loop")) {
		t.Errorf("%v, want that the directory cannot be read", err)
	}
}

// TestNewest: if there are too many files, the newest are followed and the others counted. A file that is closed
// and followed again is not counted twice.
func TestNewest(t *testing.T) {
	lim := defaultLimits()
	lim.files = 2
	l := follow(t, lim)
	for i := range 5 {
		name := fmt.Sprintf("%d.log", i)
		l.append(name, usingIB+timedOut)
		l.age(name, time.Duration(i)*time.Hour)
	}
	l.append("old.log", usingIB+timedOut)
	l.age("old.log", 8*24*time.Hour)
	l.list()
	newest := func(names ...string) (list []string) {
		for _, n := range names {
			list = append(list, fmt.Sprintf(`fallback[%q] 0`, n), fmt.Sprintf(`network_info[%q "IB"] 1`, n))
		}
		return list
	}
	l.expect("at first", newest("0", "1")...)
	l.counts(map[string]int{"followed": 2, "waiting": 3, "idle": 1})
	l.append("4.log", timedOut)
	l.list()
	l.expect("another grows", with(newest("0", "4"), oneWarned)...)
	l.append("1.log", timedOut)
	l.age("0.log", 2*time.Hour)
	l.list()
	l.expect("one comes back", with(newest("1", "4"), `warnings_total["timeout"] 2`)...)
	l.append("old.log", timedOut)
	l.age("1.log", 2*time.Hour)
	l.list()
	l.expect("an old one wakes", with(newest("4", "old"), `warnings_total["timeout"] 3`)...)
	l.age("old.log", 8*24*time.Hour)
	l.age("4.log", time.Hour)
	l.list()
	l.expect("and is silent again", with(newest("1", "4"), `warnings_total["timeout"] 3`)...)
}

// TestStay: if many files grow, those already followed are kept.
func TestStay(t *testing.T) {
	lim := defaultLimits()
	lim.files = 1
	l := follow(t, lim)
	l.append("a.log", usingIB)
	l.list()
	l.append("b.log", usingIB)
	l.age("a.log", time.Minute)
	l.list()
	l.expect("a little older", aIB...)
	l.age("a.log", 10*time.Minute)
	l.list()
	l.expect("old", `fallback["b"] 0`, `network_info["b" "IB"] 1`)
}

// TestGlobs: directories in a glob are part of the job's name. If two logs have one name, the newer is followed.
func TestGlobs(t *testing.T) {
	l := follow(t, defaultLimits(), "x/*.log", "y/*.log", "runs/*/rank?.log", "exact.txt", "none/*.log")
	for _, dir := range []string{"x", "y", "runs/1", "runs/2"} {
		l.must(os.MkdirAll(l.path(dir), 0o755))
	}
	l.append("x/a.log", usingSocket)
	l.age("x/a.log", time.Hour)
	for _, name := range []string{"y/a.log", "runs/1/rank0.log", "runs/2/rank0.log", "runs/2/rank10.log", "exact.txt"} {
		l.append(name, usingIB)
	}
	l.list()
	var want []string
	for _, job := range []string{"a", "1/rank0", "2/rank0", "exact"} {
		want = append(want, fmt.Sprintf(`fallback[%q] 0`, job), fmt.Sprintf(`network_info[%q "IB"] 1`, job))
	}
	l.expect("all", want...)
	l.counts(map[string]int{"followed": 4, "same_name": 1})
	for _, glob := range []struct{ text, want string }{
		{"", "absolute path"}, {"*.log", "absolute path"}, {"/var/log/[a.log", "unclosed ["},
		{"/var/log/nccl/", "/var/log/nccl/*.log"}, {"/var/**/x.log", "** is not supported"},
	} {
		if _, err := New([]string{glob.text}); err == nil || !strings.Contains(err.Error(), glob.want) {
			t.Errorf("%q: %v, want a valid one: %s", glob.text, err, glob.want)
		}
	}
}

// TestJob: names of jobs from names of logs.
func TestJob(t *testing.T) {
	for _, tt := range []struct{ glob, path, want string }{
		{"*", "pretrain.gpu-01.4711", "pretrain.gpu-01.4711"}, // NCCL_DEBUG_FILE=…%h.%p: each process is one
		{"*", "pretrain.4711.log", "pretrain.4711"},
		{"nccl.*", "nccl.gpu-01", "nccl.gpu-01"}, // NCCL_DEBUG_FILE=…%h, in a directory that several nodes write to
		{"*", "train.out", "train.out"}, {"*", "train.err", "train.err"}, {"*.out", "train.out", "train"},
		{"exact.txt", "exact.txt", "exact"}, {"x.7", "x.7", "x.7"},
		{"*.log*", "a.log1", "a.log1"}, {"*.log*", "a.log", "a"}, {"*", "a", "a"}, {"*", "a.", "a."},
		{"*.log", ".log", ".log"}, {"*/*.log", "r/.log", "r/.log"},
		{"*/*.log", strings.Repeat("p", 200) + "/rank7.log", strings.Repeat("p", 62) + ".." + strings.Repeat("p",
			58) + "/rank7"}, // names that differ at the end
		{"*.log", "\u202egol\n\x1b é\xff.log", "_gol_____"}, {"*/*.log", "a b/c\x00.log", "a_b/c_"},
	} {
		g, err := newGlob("/l/" + tt.glob)
		if err != nil {
			t.Fatal(err)
		}
		if got := g.job("/l/" + tt.path); got != tt.want {
			t.Errorf("%s in %s has the name %q, want %q", tt.path, tt.glob, got, tt.want)
		}
	}
}

// TestAbsent: if no file matches, the error names the pattern. Too many names in a directory are a fault.
func TestAbsent(t *testing.T) {
	lim := defaultLimits()
	lim.names = 1000
	l := follow(t, lim)
	l.expect("before the first listing")
	l.list()
	if err := l.Read(func(s collector.Sample) { t.Errorf("%v", s) }); !errors.Is(err,
		collector.ErrAbsent) || !strings.Contains(err.Error(), l.dir+"/*.log") {
		t.Errorf("%v, want ErrAbsent and the name", err)
	}
	for i := range 1600 {
		l.append(fmt.Sprintf("%d.log", i), "")
	}
	l.list()
	faults := collector.Faults(l.Read(func(collector.Sample) {}))
	if len(faults) != 1 || faults[0].Reason != sysfs.ReasonTooLarge {
		t.Errorf("%v, want %s", faults, sysfs.ReasonTooLarge)
	}
	if n := len(l.f.files); n != lim.files {
		t.Errorf("%d files are followed, want %d", n, lim.files)
	}
}
