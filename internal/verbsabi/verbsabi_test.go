package verbsabi

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/railscope/railscope/internal/testenv"
	"github.com/railscope/railscope/internal/verbsabi/verbsabitest"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// TestRead: versions of ionic's interface, of the kernel (1) and of the vendor's driver (4, see
// drivers/infiniband/hw/ionic as it was first proposed).
func TestRead(t *testing.T) {
	whole := verbsabitest.Library(elf.EM_X86_64, "ionic", 1, 4, false)
	for name, tt := range map[string]struct {
		library []byte
		want    string
	}{
		"one version":      {verbsabitest.Library(elf.EM_X86_64, "ionic", 1, 1, false), "&{1 1}"},
		"a range":          {whole, "&{1 4}"},
		"arm64":            {verbsabitest.Library(elf.EM_AARCH64, "ionic", 1, 4, false), "&{1 4}"},
		"packed pointers":  {verbsabitest.Library(elf.EM_X86_64, "ionic", 1, 4, true), "&{1 4}"},
		"any version":      {verbsabitest.Library(elf.EM_X86_64, "ionic", 0, 1<<31-1, true), "&{0 2147483647}"},
		"another provider": {verbsabitest.Library(elf.EM_X86_64, "ionic2", 1, 4, false), "<nil>"},
		"no range":         {verbsabitest.Library(elf.EM_X86_64, "ionic", 4, 1, false), "<nil>"},
		"another machine":  {verbsabitest.Library(elf.EM_PPC64, "ionic", 1, 4, false), "<nil>"},
		"cut":              {whole[:len(whole)-70], "<nil>"},
		"a script of ld":   {[]byte("INPUT(-lionic)\n"), "<nil>"},
		"empty":            {nil, "<nil>"},
	} {
		path := filepath.Join(t.TempDir(), "libionic-rdmav34.so")
		if err := os.WriteFile(path, tt.library, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(Read(path, "ionic")); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	if r := Read(t.TempDir(), "ionic"); r != nil {
		t.Error("a directory:", r)
	}
}

// TestInstalledProviders reads the providers of this machine: rdma-core's mlx5 and bnxt_re support version 1.
func TestInstalledProviders(t *testing.T) {
	paths, err := filepath.Glob("/usr/lib/*/libibverbs/lib*-rdmav*.so")
	if err != nil || len(paths) == 0 {
		t.Skip("no providers of libibverbs (ibverbs-providers) on this machine")
	}
	for _, path := range paths {
		name, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), "lib"), "-rdmav")
		r := Read(path, name)
		t.Logf("%s: %v", name, r)
		if (name == "mlx5" || name == "bnxt_re") && (r == nil || *r != Range{Min: 1, Max: 1}) {
			t.Errorf("%s: %v", path, r)
		}
	}
}

func FuzzFind(f *testing.F) {
	f.Add(verbsabitest.Library(elf.EM_X86_64, "ionic", 1, 4, false))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := elf.NewFile(bytes.NewReader(text))
		if err == nil {
			_ = find(file, "ionic")
		}
	})
}
