// Command mutants changes one comparison, constant or result at a time in the packages that judge, and runs their tests
// with it. A change that no test notices is printed: it is a missing test, or makes no difference.
//
// The files of the checkout stay as they are: each mutant is an overlay of go test.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// judges are the packages that are changed, and the tests of each.
var judges = []judge{
	{dir: "internal/finding", tests: []string{"./internal/finding", "./internal/serve",
		"./cmd/railscope -run Finding|Surfaces"}},
	{dir: "internal/rail", tests: []string{"./internal/rail", "./internal/machines -run Zoo", "./collector/rdma"}},
	{dir: "doctor/check", tests: []string{"./doctor/check", "./doctor/report", "./doctor/examine"}},
	{dir: "doctor/verdict", tests: []string{"./doctor/verdict"}},
	{dir: "exporter/probe", tests: []string{"./exporter/probe", "./exporter -run Probe|Golden"}},
	{dir: "probe/internal/history", tests: []string{"./probe -run " + testsOfHistory}},
	{dir: "probe/result", tests: []string{"./probe -run " + testsOfResult, "./bench", "./doctor/check",
		"./exporter/probe"}},
	{dir: "probe/internal/round", files: []string{"judge", "blame"},
		tests: []string{"./probe -run " + testsOfRound}},
}

// All tests of the probe take minutes. These are the ones that judge what a room of it judges.
const (
	testsOfHistory = "Agreement|Bottleneck|EvenAlone|OneIsLeft|TogetherSeen|SlowerThanTCP|Los[st]|Uneven|Past|" +
		"NoteExtras|MissingRemembered|Compare"
	testsOfResult = testsOfHistory +
		"|Degraded|Expect|Shortfalls|Slowed|Throttled|Others|Reordered|KeepBetter|Contended|" +
		"GPUOf|Shares$|RateAtEnd|RingSeconds|Flow|WireBytes|UnpairedFailed"
	testsOfRound = testsOfHistory +
		"|Judge|Scaling|Shared|EqualParts|Mismatches|Disturbed|FailIdle|RoundAgain|Others|Missing|" +
		"OrdinaryInterface|Unpaired|Blame|Explain|RoundImbalance|Share$"
)

// judge is a package, of which all files are changed or those named, and the arguments of go test for each of its runs.
type judge struct {
	dir   string
	files []string
	tests []string
}

// outcome says what became of a mutant.
type outcome string

const (
	caught   outcome = "caught"
	survived outcome = "survived"
	invalid  outcome = "does not compile"
	late     outcome = "caught (timeout)"
)

func main() {
	seed := flag.Uint64("seed", 1, "what draws the mutants")
	count := flag.Int("count", 400, "how many are drawn, at most")
	only := flag.String("only", "", "one directory of those that judge; empty: all")
	limit := flag.Duration("timeout", 10*time.Minute, "how long the tests of one mutant may take")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *seed, *count, *only, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, seed uint64, count int, only string, limit time.Duration) error {
	var all []mutant
	for _, j := range judges {
		if only != "" && only != j.dir {
			continue
		}
		found, err := j.mutants()
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return fmt.Errorf("no mutants in %q: it is none of the packages that judge", only)
	}
	random := rand.New(rand.NewPCG(seed, 0))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	drawn := all[:min(count, len(all))]
	fmt.Fprintf(w, "%d of %d mutants, seed %d\n", len(drawn), len(all), seed)
	if err := unchanged(ctx, drawn); err != nil {
		return err
	}
	results := map[outcome]int{}
	for n, m := range drawn {
		got, err := m.try(ctx, limit)
		if err != nil {
			return err
		}
		results[got]++
		fmt.Fprintf(w, "%d %s: %s\n", n+1, m, got)
	}
	fmt.Fprintf(w, "%d caught, %d caught by a timeout, %d survived, %d did not compile\n", results[caught],
		results[late], results[survived], results[invalid])
	return nil
}

// unchanged returns an error if tests fail without a change: they would catch every mutant.
func unchanged(ctx context.Context, drawn []mutant) error {
	run := map[string]bool{}
	for _, m := range drawn {
		for _, tests := range m.judge.tests {
			if run[tests] {
				continue
			}
			run[tests] = true
			if out, err := goTest(ctx, tests).CombinedOutput(); err != nil {
				return fmt.Errorf("go test %s fails without a change: %w\n%s", tests, err, out)
			}
		}
	}
	return nil
}

// goTest returns the command for these arguments of go test. A change that only vet notices is not caught.
func goTest(ctx context.Context, tests string, more ...string) *exec.Cmd {
	args := slices.Concat([]string{"test", "-vet=off", "-failfast"}, more, strings.Fields(tests))
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // with the tests that it runs
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// try runs the tests of the mutant's package with it.
func (m mutant) try(ctx context.Context, limit time.Duration) (outcome, error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	overlay, err := m.overlay(dir)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, tests := range m.judge.tests {
		out, err := goTest(ctx, tests, "-overlay", overlay).CombinedOutput()
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return late, nil
		case ctx.Err() != nil:
			return "", ctx.Err()
		case bytes.Contains(out, []byte("[build failed]")):
			return invalid, nil
		case err != nil:
			return caught, nil
		}
	}
	return survived, nil
}

// overlay writes the changed file and the overlay of go build, and returns the latter's name.
func (m mutant) overlay(dir string) (string, error) {
	file, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	raw, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		return "", err
	}
	return overlay, errors.Join(os.WriteFile(changed, m.source, 0o600), os.WriteFile(overlay, raw, 0o600))
}
