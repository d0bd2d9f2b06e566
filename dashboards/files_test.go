package dashboards

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/railscope/railscope/deploy/rules"
)

var update = flag.Bool("update", false, "write the dashboards anew")

// TestFiles compares the dashboards that are checked in, byte by byte, with
// those that would be written, and looks for ones that nobody writes.
func TestFiles(t *testing.T) {
	files, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if *update {
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, files[name], 0o644); err != nil {
				t.Fatal(err)
			}
		}
		have, err := os.ReadFile(name)
		if err != nil {
			t.Errorf("%v (make dashboards writes it)", err)
		}
		if !bytes.Equal(have, files[name]) {
			t.Errorf("%s is not what it would be (make dashboards writes it anew)", name)
		}
	}
	for _, flavour := range []string{"provisioning", "grafana.com"} {
		there, err := filepath.Glob(filepath.Join(flavour, "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range there {
			if files[filepath.ToSlash(name)] == nil {
				t.Errorf("%s is there, and nothing writes it: remove it", name)
			}
		}
	}
}

// TestFullGPUs holds that what is counted as a full GPU is what the alert tells of.
func TestFullGPUs(t *testing.T) {
	all, err := rules.Load("../deploy/rules")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(r rules.Rule) bool { return r.Alert == "RailscopeGPUMemoryNearlyFull" })
	if i < 0 {
		t.Fatal("there is no such alert")
	}
	plain := strings.NewReplacer("{<node>}", "", "<node>,", "", " ", "", "\n", "")
	if want, have := "("+plain.Replace(all[i].Expr)+")", plain.Replace(gpuFull); have != want {
		t.Errorf("counted is\n%s\nand the alert fires for\n%s", have, want)
	}
}
