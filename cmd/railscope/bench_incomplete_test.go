package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/probe/result"
)

// benched runs bench in this process.
func (n *withToken) benched(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	app := kingpin.New("railscope", "")
	s := (&benchSettings{common: &n.common}).define(app)
	if _, err := app.Parse(spelledOut(append([]string{"bench"}, args...))); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	err = s.run(t.Context(), newShutdownTracker(), &b)
	return b.String(), err
}

// TestBenchIncomplete: memory of GPUs that was asked for by name and is not there is counted, and the command does not
// end as if all was measured. With --all, a node without a GPU lacks nothing of it.
func TestBenchIncomplete(t *testing.T) {
	t.Setenv("RAILSCOPE_LIBCUDA", filepath.Join(t.TempDir(), "libcuda.so.1"))
	n := serveWithToken(t)
	usual := []string{n.pair.Address, "--token-file=" + n.token, "--burst=50ms", "--depth=128", "--min-of-expected=0.01"}
	out, err := n.benched(t, append(usual, "--memory=gpu")...)
	if !strings.Contains(strings.Join(strings.Fields(out), " "), "memory: not measured: rail 0: open: no_libcuda") ||
		!strings.Contains(out, "\nIncomplete: ") || err == nil {
		t.Errorf("%v\n%s", err, out)
	}
	// A busy machine may make the round degraded, which decides the exit code.
	if !errors.Is(err, errIncomplete) && !strings.Contains(out, "is degraded") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = n.benched(t, append(usual, "--all")...)
	_, last, incomplete := strings.Cut(out, "\nIncomplete: ") // a busy machine may disturb a burst
	if strings.Contains(last, "no_libcuda") || errors.Is(err, errIncomplete) && !incomplete {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestSaveNothing: a round that measured nothing leaves no file, and does not replace one.
func TestSaveNothing(t *testing.T) {
	dir := t.TempDir()
	old, absent := filepath.Join(dir, "old.json"), filepath.Join(dir, "absent.json")
	if err := os.WriteFile(old, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{old, absent} {
		out, errs, code := bench1(t, "127.0.0.1:1", "--save="+path)
		if code != 1 || !strings.Contains(errs, "--save: "+path+" is not written, because nothing was measured: ") ||
			!strings.Contains(out, "peer_unreachable") {
			t.Errorf("exit %d, %q, %q", code, out, errs)
		}
	}
	left, err := os.ReadDir(dir)
	text, _ := os.ReadFile(old)
	if err != nil || len(left) != 1 || string(text) != "before" {
		t.Errorf("%v in the folder, %q in the file: %v", left, text, err)
	}
}

// TestBenchErrorDisturbed: of a disturbed round nothing is known; one that found something decides.
func TestBenchErrorDisturbed(t *testing.T) {
	disturbed := result.Result{Outcome: result.Reached, StripedFailure: &result.Failure{Reason: "disturbed"}}
	ok, bad := result.Result{Outcome: result.OK}, result.Result{Outcome: result.Degraded}
	for _, tc := range []struct {
		list []result.Result
		want error
	}{{[]result.Result{ok}, nil}, {[]result.Result{ok, disturbed, ok}, errIncomplete}, {[]result.Result{disturbed, bad},
		errReported}, {[]result.Result{{Outcome: result.Skipped, Reason: "busy"}}, errReported}} {
		if err := benchError(tc.list); !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
			t.Errorf("%+v: %v, want %v", tc.list, err, tc.want)
		}
	}
}
