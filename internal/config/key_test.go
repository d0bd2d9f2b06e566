package config_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/probe/options"
)

// TestKeys: the loader knows each key of the reference, and each key has a form, a description and the right
// default.
func TestKeys(t *testing.T) {
	sections := map[string]string{}
	for _, k := range config.Keys() {
		if k.Form == "" || !strings.HasSuffix(k.About, ".") {
			t.Errorf("%s: form %q, about %q", k.Name, k.Form, k.About)
		}
		at := strings.LastIndex(k.Name, ".")
		sections[k.Name[:max(at, 0)]] += k.Name[at+1:] + " "
	}
	for section, names := range sections {
		text := strings.TrimPrefix(section+": {nosuchkeyatall: 1}\n", ": ")
		if parent, child, below := strings.Cut(section, "."); below {
			text = parent + ": {" + child + ": {nosuchkeyatall: 1}}\n"
		}
		_, err := config.Parse("f.yml", []byte(text))
		for name := range strings.FieldsSeq(names) {
			if err == nil || !regexp.MustCompile(`known keys: .*\b`+name+`\b`).MatchString(err.Error()) {
				t.Errorf("%s.%s: the loader says %v", section, name, err)
			}
		}
	}
	for name, def := range map[string]string{"probe.interval": "1m", "probe.burst": "5ms",
		"probe.budget": "0.5%", "probe.busy_above": "0.2", "probe.depth": "16", "probe.insecure": "false",
		"probe.memory": "host"} {
		for _, k := range config.Keys() {
			if k.Name == name && k.Default != def {
				t.Errorf("the default of %s is %q, want %q", name, k.Default, def)
			}
		}
	}
}

// TestExample: the annotated example has every key, and shows the right defaults.
func TestExample(t *testing.T) {
	data, err := os.ReadFile("../../docs/railscope.yml")
	if err != nil {
		t.Fatal(err)
	}
	// A key directly after # is commented out; a blank after # starts text.
	commented := regexp.MustCompile(`(?m)^(\s*)#([a-z_]+:.*)$`)
	for name, text := range map[string]string{"as it is": string(data),
		"with all that is commented out": commented.ReplaceAllString(string(data), "$1$2")} {
		dir, file := secrets(t)
		text = strings.ReplaceAll(text, "/etc/railscope/", dir+"/")
		c, err := config.Parse(file, []byte(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if c.Probe == nil || len(c.Probe.Peers) == 0 || len(c.Rails.Names) == 0 {
			t.Errorf("%s: %+v", name, c)
		}
		def := options.DefaultOptions()
		def.Peers, def.Listen, def.Name = c.Probe.Peers, c.Probe.Listen, c.Probe.Name
		def.Security = c.Probe.Security
		if diff := cmp.Diff(&def, c.Probe); diff != "" {
			t.Errorf("%s, something is not the default: %s", name, diff)
		}
	}
	for _, k := range config.Keys() {
		if word := k.Name[strings.LastIndex(k.Name,
			".")+1:]; !regexp.MustCompile(`(?m)^\s*#?` + word + `:|[{ ]` + word + `: `).Match(data) {
			t.Errorf("the example does not show %s", k.Name)
		}
	}
}

// TestPages: railscope configurations in the documentation are valid.
func TestPages(t *testing.T) {
	dir, file := secrets(t)
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	block, shown := regexp.MustCompile("(?ms)^```yaml\n((?:rails|expect|probe|maintenance):.*?)^```"), 0
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range block.FindAllStringSubmatch(string(text), -1) {
			shown++
			if _, err := config.Parse(file, []byte(strings.ReplaceAll(m[1], "/etc/railscope/", dir+"/"))); err != nil {
				t.Errorf("%s: %v in\n%s", page, err, m[1])
			}
		}
	}
	if shown < 2 {
		t.Errorf("only %d configurations found", shown)
	}
}

// TestChart: the schema of the chart's values has every key of the probe but those that the chart sets itself, or that
// a file of the node has.
func TestChart(t *testing.T) {
	text, err := os.ReadFile("../../deploy/helm/railscope/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Properties struct {
			Probe struct {
				Properties struct {
					Options struct{ Properties map[string]any }
				}
			}
		}
	}
	if err := json.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	has := values.Properties.Probe.Properties.Options.Properties
	own := []string{"listen", "peers", "token_file", "tls", "name", "insecure", "allow_ring"}
	for _, k := range config.Keys() {
		name, ok := strings.CutPrefix(k.Name, "probe.")
		if !ok || strings.Contains(name, ".") || strings.Contains(name, "[") || slices.Contains(own, name) {
			continue
		}
		if _, ok := has[name]; !ok {
			t.Errorf("the chart refuses %s", k.Name)
		}
	}
	if len(has) < 15 {
		t.Errorf("%d options", len(has))
	}
}
