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

var update = flag.Bool("update", false, "regenerate the dashboards")

// TestFiles compares the committed dashboards with the generated ones, and finds files that are no longer
// generated.
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
			t.Errorf("%v (run make dashboards)", err)
		}
		if !bytes.Equal(have, files[name]) {
			t.Errorf("%s is out of date (run make dashboards)", name)
		}
	}
	for _, flavour := range []string{"provisioning", "grafana.com"} {
		there, err := filepath.Glob(filepath.Join(flavour, "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range there {
			if files[filepath.ToSlash(name)] == nil {
				t.Errorf("%s is not generated any more: remove it", name)
			}
		}
	}
}

// TestFullGPUs checks that the count of full GPUs uses the condition of the alert, with its shipped thresholds.
func TestFullGPUs(t *testing.T) {
	all, err := rules.Load("../deploy/rules")
	if err != nil {
		t.Fatal(err)
	}
	thresholds, err := rules.Thresholds()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(r rules.Rule) bool { return r.Labels["fault"] == "GPUMemoryFull" })
	if i < 0 {
		t.Fatal("alert not found")
	}
	pairs := []string{"{<node>}", "", "<node>,", "", " ", "", "\n", ""}
	for name, v := range thresholds {
		pairs = append(pairs, "scalar(railscope:threshold:"+name+")", v)
	}
	plain := strings.NewReplacer(pairs...)
	if want, have := "("+plain.Replace(all[i].Expr)+")", plain.Replace(gpuFull); have != want {
		t.Errorf("dashboard counts\n%s\nalert fires for\n%s", have, want)
	}
}
