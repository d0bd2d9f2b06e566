// Command mutants changes one comparison, constant or result at a time in the packages that judge, and runs their tests
// with it. A change that no test notices is printed: it is a missing test, or makes no difference.
//
// The files of the checkout stay as they are: each mutant is an overlay of go test.
package main

import (
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
	"strings"
	"time"
)

// judges are the packages that are changed, and the tests of each.
var judges = []judge{
	{dir: "internal/finding", tests: []string{"./internal/finding", "./cmd/railscope -run Finding|Surfaces"}},
	{dir: "internal/rail", tests: []string{"./internal/rail", "./internal/machines", "./collector/rdma"}},
	{dir: "doctor/check", tests: []string{"./doctor/..."}},
	{dir: "exporter/probe", tests: []string{"./exporter/probe", "./exporter -run Probe|Golden"}},
	{dir: "probe", files: []string{"judge", "repeat", "uneven", "loss", "past", "blame", "extra_judge", "thresholds"},
		tests: []string{"./probe"}},
}

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
	results := map[outcome]int{}
	for n, m := range drawn {
		got, err := m.try(ctx, limit)
		if err != nil {
			return err
		}
		results[got]++
		fmt.Fprintf(w, "%d %s: %s\n", n+1, m, got)
	}
	fmt.Fprintf(w, "%d caught, %d caught by a timeout, %d survived, %d did not compile\n", results[caught], results[late],
		results[survived], results[invalid])
	return nil
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
	if err := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "./"+m.judge.dir).Run(); err != nil {
		if ctx.Err() != nil {
			return "", fmt.Errorf("compile %s: %w", m, ctx.Err())
		}
		return invalid, nil
	}
	for _, tests := range m.judge.tests {
		args := append([]string{"test", "-failfast", "-overlay", overlay}, strings.Fields(tests)...)
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.WaitDelay = 10 * time.Second
		err := cmd.Run()
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return late, nil
		case ctx.Err() != nil:
			return "", ctx.Err()
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
