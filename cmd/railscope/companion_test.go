package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// built builds both programs into one folder, as packages install them.
func built(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", dir, "./cmd/"+name)
		build.Dir = filepath.Join("..", "..")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return filepath.Join(dir, "railscope")
}

// TestReportFiles: the program beside railscope writes the report, also if railscope is started through a link. A
// path that cannot be written is refused before the command runs.
func TestReportFiles(t *testing.T) {
	railscope := built(t, "railscope", "railscope-bench")
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(railscope, link); err != nil {
		t.Fatal(err)
	}
	sysfs := bareSysfs(t)
	run := func(program string, args ...string) (int, string) {
		cmd := exec.CommandContext(t.Context(), program, append([]string{"run", "--path.sysfs=" + sysfs}, args...)...)
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput()
		return cmd.ProcessState.ExitCode(), string(out)
	}
	code, said := run(link, "--report=out.html", "--", "true")
	page, err := os.ReadFile(filepath.Join(dir, "out.html"))
	if code != 0 || err != nil || !strings.Contains(string(page), "<h1>railscope run: true</h1>") {
		t.Errorf("exit code %d, %v, %s\n%s", code, err, said, page)
	}
	for name, args := range map[string][]string{
		"--plot must end in .png or .svg": {"--plot=out.gif", "--", "touch", "ran"},
		"--report: ":                      {"--report=none/out.html", "--", "touch", "ran"},
	} {
		if code, said := run(link, args...); code != exitMisuse || !strings.Contains(said, name) {
			t.Errorf("%q: exit code %d, %s", args, code, said)
		}
	}
	if err := os.Remove(filepath.Join(filepath.Dir(railscope), companionName)); err != nil {
		t.Fatal(err)
	}
	if code, said := run(railscope, "--report=out.html", "--", "touch", "ran"); code != exitFailure ||
		!strings.Contains(said, "install it beside railscope") {
		t.Errorf("without the other program: exit code %d, %s", code, said)
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("the command ran though its report could not be written")
	}
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}
