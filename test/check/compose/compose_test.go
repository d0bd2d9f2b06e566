package compose

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	alertmanager "github.com/prometheus/alertmanager/config"
	"github.com/prometheus/prometheus/config"
	_ "github.com/prometheus/prometheus/discovery/file" // file_sd, which the configuration uses
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"go.yaml.in/yaml/v3"
)

const dir = "../../../deploy/compose"

// file is compose.yaml, with all keys that it may have.
type file struct {
	Name     string
	Services map[string]service
	Volumes  map[string]struct{}
}

type service struct {
	Image       string
	Command     []string
	Environment map[string]string
	Ports       []string
	Volumes     []string
	DependsOn   []string `yaml:"depends_on"`
	Restart     string
}

func load(t *testing.T) (f file) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil {
		t.Fatal(err)
	}
	return f
}

// mounts returns the files of this repository that a service mounts, by path in the container.
func (s service) mounts(t *testing.T, volumes map[string]struct{}) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, v := range s.Volumes {
		parts := strings.Split(v, ":")
		if _, named := volumes[parts[0]]; named && len(parts) == 2 {
			continue
		}
		path := filepath.Join(dir, parts[0])
		if _, err := os.Stat(path); err != nil || len(parts) != 3 || parts[2] != "ro" {
			t.Errorf("mount %q: %v; want a file of this repository, read-only", v, err)
			continue
		}
		found[parts[1]] = path
	}
	return found
}

// TestCompose: images have a version, ports are bound to this machine only, and files that the configurations name
// exist.
func TestCompose(t *testing.T) {
	f := load(t)
	for name, s := range f.Services {
		if _, tag, found := strings.Cut(s.Image, ":"); !found || tag == "latest" {
			t.Errorf("%s has the image %s, without a version", name, s.Image)
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s listens on %s", name, p)
			}
		}
		for _, other := range s.DependsOn {
			if _, ok := f.Services[other]; !ok {
				t.Errorf("%s waits for %s, which does not exist", name, other)
			}
		}
	}
	seen := f.Services["prometheus"].mounts(t, f.Volumes)
	inside := func(path string) string { // inside returns the file of this repository.
		for at, own := range seen {
			if rest, ok := strings.CutPrefix(path, at); ok {
				return own + rest
			}
		}
		return ""
	}
	prometheus, err := config.LoadFile(inside("/etc/prometheus/prometheus.yml"), false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range prometheus.RuleFiles {
		if _, err := os.Stat(inside(rule)); err != nil {
			t.Errorf("rules: %v", err)
		}
	}
	if len(prometheus.ScrapeConfigs) != 1 || prometheus.ScrapeConfigs[0].JobName != "railscope" {
		t.Errorf("%+v", prometheus.ScrapeConfigs)
	}
	text, err := os.ReadFile(inside("/etc/prometheus/targets.yml"))
	var groups []*targetgroup.Group
	if err == nil {
		err = yaml.Unmarshal(text, &groups)
	}
	if err != nil || len(groups) != 1 || len(groups[0].Targets) == 0 {
		t.Errorf("targets: %v, %v", groups, err)
	}
	seen = f.Services["alertmanager"].mounts(t, f.Volumes)
	if _, err := alertmanager.LoadFile(inside("/etc/alertmanager/alertmanager.yml")); err != nil {
		t.Error(err)
	}
}

// TestGrafana: the data source is this Prometheus, and the dashboards are where the provider and the start page
// look for them.
func TestGrafana(t *testing.T) {
	f := load(t)
	s := f.Services["grafana"]
	seen := s.mounts(t, f.Volumes)
	read := func(path string, v any) {
		t.Helper()
		text, err := os.ReadFile(seen[path])
		if err == nil {
			err = yaml.Unmarshal(text, v)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var sources struct{ Datasources []struct{ URL, Type string } }
	read("/etc/grafana/provisioning/datasources/railscope.yml", &sources)
	if len(sources.Datasources) != 1 || sources.Datasources[0].URL != "http://prometheus:9090" {
		t.Errorf("%+v", sources)
	}
	var dashboards struct {
		Providers []struct{ Options struct{ Path string } }
	}
	read("/etc/grafana/provisioning/dashboards/railscope.yml", &dashboards)
	path := dashboards.Providers[0].Options.Path
	files, err := filepath.Glob(seen[path] + "/*.json")
	home := strings.TrimPrefix(s.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"], path+"/")
	if err != nil || len(files) != 3 || !slices.Contains(files, filepath.Join(seen[path], home)) {
		t.Errorf("%q in %s, home %q, %v", files, seen[path], home, err)
	}
}
