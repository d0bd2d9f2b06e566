package main

import (
	"bytes"
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Endpoints and exit codes as tables: docs/configuration.md is generated from them, and the tests here verify each
// line.

// endpoint is a request that railscope answers.
type endpoint struct {
	method, path string
	answers      string // answer, for people
	try          string // the path to try, where it is not path
	body         string
	status       int
}

// webEndpoints returns the endpoints of --web.listen-address.
func webEndpoints() []endpoint {
	return []endpoint{
		{method: "GET", path: "/metrics", status: 200,
			answers: "metrics, at the path of `--web.telemetry-path`: text, or protobuf with native histograms, as " +
				"requested by `Accept`; gzip if accepted. `?collect[]=rdma&collect[]=bond` reads and returns only these " +
				"sources, and railscope's own metrics. A source that takes longer than " +
				"`X-Prometheus-Scrape-Timeout-Seconds` is left out"},
		{method: "GET", path: "/", status: 200, answers: "[the live page](page.md)"},
		{method: "GET", path: "/-/page/events", status: 200,
			answers: "changes of the page as an endless stream of server-sent events; 503 while 50 are open. The " +
				"page also loads `/-/page.css`, `.js` and `.svg`"},
		{method: "GET", path: "/-/healthy", status: 200, answers: "200 while the process serves"},
		{method: "GET", path: "/-/ready", status: 200,
			answers: "200 from the first read of every source until railscope stops; else 503"},
		{method: "GET", path: "/-/status", status: 200,
			answers: "[the status](status.md) of the node as JSON: verdict, rails, last rounds, findings"},
		{method: "POST", path: "/-/reload", status: 200,
			answers: "reloads the configuration: 200, or 500 with the error. PUT does the same. 403 without " +
				"`--web.enable-lifecycle`, and for cross-site requests"},
	}
}

// controlEndpoints returns the endpoints of probe.listen. The status is that of a node with insecure: true.
func controlEndpoints() []endpoint {
	const over = "; 410 after the end of the lease"
	return []endpoint{
		{method: "POST", path: "/v2/hello",
			body: `{"version":4}`, status: 200,
			answers: "with a token: both ends prove that they have it, at the start of each connection. Also answered " +
				"in the clear, with the protocol version alone"},
		{method: "GET", path: "/v2/node", status: 200, answers: "identity of this node: name, versions, rails, addresses"},
		{method: "GET", path: "/v2/facts", status: 403,
			answers: "[facts](security.md#facts) that `railscope doctor --peer` compares; 403 with " +
				"`insecure: true`"},
		{method: "POST", path: "/v2/lease", body: "{}", status: 400,
			answers: "requests the one lease on scratch memory: a stream that lasts as long as the lease, or 409 if " +
				"it is denied"},
		{method: "POST", path: "/v2/lease/ID/open", try: "/v2/lease/x/open",
			body: `{"transport":"tcp","buffer":4096,"depth":1,"queue_pairs":1,"rails":[{"rail":"0"}]}`, status: 410,
			answers: "registers memory and brings up queue pairs, or a TCP port" + over},
		{method: "POST", path: "/v2/lease/ID/verify", try: "/v2/lease/x/verify", body: "{}", status: 410,
			answers: "verifies the bytes that were written" + over},
		{method: "POST", path: "/v2/lease/ID/renew", try: "/v2/lease/x/renew", body: "{}", status: 410,
			answers: "extends the lease by 10 s, up to 10 minutes in total" + over},
		{method: "DELETE", path: "/v2/lease/ID", try: "/v2/lease/x", body: "{}", status: 410,
			answers: "ends the lease; answered when all its resources are released" + over},
		{method: "GET", path: "/v1/…", try: "/v1/hello", status: 410,
			answers: "protocol of earlier versions: always 410 with reason `protocol`"},
	}
}

// ask sends the request with this Authorization header, and returns the status.
func (e endpoint) ask(t *testing.T, url, authorization string) int {
	t.Helper()
	path := e.path
	if e.try != "" {
		path = e.try
	}
	req, err := http.NewRequestWithContext(t.Context(), e.method, url+path, strings.NewReader(e.body))
	if err != nil {
		t.Fatal(err)
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

// TestEndpoints: each endpoint answers as documented and, with basic auth or a token, only to clients that have the
// credentials.
func TestEndpoints(t *testing.T) {
	dir := t.TempDir()
	token, web := filepath.Join(dir, "token"), filepath.Join(dir, "web.yml")
	for path, text := range map[string]string{token: "sesame",
		web: "basic_auth_users: {prometheus: $2a$04$.4HdmPP2dyGil4nZPhIYY.9U8JhQT/T5McXiqxs5Zx4jdC.X8oyPW}\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"RAILSCOPE_PATH_SYSFS=" + tree(t)}
	r := launch(t, env, "--web.enable-lifecycle", "--web.config.file="+web,
		"--config.file="+file(t, "probe: {listen: 127.0.0.1:0, token_file: "+token+"}\n"))
	control := "https://" + r.line(t, `"msg":"Answering.*"listen":"([^"]+)"`)
	r.url = "http://" + r.line(t, `"address":"([^"]+)"`)
	r.line(t, `"msg":"(Serving)"`)
	r.line(t, `"msg":"(Token is too short)[^"]*","file":"`+token+`","bytes":6,`)
	for _, e := range webEndpoints() {
		if got := e.ask(t, r.url, "Basic cHJvbWV0aGV1czpzZXNhbWU="); got != e.status {
			t.Errorf("%s %s: %d, want %d", e.method, e.path, got, e.status)
		}
		if got := e.ask(t, r.url, ""); got != http.StatusUnauthorized {
			t.Errorf("%s %s without proof: %d", e.method, e.path, got)
		}
	}
	open := launch(t, env, "--config.file="+file(t, "probe: {listen: 127.0.0.1:0, insecure: true}\n"))
	anyone := "https://" + open.line(t, `"msg":"Answering.*"listen":"([^"]+)"`)
	for _, e := range controlEndpoints() {
		if got := e.ask(t, anyone, ""); got != e.status {
			t.Errorf("%s %s: %d, want %d", e.method, e.path, got, e.status)
		}
		if got := e.ask(t, control, "Bearer sesame"); got != http.StatusUnauthorized && strings.HasPrefix(e.path,
			"/v2/") && e.path != "/v2/hello" {
			t.Errorf("%s %s without proof: %d", e.method, e.path, got)
		}
	}
}

// exit is a way in which a command can end.
type exit struct {
	command string
	code    int
	when    string
	try     func(t *testing.T) int // nil: needs hardware, see test/lab/
}

func exits() []exit {
	const misuse = "the command line or the configuration is invalid: standard error has one line with the error " +
		"and a valid value"
	end := func(stdout string, args ...string) func(*testing.T) int {
		return func(t *testing.T) int {
			cmd := command(t, nil, append(args, "--path.sysfs="+bareSysfs(t))...)
			out, err := os.OpenFile(stdout, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			cmd.Stdout = out
			timer := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
			defer timer.Stop()
			_ = cmd.Run() // the exit code is checked
			return cmd.ProcessState.ExitCode()
		}
	}
	const null, full = "/dev/null", "/dev/full"
	return []exit{
		{"serve", 0, "it was stopped by SIGTERM or SIGINT", func(t *testing.T) int {
			return start(t, nil, "--path.sysfs="+bareSysfs(t)).stop(t, syscall.SIGTERM)
		}},
		{"serve", 1, "it could not start or continue, for example because it cannot listen on the address",
			end(null, "serve", "--web.listen-address=nonsense")},
		{"serve", 2, misuse, end(null, "serve", "--nonsense")},
		{"serve", 0, "with `--config.check`: the configuration is valid", end(null, "serve", "--config.check")},
		{"serve", 2, "with `--config.check`: it is not", end(null, "serve", "--config.check", "--config.file=/no/such")},
		{"rails", 0, "the list was printed", func(t *testing.T) int {
			cmd := command(t, nil, "rails", "--path.sysfs="+tree(t))
			_ = cmd.Run() // the exit code is checked
			return cmd.ProcessState.ExitCode()
		}},
		{"rails", 1, "there are no rails, or the list could not be printed", end(null, "rails")},
		{"rails", 2, misuse, end(null, "rails", "--format=xml")},
		{"expect", 0, "the list was printed, or the rail of `--reset` forgotten", end(null, "expect")},
		{"expect", 1, "the list could not be printed, or nothing forgotten", end(full, "expect")},
		{"expect", 2, misuse, end(null, "expect", "--reset=0")},
		{"check", 0, "no finding is as bad as `--min-severity`, or maintenance is active", func(t *testing.T) int {
			cmd := command(t, nil, "check", "--path.sysfs="+tree(t))
			_ = cmd.Run() // the exit code is checked
			return cmd.ProcessState.ExitCode()
		}},
		{"check", 1, "a finding is", func(t *testing.T) int {
			cmd := command(t, nil, "check", "--path.sysfs="+down(t))
			_ = cmd.Run() // the exit code is checked
			return cmd.ProcessState.ExitCode()
		}},
		{"check", 2, "the state is unknown, for example because nobody answered in time, or the line could not be printed; " +
			"and " + misuse, end(full, "check")},
		{"bench", 0, "the result is `ok`: RDMA over all rails, none of them slow; all that was asked for was measured", nil},
		{"bench", 1, "the result is `degraded`, `fallback`, `failed` or `skipped`, or a row is worse than before; the output " +
			"has the reason", end(null, "bench", "127.0.0.1:1")},
		{"bench", 2, misuse, end(null, "bench")},
		{"bench", 3, "incomplete: nothing is known to be wrong, and something that was asked for was not measured, or a round " +
			"was disturbed; the last line counts what is missing, and each cell has the reason", nil},
		{"read", 0, "all files were read", func(t *testing.T) int {
			return end(null, "read", "../../bench/read/testdata/write_bw.txt")(t)
		}},
		{"read", 1, "a file could not be read, a tool reported a failure, a row cannot be attributed, or the table could not " +
			"be printed",
			end(null, "read", "/no/such/file")},
		{"read", 2, misuse, end(null, "read")},
		{"nixlbench", 0, "all combinations were measured", nil},
		{"nixlbench", 1, "a combination failed, or ran otherwise than asked for, or etcd does not answer; the table has " +
			"the reason",
			end(null, "nixlbench", "127.0.0.1", "--etcd=http://127.0.0.1:1", "--nixlbench=/bin/false")},
		{"nixlbench", 2, misuse, end(null, "nixlbench", "--nonsense")},
		{"run", 0, "the command's, whatever it is", end(null, "run", "--", "true")},
		{"run", 1, "the command's, or a report could not be written",
			end(null, "run", "--json=/dev/full", "--", "true")},
		{"run", 2, "the command's; or " + misuse, end(null, "run", "--repeat=0", "--", "true")},
		{"run", 126, "the command could not be executed", end(null, "run", "--", "/etc/hostname")},
		{"run", 127, "there is no such command", end(null, "run", "--", "/no/such/command")},
		{"run", 143, "128 + N: signal N ended the command, here SIGTERM",
			end(null, "run", "--", "/bin/sh", "-c", "kill -TERM $$")},
		{"storage", 0, "all targets were measured", nil},
		{"storage", 1, "a target failed, or railscope-bench is not installed beside railscope",
			end(null, "storage", "/no/such/directory")},
		{"storage", 2, misuse, end(null, "storage", "--size=0", "/tmp")},
		{"fleet blame", 0, "nothing is to blame", nil},
		{"fleet blame", 1, "something is to blame, or no question was answered, or railscope-bench is not installed beside " +
			"railscope", end(null, "fleet", "--prometheus=http://127.0.0.1:1")},
		{"fleet blame", 2, misuse, end(null, "fleet")},
		{"fleet drift", 0, "no node deviates", nil},
		{"fleet drift", 1, "a node deviates, or there are no facts, or Prometheus does not answer, or railscope-bench is " +
			"not installed beside railscope", end(null, "fleet", "drift", "--prometheus=http://127.0.0.1:1")},
		{"fleet drift", 2, misuse, end(null, "fleet", "drift")},
		{"fleet gate", 0, "the job may start on all nodes", nil},
		{"fleet gate", 1, "nodes should be left out, or the report could not be written", nil},
		{"fleet gate", 2, "nothing is known to be bad, and not all nodes could be judged; and " + misuse,
			end(null, "fleet", "gate", "--nodes=/no/such/file")},
		{"fleet why", 0, "no cause was found", nil},
		{"fleet why", 1, "a cause is named, or Prometheus has no series of the job or does not answer, or railscope-bench is " +
			"not installed beside railscope", end(null, "fleet", "why", "1", "--prometheus=http://127.0.0.1:1")},
		{"fleet why", 2, misuse, end(null, "fleet", "why", "1")},
		{"rules", 0, "the rules were printed", end(null, "rules")},
		{"rules", 1, "they could not be printed", end(full, "rules")},
		{"rules", 2, misuse, end(null, "rules", "--disable=RailscopeNothing")},
		{"doctor", 0, "no critical finding", func(t *testing.T) int {
			cmd := command(t, nil, "doctor", "--path.sysfs="+tree(t))
			out, _ := cmd.CombinedOutput() // the exit code is checked
			if !bytes.Contains(out, []byte("Nothing wrong")) {
				t.Errorf("it said %s", out)
			}
			return cmd.ProcessState.ExitCode()
		}},
		{"doctor", 1, "a critical finding, or the report could not be printed",
			func(t *testing.T) int {
				cmd := command(t, nil, "doctor", "--path.sysfs="+down(t))
				_ = cmd.Run() // the exit code is checked
				return cmd.ProcessState.ExitCode()
			}},
		{"doctor", 2, misuse, end(null, "doctor", "--peer=a b")},
		{"metrics", 0, "the metrics were printed or written; `source_success` has what could not be read",
			end(null, "metrics")},
		{"metrics", 1, "they could not be printed or written", end(null, "metrics", "--textfile=/dev/null/railscope.prom")},
		{"metrics", 2, misuse, end(null, "metrics", "--source.process.limit=1")},
		{"bundle", 0, "the archive was written; its manifest says what could not be read", func(t *testing.T) int {
			return end(null, "bundle", "--output="+filepath.Join(t.TempDir(), "a.tar.gz"))(t)
		}},
		{"bundle", 1, "it could not be written, for example because the file exists",
			end(null, "bundle", "--output=/no/such/dir/a.tgz")},
		{"bundle", 2, misuse, end(null, "bundle", "--nonsense")},
		{"demo", 0, "it was stopped by SIGTERM or SIGINT", func(t *testing.T) int {
			r := follow(t, command(t, nil, "demo", "--web.listen-address="+fourPorts(t), "--log.format=json"))
			r.line(t, `"msg":"(Serving)"`)
			return r.stop(t, syscall.SIGTERM)
		}},
		{"demo", 1, "it could not start or continue, for example because a port is in use", func(t *testing.T) int {
			held, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer held.Close()
			return end(null, "demo", "--web.listen-address="+held.Addr().String())(t)
		}},
		{"demo", 2, misuse, end(null, "demo", "--degrade=rail9=0.5")},
	}
}

// down returns a tree with a port that has lost its link.
func down(t *testing.T) string {
	t.Helper()
	sys := tree(t)
	state := filepath.Join(sys, "class/infiniband/mlx5_1/ports/1/state")
	if err := os.WriteFile(state, []byte("1: DOWN\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return sys
}

// TestExitCodes: commands exit as documented, and every command is documented.
func TestExitCodes(t *testing.T) {
	_, commands := application()
	for name := range commands {
		for code := range 3 { // bench has an additional code
			if !slices.ContainsFunc(exits(), func(e exit) bool { return e.command == name && e.code == code }) {
				t.Errorf("exit code %d of %s is not documented", code, name)
			}
		}
	}
	for _, e := range exits() {
		if e.try == nil {
			continue
		}
		t.Run(e.command, func(t *testing.T) {
			if got := e.try(t); got != e.code {
				t.Errorf("exit %d, want %d: %s", got, e.code, e.when)
			}
		})
	}
}
