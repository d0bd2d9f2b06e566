package sysfs

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReserve: the usual limit leaves room for all connections.
func TestReserve(t *testing.T) {
	for limit, want := range map[uint64]int{1024: 640, 256: 160, 64: 40, 1 << 20: 655360} {
		if got := reserve(limit); got != want {
			t.Errorf("of %d: %d, want %d", limit, got, want)
		}
	}
}

// TestFewDescriptors: near the limit a file is closed after each read. The number of opens does not increase until
// the file is replaced.
func TestFewDescriptors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counter")
	write := func(value string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write("1\n")
	kept := File{Path: path}
	defer kept.Close()
	f := File{Path: path}
	read := func(want uint64, opens int) {
		t.Helper()
		if v, err := f.ReadUint(); v != want || err != nil || f.Opens() != opens {
			t.Errorf("%d, %v, opened %d times; want %d, %d", v, err, f.Opens(), want, opens)
		}
	}
	if _, err := kept.ReadUint(); err != nil || kept.fd == 0 {
		t.Fatalf("not kept open: %v", err)
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &was)
	var fds []int
	for len(fds) == 0 || fds[len(fds)-1] < 64 {
		fd, err := unix.Dup(0)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 96, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	if few, limit := FewDescriptors(); !few || limit != 96 {
		t.Errorf("few: %t, of %d", few, limit)
	}
	for range 3 {
		read(1, 1)
		if f.fd != 0 {
			t.Error("kept open")
		}
	}
	write("2\n")
	read(2, 2)
	for _, fd := range fds {
		unix.Close(fd)
	}
	if few, _ := FewDescriptors(); few {
		t.Error("few although there are many again")
	}
	read(2, 2)
	if f.fd == 0 {
		t.Error("not kept open again")
	}
	f.Close()
	if _, err := kept.ReadUint(); err != nil || kept.Opens() != 1 {
		t.Errorf("what was open was closed: %v, opened %d times", err, kept.Opens())
	}
}
