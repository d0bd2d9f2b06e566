package sysfs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/sysfs"
)

func names(list []sysfs.Entry) []string {
	out := []string{}
	for _, e := range list {
		out = append(out, e.Name)
	}
	slices.Sort(out)
	return out
}

func TestListNamesWithoutTouching(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "ports"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, ".hidden"), "")
	write(t, filepath.Join(dir, "0000:1a:00.0"), "")
	list, err := sysfs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if target, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasPrefix(target, dir) {
			t.Errorf("left open: %s", target)
		}
	}
	if diff := cmp.Diff([]string{".hidden", "0000:1a:00.0", "dangling", "pipe", "ports"}, names(list)); diff != "" {
		t.Error(diff)
	}
}

// The inode distinguishes a device that returned under its name from the old one.
func TestListInodeTellsLives(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "mlx5_0")
	create := func(keep string) uint64 {
		t.Helper()
		if err := os.Symlink(keep, link); err != nil {
			t.Fatal(err)
		}
		list, err := sysfs.List(dir)
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		var st unix.Stat_t
		if err := unix.Lstat(link, &st); err != nil {
			t.Fatal(err)
		}
		if list[0].Ino != st.Ino {
			t.Errorf("inode %d, lstat says %d", list[0].Ino, st.Ino)
		}
		return list[0].Ino
	}
	first := create("a")
	// The old device is kept under another name, so that the file system cannot reuse its inode.
	if err := os.Rename(link, filepath.Join(t.TempDir(), "old")); err != nil {
		t.Skip(err)
	}
	if second := create("a"); second == first {
		t.Errorf("both lives have inode %d", first)
	}
}

func TestListManyEntries(t *testing.T) {
	dir := t.TempDir()
	want := []string{}
	long := strings.Repeat("x", 200) // 500 of these exceed 64 KiB of directory
	for i := range 500 {
		name := fmt.Sprintf("%s%04d", long, i)
		want = append(want, name)
		write(t, filepath.Join(dir, name), "")
	}
	list, err := sysfs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, names(list)); diff != "" {
		t.Error(diff)
	}
}

func TestListIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 65,537 files")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "0")
	write(t, file, "")
	at := file
	for i := 1; i < sysfs.MaxEntries; i++ {
		if i%30000 == 0 { // links to one file are cheaper than files, but limited
			at = filepath.Join(dir, fmt.Sprint(i))
			write(t, at, "")
			continue
		}
		if err := os.Link(at, filepath.Join(dir, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	list, err := sysfs.List(dir)
	if err != nil || len(list) != sysfs.MaxEntries {
		t.Errorf("%d entries, which are allowed: %d, %v", sysfs.MaxEntries, len(list), err)
	}
	write(t, filepath.Join(dir, "one-more"), "")
	list, err = sysfs.List(dir)
	if sysfs.Reason(err) != sysfs.ReasonTooLarge || list != nil {
		t.Errorf("got %d entries, %v; want %s", len(list), err, sysfs.ReasonTooLarge)
	}
}

func TestListRefuses(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "")
	for path, want := range map[string]string{
		filepath.Join(dir, "absent"): sysfs.ReasonVanished,
		filepath.Join(dir, "file"):   sysfs.ReasonVanished, // ENOTDIR: the directory was removed
	} {
		list, err := sysfs.List(path)
		if got := sysfs.Reason(err); err == nil || got != want || list != nil {
			t.Errorf("List(%s) = %v, %v; want reason %s", path, list, err, want)
		}
	}
}
