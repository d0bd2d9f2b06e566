package catalog

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/railscope/railscope/deploy/rules"
)

const root = "../../.."

var (
	whole = regexp.MustCompile(`\brailscope_[a-z0-9_]+`)
	span  = regexp.MustCompile("`([a-z][a-z0-9_]*)(?:\\{[a-z_,]+\\})?`")
	// Names with such a prefix and suffix are metrics, except the kernel's own names and names of rules.
	ours = regexp.MustCompile(`^(?:rail|rails|port|gid|bond|gpu|gpudirect|pcie|netdev|process|nccl|probe|source|sampler)_.*_(?:total|ratio|info|seconds|bytes_per_second)$`)
)

// wrong returns the names in a page that look like metrics and are not.
func wrong(page string, all map[string]Row) (names []string) {
	for _, name := range whole.FindAllString(page, -1) {
		if strings.HasSuffix(name, "_") { // railscope_probe_…, or railscope_*
			continue
		}
		if _, ok := Find(all, name); !ok {
			names = append(names, name)
		}
	}
	for _, m := range span.FindAllStringSubmatch(page, -1) {
		if _, ok := Find(all,
			"railscope_"+m[1]); ours.MatchString(m[1]) && !ok &&
			m[1] != "process_start_time_seconds" { // the Go runtime's, without our prefix
			names = append(names, m[1])
		}
	}
	return names
}

// TestPages: every metric that a page names exists.
func TestPages(t *testing.T) {
	all, err := Read(filepath.Join(root, "docs/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := rules.Load(filepath.Join(root, "deploy/rules"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string // names of recorded series, and of thresholds without their prefix
	for _, r := range list {
		if r.Record != "" {
			names = append(names, "`"+r.Record+"`", "", "`"+strings.TrimPrefix(r.Record, "railscope:threshold:")+"`", "")
		}
	}
	recorded := strings.NewReplacer(names...)
	pages := 0
	err = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && file != root && (strings.HasPrefix(d.Name(),
			".") || d.Name() == "testdata" || d.Name() == "dist") {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(file) != ".md" || d.Name() == "metrics.md" {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		pages++
		for _, name := range wrong(recorded.Replace(string(text)), all) {
			t.Errorf("%s: %s is no metric of docs/metrics.md", file, name)
		}
		return nil
	})
	if err != nil || pages < 20 {
		t.Fatal(err, pages)
	}
}

// TestWrongNamesAreFound: wrong names in a page are found.
func TestWrongNamesAreFound(t *testing.T) {
	all := map[string]Row{"railscope_port_up": {}, "railscope_probe_latency_seconds": {Kind: "histogram"},
		"railscope_rail_info": {}}
	page := "`railscope_port_up` railscope_port_upp railscope_probe_latency_seconds_bucket " +
		"railscope_port_up_bucket railscope_probe_* `rail_info` `rail_infos_info` `port_rcv_data` " +
		"`source_errors_total{device,reason}` `seconds_total`"
	got := strings.Join(wrong(page, all), " ")
	if want := "railscope_port_upp railscope_port_up_bucket rail_infos_info source_errors_total"; got != want {
		t.Errorf("found %s, want %s", got, want)
	}
}
