package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/hungfs"
	"github.com/railscope/railscope/internal/sysfstest"
	"github.com/railscope/railscope/internal/testenv"
	"github.com/railscope/railscope/probe"
	"github.com/railscope/railscope/probe/probetest"
)

// TestMain runs railscope itself if the environment is set: the tests below run the program with flags, exit codes
// and signals.
func TestMain(m *testing.M) {
	hungfs.Main()
	if os.Getenv(probetest.WorkerVariable) != "" {
		os.Exit(probe.WorkerMain())
	}
	if os.Getenv("RAILSCOPE_TEST_MAIN") != "" {
		if limit, err := time.ParseDuration(os.Getenv("RAILSCOPE_TEST_STOP")); err == nil {
			os.Exit(process(os.Args[1:], limit))
		}
		main()
	}
	testenv.Setup()
	os.Exit(m.Run())
}

// command returns a command that runs railscope with args over a synthetic tree.
func command(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), "RAILSCOPE_TEST_MAIN=1"), env...)
	return cmd
}

// bareSysfs returns a sysfs without devices.
func bareSysfs(t *testing.T) string {
	t.Helper()
	return t.TempDir()
}

func tree(t *testing.T) string {
	t.Helper()
	sys := t.TempDir()
	if err := sysfstest.WriteMlx5(sys, 2); err != nil {
		t.Fatal(err)
	}
	return sys
}

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "railscope.yml")
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestMisuse: an invalid command line or configuration prints one line with the error and a valid value, and exits with
// code 2.
func TestMisuse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	config := file(t, "rails:\n  inclde: ^mlx5\n")
	for _, tc := range []struct {
		name string
		env  []string
		args []string
		code int
		want string // regular expression for all of standard error
	}{
		{"wrong flag", nil, []string{"--web.listen-addr=:1"}, 2,
			`railscope: unknown flag --web\.listen-addr; did you mean "--web\.listen-address"\? \(see railscope ` +
				`--help\)`},
		{"wrong flag of a command", nil, []string{"rails", "--fromat=json"}, 2,
			`railscope: unknown flag --fromat; did you mean "--format"\? .*`},
		{"wrong value", nil, []string{"rails", "--format=xml"}, 2,
			`railscope: invalid --format: enum value must be one of table,json, got 'xml'; the default is table ` +
				`\(see railscope rails --help\)`},
		{"wrong value of another command", []string{"RAILSCOPE_DOCTOR_FORMAT=yaml"}, []string{"doctor"}, 2,
			`railscope: invalid RAILSCOPE_DOCTOR_FORMAT: .*'yaml'; the default is text .*`},
		{"no number", nil, []string{"bench", "spark-02", "--depth=deep"}, 2,
			`railscope: --depth must be a whole number, from 2 to 128, not "deep"`},
		{"no connection", nil, []string{"--web.max-connections=0"}, 2,
			`railscope: --web\.max-connections must be 1 or more, not 0 \(see railscope --help\)`},
		{"an empty address", nil, []string{"--web.listen-address="}, 2,
			`railscope: --web\.listen-address must be host:port or :port, such as :10091, not "" \(see railscope ` +
				`--help\)`},
		{"no value at the end", nil, []string{"--config.file"}, 2,
			`railscope: --config\.file needs a value \(see railscope --help\)`},
		{"no value", nil, []string{"--config.file", "--log.level=error"}, 2,
			`railscope: --config\.file needs a value .*`},
		{"an unknown flag", nil, []string{"--nonsense"}, 2,
			`railscope: unknown flag --nonsense \(see railscope --help\)`},
		{"flag of another command", nil, []string{"rails", "--fail=rail0"}, 2,
			`railscope: unknown flag --fail; it is a flag of railscope demo \(see railscope rails --help\)`},
		{"no sysfs", nil, []string{"check", "--path.sysfs=/no/such"}, 2,
			`railscope: --path\.sysfs: stat /no/such: no such file or directory: mount .* \(see railscope check --help\)`},
		{"another directory", nil, []string{"check", "--path.sysfs=/etc"}, 2,
			`railscope: --path\.sysfs: /etc is not a sysfs, it has no class: mount .*`},
		{"no directory, by variable", []string{"RAILSCOPE_PATH_PROCFS=/etc/hostname"}, []string{"rails"}, 2,
			`railscope: --path\.procfs: /etc/hostname is not a directory: mount .*`},
		{"wrong command", nil, []string{"sevre"}, 2, `railscope: unknown command "sevre"; did you mean "serve"\? .*`},
		{"an unknown command", nil, []string{"zzz"}, 2,
			`railscope: unknown command "zzz"; the commands are help, serve, rails, expect, check, bench, read, nixlbench, run, storage, rules, doctor, fleet, metrics, ` +
				`bundle, demo .*`},
		{"an unknown part of a command", nil, []string{"fleet", "drfit"}, 2,
			`railscope: unknown command "drfit"; did you mean "drift"\? \(see railscope fleet --help\)`},
		{"flag of another part", nil, []string{"fleet", "--since=3h"}, 2,
			`railscope: unknown flag --since; it is a flag of railscope fleet drift \(see railscope fleet --help\)`},
		{"flag of the first part", nil, []string{"fleet", "drift", "--max-age=3h"}, 2,
			`railscope: unknown flag --max-age; it is a flag of railscope fleet blame \(see railscope fleet drift --help\)`},
		{"drift without Prometheus", nil, []string{"fleet", "drift"}, 2, `railscope: want --prometheus=URL`},
		{"drift since no time", nil, []string{"fleet", "drift", "--prometheus=http://127.0.0.1:1", "--since=noon"}, 2,
			`railscope: --since: want a time such as 2026-11-02T15:04:05Z or a duration such as 6h, not "noon"`},
		{"drift since the future", nil, []string{"fleet", "drift", "--prometheus=http://127.0.0.1:1",
			"--since=2999-01-01T00:00:00Z"}, 2, `railscope: --since: 2999-01-01T00:00:00Z is not in the past`},
		{"one argument too many", nil, []string{"rails", "mlx5_0"}, 2,
			`railscope: unexpected mlx5_0 \(see railscope rails --help\)`},
		{"wrong log level", nil, []string{"--log.level=loud"}, 2,
			`railscope: invalid --log\.level: unrecognized log level loud; the default is info .*`},
		{"wrong value in the environment", []string{"RAILSCOPE_SOURCE_RDMA=perhaps"}, nil, 2,
			`railscope: RAILSCOPE_SOURCE_RDMA must be true or false, not "perhaps"; the default is true \(see ` +
				`railscope --help\)`},
		{"telemetry path", nil, []string{"--web.telemetry-path=metrics"}, 2,
			`railscope: --web\.telemetry-path must begin with /.*"metrics" \(see .*`},
		{"a limit that leaves no room", nil, []string{"--source.process.limit=1"}, 2,
			`railscope: --source\.process\.limit must be from 2 to 10000, not 1 .*`},
		{"sampling too often", nil, []string{"--sample.interval=5ms"}, 2,
			`railscope: --sample\.interval must be from 10ms to 10s, such as 100ms, not 5ms .*`},
		{"sampling too rarely", []string{"RAILSCOPE_SAMPLE_INTERVAL=1m"}, nil, 2,
			`railscope: --sample\.interval must be from 10ms to 10s, such as 100ms, not 1m0s .*`},
		{"no interval at all", nil, []string{"--sample.interval=often"}, 2,
			`railscope: invalid --sample\.interval: time: invalid duration "often"; the default is 100ms .*`},
		{"unknown key", nil, []string{"--config.file=" + config}, 2,
			`railscope: ` + config + `:2: unknown key "inclde" in rails; did you mean "include"\?`},
		{"unknown key, for rails", nil, []string{"rails", "--config.file=" + config}, 2,
			`railscope: ` + config + `:2: unknown key "inclde" in rails; did you mean "include"\?`},
		{"no such configuration", nil, []string{"--config.file=/no/such/file"}, 2,
			`railscope: read configuration: open /no/such/file: no such file or directory; --config.file needs a ` +
				`readable file, and without it the defaults apply`},
		{"configuration is a directory", nil, []string{"--config.file=/proc"}, 2,
			`railscope: read configuration: read /proc: is a directory; --config.file needs a file, such as ` +
				`railscope.yml in it`},
		{"configuration from the environment", []string{"RAILSCOPE_CONFIG_FILE=/no/such/file"}, nil, 2,
			`railscope: .*/no/such/file.*`},
		{"no such web configuration", nil, []string{"--web.config.file=/no/such/file"}, 2,
			`railscope: --web\.config\.file /no/such/file: .*no such file or directory`},
		{"logs of NCCL by a relative name", nil, []string{"--source.nccl", "--nccl.log=logs/*.log"}, 2,
			`railscope: --nccl\.log: "logs/\*\.log" must be an absolute path, such as /var/log/nccl/\*\.log`},
		{"a demo with a configuration", nil, []string{"demo", "--config.file=" + config}, 2,
			`railscope: --config\.file: the demo has no configuration; railscope serve has`},
		{"no such rail", nil, []string{"demo", "--degrade=rail7=0.3"}, 2,
			`railscope: --degrade: unknown rail "rail7": the demo has rail0 to rail1`},
		{"one rail, two parts", nil, []string{"demo", "--degrade=rail1=0.3", "--degrade=1=0.5"}, 2,
			`railscope: --degrade: rail1 is given twice`},
		{"no part of a rate", nil, []string{"demo", "--degrade=rail1=3"}, 2,
			`railscope: --degrade: "3" must be the part of rail1's rate that is left, from 0\.01 to less than 1, ` +
				`such as 0\.3`},
		{"an invalid rate", nil, []string{"demo", "--rate=NaN"}, 2,
			`railscope: --rate must be from 0\.1 to 100 \(Gb/s\), such as 2\.5, not NaN`},
		{"all rails to fail", nil, []string{"demo", "--fail=0", "--fail=rail1"}, 2,
			`railscope: --fail: all 2 rails fail: .*`},
		{"to fail in the past", nil, []string{"demo", "--fail=0", "--fail-after=-1s"}, 2,
			`railscope: --fail-after must not be negative, such as 1m, not -1s`},
		{"to fail, but what", nil, []string{"demo", "--fail-after=1m"}, 2,
			`railscope: --fail-after needs --fail, which names the rail, such as --fail=rail0`},
		{"no address", nil, []string{"demo", "--web.listen-address=10091"}, 2,
			`railscope: --web\.listen-address must be host:port or :port, such as :10091, with three more ports ` +
				`above it, not "10091"`},
		{"port in use", nil, []string{"--log.level=error", "--web.listen-address=" + taken.Addr().String()}, 1,
			`railscope: listen tcp ` + taken.Addr().
				String() + `: bind: address already in use: another program uses the port; stop it, or choose ` +
				`another with --web\.listen-address`},
		{"no such address", nil, []string{"--log.level=error", "--web.listen-address=nonsense"}, 1,
			`railscope: cannot listen: .*nonsense.*`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd := command(t, tc.env, tc.args...)
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
			err := cmd.Run()
			timer.Stop()
			if cmd.ProcessState.ExitCode() != tc.code {
				t.Errorf("exit %v, want %d", err, tc.code)
			}
			if !regexp.MustCompile(`^`+tc.want+`\n$`).MatchString(errs.String()) || out.Len() > 0 {
				t.Errorf("it said %q (and %q), want one line like %q", &errs, &out, tc.want)
			}
		})
	}
}

