package proc

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/sysfs"
)

// tail is the end of /proc/PID/stat, after the fields that are used.
var tail = " 22" + strings.Repeat(" 0", 29)

// procfsWith returns a procfs that has one file.
func procfsWith(t *testing.T, name, content string) string {
	t.Helper()
	root := t.TempDir()
	path := filepath.Join(root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
		os.WriteFile(path, []byte(content), 0o644)); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestStat(t *testing.T) {
	const rest = " S 812 4711 4690 34817 4711 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654321"
	for _, tt := range []struct {
		name, content string
		want          Stat
	}{
		{"plain", "4711 (python3)" + rest, Stat{Instance{4711, 987654321}, "python3", 812, 4690, true}},
		{"no terminal", "4711 (python3) S 812 1 4690 0 " + strings.Repeat("0 ", 14) + "5",
			Stat{Instance{4711, 5}, "python3", 812, 4690, false}},
		{"parentheses and blanks", "4711 (a) (b 1 2)" + rest, Stat{Instance{4711, 987654321}, "a) (b 1 2", 812,
			4690, true}},
		{"a line break", "4711 (a\nb)" + rest, Stat{Instance{4711, 987654321}, "a\nb", 812, 4690, true}},
		{"not UTF-8", "4711 (tr\xe9n)" + rest, Stat{Instance{4711, 987654321}, "tr\ufffdn", 812, 4690, true}},
		{"no name", "4711 ()" + rest, Stat{Instance{4711, 987654321}, "", 812, 4690, true}},
	} {
		got, err := ReadStat(procfsWith(t, "4711/stat", tt.content+tail+"\n"), 4711)
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v %s", tt.name, err, diff)
		}
	}
	for _, bad := range []string{"", "4711", "4711 (a", "4711 ()", "1 )a(" + rest, "4711 (a) S 812",
		"4711 (a)" + strings.ReplaceAll(rest, "812", "-"),
		"4711 (a)" + strings.ReplaceAll(rest, "987654321", "-1")} {
		var e *sysfs.Error
		if got, err := ReadStat(procfsWith(t, "4711/stat", bad), 4711); !errors.As(err,
			&e) || e.Reason != sysfs.ReasonInvalid || got != (Stat{}) {
			t.Errorf("%q: %+v, %v", bad, got, err)
		}
	}
}

// TestLive reads this process and one of its threads from the real procfs.
func TestLive(t *testing.T) {
	const procfs = "/proc"
	if _, err := os.Stat(filepath.Join(procfs, "self/stat")); err != nil {
		t.Skip("no procfs")
	}
	tids := make(chan int)
	hold := make(chan struct{})
	defer close(hold)
	for range 2 { // one of them may run on the main thread
		go func() {
			runtime.LockOSThread() // and never unlock: the thread must stay
			tids <- unix.Gettid()
			<-hold
		}()
	}
	thread := <-tids
	if other := <-tids; thread == os.Getpid() {
		thread = other
	}
	if pid, err := Process(procfs, thread); err != nil || pid != os.Getpid() {
		t.Errorf("thread %d belongs to %d, %v; want %d", thread, pid, err, os.Getpid())
	}
	st, err := ReadStat(procfs, os.Getpid())
	comm, _ := os.ReadFile("/proc/self/comm")
	if err != nil || st.PID != os.Getpid() || st.Parent != os.Getppid() || st.Comm != strings.TrimSuffix(string(comm),
		"\n") {
		t.Errorf("%+v, %v", st, err)
	}
	if now := Now(); st.Start > now || now-st.Start > 3600*Tick {
		t.Errorf("started at %d, now is %d", st.Start, now)
	}
	if _, err := ReadCgroup(procfs, os.Getpid()); err != nil {
		t.Error(err)
	}
	ours, err1 := Namespace(procfs, "self", "net")
	its, err2 := Namespace(procfs, strconv.Itoa(os.Getpid()), "net")
	if ours != its || ours == "" || err1 != nil || err2 != nil {
		t.Errorf("two names of one namespace: %q, %v, and %q, %v", ours, err1, its, err2)
	}
	t.Setenv("UNUSED", "only the environment of the start is there")
	env, cut, err := Environ(procfs, os.Getpid(), func(name string) bool { return name == "PATH" || name == "UNUSED" })
	if diff := cmp.Diff(map[string]string{"PATH": os.Getenv("PATH")}, env); diff != "" || cut || err != nil {
		t.Error(err, cut, diff)
	}
}

