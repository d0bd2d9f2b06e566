package facts_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/doctor/facts"
)

// ucxInfo installs a script under this name in PATH.
func ucxInfo(t *testing.T, script string) (path string) {
	t.Helper()
	dir := t.TempDir()
	path = filepath.Join(dir, "ucx_info")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	return path
}

// TestRunUCXInfo: the program gets no variables of this process, and its time and output are limited.
func TestRunUCXInfo(t *testing.T) {
	t.Setenv("UCX_NET_DEVICES", "mlx5_0:1")
	path := ucxInfo(t, `echo "# $* $UCX_NET_DEVICES $UCX_MODULES"; echo noise >&2`)
	at, output, err := facts.RunUCXInfo(t.Context())
	if at != path || output != "# -d  ^cuda,rocm,ze\n" || err != nil {
		t.Error(at, output, err)
	}
	ucxInfo(t, "exit 3")
	if _, _, err := facts.RunUCXInfo(t.Context()); err == nil || err.Error() != "exit status 3" {
		t.Error(err)
	}
	ucxInfo(t, "i=0; x="+strings.Repeat("0", 4096)+"\nwhile [ $i -lt "+strconv.Itoa(facts.MaxUCXOutput/4096+9)+" ]; do echo $x; i=$((i+1)); done")
	if _, output, err := facts.RunUCXInfo(t.Context()); err != nil || len(output) != facts.MaxUCXOutput {
		t.Error(len(output), err)
	}
	ucxInfo(t, "echo begun; while :; do :; done")
	begun := time.Now()
	_, _, err = facts.RunUCXInfo(t.Context())
	took := time.Since(begun)
	if err == nil || !strings.Contains(err.Error(), "no result within 2s") || took < facts.UCXTime {
		t.Error(err, took)
	}
	t.Setenv("PATH", t.TempDir())
	if path, _, err := facts.RunUCXInfo(t.Context()); path != "" && !strings.HasPrefix(path, "/") || err != nil {
		t.Error(path, err)
	}
}
