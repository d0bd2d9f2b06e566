//go:build !race

// The race detector's hooks in pread move the buffer to the heap.

package sysfs_test

import (
	"path/filepath"
	"testing"

	"github.com/railscope/railscope/internal/sysfs"
)

func TestFileReadsWithoutGarbage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counter")
	write(t, path, "123456789\n")
	f := sysfs.File{Path: path}
	defer f.Close()
	read := func() {
		if v, err := f.ReadUint(); v != 123456789 || err != nil {
			t.Fatal(v, err)
		}
	}
	read()
	if n := testing.AllocsPerRun(100, read); n != 0 {
		t.Errorf("%v allocations a read, want 0", n)
	}
}
