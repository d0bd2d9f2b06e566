package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// labRow is a fault that the lab planted, and that a test there saw named.
type labRow struct {
	kernel, test, fault string
	took                string // until it was named; nothing for a healthy node
}

// nothing is found of a healthy node.
const nothing = "nothing"

func (r labRow) compare(o labRow) int {
	return cmp.Or(cmp.Compare(r.kernel, o.kernel), cmp.Compare(r.test, o.test), cmp.Compare(r.fault, o.fault))
}

// parseLab parses the rows of [labFile].
func parseLab(text string) (rows []labRow, err error) {
	for i, line := range strings.Split(strings.Trim(text, "\n"), "\n") {
		f := strings.Split(line, "\t")
		if len(f) != 4 {
			return nil, fmt.Errorf("line %d: %d fields instead of 4", i+1, len(f))
		}
		rows = append(rows, labRow{f[0], f[1], f[2], f[3]})
	}
	return rows, nil
}

func formatLab(rows []labRow) string {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\n", r.kernel, r.test, r.fault, r.took)
	}
	return b.String()
}

// Lines of the lab's log.
var (
	begins = regexp.MustCompile(`^=== RUN +(Test\w+)/(.*)$`)
	passes = regexp.MustCompile(`^ *--- PASS: (Test\w+)/(\S+) \((.*)s\)$`)
	fails  = regexp.MustCompile(`^ *--- FAIL: (Test\w+)/(\S+)`)
	after  = regexp.MustCompile(`: (?:found )?after (\d+ s)[:;]`)
	// events is how often and how fast a fault was found by events.
	events = regexp.MustCompile(`: ([\w ]+), events true: metrics least (\S+), median (\S+), worst (\S+), `)
)

// readLab reads the faults that were named from a log of test/lab/run.sh -v. A test that failed is an error.
func readLab(log, kernel string) (rows []labRow, err error) {
	begun, took := "", map[string]string{} // by name of the test
	for line := range strings.Lines(log) {
		line = strings.TrimRight(line, "\r\n")
		switch began, passed, failed, found := begins.FindStringSubmatch(line), passes.FindStringSubmatch(line),
			fails.FindStringSubmatch(line), after.FindStringSubmatch(line); {
		case began != nil:
			begun = began[1] + "/" + began[2]
		case failed != nil:
			return nil, fmt.Errorf("%s/%s failed", failed[1], failed[2])
		case passed != nil && passed[1] != "TestEventsAtOnce":
			one := labRow{kernel, passed[1], strings.ReplaceAll(passed[2], "_", " "), took[passed[1]+"/"+passed[2]]}
			if f, _, known := ofMatrix(passed[2]); known && f.Want == "" {
				one.took = nothing
			} else if known {
				one.fault = f.Name
			}
			rows = append(rows, one)
		case found != nil:
			took[begun] = found[1]
		}
		if m := events.FindStringSubmatch(line); m != nil {
			rows = append(rows, labRow{kernel, "TestEventsAtOnce", m[1], fmt.Sprintf("least %s, median %s, worst %s",
				m[2], m[3], m[4])})
		}
	}
	if len(rows) == 0 {
		return nil, errors.New("no test with faults passed in this log")
	}
	return rows, nil
}

// takeOver replaces the rows of a kernel, for the tests of a log, in [labFile].
func takeOver(log, kernel string) error {
	if kernel == "" {
		return errors.New("-lab needs -kernel")
	}
	text, err := os.ReadFile(log)
	if err != nil {
		return err
	}
	rows, err := readLab(string(text), kernel)
	if err != nil {
		return fmt.Errorf("%s: %w", log, err)
	}
	old, err := os.ReadFile(labFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(old) > 0 {
		kept, err := parseLab(string(old))
		if err != nil {
			return fmt.Errorf("%s: %w", labFile, err)
		}
		for _, k := range kept {
			same := func(r labRow) bool { return r.kernel == k.kernel && r.test == k.test && r.fault == k.fault }
			if !slices.ContainsFunc(rows, same) {
				rows = append(rows, k)
			}
		}
	}
	slices.SortFunc(rows, labRow.compare)
	return os.WriteFile(labFile, []byte(formatLab(rows)), 0o644)
}
