package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/result"
)

// TestBenchMisuse: errors that the user fixes on the command line exit with code 2.
func TestBenchMisuse(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"no peer", nil, `railscope: required argument 'peer' not provided .*`},
		{"an invalid peer", []string{"a b"}, `railscope: PEER must be host or host:port, .*, not "a b"`},
		{"no such token file", []string{"a", "--token-file=/no/such/file"},
			`railscope: --token-file "/no/such/file": no such file or directory; it must hold the secret that all ` +
				`peers share, or two of them, one per line`},
		{"an option of before", []string{"a", "--transfer=64MiB"},
			`railscope: --transfer no longer exists: a burst is measured over time, not over bytes; set burst, 5ms by default`},
		{"another one", []string{"a", "--chunk=1MiB"}, `railscope: --chunk no longer exists: .*`},
		{"a burst without a unit", []string{"a", "--burst=5"},
			`railscope: --burst must be a duration such as .*, from 1ms to 1s, not "5"`},
		{"too deep", []string{"a", "--depth=1000"}, `railscope: --depth must be .*`},
		{"no depth", []string{"a", "--depth=0"}, `railscope: --depth must be a whole number, from 2 to 128, not 0`},
		{"too many samples", []string{"a", "--latency-samples=1000000"}, `railscope: --latency-samples must be .*`},
		{"nothing is too little", []string{"a", "--min-of-expected=0"},
			`railscope: --min-of-expected must be a ratio such as 0\.2, more than 0 and at most 1, not 0`},
		{"more than all", []string{"a", "--min-of-expected=1.01"}, `railscope: --min-of-expected must be .*`},
		{"no time", []string{"a", "--timeout=1ms"}, `railscope: --timeout must be .*`},
		{"no such operation", []string{"a", "--op=send"},
			`railscope: invalid --op: enum value must be one of write,read, got 'send'; .*`},
		{"no number of queue pairs", []string{"a", "--queue-pairs=1,two"}, `railscope: --queue-pairs must be numbers from 1 ` +
			`to 16, separated by commas, such as 1,2,4,8, not "1,two"`},
		{"too many queue pairs", []string{"a", "--queue-pairs=17"}, `railscope: --queue-pairs must be .*`},
		{"too many paths", []string{"a", "--paths=65"}, `railscope: --paths must be from 1 to 64, not 65`},
		{"a sweep backwards", []string{"a", "--sweep=1MiB..64KiB"}, `railscope: --sweep must be sizes from 4 KiB to 1 GiB, ` +
			`such as 64KiB\.\.64MiB, not "1MiB\.\.64KiB"`},
		{"a sweep of one", []string{"a", "--sweep=1MiB"}, `railscope: --sweep must be .*`},
		{"an unknown model", []string{"a", "--kv-cache=Llama 9"}, `railscope: --kv-cache must be a size, such as 4GB, or a ` +
			`model, "Llama 3 8B", .*, not "Llama 9"`},
		{"no GPUs", []string{"a", "--kv-cache", "--tensor-parallel=0"}, `railscope: --tensor-parallel must be from 1 to 64, ` +
			`not 0`},
		{"GPUs that do not divide heads", []string{"a", "--kv-cache", "--tensor-parallel=3"},
			`railscope: --tensor-parallel=3 does not divide the 8 heads of Llama 3 8B: use a divisor or a multiple of these`},
		{"GPUs for a size", []string{"a", "--kv-cache=4GB", "--tensor-parallel=2"},
			`railscope: --tensor-parallel=2 has no effect on a size: name a model in --kv-cache`},
		{"too many caches", []string{"a", "--kv-cache=" + strings.Repeat("1GB,", 32) + "1GB"},
			`railscope: --kv-cache: 33 names and sizes: the limit is 32`},
		{"one rail", []string{"a", "--rails=0"}, `railscope: --rails=0 has no effect without --sweep: each rail alone is .*`},
		{"a rail twice", []string{"a", "--rails=0,1,0"}, `railscope: --rails must be names of rails, each once, .*`},
		{"a report of another kind", []string{"a", "--report=x.pdf"},
			`railscope: --report must end in \.html, not "x\.pdf": for a PDF, print the page from a browser`},
		{"nothing saved", []string{"a", "--compare=/no/such/file"},
			`railscope: --compare: open /no/such/file: no such file or directory`},
		{"not a saved one", []string{"a", "--compare=/etc/hostname"},
			`railscope: --compare /etc/hostname: not a saved benchmark: .*`},
		{"nowhere to save", []string{"a", "--save=/no/such/dir/file"},
			`railscope: --save: write /no/such/dir/file: directory /no/such/dir does not exist: create it`},
		{"no such format", []string{"a", "--format=xml"},
			`railscope: invalid --format: enum value must be one of table,json,csv, got 'xml'; .*`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, errs, code := bench1(t, tc.args...)
			if code != 2 || out != "" || !regexp.MustCompile(`^`+tc.want+`\n$`).MatchString(errs) {
				t.Errorf("exit %d, it said %q and %q, want 2 and %q", code, out, errs, tc.want)
			}
		})
	}
}

