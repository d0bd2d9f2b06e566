// Command score runs the tests that plant faults, and writes docs/score.md: what was planted, and what railscope named.
// With -lab it takes the results of a lab's log over into lab.tsv first, which the page has beside the others.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	lab := flag.String("lab", "", "`file` with the output of test/lab/run.sh -v, for test/score/lab.tsv")
	kernel := flag.String("kernel", "", "`version` of the kernel on which the lab ran")
	flag.Parse()
	if err := run(*lab, *kernel); err != nil {
		fmt.Fprintln(os.Stderr, "score:", err)
		os.Exit(1)
	}
}

// Files, from the root of the repository.
const (
	page    = "docs/score.md"
	labFile = "test/score/lab.tsv"
)

func run(lab, kernel string) error {
	if lab != "" {
		return takeOver(lab, kernel)
	}
	var sections []section
	var failed error
	for _, s := range sources() {
		fmt.Fprintf(os.Stderr, "%s: %s\n", s.dir, s.run)
		one, err := s.score()
		failed = errors.Join(failed, err)
		sections = append(sections, one)
	}
	if failed != nil {
		return failed
	}
	text, err := os.ReadFile(labFile)
	if err != nil {
		return err
	}
	rows, err := parseLab(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", labFile, err)
	}
	return os.WriteFile(page, []byte(render(sections, rows)), 0o644)
}

// section is what one source came to.
type section struct {
	source
	rows []row
}

// row is what faults of one kind came to.
type row struct {
	what             string
	as               string // finding that names it; of the matrix
	place            int    // order in the matrix
	named, planted   int
	accused, healthy int    // parts without a fault
	took             string // time that it took, if it is a virtual one
}

// score runs the tests of a source. A test that fails is an error: the page has only figures of tests that pass.
func (s source) score() (section, error) {
	args := []string{"test", "-count=1", "-timeout=30m", "-json", "-run", s.run}
	cmd := exec.Command("go", append(args, s.pkg)...)
	cmd.Dir, cmd.Stderr = filepath.FromSlash(s.dir), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return section{}, err
	}
	if err := cmd.Start(); err != nil {
		return section{}, err
	}
	rows, err := s.read(out)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return section{}, fmt.Errorf("%s, %s: %w", s.pkg, s.run, err)
	}
	return section{s, rows}, nil
}

// event is a line of go test -json (go doc test2json).
type event struct {
	Action, Test, Output string
}

// scoreLine is what tests of many faults log; testenv.Score writes it.
var scoreLine = regexp.MustCompile(`score: (.*): (\d+) of (\d+) named, (\d+) of (\d+) healthy accused(?:, in (.*))?$`)

// read reads the results of tests: what they log by testenv.Score or, of tests without that, one fault per subtest.
func (s source) read(r io.Reader) (rows []row, err error) {
	logged := map[string]bool{} // tests with lines
	var tests []string
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<24)
	for in.Scan() {
		var e event
		if err := json.Unmarshal(in.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("%w: %s", err, in.Text())
		}
		switch m := scoreLine.FindStringSubmatch(strings.TrimSpace(e.Output)); {
		case m != nil:
			logged[e.Test] = true
			var n [4]int
			for i := range n {
				n[i], err = strconv.Atoi(m[i+2])
				if err != nil {
					return nil, err
				}
			}
			rows = append(rows, row{what: m[1], named: n[0], planted: n[1], accused: n[2], healthy: n[3],
				took: m[6]})
		case e.Action == "fail" && e.Test != "":
			return nil, fmt.Errorf("%s failed", e.Test)
		case e.Action == "pass" && strings.Contains(e.Test, "/"):
			tests = append(tests, e.Test)
		}
	}
	for _, test := range tests {
		whole, name, _ := strings.Cut(test, "/")
		if logged[whole] || logged[test] || strings.Contains(name, "/") {
			continue
		}
		one := row{what: strings.ReplaceAll(name, "_", " "), named: 1, planted: 1}
		good := s.healthy
		if s.matrix {
			f, place, known := ofMatrix(name)
			if !known {
				return nil, fmt.Errorf("%s is no row of the matrix", test)
			}
			one.what, one.as, one.place, good = f.Name, f.Want, place, f.Want == ""
		}
		if good {
			one.named, one.planted, one.healthy = 0, 0, 1
		}
		rows = append(rows, one)
	}
	slices.SortStableFunc(rows, func(a, b row) int { return a.place - b.place })
	if len(rows) == 0 && err == nil {
		err = errors.New("no test ran")
	}
	return rows, errors.Join(err, in.Err())
}
