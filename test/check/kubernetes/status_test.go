package kubernetes

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// TestStatusSchema: the response of /-/status matches docs/status.schema.json, with every key that the schema
// lists, for a node with rails, GPUs and rounds, and for one with only a finding.
func TestStatusSchema(t *testing.T) {
	file := filepath.Join(root, "docs/status.schema.json")
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	schema, err := compiler.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	bin, dir := binary(t), bareSysfs(t)
	first := freePorts(t)
	demo := "http://" + startCommand(t, first, bin, "demo", "--web.listen-address="+first)
	alone := startCommand(t, "", bin, "serve", "--web.listen-address=127.0.0.1:0", "--path.sysfs="+dir,
		"--path.procfs="+dir)
	for name, tt := range map[string]struct {
		url   string
		until func(status map[string]any) bool
	}{
		"demo": {demo, func(s map[string]any) bool {
			peers := s["peers"].([]any)
			return len(peers) == 1 && peers[0].(map[string]any)["last_round"] != nil && len(s["rails"].([]any)) > 0
		}},
		"no rails": {"http://" + alone, func(s map[string]any) bool { return len(s["findings"].([]any)) > 0 }},
	} {
		var status map[string]any
		deadline := time.Now().Add(2 * time.Minute)
		for status == nil || !tt.until(status) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %v", name, status)
			}
			time.Sleep(200 * time.Millisecond)
			status = get(t, tt.url+"/-/status")
		}
		if err := schema.Validate(status); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		listed(t, file, status)
	}
}

// listed reports keys of the response that the schema lacks.
func listed(t *testing.T, file string, status map[string]any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, value := range v {
				if !strings.Contains(string(data), fmt.Sprintf("%q: {", key)) {
					t.Errorf("the schema has no %s", key)
				}
				walk(value)
			}
		case []any:
			for _, value := range v {
				walk(value)
			}
		}
	}
	walk(status)
}

// startCommand starts a command until the test ends, and returns the address that it logs; empty address: any.
func startCommand(t *testing.T, address, bin string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bin, append(args, "--log.format=json")...)
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		_, rest, found := strings.Cut(lines.Text(), `"address":"`)
		if at, _, _ := strings.Cut(rest, `"`); found && (address == "" || at == address) {
			go io.Copy(io.Discard, log) //nolint:errcheck // until it ends
			return at
		}
	}
	t.Fatal("it does not listen")
	return ""
}

func get(t *testing.T, url string) (body map[string]any) {
	t.Helper()
	answer, err := http.Get(url) //nolint:noctx // on this machine
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		t.Fatal(err)
	}
	return body
}

// freePorts returns the first of four consecutive free ports.
func freePorts(t *testing.T) string {
	t.Helper()
	for port := 20000; port < 60000; port += 37 {
		var held []net.Listener
		for i := range 4 {
			l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port+i))
			if err != nil {
				break
			}
			held = append(held, l)
		}
		for _, l := range held {
			_ = l.Close()
		}
		if len(held) == 4 {
			return fmt.Sprint("127.0.0.1:", port)
		}
	}
	t.Fatal("no free ports")
	return ""
}
