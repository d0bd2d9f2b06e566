package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	prometheus "github.com/prometheus/common/model"
)

// metricsOf runs metrics over a machine with two rails, and returns the output.
func metricsOf(t *testing.T, sys string, args ...string) string {
	t.Helper()
	cmd := command(t, nil, append([]string{"metrics", "--path.sysfs=" + sys, "--path.procfs=" + t.TempDir(),
		"--path.rootfs=" + t.TempDir(), "--log.level=error"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%v: %s", err, &stderr)
	}
	return string(out)
}

// TestMetrics: one read of the sources and one examination give a valid exposition, without series that
// node_exporter, which may export it, has as well.
func TestMetrics(t *testing.T) {
	sys := tree(t)
	write(t, filepath.Join(sys, "class/infiniband/mlx5_1/ports/1/state"), "1: DOWN\n")
	text := metricsOf(t, sys)
	parser := expfmt.NewTextParser(prometheus.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for name := range families {
		if !strings.HasPrefix(name, "railscope_") {
			t.Errorf("%s: node_exporter may have it too, and then fails", name)
		}
	}
	for _, want := range []string{`railscope_finding{check="port_down",rail="1",severity="critical",subject="rail 1"} 1`,
		`railscope_source_success{source="rdma"} 1`} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("not in it: %s\n%s", want, text)
		}
	}
	for _, never := range []string{"railscope_sampler", "railscope_config_last", "railscope_web_refused",
		`source="process"`, `check="libibverbs"`} {
		if strings.Contains(text, never) {
			t.Errorf("in it: %s", never)
		}
	}
	if off := metricsOf(t, sys, "--no-source.pcie"); strings.Contains(off, `source="pcie"`) ||
		!strings.Contains(text, `source="pcie"`) {
		t.Error("a source that is off was read")
	}
}

// TestTextfile: the file is replaced atomically and readable by everybody, and nothing else stays in its directory,
// even when it cannot be replaced.
func TestTextfile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "railscope.prom")
	write(t, path, "old\n")
	held, err := os.Open(path) // opened by a reader that has not finished
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if out := metricsOf(t, tree(t), "--textfile="+path); out != "" {
		t.Errorf("it printed %s", out)
	}
	text, err := os.ReadFile(path)
	info, err2 := os.Stat(path)
	if err != nil || err2 != nil || !bytes.Contains(text, []byte("\nrailscope_rail_info{")) || info.Mode() != 0o644 {
		t.Error(err, err2, info, string(text))
	}
	b := make([]byte, 10)
	if n, _ := held.Read(b); string(b[:n]) != "old\n" {
		t.Errorf("a reader of the old file sees %q", b[:n])
	}
	blocked := filepath.Join(dir, "blocked.prom")
	if err := os.Mkdir(blocked, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := command(t, nil, "metrics", "--path.sysfs="+tree(t), "--textfile="+blocked).Run(); err == nil {
		t.Error("a directory was written")
	}
	unread := command(t, nil, "metrics", "--textfile="+filepath.Join(dir, "railscope.txt"))
	_ = unread.Run()
	if unread.ProcessState.ExitCode() != exitMisuse {
		t.Error("a name that node_exporter does not read is accepted")
	}
	entries, _ := os.ReadDir(dir)
	if i := slices.IndexFunc(entries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), ".") }); i >= 0 {
		t.Error("left behind:", entries[i])
	}
}

// TestMetricsLeaf: rails.leaf of the configuration is a metric of the named rails only.
func TestMetricsLeaf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "railscope.yml")
	write(t, file, "rails: {leaf: {1: rack-7/leaf-b, 5: none}}\n")
	text := metricsOf(t, tree(t), "--config.file="+file)
	const want = `railscope_rail_leaf_info{device="mlx5_1",leaf="rack-7/leaf-b",port="1",rail="1"} 1`
	if strings.Count(text, "railscope_rail_leaf_info{") != 1 || !strings.Contains(text, want+"\n") {
		t.Errorf("not in it: %s", want)
	}
}
