package outfile

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// reader makes a named pipe, and returns what was read from it until its writer closed it.
func reader(t *testing.T, path string) <-chan string {
	t.Helper()
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	go func() {
		text, _ := os.ReadFile(path) // an error shows in the compared text
		got <- string(text)
	}()
	return got
}

// TestKinds: each kind of file gets the text and keeps its kind; no other file stays in its directory.
func TestKinds(t *testing.T) {
	for _, tc := range []struct {
		name string
		make func(t *testing.T, path string) (read func() string)
		want fs.FileMode // mode of the path itself
	}{
		{"no file", func(*testing.T, string) func() string { return nil }, Mode},
		{"a file", func(t *testing.T, path string) func() string {
			made(t, path, 0o644)
			return nil
		}, 0o644},
		{"a private file", func(t *testing.T, path string) func() string {
			made(t, path, 0o600)
			return nil
		}, 0o600},
		{"a device", func(t *testing.T, path string) func() string {
			if err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil {
				t.Skip("mknod: ", err)
			}
			return func() string { return "new" }
		}, fs.ModeDevice | fs.ModeCharDevice | 0o600},
		{"a link to a device", func(t *testing.T, path string) func() string {
			link(t, "/dev/null", path)
			return func() string { return "new" }
		}, fs.ModeSymlink | 0o777},
		{"a pipe", func(t *testing.T, path string) func() string {
			got := reader(t, path)
			return func() string { return <-got }
		}, fs.ModeNamedPipe | 0o600},
		{"a link to a pipe", func(t *testing.T, path string) func() string {
			pipe := filepath.Join(t.TempDir(), "pipe")
			got := reader(t, pipe)
			link(t, pipe, path)
			return func() string { return <-got }
		}, fs.ModeSymlink | 0o777},
		{"an open pipe without a name", func(t *testing.T, path string) func() string {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			link(t, fmt.Sprint("/proc/self/fd/", w.Fd()), path)
			return func() string {
				w.Close()
				b := make([]byte, 100)
				n, _ := r.Read(b) // an error shows in the compared text
				return string(b[:n])
			}
		}, fs.ModeSymlink | 0o777},
		{"a link to a file", func(t *testing.T, path string) func() string {
			file := filepath.Join(t.TempDir(), "file")
			made(t, file, 0o640)
			link(t, file, path)
			return func() string {
				if info, err := os.Lstat(file); err != nil || info.Mode() != 0o640 {
					t.Error(info, err)
				}
				return read(t, file)
			}
		}, fs.ModeSymlink | 0o777},
		{"a link to a link", func(t *testing.T, path string) func() string {
			dir := t.TempDir()
			made(t, filepath.Join(dir, "file"), 0o644)
			link(t, "file", filepath.Join(dir, "middle"))
			link(t, filepath.Join(dir, "middle"), path)
			return func() string { return read(t, filepath.Join(dir, "file")) }
		}, fs.ModeSymlink | 0o777},
		{"an open file without a name", func(t *testing.T, path string) func() string {
			f, err := os.Create(filepath.Join(t.TempDir(), "file"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString("longer than the new text"); err != nil {
				t.Fatal(err)
			}
			os.Remove(f.Name())
			link(t, fmt.Sprint("/proc/self/fd/", f.Fd()), path)
			return func() string {
				defer f.Close()
				return read(t, path)
			}
		}, fs.ModeSymlink | 0o777},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "out")
			got := tc.make(t, path)
			if err := Check(path); err != nil {
				t.Error("check:", err)
			}
			if err := Write(path, []byte("new")); err != nil {
				t.Fatal(err)
			}
			info, err := os.Lstat(path)
			if err != nil || info.Mode() != tc.want {
				t.Errorf("it is %v, %v, want %v", info.Mode(), err, tc.want)
			}
			if got == nil {
				got = func() string { return read(t, path) }
			}
			if text := got(); text != "new" {
				t.Errorf("it has %q", text)
			}
			if entries, _ := os.ReadDir(dir); len(entries) != 1 {
				t.Error("left behind:", entries)
			}
		})
	}
}

func made(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte("old, and longer"), mode); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// TestRefused: a file that cannot be written is reported with its path, before anything is measured, and is
// unchanged.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	link(t, filepath.Join(dir, "nothing"), filepath.Join(dir, "dangling"))
	for path, says := range map[string]string{
		dir:                             "directory",
		filepath.Join(dir, "none", "a"): "directory " + filepath.Join(dir, "none") + " does not exist: create it",
		filepath.Join(dir, "dangling"):  "a link to a file that does not exist",
		"/dev/null/a":                   "not a directory",
	} {
		for name, err := range map[string]error{"check": Check(path), "write": Write(path, nil)} {
			if err == nil || !strings.HasPrefix(err.Error(), "write "+path+": ") || !strings.Contains(err.Error(), says) {
				t.Errorf("%s %s: %v, want %q", name, path, err, says)
			}
		}
	}
	if err := Write("/dev/full", []byte("x")); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Error(err)
	}
}

// TestStandardOutput: text written to a name of standard output follows what was printed, for any kind of output.
func TestStandardOutput(t *testing.T) {
	if path := os.Getenv("OUTFILE_WRITE"); path != "" {
		_, _ = os.Stdout.WriteString("printed\n")
		if err := Write(path, []byte("written\n")); err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdout.WriteString("after\n")
		os.Exit(0)
	}
	for _, path := range []string{"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"} {
		file := filepath.Join(t.TempDir(), "out")
		f, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestStandardOutput$")
		cmd.Env, cmd.Stdout = append(os.Environ(), "OUTFILE_WRITE="+path), f
		if err := cmd.Run(); err != nil {
			t.Error(path, err)
		}
		f.Close()
		if got := read(t, file); got != "printed\nwritten\nafter\n" {
			t.Errorf("%s: %q", path, got)
		}
	}
}

// TestMounted: a file that is a mount point, or in a directory of another user, is written in place.
func TestMounted(t *testing.T) {
	for _, reason := range []error{syscall.EBUSY, syscall.EROFS, &fs.PathError{Op: "open", Err: syscall.EACCES}} {
		if !inPlace(reason) {
			t.Error(reason)
		}
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "out")
	made(t, file, 0o644)
	if err := unix.Mount(file, file, "", unix.MS_BIND, ""); err != nil {
		t.Skip("mount: ", err)
	}
	defer unix.Unmount(file, unix.MNT_DETACH)
	if err := Write(file, []byte("new")); err != nil || read(t, file) != "new" {
		t.Error(err, read(t, file))
	}
}