func TestGone(t *testing.T) {
	const none = 1 << 30
	_, statErr := ReadStat("/proc", none)
	_, cgroupErr := ReadCgroup("/proc", none)
	_, processErr := Process("/proc", none)
	_, _, environErr := Environ("/proc", none, func(string) bool { return true })
	_, networkErr := Namespace("/proc", strconv.Itoa(none), "net")
	for i, err := range []error{statErr, cgroupErr, processErr, environErr, networkErr} {
		if sysfs.Reason(err) != sysfs.ReasonVanished {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestBounded: only a part of a file is read, a variable that was cut is dropped, and opening a pipe does not
// block.
func TestBounded(t *testing.T) {
	root := procfsWith(t, "7/environ", "A=1\x00"+strings.Repeat("x", 1<<20)+"\x00B=2")
	env, cut, err := Environ(root, 7, func(name string) bool { return len(name) == 1 })
	if diff := cmp.Diff(map[string]string{"A": "1"}, env); diff != "" || !cut || err != nil {
		t.Error(err, cut, diff)
	}
	root = procfsWith(t, "7/environ", "A=1\x00A=2\x00B="+strings.Repeat("2", MaxEnviron))
	env, cut, err = Environ(root, 7, func(string) bool { return true })
	if diff := cmp.Diff(map[string]string{"A": "1"}, env); diff != "" || !cut || err != nil {
		t.Error(err, cut, diff)
	}
	env, cut, err = Environ(procfsWith(t, "7/environ", "A=1"), 7,
		func(string) bool { return true })
	if env["A"] != "1" || cut || err != nil {
		t.Error("without a zero byte at the end:", env, cut, err)
	}
	if err := errors.Join(os.Remove(filepath.Join(root, "7/environ")), unix.Mkfifo(filepath.Join(root, "7/environ"),
		0o600)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Environ(root, 7, func(string) bool { return true }); sysfs.Reason(err) != sysfs.ReasonNotRegular {
		t.Errorf("a pipe: %v", err)
	}
}

func TestLockedMemory(t *testing.T) {
	const head = "Limit                     Soft Limit           Hard Limit           Units\n"
	for _, tt := range []struct {
		text       string
		soft, hard uint64
		reason     string
	}{
		{head + "Max processes  1  2  processes\nMax locked memory         65536                unlimited          " +
			"  bytes\n", 65536, Unlimited, ""},
		{head + "Max locked memory  many  many  bytes\n", 0, 0, sysfs.ReasonInvalid},
		{head, 0, 0, sysfs.ReasonInvalid},
	} {
		soft, hard, err := LockedMemory(procfsWith(t, "7/limits", tt.text), 7)
		if soft != tt.soft || hard != tt.hard || (err != nil) != (tt.reason != "") || err != nil &&
			sysfs.Reason(err) != tt.reason {
			t.Errorf("%q: %d, %d, %v", tt.text, soft, hard, err)
		}
	}
}

func TestCapabilities(t *testing.T) {
	// CapEff comes after the first 4 KiB.
	root := procfsWith(t, "7/status", "Name:\tx\nGroups:\t"+strings.Repeat("1000000000 ",
		4096)+"\nCapEff:\t0000000000004000\n")
	if got, err := Capabilities(root, 7); got != 1<<14 || err != nil {
		t.Errorf("%#x, %v", got, err)
	}
	for text, want := range map[string]bool{"         0          0 4294967295\n": true, "0 100000 65536\n": false} {
		if got := FirstUsers(procfsWith(t, "7/uid_map", text), 7); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestPIDs(t *testing.T) {
	root := procfsWith(t, "7/stat", "")
	for _, dir := range []string{"8", "9", "sys", "0"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	got, err := PIDs(root, 3)
	slices.Sort(got)
	if diff := cmp.Diff([]int{7, 8, 9}, got); diff != "" || err == nil {
		t.Error(err, diff)
	}
	if _, err := PIDs(filepath.Join(root, "gone"), 3); sysfs.Reason(err) != sysfs.ReasonVanished {
		t.Error(err)
	}
}

func TestSeesHost(t *testing.T) {
	for link, want := range map[string]bool{"pid:[4026531836]": true, "pid:[4026532999]": false, "": true} {
		root := procfsWith(t, "7/stat", "")
		err := errors.Join(os.Symlink("7", filepath.Join(root, "self")), os.Mkdir(filepath.Join(root, "7/ns"), 0o755))
		if link != "" {
			err = errors.Join(err, os.Symlink(link, filepath.Join(root, "7/ns/pid")))
		}
		if got := SeesHost(root); err != nil || got != want {
			t.Errorf("%q: %v, %v", link, got, err)
		}
	}
}

// TestHidden: a process that exists but is not in procfs is hidden, except in a capture.
func TestHidden(t *testing.T) {
	for _, tt := range []struct {
		procfs string
		pid    int
		want   bool
	}{{"/proc", os.Getpid(), true}, {"/proc", 1 << 30, false}, {t.TempDir(), os.Getpid(), false}} {
		if got := Hidden(tt.procfs, tt.pid); got != tt.want {
			t.Errorf("%s %d: %v, want %v", tt.procfs, tt.pid, got, tt.want)
		}
	}
}
