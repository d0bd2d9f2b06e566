package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/railscope/railscope/bench/record"
	"github.com/railscope/railscope/internal/machines"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/nvml/nvmltest"
)

// runs runs a command with railscope run, and returns its exit code and both outputs.
func runs(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	cmd := command(t, nil, append([]string{"run", "--path.sysfs=" + bareSysfs(t)}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	timer := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Run() // the exit code is checked
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// TestRunExitCodes: the command's exit code and output are kept, and its flags are not parsed as railscope's.
func TestRunExitCodes(t *testing.T) {
	for _, tc := range []struct {
		name      string
		args      []string
		code      int
		out, errs string
	}{
		{"good", []string{"--", "echo", "--sweep", "--config.file"}, 0, "--sweep --config.file\n", "exit code 0"},
		{"bad", []string{"--", "sh", "-c", "exit 3"}, 3, "", "exit code 3"},
		{"a signal", []string{"--", "sh", "-c", "kill -TERM $$"}, 143, "", "exit code 143"},
		{"no such command", []string{"--", "/no/such/command"}, 127, "", "no such file"},
		{"not executable", []string{"--", "/dev/null"}, 126, "", "permission denied"},
		{"nothing to run", nil, 2, "", "required argument 'command' not provided"},
		{"a figure without a group", []string{"--compare=tcp", "--figure=x", "--", "true"}, 2, "", "must have one group"},
		{"a figure of one run", []string{"--figure=(x)", "--", "true"}, 2, "", "--figure needs --compare=tcp"},
		{"too often", []string{"--compare=tcp", "--repeat=0", "--", "true"}, 2, "", "--repeat must be from 1 to 100"},
		{"often without comparing", []string{"--repeat=3", "--", "true"}, 2, "", "--repeat has no effect without --compare"},
		{"in turn", []string{"--compare=tcp", "--repeat=2", "--figure=([0-9.]+) samples/s", "--", "sh", "-c",
			"echo ${NCCL_IB_DISABLE:-0}.5 samples/s"}, 0, "0.5 samples/s\n1.5 samples/s\n0.5 samples/s\n1.5 samples/s\n",
			"      0.33\n"},
		{"a last line without an end", []string{"--compare=tcp", "--repeat=1", "--figure=([0-9.]+) samples/s", "--", "printf",
			"7.5 samples/s"}, 0, "7.5 samples/s7.5 samples/s", "7.5"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if code, out, errs := runs(t, tc.args...); code != tc.code || out != tc.out ||
				!strings.Contains(errs, tc.errs) {
				t.Errorf("exit code %d, it said %q and %q, want %d, %q and %q", code, out, errs, tc.code, tc.out, tc.errs)
			}
		})
	}
}

// TestRunJSON: the object is complete, and standard output contains only the object and the command's output.
func TestRunJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.json")
	if code, _, errs := runs(t, "--json="+file, "--", "true"); code != 0 {
		t.Fatal(code, errs)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r record.Record
	if err := json.Unmarshal(text, &r); err != nil || r.Version != record.Version || r.Command[0] != "true" {
		t.Errorf("%v: %s", err, text)
	}
	if code, out, _ := runs(t, "--json=-", "--", "true"); code != 0 || !json.Valid([]byte(out)) {
		t.Errorf("exit code %d, %q", code, out)
	}
}

// TestRunNCCL: what NCCL logs is read from standard output, or from the files that it writes, and only if it logs.
func TestRunNCCL(t *testing.T) {
	const line = "node-1:100:110 [0] NCCL INFO Using network "
	write := "echo '" + line + "IB'; for f in $NCCL_DEBUG_FILE; do echo '" + line + "Socket' >\"$f\"; done"
	file := filepath.Join(t.TempDir(), "nccl.log")
	for _, tc := range []struct{ env, want string }{
		{"", ""}, {"NCCL_DEBUG=INFO", "network IB"}, {"NCCL_DEBUG=INFO NCCL_DEBUG_FILE=" + file, "network Socket"},
		{"NCCL_DEBUG_FILE=" + file, ""},
	} {
		for _, name := range []string{"NCCL_DEBUG", "NCCL_DEBUG_FILE"} {
			t.Setenv(name, "")
			for v := range strings.FieldsSeq(tc.env) {
				if value, ok := strings.CutPrefix(v, name+"="); ok {
					t.Setenv(name, value)
				}
			}
		}
		record := filepath.Join(t.TempDir(), "run.json")
		code, out, errs := runs(t, "--json="+record, "--", "sh", "-c", write)
		text, err := os.ReadFile(record)
		if code != 0 || err != nil || out != line+"IB\n" {
			t.Fatalf("%s: exit code %d, %v, %q, %s", tc.env, code, err, out, errs)
		}
		if got := strings.Contains(string(text), `"text": "network `); got != (tc.want != "") ||
			!strings.Contains(string(text), tc.want) || strings.Contains(errs, "\nNCCL ") != got {
			t.Errorf("%s: %s\n%s", tc.env, text, errs)
		}
	}
}

// TestRunSignal: a signal that ends other railscope commands is forwarded to the running command.
func TestRunSignal(t *testing.T) {
	cmd := command(t, nil, "run", "--path.sysfs="+bareSysfs(t), "--", "sh", "-c",
		`trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 0.05; done`)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	buf, said := make([]byte, 64), ""
	for !strings.Contains(said, "ready") {
		n, err := stdout.Read(buf)
		said += string(buf[:n])
		if err != nil {
			t.Fatal(said, err)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := stdout.Read(buf)
		said += string(buf[:n])
		if err != nil {
			break
		}
	}
	_ = cmd.Wait() // the exit code is checked
	if code := cmd.ProcessState.ExitCode(); code != 7 || !strings.Contains(said, "caught") {
		t.Errorf("exit code %d, it said %q", code, said)
	}
}

// TestRunGPUMemory: the memory of GPUs of both vendors, without those that share the memory of the machine.
func TestRunGPUMemory(t *testing.T) {
	for name, tc := range map[string]struct {
		nvidia int
		want   map[string]int64
	}{
		"mixed-gpus":     {2, map[string]int64{"GPU 0": 0, "GPU 1": 0, "GPU 2": 297000960, "GPU 3": 297000960}},
		"slingshot":      {0, map[string]int64{}}, // MI300A
		"bnxt-one-cable": {0, map[string]int64{}}, // a GPU of NVIDIA without its driver
	} {
		all := machines.All()
		tree := machines.NewTree(t)
		all[slices.IndexFunc(all, func(m machines.Machine) bool { return m.Name == name })].Build(tree)
		lib := &nvmltest.GPUs{Number: tc.nvidia}
		if tc.nvidia == 0 {
			lib.OpenErr = &nvml.Error{Code: nvml.CodeLibrary}
		}
		got, err := gpuMemory(nvml.NewSession(lib), tree.Sys(), tree.Procfs())()
		if !maps.Equal(got, tc.want) || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
