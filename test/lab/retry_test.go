//go:build !lab

package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRetry runs retry.sh over a run.sh that boots nothing: what it is asked to
// run is noted, and how each boot ends is written down.
func TestRetry(t *testing.T) {
	const a, b, c = "--- PASS: TestA (1.00s)\n    --- PASS: TestA/TestC (1.00s)\n", "--- PASS: TestB (0.10s)\n",
		"--- SKIP: TestC (0.00s)\n"
	const failB = "--- FAIL: TestB (0.10s)\nFAIL\n"
	for _, tt := range []struct {
		name  string
		tests string
		boots []string // what is in the log after each; the last one stays
		asked []string // which tests each is to run
		code  string
	}{
		{"all pass", "^Test", []string{a + b + c}, []string{"A|B|C"}, "0"},
		{"one fails, and passes", "^Test", []string{a + c + failB, b}, []string{"A|B|C", "B"}, "0"},
		{"a boot without a log", "^Test", []string{"", a + b + c}, []string{"A|B|C", "A|B|C"}, "0"},
		{"one always fails", "Test[AB]", []string{a + failB, failB}, []string{"A|B", "B", "B", "B", "B", "B", "B", "B"},
			"1"},
		{"all pass, and something else does not", "TestA", []string{a + "panic\nFAIL\n"}, []string{"A"}, "1"},
		{"no such test", "^TestD", nil, nil, "2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, text string) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range []string{"retry.sh", "lab.sh"} {
				script, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				write(name, string(script))
			}
			write("x_test.go",
				"//go:build lab\n\nfunc TestMain(m *testing.M) {\nfunc TestA(t *testing.T) {\nfunc TestB(t "+
					"*testing.T) {\nfunc TestC(t *testing.T) {\n")
			write("y_test.go", "//go:build !lab\n\nfunc TestElsewhere(t *testing.T) {\n")
			// It notes its arguments, and fails where the log of its boot says so or is empty.
			write("run.sh", `#!/bin/sh
echo "$*" >>"$LAB/asked"
mkdir -p "$LAB/out"
n=$(wc -l <"$LAB/asked")
while [ ! -e "$LAB/boot$n" ]; do n=$((n - 1)); done
cp "$LAB/boot$n" "$LAB/out/test.log"
[ -s "$LAB/out/test.log" ] && ! grep -q '^FAIL' "$LAB/out/test.log"
`)
			for i, log := range tt.boots {
				write("boot"+string(rune('1'+i)), log)
			}
			cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(dir, "retry.sh"), tt.tests, "-flag")
			cmd.Env = append(os.Environ(), "LAB="+dir)
			out, _ := cmd.CombinedOutput()
			if code := strings.TrimPrefix(cmd.ProcessState.String(), "exit status "); code != tt.code {
				t.Errorf("it ended with %s, want %s\n%s", code, tt.code, out)
			}
			want := ""
			for _, names := range tt.asked {
				want += "-flag -failfast -run ^(Test" + strings.ReplaceAll(names, "|", "|Test") + ")$\n"
			}
			if got, _ := os.ReadFile(filepath.Join(dir, "asked")); string(got) != want {
				t.Errorf("it ran\n%swant\n%s%s", got, want, out)
			}
		})
	}
}
