package npd

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/node-problem-detector/pkg/custompluginmonitor"
	"k8s.io/node-problem-detector/pkg/types"
)

const root = "../../.."

// TestRecipe: the condition follows the output of railscope check. Only path and interval of the recipe are
// changed.
func TestRecipe(t *testing.T) {
	dir := t.TempDir()
	sysfs, state := filepath.Join(dir, "sys"), filepath.Join(dir, "state")
	write(t, filepath.Join(state, "x"), "")
	bin := filepath.Join(dir, "bin")
	build(t, bin)
	plugin := filepath.Join(dir, "railscope")
	write(t, plugin, "#!/bin/sh\nexec "+bin+" \"$@\" --path.sysfs="+sysfs+" --path.procfs="+state+" --path.rootfs="+state+
		" --state.dir="+state+"\n")
	rail := func(device, state string) {
		port := filepath.Join(sysfs, "class/infiniband", device, "ports/1")
		for name, text := range map[string]string{"link_layer": "InfiniBand", "phys_state": "5: LinkUp",
			"rate": "400 Gb/sec (4X NDR)", "state": state} {
			write(t, filepath.Join(port, name), text+"\n")
		}
	}
	const up, down = "4: ACTIVE", "1: DOWN"
	rail("mlx5_0", up)
	rail("mlx5_1", down)

	m := custompluginmonitor.NewCustomPluginMonitorOrDie(recipe(t, plugin))
	statuses, err := m.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Stop)
	silent := func() {
		l, err := net.Listen("unix", filepath.Join(state, "status.sock"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	}
	const fault, neutral = "RailsHaveCriticalFinding", "RailscopeCheck"
	for i, step := range []struct {
		change          func()
		status          types.ConditionStatus
		reason, message string
	}{
		{func() {}, types.True, fault, "railscope: critical: rail 1: port down"},
		{func() { rail("mlx5_0", down) }, types.True, fault, "railscope: critical: rail 0: port down (+1 more)"},
		{func() { rail("mlx5_0", up); rail("mlx5_1", up) }, types.False, neutral, "railscope: ok"},
		{silent, types.Unknown, neutral, "railscope: unknown: no answer within 2s"},
	} {
		step.change()
		want := types.Condition{Type: "RailsUnhealthy", Status: step.status, Reason: step.reason, Message: step.message}
		for deadline := time.After(30 * time.Second); ; {
			var got types.Condition
			select {
			case s := <-statuses:
				got = s.Conditions[0]
			case <-deadline:
				t.Fatalf("never %+v", want)
			}
			got.Transition = (time.Time{})
			if got == want {
				break
			}
			if i == 0 {
				t.Fatalf("the first is %+v, want %+v", got, want)
			}
		}
	}
}

// recipe writes a copy of the recipe that runs this plugin, more often.
func recipe(t *testing.T, plugin string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy/integrations/node-problem-detector.json"))
	if err != nil {
		t.Fatal(err)
	}
	got := string(text)
	for was, is := range map[string]string{`"/usr/bin/railscope"`: `"` + plugin + `"`, `"60s"`: `"200ms"`} {
		if strings.Count(got, was) != 1 {
			t.Fatalf("%s is not once in the recipe", was)
		}
		got = strings.Replace(got, was, is, 1)
	}
	file := filepath.Join(t.TempDir(), "railscope.json")
	write(t, file, got)
	return file
}

// build builds railscope without cgo, which check does not need.
func build(t *testing.T, bin string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", bin, "./cmd/railscope")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// write replaces a file atomically: railscope may be reading it.
func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".new", []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}
