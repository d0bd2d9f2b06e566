package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/bench/steps"
	"github.com/railscope/railscope/bench/suite"
)

// suiteOf runs a suite in this process.
func (n *withToken) suiteOf(ctx context.Context, t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	app := kingpin.New("railscope", "")
	s := (&benchSettings{common: &n.common}).define(app)
	if _, err := app.Parse(spelledOut(append([]string{"bench", n.pair.Address, "--token-file=" + n.token,
		"--burst=50ms",
		"--depth=128", "--min-of-expected=0.01", "--latency-samples=150", "--sweep=64KiB..128KiB",
		"--kv-cache=1GB"}, args...))); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	err = s.run(ctx, newShutdownTracker(), &b)
	return b.String(), err
}

// savedSteps returns the steps of a file and the number of rounds of each.
func savedSteps(t *testing.T, path string) (done []steps.Done, counts string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	file, err := steps.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	done = file.Steps
	for _, d := range done {
		counts += strings.TrimSpace(" "+d.Name+" "+strings.Repeat("#", len(d.Rounds))) + ";"
	}
	return done, counts
}

// TestBenchSuite: a suite that is broken off is kept, is not overwritten by accident, and goes on where it ended. All
// of it is one table, and can be compared with a later one.
func TestBenchSuite(t *testing.T) {
	t.Parallel()
	n := serveWithToken(t)
	file := filepath.Join(t.TempDir(), "before.json")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // interrupts the second step
		for ctx.Err() == nil {
			if text, _ := os.ReadFile(file); bytes.Contains(text, []byte(`"name": "read"`)) {
				cancel()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	out, err := n.suiteOf(ctx, t, "--suite=host,tcp", "--save="+file)
	if err == nil || !strings.Contains(err.Error(), "interrupted; "+file+" has what was measured: go on with the same "+
		"command and --resume") || !strings.Contains(out, "all rails, WRITE") || errors.Is(err, errReported) ||
		errors.Is(err, errIncomplete) { // main would not print it
		t.Fatalf("%v\n%s", err, out)
	}
	first, counts := savedSteps(t, file)
	if !strings.HasPrefix(counts, "round ###;read #") || strings.HasSuffix(counts, ";tcp ###;") {
		t.Errorf("broken off after %s", counts)
	}
	if _, err := n.suiteOf(t.Context(), t, "--suite=host,tcp", "--save="+file); err == nil ||
		!strings.Contains(err.Error(), "lacks some of these steps: add them by --resume") {
		t.Errorf("without --resume: %v", err)
	}
	out, err = n.suiteOf(t.Context(), t, "--suite=host,tcp", "--save="+file, "--resume")
	done, counts := savedSteps(t, file)
	if counts != "round ###;read ###;sweep ###;kv-cache ###;tcp ###;" {
		t.Errorf("%v: %s\n%s", err, counts, out)
	}
	for i := range first[0].Rounds {
		if !first[0].Rounds[i].Start.Equal(done[0].Rounds[i].Start) {
			t.Error("a round was made again")
		}
	}
	for _, want := range []string{"rail 0, WRITE", "all rails, READ", "rail 1, WRITE and READ", "TCP, 8 streams",
		"rail 0, TCP, 1 stream", "64 KiB", "128 KiB", "1GB", "BOTH DIRECTIONS"} {
		if !strings.Contains(out, "\n"+want+" ") {
			t.Errorf("no row %q:\n%s", want, out)
		}
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	saved, err := suite.Read(f)
	i := slices.IndexFunc(saved.Rows, func(r suite.Row) bool { return r.Name == "all rails, READ" })
	if err != nil || i < 0 || len(saved.Rows[i].Runs) == 0 {
		t.Fatalf("%+v, %v", saved.Rows, err)
	}
	out, _ = n.suiteOf(t.Context(), t, "--suite=bond", "--save="+filepath.Join(filepath.Dir(file), "after.json"),
		"--compare="+file)
	if _, changes, _ := strings.Cut(out, "\nCHANGES "); !strings.Contains(changes, "\nall rails, WRITE ") ||
		!strings.Contains(changes, "not measured now") {
		t.Errorf("compared:\n%s", out)
	}
}

// TestSuiteMisuse: what a suite cannot do is refused before anything is measured.
func TestSuiteMisuse(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("old.json", []byte(`{"version":1,"peer":"other:10092","steps":[{"name":"round","rounds":[{}]}]}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ flags, want string }{
		{"--suite=host,cpu", `not "host,cpu"`}, {"--suite --all", "leave out all flags of extra measurements"},
		{"--suite --rails=0,1", "leave out all flags"}, {"--suite --memory=gpu", "leave out all flags"},
		{"--suite --kv-cache=much", "--kv-cache"}, {"--suite --sweep=1B..2B", "--sweep"},
		{"--suite --resume", "--resume: open railscope-suite-127.0.0.1-9.json"},
		{"--suite --resume --save=old.json", "old.json is of other:10092, not of 127.0.0.1:9"},
		{"--suite --save=none/x.json", "--save"}, {"--suite --compare=none.json", "--compare"},
		{"--suite=storage", "name directories and buckets by --storage"}, {"--storage=/x", "--storage has no effect"},
		{"--suite=tcp --storage=/x", "--storage has no effect without the part storage"},
		{"--resume", "--resume has no effect"}, {"--heads=8", "--heads has no effect without --layers"},
		{"--layers=32", "--head-dim must be from 1 to 1024, 4096 and 4096"},
		{"--layers=32 --heads=8 --tokens=many", "--tokens"}, {"--layers=32 --heads=6 --tensor-parallel=4", "does not " +
			"divide"},
		{"--layers=1024 --heads=4096 --head-dim=4096 --tokens=16777216", "the limits are"},
		{"--layers=1025 --heads=1", "from 1 to 1024"},
	} {
		_, errs, code := bench1(t, append([]string{"127.0.0.1:9"}, strings.Fields(tc.flags)...)...)
		if code != exitMisuse || !strings.Contains(errs, tc.want) {
			t.Errorf("%s: exit code %d, %s", tc.flags, code, errs)
		}
	}
	// A peer that does not answer leaves no file.
	_, errs, code := bench1(t, "127.0.0.1:9", "--suite")
	left, _ := filepath.Glob("railscope-suite-*")
	if code != exitFailure || len(left) > 0 {
		t.Errorf("without a peer: exit code %d, %q, %s", code, left, errs)
	}
}

// TestSuiteStorage: both programs as they are installed measure the demo, and checkpoints to a directory. The page has
// all of it; a target that fails is a row, is not measured again unless asked, and makes the exit code 1.
func TestSuiteStorage(t *testing.T) {
	t.Parallel()
	railscope := built(t, "railscope", "railscope-bench")
	first := fourPorts(t)
	host, text, _ := net.SplitHostPort(first)
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	r := follow(t, command(t, nil, "demo", "--web.listen-address="+first, "--log.format=json", "--rate=0.5"))
	files := r.line(t, `"files":"([^"]+)"`)
	r.line(t, `"msg":"(Probe finished)","node":"demo-1"`)
	dir, target := t.TempDir(), t.TempDir()
	suite1 := func(flags ...string) (code int, out string) {
		cmd := exec.CommandContext(t.Context(), railscope, append([]string{"bench", "--path.sysfs=" + files + "/1/sys",
			net.JoinHostPort(host, strconv.Itoa(port+3)), "--suite=storage", "--save=a.json"}, flags...)...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "RAILSCOPE_STORAGE_SIZE=8MiB")
		said, _ := cmd.CombinedOutput() // the exit code is checked
		return cmd.ProcessState.ExitCode(), string(said)
	}
	code, out := suite1("--storage=" + target + ",/no/such")
	page, err := os.ReadFile(filepath.Join(dir, "a.html"))
	if code != exitFailure || err != nil || !strings.Contains(string(page), "<h2>Checkpoints</h2>") ||
		!strings.Contains(string(page), "Simulated by railscope demo") || !strings.Contains(out, "  - /no/such: "+
		"failed: ") {
		t.Errorf("exit code %d, %v\n%s", code, err, out)
	}
	left, err := os.ReadDir(target)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	saved := func() steps.File {
		f, err := os.Open(filepath.Join(dir, "a.json"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		file, err := steps.Read(f)
		if err != nil || len(file.Storage) == 0 || file.Storage[0].Bytes != 8<<20 ||
			file.Storage[0].SaveBytesPerSecond <= 0 || file.Storage[0].LoadBytesPerSecond <= 0 {
			t.Fatalf("%+v, %v", file.Storage, err)
		}
		return file
	}
	before := saved()
	if code, out := suite1("--storage="+target, "--resume"); code == exitMisuse || strings.Contains(out, "/no/such") {
		t.Errorf("resumed: exit code %d\n%s", code, out)
	}
	after := saved()
	if after.Storage[0].SaveSeconds != before.Storage[0].SaveSeconds ||
		!after.Steps[0].Rounds[0].Start.Equal(before.Steps[0].Rounds[0].Start) {
		t.Error("what was measured is measured again")
	}
	if code := r.stop(t, syscall.SIGTERM); code != 0 {
		t.Errorf("the demo: exit code %d", code)
	}
}
