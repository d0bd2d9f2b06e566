package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestFanout: of twelve processes that share a file of peers, each asks exactly four others and is asked by exactly
// four, also after one was killed and another added.
func TestFanout(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute, and the same with and without C")
	}
	t.Parallel()
	const nodes, fanout = 12, 4
	dir := t.TempDir()
	token, peers := filepath.Join(dir, "token"), filepath.Join(dir, "peers.json")
	if err := os.WriteFile(token, []byte("a token of more than 16 bytes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	addresses := freePorts(t, nodes+1)
	list := func(addresses []string) {
		t.Helper()
		text, err := json.Marshal([]map[string][]string{{"targets": addresses}})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(peers+".new", text, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(peers+".new", peers); err != nil {
			t.Fatal(err)
		}
	}
	list(addresses[:nodes])
	env := []string{"RAILSCOPE_PATH_SYSFS=" + bareSysfs(t), "RAILSCOPE_SOURCE_SAMPLER=false"}
	running := map[string]*running{}
	begin := func(i int) {
		name := fmt.Sprint("node-", i)
		running[name] = launch(t, env, "--config.file="+file(t, fmt.Sprintf("probe: {name: %s, listen: '%s', token_file: %s, "+
			"peers: ['file:%s'], interval: 15s}\n", name, addresses[i], token, peers)))
	}
	for i := range nodes {
		begin(i)
	}
	for _, r := range running {
		r.url = "http://" + r.line(t, `"address":"([^"]+)"`)
	}
	round := regexp.MustCompile(`railscope_probe_rounds_total\{peer="([^"]+)",result="(\w+)"\} (\d+)`)
	// pairs returns who has measured whom, or how that differs from the expectation.
	pairs := func() (problem string) {
		asked := map[string]int{}
		for name, r := range running {
			_, body := r.get(t, "/metrics")
			measured, known := map[string]bool{}, map[string]bool{}
			for _, m := range round.FindAllStringSubmatch(body, -1) {
				known[m[1]] = true
				measured[m[1]] = measured[m[1]] || m[2] == "fallback" && m[3] != "0"
			}
			if len(known) != fanout {
				return fmt.Sprintf("%s asks %v", name, known)
			}
			for peer, done := range measured {
				asked[peer]++
				if !done || peer == name || running[peer] == nil {
					return fmt.Sprintf("%s asks %s: %v", name, peer, done)
				}
			}
		}
		for name := range running {
			if asked[name] != fanout {
				return fmt.Sprintf("%s is asked by %d", name, asked[name])
			}
		}
		return ""
	}
	wait := func(when string) {
		t.Helper()
		start := time.Now()
		for deadline := start.Add(5 * time.Minute); ; time.Sleep(time.Second) {
			problem := pairs()
			if problem == "" {
				t.Logf("%s: each asks and is asked by %d, after %v", when, fanout, time.Since(start).Round(time.Second))
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %s", when, problem)
			}
		}
	}
	wait("at first")
	_ = running["node-3"].Process.Kill()
	delete(running, "node-3")
	list(append(append([]string{}, addresses[:3]...), addresses[4:]...))
	begin(nodes)
	added := running[fmt.Sprint("node-", nodes)]
	added.url = "http://" + added.line(t, `"address":"([^"]+)"`)
	wait("with one less and another more")
	for name, r := range running {
		if code := r.stop(t, syscall.SIGTERM); code != 0 {
			t.Errorf("%s: exit %d after SIGTERM", name, code)
		}
		if log := strings.Join(r.passed, "\n"); strings.Contains(log, `"reason":"self"`) {
			t.Errorf("%s asked itself", name)
		}
	}
}

// freePorts returns addresses of the loopback interface that nobody listens on.
func freePorts(t *testing.T, n int) (addresses []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // closed after all addresses are chosen
		addresses = append(addresses, l.Addr().String())
	}
	return addresses
}
