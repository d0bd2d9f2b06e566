package probe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/hostport"
	"github.com/railscope/railscope/probe/internal/schedule"
	"github.com/railscope/railscope/probe/options"
)

// TestPeerFiles checks the nodes and the error after each change of the files.
func TestPeerFiles(t *testing.T) {
	dir := t.TempDir()
	p := schedule.NewPeerFiles(filepath.Join(dir, "*.yml"))
	const first = "- targets: [A.example.:10092, '10.0.0.1']\n  labels: {rack: r1}\n- targets: ['[fd00::1]:7']\n"
	all := []string{"10.0.0.1:10092", "[fd00::1]:7", "a.example:10092"}
	for i, step := range []struct {
		write, content string // content "-" removes the file
		want           []string
		says           string // part of the error; empty: no error
	}{
		{"c.json", "[]", nil, "no file matches " + dir},
		{"a.yml", first, all, ""},
		{"b.yml", "- targets: [10.0.0.1, b:1]", append(slices.Clone(all), "b:1"), ""},
		{"b.yml", "- targets: [b:1, c:", append(slices.Clone(all), "b:1"), "b.yml: not a list of"}, // half written
		{"b.yml", "- targets: [b:1, c:1]", append(slices.Clone(all), "b:1", "c:1"), ""},
		{"b.yml", "- targets: ['b:1', 'no host:1']", append(slices.Clone(all), "b:1", "c:1"), `b.yml: target "no host:1"`},
		{"a.yml", "", append(slices.Clone(all), "b:1", "c:1"), "a.yml: not a list of {targets: [host:port, …]}: empty"},
		{"a.yml", first, append(slices.Clone(all), "b:1", "c:1"), "b.yml: target"},
		{"b.yml", "-", all, ""},
		{"a.yml", "-", all, "no file matches"}, // no file is left: that is not an empty list
		{"d.yml", "[]", nil, ""},
	} {
		path := filepath.Join(dir, step.write)
		if step.content == "-" {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		} else {
			file(t, path, step.content)
		}
		got, err := p.Lookup(t.Context())
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("step %d: %s", i, diff)
		}
		if err == nil && step.says != "" || err != nil && (step.says == "" || !strings.Contains(err.Error(), step.says)) {
			t.Errorf("step %d: error %v, want %q", i, err, step.says)
		}
	}
}

// TestPeerFileForms: valid and invalid lists of nodes.
func TestPeerFileForms(t *testing.T) {
	many := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`"h%d:1"`, i))
		}
		return `[{"targets": [` + strings.Join(list, ", ") + `]}]`
	}
	for _, tc := range []struct {
		name, ext, in string
		nodes         int // -1: error
	}{
		{"JSON", ".json", `[{"targets": ["a", "b:7"], "labels": {"x": "y"}}, {"targets": ["c"]}]`, 3},
		{"JSON with tabs", ".json", "[\n\t{\"targets\":\t[\"a\"]}\n]\n", 1},
		{"YAML", ".yml", "- targets: [a, b]\n", 2},
		{"YAML, upper case", ".YAML", "- targets:\n  - a\n", 1},
		{"a node twice", ".json", `[{"targets": ["a", "A:10092", "a."]}]`, 1},
		{"no targets", ".yml", "[]", 0},
		{"as many as may be", ".json", many(schedule.MaxNodes), schedule.MaxNodes},
		{"one too many", ".json", many(schedule.MaxNodes + 1), -1},
		{"an unknown key", ".json", `[{"target": ["a"]}]`, -1},
		{"an unknown key in YAML", ".yml", "- target: [a]\n", -1},
		{"text after it", ".json", `[{"targets": ["a"]}]]`, -1},
		{"half of it", ".json", `[{"targets": ["a"`, -1},
		{"no list", ".yml", "targets: [a]\n", -1},
		{"nothing", ".json", "", -1},
		{"port 0", ".json", `[{"targets": ["a:0"]}]`, -1},
		{"a large port", ".json", `[{"targets": ["a:65536"]}]`, -1},
		{"a name with a space", ".json", `[{"targets": ["a b"]}]`, -1},
		{"a URL", ".json", `[{"targets": ["http://a:1"]}]`, -1},
	} {
		got, err := schedule.ParsePeerFile(tc.ext, []byte(tc.in))
		if (err != nil) != (tc.nodes < 0) || err == nil && len(got) != tc.nodes {
			t.Errorf("%s: %d nodes, %v", tc.name, len(got), err)
		}
	}
}

// FuzzPeerFile: whatever a file contains, its nodes are valid, sorted and unique.
func FuzzPeerFile(f *testing.F) {
	f.Add(true, `[{"targets": ["a", "b:7"], "labels": {"x": "y"}}]`)
	f.Add(false, "- targets: [a, '[fd00::1]:7']\n  labels: {x: y}\n")
	f.Fuzz(func(t *testing.T, isJSON bool, text string) {
		ext := ".yml"
		if isJSON {
			ext = ".json"
		}
		nodes, err := schedule.ParsePeerFile(ext, []byte(text))
		if err != nil {
			return
		}
		for i, node := range nodes {
			again, ok := hostport.Parse(node, options.DefaultPort)
			if !ok || hostport.Canonical(again) != node || i > 0 && node <= nodes[i-1] {
				t.Errorf("%q: %q after %q", node, again, nodes[:i])
			}
		}
	})
}

// TestPeerFileRefused: refused content is not parsed again until it changes. Content with too many items is refused
// before it takes memory.
func TestPeerFileRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yml")
	p := schedule.NewPeerFiles(path)
	file(t, path, "- targets: [b:1, c:")
	_, first := p.Lookup(t.Context())
	_, again := p.Lookup(t.Context())
	if first == nil || !errors.Is(again, first) {
		t.Errorf("%v, then another error: %v", first, again)
	}
	file(t, path, "- targets: [b:1]")
	if list, err := p.Lookup(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	for ext, text := range map[string]string{".yml": "- targets: [" + strings.Repeat("a,", 4e6) + "a]",
		".yaml": strings.Repeat("-\n", 4e6), ".json": `[{"targets":[` + strings.Repeat(`"",`, 2e6) + `""]}]`} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := schedule.ParsePeerFile(ext, []byte(text))
		runtime.ReadMemStats(&after)
		if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; err == nil || mib > 32 {
			t.Errorf("%s: %v with %d MiB", ext, err, mib)
		}
	}
}

// TestPeerFilesBytes: the total size of a pattern's files is limited.
func TestPeerFilesBytes(t *testing.T) {
	dir := t.TempDir()
	for i := range 4 {
		file(t, filepath.Join(dir, fmt.Sprint(i, ".yml")), "- targets: [b:1]\n#"+strings.Repeat(" ", 7<<20))
	}
	m := schedule.ReadMatches(filepath.Join(dir, "*.yml"))
	last := m.Data[filepath.Join(dir, "3.yml")]
	if m.Data[filepath.Join(dir, "2.yml")].Err != nil || last.Err == nil || !strings.Contains(last.Err.Error(), "not read") {
		t.Errorf("%v", last.Err)
	}
}