// bench1 runs bench and returns what it printed and its exit code.
func bench1(t *testing.T, args ...string) (out, errs string, code int) {
	t.Helper()
	cmd := command(t, nil, append([]string{"bench", "--path.sysfs=" + bareSysfs(t)}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	timer := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Run() // the exit code is checked
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// TestProbeWithoutRDMA: two nodes without RDMA probe each other over TCP, and
// bench does. Nothing of this pretends to be RDMA.
func TestProbeWithoutRDMA(t *testing.T) {
	dir := t.TempDir()
	token, wrong := filepath.Join(dir, "token"), filepath.Join(dir, "wrong")
	for path, text := range map[string]string{token: "sesame", wrong: "open"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	answering := serving(t, "probe: {listen: 127.0.0.1:0, name: b, token_file: "+token+"}\n")
	peer := answering.line(t, `"msg":"Answering.*"listen":"([^"]+)"`)
	answering.url = "http://" + answering.line(t, `"address":"([^"]+)"`)

	out, errs, code := bench1(t, peer, "--token-file="+token, "--format=json")
	var res map[string]any
	if err := json.Unmarshal([]byte(out), &res); err != nil || code != 1 || errs != "" {
		t.Fatalf("exit %d, %q, %q: %v", code, out, errs, err)
	}
	if res["transport"] != "tcp" || res["reason"] != "no_device" || res["verified"] != true ||
		res["stealing_bytes_per_second"] != nil {
		t.Errorf("bench: %s", out)
	}
	out, _, code = bench1(t, peer, "--token-file="+wrong)
	if code != 1 || !strings.Contains(out, "unauthorized") {
		t.Errorf("with the wrong token: exit %d, %s", code, out)
	}

	config := file(t, "probe: {name: a, token_file: "+token+", peers: ["+peer+
		"], interval: 1s, timeout: 1s}\n")
	asking := start(t, []string{"RAILSCOPE_PATH_SYSFS=" + bareSysfs(t)}, "--config.file="+config)
	asking.line(t, `"result":"(fallback)"`)
	series := `railscope_probe_rounds_total{peer="` + peer + `",result="fallback"} `
	if _, body := asking.get(t, "/metrics"); !strings.Contains(body, series) || !strings.Contains(body,
		`railscope_probe_transport{peer="`+peer+`",transport="tcp"} 1`) {
		t.Errorf("after a round there is no %s", series)
	}
	if err := os.WriteFile(config, []byte("probe: {name: a, token_file: "+token+", listen: 127.0.0.1:0}\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	if err := asking.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	asking.line(t, `"msg":"(Configuration reloaded)"`)
	if _, body := asking.get(t, "/metrics"); strings.Contains(body, peer) {
		t.Error("series of a peer that left the configuration are still there")
	}
	if err := os.WriteFile(config, []byte("probe: {token_file: "+token+", listen: "+peer+"}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := asking.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	asking.line(t, `"msg":"(Reload refused)[^"]*".*address already in use`)
	for _, r := range []*running{asking, answering} {
		if code := r.stop(t, syscall.SIGTERM); code != 0 {
			t.Errorf("exit %d after SIGTERM", code)
		}
	}
}

// TestPeersByDNS: a node that was named on the command line is found by a name of
// the system's resolver, and goes by what it calls itself.
func TestPeersByDNS(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("sesame"), 0o600); err != nil {
		t.Fatal(err)
	}
	answering := launch(t, []string{"RAILSCOPE_PATH_SYSFS=" + bareSysfs(t), "RAILSCOPE_NODE_NAME=gpu-b"},
		"--config.file="+file(t, "probe: {listen: 127.0.0.1:0, token_file: "+token+"}\n"))
	_, port, _ := strings.Cut(answering.line(t, `"msg":"Answering.*"listen":"([^"]+)"`), ":")
	answering.url = "http://" + answering.line(t, `"address":"([^"]+)"`)

	// Where localhost is ::1 too, that is a peer that does not answer.
	config := file(t, "probe: {token_file: "+token+", peers: [dns+localhost:"+port+
		"], interval: 1s, timeout: 1s}\n")
	asking := start(t, []string{"RAILSCOPE_PATH_SYSFS=" + bareSysfs(t), "RAILSCOPE_NODE_NAME=gpu-a"},
		"--config.file="+config)
	asking.line(t, `"msg":"(Looked up peers)","name":"localhost:`+port)
	asking.line(t, `"peer":"(gpu-b)","result":"fallback"`)
	_, body := asking.get(t, "/metrics")
	for _, series := range []string{`railscope_probe_rounds_total{peer="gpu-b",result="fallback"} `,
		`railscope_probe_dns_lookups_total{name="localhost:` + port + `",result="ok"} 1`} {
		if !strings.Contains(body, series) {
			t.Errorf("there is no %s", series)
		}
	}
	for _, r := range []*running{asking, answering} {
		if code := r.stop(t, syscall.SIGTERM); code != 0 {
			t.Errorf("exit %d after SIGTERM", code)
		}
	}
}

// serving starts railscope; the log is left to be read from its beginning.
func serving(t *testing.T, config string) *running {
	t.Helper()
	return launch(t, []string{"RAILSCOPE_PATH_SYSFS=" + bareSysfs(t)}, "--config.file="+file(t, config))
}

// TestBenchInterrupted: Ctrl-C ends bench at once, with exit code 1.
func TestBenchInterrupted(t *testing.T) {
	silent := silence(t)
	cmd := command(t, nil, "bench", "--path.sysfs="+bareSysfs(t), silent.Addr().String())
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	conn, err := silent.Accept() // bench has connected, and waits for an answer
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the exit code is checked
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(out.String(), "interrupted") {
		t.Errorf("exit %d, it said %q", code, &out)
	}
}

// TestBenchError: bench succeeds only after an OK round.
func TestBenchError(t *testing.T) {
	for _, o := range result.Outcomes() {
		if err := benchError([]result.Result{{Outcome: o}}); (err == nil) != (o == "ok") {
			t.Errorf("%s: %v", o, err)
		}
	}
}
