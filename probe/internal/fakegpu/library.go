// Package fakegpu has the libraries of GPUs without a GPU, for tests. Environment variables are their knobs: see
// testdata.
package fakegpu

import (
	"embed"
	"os"
	"path/filepath"
	"testing"

	"github.com/railscope/railscope/probe/internal/fakeverbs"
)

//go:embed testdata
var sources embed.FS

// GPU is the PCI address of one of the fake GPUs of each library.
const GPU = "0000:b3:00.0"

// CUDA compiles the fake libcuda with flags, as [fakeverbs.Library], and returns its path.
func CUDA(tb testing.TB, flags ...string) string {
	tb.Helper()
	return fakeverbs.Compile(tb, sources, "libfakecuda.so", append(fakeverbs.Shared(), flags...), "cuda.c")
}

// HSA compiles the fake libhsa-runtime64 with flags, as [fakeverbs.Library], and returns its path.
func HSA(tb testing.TB, flags ...string) string {
	tb.Helper()
	return fakeverbs.Compile(tb, sources, "libfakehsa.so", append(fakeverbs.Shared(), flags...), "hsa.c")
}

// Ledger lets the libraries record their allocations, and returns a function that reads the record.
func Ledger(tb testing.TB) func() string {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "ledger")
	tb.Setenv("FAKEGPU_LEDGER", file)
	return func() string {
		text, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			tb.Fatal(err)
		}
		return string(text)
	}
}
