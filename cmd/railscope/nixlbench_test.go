package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestNixlbench: a substitute for nixlbench gets sizes in bytes and this node's address. Invalid requests are
// refused.
func TestNixlbench(t *testing.T) {
	program := filepath.Join(t.TempDir(), "nixlbench")
	const script = "#!/bin/sh\necho \"$@\"\n" +
		"echo 'Block Size (B)      Batch Size     B/W (GB/Sec)   Avg Lat. (us)'\necho '65536 1 9.10 7.2'\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	with := "--nixlbench=" + program
	for _, tc := range []struct {
		name      string
		args      []string
		code      int
		out, errs string // patterns
	}{
		{"one run", []string{"127.0.0.1", with, "--from=64KiB", "--to=4GiB"}, 0, `(?s)UCX +DRAM +all +1 +64 KiB +72\.80`,
			`(?s)start the target on 127\.0\.0\.1 now.*--asio_address=127\.0\.0\.1 .*--max_block_size=4294967296`},
		{"all of both", []string{"127.0.0.1", with, "--backends=UCX,LIBFABRIC", "--memory=DRAM,VRAM", "--threads=1,8",
			"--format=json"}, 0, `(?s)"LIBFABRIC".*"threads": 8`, `--enable_pt --progress_threads=8`},
		{"no program", []string{"127.0.0.1", "--nixlbench=/no/such"}, 2, `^$`, `install nixlbench`},
		{"an unknown backend", []string{"a", with, "--backends=GDS"}, 2, `^$`, `--backends must be of UCX, LIBFABRIC`},
		{"an unknown rail", []string{"a", with, "--rails=7"}, 2, `^$`, `this node has no rail "7"`},
		{"no size", []string{"127.0.0.1", with, "--to=much"}, 2, `^$`, `--from and --to must be sizes`},
		{"no etcd", []string{"127.0.0.1", with, "--etcd=http://127.0.0.1:1"}, 1, `^$`, `etcd does not answer`},
	} {
		cmd := command(t, nil, append([]string{"nixlbench", "--path.sysfs=" + bareSysfs(t)}, tc.args...)...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		_ = cmd.Run() // the exit code is checked
		if code := cmd.ProcessState.ExitCode(); code != tc.code || !regexp.MustCompile(tc.out).
			MatchString(stdout.String()) ||
			!regexp.MustCompile(tc.errs).MatchString(stderr.String()) {
			t.Errorf("%s: exit code %d, it said %q and %q", tc.name, code, &stdout, &stderr)
		}
	}
}
