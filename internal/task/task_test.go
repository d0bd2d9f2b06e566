package task

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/sysfs"
)

func TestParseStat(t *testing.T) {
	const rest = " S 812 4711 4690 34817 4711 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654321 22"
	for _, tt := range []struct {
		name, content string
		want          Stat
	}{
		{"plain", "4711 (python3)" + rest, Stat{4711, "python3", 812, 4690, true, 987654321}},
		{"no terminal", "4711 (python3) S 812 1 4690 0 " + strings.Repeat("0 ", 14) + "5", Stat{4711, "python3", 812, 4690, false, 5}},
		{"parentheses and blanks", "4711 (a) (b 1 2)" + rest, Stat{4711, "a) (b 1 2", 812, 4690, true, 987654321}},
		{"a line break", "4711 (a\nb)" + rest, Stat{4711, "a\nb", 812, 4690, true, 987654321}},
		{"not UTF-8", "4711 (tr\xe9n)" + rest, Stat{4711, "tr\ufffdn", 812, 4690, true, 987654321}},
		{"no name", "4711 ()" + rest, Stat{4711, "", 812, 4690, true, 987654321}},
	} {
		got, err := parseStat([]byte(tt.content))
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v %s", tt.name, err, diff)
		}
	}
	for _, bad := range []string{"", "4711", "4711 (a", "(a)" + rest, "0 (a)" + rest, "x (a)" + rest, "1 )a(" + rest, "4711 (a) S 812", "4711 (a)" + strings.ReplaceAll(rest, "812", "-"), "4711 (a)" + strings.ReplaceAll(rest, "987654321", "-1")} {
		var e *sysfs.Error
		if got, err := parseStat([]byte(bad)); !errors.As(err, &e) || e.Reason != sysfs.ReasonInvalid {
			t.Errorf("%q: %+v, %v", bad, got, err)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("4711 (a) (b) S 812 4711 4690 34817 4711 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654321 22"))
	f.Add([]byte("1 ()"))
	f.Fuzz(func(t *testing.T, b []byte) {
		st, err := parseStat(b)
		if err == nil && st.PID <= 0 || strings.ToValidUTF8(st.Comm, "") != st.Comm {
			t.Errorf("%+v", st)
		}
	})
}

// TestLive reads this very process and one of its threads from the real procfs.
func TestLive(t *testing.T) {
	const procfs = "/proc"
	if _, err := os.Stat(filepath.Join(procfs, "self/stat")); err != nil {
		t.Skip("no procfs")
	}
	tids := make(chan int)
	hold := make(chan struct{})
	defer close(hold)
	for range 2 { // one of them may have the thread that is the process
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
	if err != nil || st.PID != os.Getpid() || st.Parent != os.Getppid() || st.Comm != strings.TrimSuffix(string(comm), "\n") {
		t.Errorf("%+v, %v", st, err)
	}
	now, err := Now()
	if err != nil || st.Start > now || now-st.Start > 3600*Tick {
		t.Errorf("started at %d, now is %d, %v", st.Start, now, err)
	}
	if _, err := ReadCgroup(procfs, os.Getpid()); err != nil {
		t.Error(err)
	}
	if same, err := SameNetwork(procfs, os.Getpid()); !same || err != nil {
		t.Errorf("we are in our network namespace: %v, %v", same, err)
	}
	t.Setenv("UNUSED", "only the environment of the start is there")
	env, err := Environ(procfs, os.Getpid(), func(name string) bool { return name == "PATH" || name == "UNUSED" })
	if diff := cmp.Diff(map[string]string{"PATH": os.Getenv("PATH")}, env); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

func TestGone(t *testing.T) {
	const none = 1 << 30
	_, statErr := ReadStat("/proc", none)
	_, cgroupErr := ReadCgroup("/proc", none)
	_, processErr := Process("/proc", none)
	_, environErr := Environ("/proc", none, func(string) bool { return true })
	_, networkErr := SameNetwork("/proc", none)
	for i, err := range []error{statErr, cgroupErr, processErr, environErr, networkErr} {
		if sysfs.Reason(err) != sysfs.ReasonVanished {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestBounded: a file of any length costs what is read of it, no more.
func TestBounded(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "7"), 0o755); err != nil {
		t.Fatal(err)
	}
	long := "A=1\x00" + strings.Repeat("x", 1<<20) + "\x00B=2"
	if err := os.WriteFile(filepath.Join(dir, "7/environ"), []byte(long), 0o644); err != nil {
		t.Fatal(err)
	}
	env, err := Environ(dir, 7, func(name string) bool { return len(name) == 1 })
	if diff := cmp.Diff(map[string]string{"A": "1"}, env); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if b, err := head(filepath.Join(dir, "7/environ"), maxEnviron); len(b) != maxEnviron || err != nil {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// TestHidden: a process that is there and that procfs does not have is hidden; a
// capture says nothing of the processes of this machine.
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
