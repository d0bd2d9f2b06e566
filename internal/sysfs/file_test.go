package sysfs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/sysfs"
)

func TestFileSeesChangeInPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "port_rcv_data")
	write(t, path, "18446744073709551615\n")
	f := sysfs.File{Path: path}
	defer f.Close()
	for _, tt := range []struct {
		content string
		want    outcome
	}{
		{"18446744073709551615\n", outcome{1<<64 - 1, ""}},
		{"5\n", outcome{5, ""}}, // shorter: nothing of the longer value may remain
		{"N/A (no PMA)\n", outcome{0, sysfs.ReasonInvalid}},
		{"", outcome{0, sysfs.ReasonEmpty}},
		{strings.Repeat("1", 64), outcome{0, sysfs.ReasonTooLarge}},
		{strings.Repeat(" ", 62) + "6", outcome{6, ""}},
	} {
		write(t, path, tt.content)
		if diff := cmp.Diff(tt.want, outcomeOf(f.ReadUint())); diff != "" {
			t.Errorf("%q: %s", tt.content, diff)
		}
	}
}

// A read must not reopen the file: another file that took the name by rename is seen only after Close.
func TestFileStaysOpen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	write(t, path, "1\n")
	f := sysfs.File{Path: path}
	defer f.Close()
	var got []outcome
	read := func() { got = append(got, outcomeOf(f.ReadUint())) }
	read()
	write(t, filepath.Join(dir, "new"), "2\n")
	if err := os.Rename(filepath.Join(dir, "new"), path); err != nil {
		t.Fatal(err)
	}
	read()
	f.Close()
	f.Close() // closing twice has no effect
	read()
	if diff := cmp.Diff([]outcome{{1, ""}, {1, ""}, {2, ""}}, got); diff != "" {
		t.Error(diff)
	}
	if open := openFiles(t, dir); len(open) != 1 {
		t.Errorf("open files: %v", open)
	}
	f.Close()
	if open := openFiles(t, dir); len(open) != 0 {
		t.Errorf("open files after Close: %v", open)
	}
}

func TestFileRefuses(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.Mkdir(at("directory"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(at("pipe"), 0o644); err != nil { // no writer: a blocking open would wait forever
		t.Fatal(err)
	}
	listenUnix(t, at("socket"))
	for name, target := range map[string]string{"dangling": "nowhere", "loop": "loop", "pipe-link": "pipe"} {
		if err := os.Symlink(target, at(name)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, at("plain"), "1\n")
	for _, tt := range []struct{ path, want string }{
		{at("directory"), sysfs.ReasonNotRegular},
		{at("pipe"), sysfs.ReasonNotRegular},
		{at("pipe-link"), sysfs.ReasonNotRegular},
		{"/dev/zero", sysfs.ReasonNotRegular},
		{at("socket"), sysfs.ReasonVanished}, // open(2) of a socket is ENXIO
		{at("dangling"), sysfs.ReasonVanished},
		{at("loop"), sysfs.ReasonIO},
		{at("absent"), sysfs.ReasonVanished},
		{at("plain/below"), sysfs.ReasonVanished},
		{"", sysfs.ReasonVanished},
	} {
		t.Run(filepath.Base(tt.path), func(t *testing.T) {
			f := sysfs.File{Path: tt.path}
			defer f.Close()
			for range 2 { // after a failed open, the next one works or fails in the same way
				if diff := cmp.Diff(outcome{0, tt.want}, outcomeOf(f.ReadUint())); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
	if open := openFiles(t, dir); len(open) != 0 {
		t.Errorf("left open: %v", open)
	}
}

func TestFileComesAndGoes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counter")
	f := sysfs.File{Path: path}
	defer f.Close()
	got := []outcome{outcomeOf(f.ReadUint())}
	write(t, path, "1\n")
	got = append(got, outcomeOf(f.ReadUint()))
	f.Close()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	got = append(got, outcomeOf(f.ReadUint()))
	if diff := cmp.Diff([]outcome{{0, sysfs.ReasonVanished}, {1, ""}, {0, sysfs.ReasonVanished}}, got); diff != "" {
		t.Error(diff)
	}
}

// A device may be removed and return between two reads: the descriptor then fails permanently, and the name leads
// to the new file. /proc does the same with the files of a process that ends, so a descriptor of such a file
// replaces File's own.
func TestFileOpensAgain(t *testing.T) {
	dead := deadFile(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "counter")
	write(t, path, "1\n")
	f := sysfs.File{Path: path}
	defer f.Close()
	got := []outcome{outcomeOf(f.ReadUint()), outcomeOf(f.ReadUint())}
	if f.Opens() != 1 {
		t.Errorf("opened %d times for two reads", f.Opens())
	}
	replaceOpen(t, path, dead)
	write(t, path, "2\n")
	got = append(got, outcomeOf(f.ReadUint()))
	if f.Opens() != 2 {
		t.Errorf("opened %d times, and it was another file once", f.Opens())
	}
	replaceOpen(t, path, dead)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	got = append(got, outcomeOf(f.ReadUint()))
	if diff := cmp.Diff([]outcome{{1, ""}, {1, ""}, {2, ""}, {0, sysfs.ReasonVanished}}, got); diff != "" {
		t.Error(diff)
	}
}

// deadFile returns a descriptor whose reads fail with ESRCH.
func deadFile(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/oom_score", cmd.Process.Pid))
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return int(f.Fd())
}

// replaceOpen makes this process's open descriptor of path refer to the file of fd.
func replaceOpen(t *testing.T, path string, fd int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range fds {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && target == path {
			n, _ := strconv.Atoi(e.Name())
			if err := unix.Dup3(fd, n, unix.O_CLOEXEC); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("%s is not open", path)
}

// TestFileUnreadable reads as a user without permission: root may read everything, so as root the test runs itself
// again as nobody. O_NOATIME is also refused for a file of another owner.
func TestFileUnreadable(t *testing.T) {
	const env = "RAILSCOPE_TEST_UNREADABLE"
	dir := os.Getenv(env)
	if dir == "" && os.Getuid() == 0 {
		asNobody(t, env)
		return
	}
	if dir == "" {
		dir = t.TempDir()
		write(t, filepath.Join(dir, "secret"), "1\n")
		if err := os.Chmod(filepath.Join(dir, "secret"), 0); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "public"), "2\n")
	}
	got := []outcome{outcomeOf(sysfs.ReadUint(dir, "secret")), outcomeOf(sysfs.ReadUint(dir, "public"))}
	if diff := cmp.Diff([]outcome{{0, sysfs.ReasonPermission}, {2, ""}}, got); diff != "" {
		t.Error(diff)
	}
}

// asNobody runs this test in a separate process as user 65534, on files of root.
func asNobody(t *testing.T, env string) {
	dir, err := os.MkdirTemp("/tmp", "railscope-unreadable") // t.TempDir's parents are closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	exe := filepath.Join(dir, "test")
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{exe: self, filepath.Join(dir, "secret"): []byte("1\n"),
		filepath.Join(dir, "public"): []byte("2\n")} {
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for path, mode := range map[string]os.FileMode{dir: 0o755, exe: 0o755, filepath.Join(dir, "secret"): 0o600} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(exe, "-test.run=^"+t.Name()+"$")
	cmd.Dir = dir
	cmd.Env = []string{env + "=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}

// openFiles returns the files below dir that this process has open.
func openFiles(t *testing.T, dir string) []string {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var open []string
	for _, fd := range fds {
		if target, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(target,
			dir+"/") && !strings.HasSuffix(target, "socket") {
			open = append(open, target)
		}
	}
	return open
}