// running is a serving railscope.
type running struct {
	*exec.Cmd
	url    string
	log    *bufio.Scanner
	passed []string // log lines that no test has asked for yet
}

// start starts railscope on a free port and waits until it serves.
func start(t *testing.T, env []string, args ...string) *running {
	t.Helper()
	r := launch(t, env, args...)
	address := r.line(t, `"address":"([^"]+)"`)
	r.line(t, `"msg":"(Serving)"`)
	r.url = "http://" + address
	return r
}

// launch starts railscope on a free port.
func launch(t *testing.T, env []string, args ...string) *running {
	t.Helper()
	return follow(t, command(t, env, append([]string{"--web.listen-address=127.0.0.1:0", "--log.format=json"},
		args...)...))
}

// follow starts a command and reads its log.
func follow(t *testing.T, cmd *exec.Cmd) *running {
	t.Helper()
	r := &running{Cmd: cmd}
	pipe, err := r.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.Process.Kill()
		_ = r.Wait() // an error if the test has already waited
	})
	time.AfterFunc(3*time.Minute, func() { _ = r.Process.Kill() }) // limits every wait below
	r.log = bufio.NewScanner(pipe)
	return r
}

// unused returns a free address.
func unused(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// silence accepts connections and sends nothing.
func silence(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// line waits for a line of the log that matches and returns its first group. Earlier lines count too, because parallel
// work is logged in any order. Each line is found once.
func (r *running) line(t *testing.T, pattern string) string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	for i, text := range r.passed {
		if m := re.FindStringSubmatch(text); m != nil {
			r.passed = slices.Delete(r.passed, i, i+1)
			return m[1]
		}
	}
	for r.log.Scan() {
		if m := re.FindStringSubmatch(r.log.Text()); m != nil {
			return m[1]
		}
		r.passed = append(r.passed, r.log.Text())
	}
	t.Fatalf("the log ended before %s", pattern)
	return ""
}

// stop sends a signal and returns the exit code.
func (r *running) stop(t *testing.T, sig os.Signal) int {
	t.Helper()
	if err := r.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	for r.log.Scan() { // read to the end, because Wait closes the pipe
		t.Log(r.log.Text())
		r.passed = append(r.passed, r.log.Text())
	}
	_ = r.Wait() // the exit code is checked
	return r.ProcessState.ExitCode()
}

func (r *running) get(t *testing.T, path string) (int, string) {
	t.Helper()
	return httpGet(t, r.url+path)
}

// httpGet returns the status and the body of a response.
func httpGet(t *testing.T, url string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestServe: start, scrape, reload by signal and by request, an invalid reload, stop.
func TestServe(t *testing.T) {
	sys := tree(t)
	config := file(t, "rails:\n  names: {east: mlx5_0/1}\n")
	r := start(t, []string{"RAILSCOPE_PATH_SYSFS=" + sys, "RAILSCOPE_SOURCE_NETDEV=false"}, "--config.file="+config,
		"--no-source.gpu", "--web.enable-lifecycle")
	for _, path := range []string{"/-/healthy", "/-/ready", "/"} {
		if code, body := r.get(t, path); code != 200 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	has := func(when string, series ...string) {
		t.Helper()
		_, body := r.get(t, "/metrics")
		for _, s := range series {
			if !strings.Contains(body, "\n"+s) {
				t.Errorf("%s: no %s", when, s)
			}
		}
		for _, off := range []string{`source="netdev"`, `source="gpu"`} {
			if strings.Contains(body, off) {
				t.Errorf("%s: %s is switched off and yet there", when, off)
			}
		}
	}
	has("at start", `railscope_port_receive_bytes_total{device="mlx5_0",port="1",rail="east"} 4032`,
		`railscope_port_up{device="mlx5_1",port="1",rail="`)

	rewrite := func(content string) {
		if err := os.WriteFile(config, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	rewrite("rails:\n  include: ^mlx5_0$\n  names: {west: mlx5_0/1}\n")
	if err := r.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	r.line(t, `"msg":"(Configuration reloaded)"`)
	has("after SIGHUP", `railscope_port_up{device="mlx5_0",port="1",rail="west"} 1`,
		"railscope_config_last_reload_successful 1", `railscope_rail_excluded_info{device="mlx5_1"} 1`)

	rewrite("rails:\n  names: {east: mlx5_0/x}\n")
	resp, err := http.Post(r.url+"/-/reload", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if want := fmt.Sprintf("%s:2: ", config); resp.StatusCode != 500 || !strings.Contains(string(body), want) {
		t.Errorf("a bad reload: %d %q, want 500 and %q", resp.StatusCode, body, want)
	}
	has("after a bad reload", `railscope_port_up{device="mlx5_0",port="1",rail="west"} 1`,
		"railscope_config_last_reload_successful 0")

	if code := r.stop(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit %d after SIGTERM", code)
	}
}

// TestNCCL: NCCL logs are followed while railscope serves.
func TestNCCL(t *testing.T) {
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "job.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r := start(t, nil, "--path.sysfs="+tree(t), "--no-source.gpu", "--source.nccl", "--nccl.log="+dir+"/*.txt",
		"--nccl.log="+dir+"/*.log")
	for i, step := range []struct{ says, shows string }{
		{"h:1:1 [0] NCCL INFO Using network Socket\n", `railscope_nccl_fallback{job="job"} 1`},
		{"h:1:1 [0] x.cc:1 NCCL WARN Timeout\n", `railscope_nccl_warnings_total{kind="timeout"} 1`},
	} {
		if _, err := log.WriteString(step.says); err != nil {
			t.Fatal(err)
		}
		for {
			_, body := r.get(t, "/metrics")
			if strings.Contains(body, "\n"+step.shows+"\n") {
				break
			}
			time.Sleep(100 * time.Millisecond) // limited by start, which ends the program after three minutes
		}
		t.Log("step", i, "is there")
	}
	if code := r.stop(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit %d after SIGTERM", code)
	}
}

// TestSampling: samples appear at the requested interval, and not with the sampler disabled.
func TestSampling(t *testing.T) {
	env := []string{"RAILSCOPE_PATH_SYSFS=" + tree(t)}
	on := start(t, env, "--sample.interval=20ms")
	off := start(t, env, "--no-source.sampler")
	const interval = "railscope_sampler_interval_seconds"
	want := []string{interval + `{device="mlx5_0"} 0.02`,
		`railscope_rail_utilization_ratio_bucket{direction="receive",rail="1",le="0.01"} `,
		`railscope_rails_active{direction="transmit"} 0`, `railscope_source_success{source="sampler"} 1`}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		_, body := on.get(t, "/metrics")
		missing := slices.DeleteFunc(slices.Clone(want), func(s string) bool { return strings.Contains(body, "\n"+s) })
		if len(missing) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not there: %q", missing)
		}
	}
	if _, body := off.get(t, "/metrics"); strings.Contains(body, interval) || strings.Contains(body,
		`source="sampler"`) {
		t.Error("the sampler is switched off and yet there")
	}
	for _, r := range []*running{on, off} {
		if code := r.stop(t, syscall.SIGTERM); code != 0 {
			t.Errorf("exit %d after SIGTERM", code)
		}
	}
}

// TestRails: the list is printed as a table and as JSON.
func TestRails(t *testing.T) {
	sys := tree(t)
	for format, want := range map[string]string{"table": "mlx5_1", "json": `"device": "mlx5_1"`} {
		out, err := command(t, nil, "rails", "--path.sysfs="+sys, "--format="+format).Output()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v %s", format, err, out)
		}
	}
}

// TestFormatVariables: the format of a command in the environment does not affect other commands.
func TestFormatVariables(t *testing.T) {
	env := []string{"RAILSCOPE_RAILS_FORMAT=json", "RAILSCOPE_DOCTOR_FORMAT=text", "RAILSCOPE_BENCH_FORMAT=table"}
	sys := tree(t)
	for name, want := range map[string]string{"rails": `^\[|^\{`, "doctor": `: 2 rails: `} {
		out, _ := command(t, env, name, "--path.sysfs="+sys).Output() // the findings do not matter
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("%s: %s", name, out)
		}
	}
}
