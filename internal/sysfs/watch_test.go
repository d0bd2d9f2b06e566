package sysfs

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestDirLook lives through what can happen to a directory.
func TestDirLook(t *testing.T) {
	parent := t.TempDir()
	path := filepath.Join(parent, "counters")
	d := Dir{Path: path}
	defer d.Close()
	tick := func() { time.Sleep(12 * time.Millisecond) } // longer than the granularity of a file system's clock
	for _, step := range []struct {
		name              string
		do                func() error
		replaced, changed bool
		reason            string
	}{
		{"not there", func() error { return nil }, false, false, ReasonVanished},
		{"made", func() error { return os.Mkdir(path, 0o755) }, true, true, ""},
		{"nothing", func() error { return nil }, false, false, ""},
		{"a file is made", func() error { return os.WriteFile(path+"/a", []byte("1"), 0o644) }, false, true, ""},
		{"its content changes", func() error { return os.WriteFile(path+"/a", []byte("2"), 0o644) }, false, false, ""},
		{"it is replaced", func() error {
			if err := os.WriteFile(parent+"/b", []byte("3"), 0o644); err != nil {
				return err
			}
			return os.Rename(parent+"/b", path+"/a")
		}, false, true, ""},
		{"the directory is moved away", func() error {
			return os.Rename(path, parent+"/away")
		}, false, false, ReasonVanished},
		{"and comes back", func() error { return os.Rename(parent+"/away", path) }, true, true, ""},
		{"another takes its place", func() error {
			if err := os.Rename(path, parent+"/away"); err != nil {
				return err
			}
			return os.Mkdir(path, 0o755)
		}, true, true, ""},
		{"removed", func() error { return os.RemoveAll(path) }, false, false, ReasonVanished},
		{"a file takes its place", func() error {
			return os.WriteFile(path, nil, 0o644)
		}, false, false, ReasonVanished}, // ENOTDIR
	} {
		tick()
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		replaced, changed, err := d.Look()
		if reason := ""; err != nil {
			if reason = Reason(err); reason != step.reason {
				t.Errorf("%s: %v", step.name, err)
			}
		} else if replaced != step.replaced || changed != step.changed || step.reason != "" {
			t.Errorf("%s: replaced %v, changed %v, want %v, %v %s", step.name, replaced, changed, step.replaced,
				step.changed, step.reason)
		}
	}
}
