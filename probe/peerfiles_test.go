package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/hostport"
)

// TestPeerFiles: the nodes and the error after each change of the files.
func TestPeerFiles(t *testing.T) {
	dir := t.TempDir()
	p := newPeerFiles(filepath.Join(dir, "*.yml"))
	const first = "- targets: [A.example.:10092, '10.0.0.1']\n  labels: {rack: r1}\n- targets: ['[fd00::1]:7']\n"
	all := []string{"10.0.0.1:10092", "[fd00::1]:7", "a.example:10092"}
	for i, step := range []struct {
		write, content string // content "-" removes the file
		want           []string
		says           string // part of the error; empty: none
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
		{"a.yml", "-", all, "no file matches"}, // none is left: that is no list
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
		got, err := p.lookup(t.Context())
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("step %d: %s", i, diff)
		}
		if err == nil && step.says != "" || err != nil && (step.says == "" || !strings.Contains(err.Error(), step.says)) {
			t.Errorf("step %d: error %v, want %q", i, err, step.says)
		}
	}
}

// TestPeerFileForms: what is a list of nodes, and what is not.
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
		nodes         int // -1: an error
	}{
		{"JSON", ".json", `[{"targets": ["a", "b:7"], "labels": {"x": "y"}}, {"targets": ["c"]}]`, 3},
		{"JSON with tabs", ".json", "[\n\t{\"targets\":\t[\"a\"]}\n]\n", 1},
		{"YAML", ".yml", "- targets: [a, b]\n", 2},
		{"YAML, upper case", ".YAML", "- targets:\n  - a\n", 1},
		{"a node twice", ".json", `[{"targets": ["a", "A:10092", "a."]}]`, 1},
		{"no targets", ".yml", "[]", 0},
		{"as many as may be", ".json", many(maxNodes), maxNodes},
		{"one too many", ".json", many(maxNodes + 1), -1},
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
		got, err := parsePeerFile(tc.ext, []byte(tc.in))
		if (err != nil) != (tc.nodes < 0) || err == nil && len(got) != tc.nodes {
			t.Errorf("%s: %d nodes, %v", tc.name, len(got), err)
		}
	}
}

// FuzzPeerFile: whatever a file contains, its nodes are valid, in order, and each is there once.
func FuzzPeerFile(f *testing.F) {
	f.Add(true, `[{"targets": ["a", "b:7"], "labels": {"x": "y"}}]`)
	f.Add(false, "- targets: [a, '[fd00::1]:7']\n  labels: {x: y}\n")
	f.Fuzz(func(t *testing.T, isJSON bool, text string) {
		ext := ".yml"
		if isJSON {
			ext = ".json"
		}
		nodes, err := parsePeerFile(ext, []byte(text))
		if err != nil {
			return
		}
		for i, node := range nodes {
			again, ok := hostport.Parse(node, DefaultPort)
			if !ok || hostport.Canonical(again) != node || i > 0 && node <= nodes[i-1] {
				t.Errorf("%q: %q after %q", node, again, nodes[:i])
			}
		}
	})
}
