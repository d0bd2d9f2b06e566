package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRead: every file is read, errors go to standard error, and the exit code says whether there was one.
func TestRead(t *testing.T) {
	const latency = "#bytes #iterations t_min[usec] t_max[usec] t_typical[usec]\n2 1000 1.61 4.02 1.64\n"
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good"), filepath.Join(dir, "bad")
	for path, text := range map[string]string{good: latency, bad: "hello\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name      string
		args      []string
		code      int
		out, errs string
	}{
		{"a file", []string{good}, 0, "1.64", ""},
		{"standard input", []string{"-"}, 0, "-:2", ""},
		{"a file that is not there", []string{"/no/such/file", good}, 1, "1.64", "open /no/such/file: no such file"},
		{"a directory", []string{dir}, 1, "", "is a directory"},
		{"of nothing known", []string{bad, good}, 1, "1.64", "no output of a known tool; looked for perftest"},
		{"no file", nil, 2, "", "required argument 'file' not provided"},
		{"a line rate without a unit", []string{good, "--line-rate=200"}, 2, "", "--line-rate must be a rate such as 200Gb/s"},
	} {
		for _, format := range []string{"table", "json"} {
			cmd := command(t, nil, append([]string{"read", "--path.sysfs=" + dir, "--format=" + format}, tc.args...)...)
			var stdout, stderr bytes.Buffer
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(latency), &stdout, &stderr
			_ = cmd.Run() // the exit code is checked
			code := cmd.ProcessState.ExitCode()
			if code != tc.code || !strings.Contains(stderr.String(), tc.errs) || tc.errs == "" && stderr.Len() > 0 ||
				format == "table" && !strings.Contains(stdout.String(), tc.out) {
				t.Errorf("%s: exit code %d, it said %q and %q", tc.name, code, &stdout, &stderr)
			}
			var list []map[string]any
			if err := json.Unmarshal(stdout.Bytes(), &list); code != 2 && format == "json" && err != nil {
				t.Errorf("%s: %v: %s", tc.name, err, &stdout)
			}
		}
	}
}
