//go:build cgo

package verbs

import (
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/railscope/railscope/probe/internal/failure"
)

// TestOpenMissing opens a missing library, and another library.
func TestOpenMissing(t *testing.T) {
	for path, says := range map[string]string{
		filepath.Join(t.TempDir(), "libibverbs.so.1"): "No such file",
		"libc.so.6": "ibv_get_device_list",
	} {
		_, err := Open(path)
		if e, ok := errors.AsType[*failure.Failure](err); !ok || e.Reason != failure.NoLibrary ||
			!strings.Contains(e.Error(),
				says) {
			t.Errorf("%s: %v, want %s with %q", path, err, failure.NoLibrary, says)
		}
	}
}

// TestNotLinked: this program starts without libibverbs.
func TestNotLinked(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file, err := elf.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	libraries, err := file.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := file.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		libraries = append(libraries, s.Name)
	}
	for _, name := range libraries {
		if strings.Contains(name, "ibv") || strings.Contains(name, "ibverbs") {
			t.Errorf("linked against %s", name)
		}
	}
}

// TestOpenReal opens this machine's libibverbs, and lists its devices.
func TestOpenReal(t *testing.T) {
	l, err := Open("")
	if err != nil {
		t.Skipf("needs libibverbs1: %v", err)
	}
	if !strings.Contains(filepath.Base(l.File()), "libibverbs.so.1") {
		t.Errorf("loaded from %q", l.File())
	}
	err = l.Check()
	if e, ok := errors.AsType[*failure.Failure](err); ok && e.Reason != failure.NoUverbs &&
		e.Reason != failure.DevPerm {
		t.Errorf("list of devices: %v", err)
	}
	t.Logf("%s: %v", l.File(), err)
}

// TestBuffer maps memory, writes all of it, and unmaps it twice.
func TestBuffer(t *testing.T) {
	const size = 5<<20 + 24
	b, err := NewBuffer(size)
	if err != nil {
		t.Fatal(err)
	}
	mem := b.Bytes()
	if len(mem) != size {
		t.Fatalf("%d bytes, want %d", len(mem), size)
	}
	for i, v := range mem {
		if v != 0 {
			t.Fatalf("byte %d is %d", i, v)
		}
		mem[i] = 1
	}
	for range 2 {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if b.Bytes() != nil {
		t.Error("bytes after Close")
	}
	if _, err := NewBuffer(0); err == nil {
		t.Error("a buffer of nothing")
	}
	if _, err := NewBuffer(1 << 62); err == nil {
		t.Error("a buffer larger than any memory")
	}
}
