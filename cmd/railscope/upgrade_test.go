//go:build upgrade

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// protocol3 is the last commit on main whose railscope speaks protocol 3 on the control channel.
const protocol3 = "a9060509674893e5e73a90c43b4df2cc3cec5d3f"

// TestRollingUpgrade: while only one of two nodes has the new railscope, both skip their rounds with that reason.
// When both have it, they probe each other, with a token and without.
func TestRollingUpgrade(t *testing.T) {
	before := buildProtocol3(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("a token of more than 16 bytes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ why, proof string }{{"token", "token_file: " + token},
		{"insecure", "insecure: true"}} {
		t.Run(tc.why, func(t *testing.T) {
			addresses := []string{unused(t), unused(t)}
			var nodes [2]*running
			config := func(i int) string {
				return file(t,
					fmt.Sprintf("probe: {name: node-%d, listen: '%s', %s, peers: ['%s'], interval: 1s, timeout: "+
						"1s}\n",
						i, addresses[i], tc.proof, addresses[1-i]))
			}
			begin := func(i int, cmd *exec.Cmd) {
				nodes[i] = follow(t, cmd)
				nodes[i].url = "http://" + nodes[i].line(t, `"address":"([^"]+)"`)
			}
			env := []string{"RAILSCOPE_PATH_SYSFS=" + bareSysfs(t)}
			args := func(i int) []string {
				return []string{"--web.listen-address=127.0.0.1:0", "--log.format=json", "--config.file=" + config(i)}
			}
			old := exec.Command(before, args(0)...)
			old.Env = append(os.Environ(), env...)
			begin(0, old)
			begin(1, command(t, env, args(1)...))

			for i, n := range nodes {
				n.line(t, `"peer":"`+addresses[1-i]+`","result":"skipped".*"reason":"(peer_version)"`)
				_, before := rounds(t, n, addresses[1-i]) // rounds while the other node was not up yet
				for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(200 * time.Millisecond) {
					skipped, others := rounds(t, n, addresses[1-i])
					if others != before || time.Now().After(deadline) {
						t.Fatalf("node-%d: %v rounds skipped, %v not", i, skipped, others)
					}
					if skipped >= 3 {
						break
					}
				}
				if _, body := n.get(t, "/metrics"); !strings.Contains(body,
					`railscope_probe_skipped_total{peer="`+addresses[1-i]+`",reason="peer_version"}`) {
					t.Errorf("node-%d does not count peer_version", i)
				}
			}

			if code := nodes[0].stop(t, syscall.SIGTERM); code != 0 {
				t.Errorf("the old node: exit %d", code)
			}
			begin(0, command(t, env, args(0)...))
			for i, n := range nodes {
				n.line(t, `"peer":"`+addresses[1-i]+`","result":"(fallback)"`)
			}
			for i, n := range nodes {
				if _, body := n.get(t, "/metrics"); !strings.Contains(body,
					`railscope_probe_transport{peer="`+addresses[1-i]+`",transport="tcp"} 1`) {
					t.Errorf("node-%d does not probe the other by TCP", i)
				}
				if code := n.stop(t, syscall.SIGTERM); code != 0 {
					t.Errorf("node-%d: exit %d", i, code)
				}
			}
		})
	}
}

// rounds returns how many rounds with a peer were skipped, and how many were not.
func rounds(t *testing.T, r *running, peer string) (skipped, others float64) {
	t.Helper()
	_, body := r.get(t, "/metrics")
	for _, m := range regexp.MustCompile(`(?m)^railscope_probe_rounds_total\{peer="`+regexp.QuoteMeta(peer)+
		`",result="(\w+)"\} (\S+)$`).FindAllStringSubmatch(body, -1) {
		n, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		if m[1] == "skipped" {
			skipped += n
		} else {
			others += n
		}
	}
	return skipped, others
}

// buildProtocol3 builds the previous railscope from the repository's history. Without git or that commit the test
// is skipped, or fails if RAILSCOPE_REQUIRE_UPGRADE is set.
func buildProtocol3(t *testing.T) string {
	t.Helper()
	lacks := t.Skipf
	if os.Getenv("RAILSCOPE_REQUIRE_UPGRADE") != "" {
		lacks = t.Fatalf
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir := t.TempDir()
	archive := exec.CommandContext(ctx, "git", "archive", "--format=tar", protocol3)
	archive.Dir = filepath.Join("..", "..")
	var errs bytes.Buffer
	archive.Stderr = &errs
	source, err := archive.Output()
	if err != nil {
		lacks("needs git and commit %.7s in the repository's history: %v %s", protocol3, err, &errs)
	}
	unpack := exec.CommandContext(ctx, "tar", "-xf", "-", "-C", dir)
	unpack.Stdin = bytes.NewReader(source)
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("unpack commit %.7s: %v %s", protocol3, err, out)
	}
	binary := filepath.Join(dir, "railscope-protocol-3")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", binary, "./cmd/railscope")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=-mod=readonly")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build commit %.7s: %v %s", protocol3, err, out)
	}
	return binary
}
