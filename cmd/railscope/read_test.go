package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/railscope/railscope/internal/sysfstest"
)

// TestRead: every file is read, errors go to standard error, and the exit code is 1 after an error.
func TestRead(t *testing.T) {
	const latency = "#bytes #iterations t_min[usec] t_max[usec] t_typical[usec]\n2 1000 1.61 4.02 1.64\n"
	dir := t.TempDir()
	good, bad, wrong := filepath.Join(dir, "good"), filepath.Join(dir, "bad"), filepath.Join(dir, "wrong")
	for path, text := range map[string]string{good: latency, bad: "hello\n",
		wrong: "# OSU MPI Bandwidth Test v7.5\n# Size Bandwidth (MB/s) Validation\n1 0.90 Fail\n"} {
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
		{"what a tool calls wrong", []string{wrong}, 1, "validation: Fail", ""},
		{"no file", nil, 2, "", "required argument 'file' not provided"},
		{"a line rate without a unit", []string{good, "--line-rate=200"}, 2, "", "--line-rate must be a rate such as 200Gb/s"},
	} {
		for _, format := range []string{"table", "json"} {
			cmd := command(t, nil, append([]string{"read", "--path.sysfs=" + bareSysfs(t), "--format=" + format}, tc.args...)...)
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

// TestReadCapacity: each row shows the capacity of its rail. On a DGX Spark, two functions share a port.
func TestReadCapacity(t *testing.T) {
	root := sysfstest.Unpack(t, "../../doctor/testdata/spark.txtar")
	cmd := command(t, nil, "read", "--path.sysfs="+root.Sys(), "-")
	cmd.Stdin = strings.NewReader("                    RDMA_Write BW Test\n Dual-port : OFF  Device : rocep1s0f0\n" +
		"#bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n 65536 5000 120.00 120.00 0.228\n" +
		strings.Repeat("-", 60) + "\n")
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), "above the line rate of rocep1s0f0, 100.00 Gb/s") {
		t.Errorf("%v: %s", err, out)
	}
}
