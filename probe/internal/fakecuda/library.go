// Package fakecuda is a libcuda without a GPU, for tests. Environment variables are its knobs: see testdata/cuda.c.
package fakecuda

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

//go:embed testdata/cuda.c
var source string

// GPU is the PCI address of one of the fake GPUs.
const GPU = "0000:b3:00.0"

// Library compiles the fake libcuda with flags and returns its path. CC selects the compiler, as for cgo, and
// FAKEVERBS_CFLAGS adds flags, as for the fake libibverbs. Without a compiler the test is skipped.
func Library(tb testing.TB, flags ...string) string {
	tb.Helper()
	cc := strings.Fields(os.Getenv("CC"))
	if len(cc) == 0 {
		cc = []string{"cc"}
	}
	if _, err := exec.LookPath(cc[0]); err != nil {
		tb.Skipf("needs a C compiler: %v", err)
	}
	made := filepath.Join(tb.TempDir(), "libfakecuda.so")
	args := append(cc[1:], "-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-shared", "-fPIC", "-Wl,-Bsymbolic", "-xc", "-",
		"-o", made)
	args = append(append(args, flags...), strings.Fields(os.Getenv("FAKEVERBS_CFLAGS"))...)
	cmd := exec.Command(cc[0], args...)
	cmd.Stdin = strings.NewReader(source)
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return made
}

// Ledger lets the library record its allocations, and returns a function that reads the record.
func Ledger(tb testing.TB) func() string {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "ledger")
	tb.Setenv("FAKECUDA_LEDGER", file)
	return func() string {
		text, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			tb.Fatal(err)
		}
		return string(text)
	}
}
