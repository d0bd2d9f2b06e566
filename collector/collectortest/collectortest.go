// Package collectortest helps the tests of all sources: it reads a source as lines of text, and makes the files of
// a capture invalid one by one.
package collectortest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// ReadLines reads the source once and returns its samples as sorted lines, and its faults as "device: reason". It
// fails the test if a sample does not match its row.
func ReadLines(tb testing.TB, src collector.Source) (lines, faults []string, err error) {
	tb.Helper()
	rows := src.Metrics()
	err = src.Read(func(s collector.Sample) {
		if !slices.Contains(rows, s.Metric) {
			tb.Errorf("%s is not one of the source's rows", s.Metric.Name)
		}
		if len(s.Labels) != len(s.Metric.Labels) {
			tb.Fatalf("%s has %d label values, not %d", s.Metric.Name, len(s.Labels), len(s.Metric.Labels))
		}
		var pairs []string
		for i, name := range s.Metric.Labels {
			pairs = append(pairs, fmt.Sprintf("%s=%q", name, s.Labels[i]))
		}
		value := strconv.FormatFloat(s.Value, 'g', -1, 64)
		lines = append(lines, fmt.Sprintf("%s{%s} %s", s.Metric.Name, strings.Join(pairs, ","), value))
	})
	for _, f := range collector.Faults(err) {
		text := f.Device + ": " + f.Reason
		if f.Expected {
			text += " (expected)"
		}
		faults = append(faults, text)
	}
	slices.Sort(lines)
	slices.Sort(faults)
	return lines, faults, err
}

// TextLines returns the non-empty lines of a text, sorted.
func TextLines(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

// badContents are invalid contents of a file that should hold a number, with the reason that the fault must have.
var badContents = []struct {
	name   string
	reason string
	spoil  func(path string) error
}{
	{"N/A", sysfs.ReasonInvalid, writer("N/A (no PMA)\n")},
	{"empty", sysfs.ReasonEmpty, writer("")},
	{"binary", sysfs.ReasonInvalid, writer("\x7fELF\x00\xff\xfe")},
	{"negative", sysfs.ReasonInvalid, writer("-1\n")},
	{"out of range", sysfs.ReasonRange, writer("18446744073709551616\n")},
	{"too large", sysfs.ReasonTooLarge, writer(strings.Repeat("1", sysfs.MaxFile+1))},
	{"directory", sysfs.ReasonNotRegular, func(path string) error { return os.Mkdir(path, 0o755) }},
	{"pipe", sysfs.ReasonNotRegular, func(path string) error { return unix.Mkfifo(path, 0o644) }},
	{"vanished", sysfs.ReasonVanished, func(string) error { return nil }},
	{"unreadable", sysfs.ReasonPermission, writer("1\n")},
}

func writer(content string) func(string) error {
	return func(path string) error { return os.WriteFile(path, []byte(content), 0o644) }
}

// Spoilt is one file of a capture, and the rows that depend on it.
type Spoilt struct {
	Path string // relative to the capture
	// Costs are the rows that disappear, each with its label value: "bond_member_up eth0".
	Costs []string
	// Device is the device of the fault.
	Device string
	// Reasons are the reasons that differ from those of a file with a number; "" if the content means that there is
	// no value.
	Reasons map[string]string
}

// WordReasons returns the reasons for files that hold a word: unlike a number, it is never out of range.
func WordReasons(more ...string) map[string]string {
	m := map[string]string{"out of range": sysfs.ReasonInvalid}
	for i := 0; i < len(more); i += 2 {
		m[more[i]] = more[i+1]
	}
	return m
}

// TestSpoilt makes each file invalid in every way, between two reads of one source, and checks that only the rows
// of this file disappear and that a fault is reported.
func TestSpoilt(t *testing.T, files []Spoilt, setUp func(t *testing.T) (src collector.Source, root string)) {
	for _, file := range files {
		for _, bad := range badContents {
			t.Run(filepath.Base(file.Path)+"/"+bad.name, func(t *testing.T) {
				if bad.name == "unreadable" && os.Getuid() == 0 {
					t.Skip("root may read everything")
				}
				lanetest.Test(t, func(t *testing.T) {
					src, root := setUp(t)
					before, _, err := ReadLines(t, src)
					if err != nil && !AllExpected(err) {
						t.Fatalf("healthy read: %v", err)
					}
					file.spoil(t, root, bad.spoil)
					if bad.name == "unreadable" {
						if err := os.Chmod(filepath.Join(root, file.Path), 0); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(collector.FactsEvery)
					reason, differs := file.Reasons[bad.name]
					if !differs {
						reason = bad.reason
					}
					file.check(t, src, before, reason)
				})
			})
		}
	}
}

func (f Spoilt) spoil(t *testing.T, root string, with func(path string) error) {
	t.Helper()
	path := filepath.Join(root, f.Path)
	if err := errors.Join(os.Remove(path), with(path)); err != nil {
		t.Fatal(err)
	}
}

// check makes the file invalid and compares the next read with before.
func (f Spoilt) check(t *testing.T, src collector.Source, before []string, reason string) {
	t.Helper()
	after, faults, _ := ReadLines(t, src)
	var want, wantFaults []string
	if reason != "" {
		wantFaults = []string{f.Device + ": " + reason}
	}
	if !slices.Equal(faults, wantFaults) {
		t.Errorf("faults %q, not %q", faults, wantFaults)
	}
	for _, line := range before {
		if !f.Explains(line) {
			want = append(want, line)
		}
	}
	if len(want) == len(before) {
		t.Errorf("no line has %v", f.Costs)
	}
	if !slices.Equal(after, want) {
		t.Errorf("read\n%s\nnot\n%s", strings.Join(after, "\n"), strings.Join(want, "\n"))
	}
}

// Explains reports whether the invalid file is the reason that a line is missing.
func (f Spoilt) Explains(line string) bool {
	for _, cost := range f.Costs {
		name, value, _ := strings.Cut(cost, " ")
		if strings.HasPrefix(line, name+"{") && (value == "" || strings.Contains(line, strconv.Quote(value))) {
			return true
		}
	}
	return false
}

// AllExpected reports whether no fault of err is a failure of the source.
func AllExpected(err error) bool {
	for _, f := range collector.Faults(err) {
		if !f.Expected {
			return false
		}
	}
	return true
}

// NoRails is a finder that finds no rails.
func NoRails() ([]rail.Rail, error) { return nil, nil }

// Rails returns a finder of the given rails.
func Rails(rails ...rail.Rail) func() ([]rail.Rail, error) {
	return func() ([]rail.Rail, error) { return rails, nil }
}

// Snapshot returns a finder of the same rails, for sources that need a snapshot.
func Snapshot(rails func() ([]rail.Rail, error)) func() rail.Snapshot {
	return func() rail.Snapshot {
		list, err := rails()
		return rail.Snapshot{Rails: list, Err: err}
	}
}

// Edit rewrites files of a capture; a file with empty content is removed.
func Edit(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for path, content := range files {
		path = filepath.Join(root, path)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if content == "" {
			err = os.RemoveAll(path)
		} else if err == nil {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Budget is the budget of the sources that [TestBudget] reads. Slow is the duration of each step of a slow source.
const (
	Budget = time.Second
	Slow   = 900 * time.Millisecond
)

// TestBudget checks that each device has its whole budget even if it took long to find the devices, and that a read
// ends within the exporter's 4 s. source makes a source that needs [Slow] or no time to find the devices and to
// read each.
func TestBudget(t *testing.T, source func(t *testing.T, slow bool) collector.Source) {
	lanetest.Test(t, func(t *testing.T) {
		read := func(slow bool) []string {
			lines := map[string]bool{}
			start := time.Now()
			err := source(t, slow).Read(func(s collector.Sample) {
				if !strings.HasSuffix(s.Metric.Name, "_seconds") { // durations differ
					lines[fmt.Sprint(s.Metric.Name, s.Labels, s.Value)] = true
				}
			})
			for _, f := range collector.Faults(err) {
				lines["fault "+f.Reason+" "+f.Device] = true
			}
			if took := time.Since(start); took >= 4*Budget {
				t.Errorf("took %v", took)
			}
			return slices.Sorted(maps.Keys(lines))
		}
		quick, slow := read(false), read(true)
		if !slices.Equal(quick, slow) || len(quick) == 0 {
			t.Errorf("slow:\n%s\nquick:\n%s", strings.Join(slow, "\n"), strings.Join(quick, "\n"))
		}
	})
}

// SlowRails returns a finder that takes [Slow] if slow is set.
func SlowRails(slow bool, rails func() ([]rail.Rail, error)) func() ([]rail.Rail, error) {
	return func() ([]rail.Rail, error) {
		if slow {
			time.Sleep(Slow)
		}
		return rails()
	}
}

// TestTable checks names and units of the rows of a source.
func TestTable(t *testing.T, src collector.Source) {
	units := []string{"_bytes", "_seconds", "_ratio", "_bytes_per_second", "_transfers_per_second", "_info", "_id",
		"_celsius"}
	seen := map[string]bool{}
	for _, m := range src.Metrics() {
		if seen[m.Name] {
			t.Errorf("duplicate row %s", m.Name)
		}
		seen[m.Name] = true
		if strings.HasSuffix(m.Name, "_total") != (m.Kind == collector.Counter) {
			t.Errorf("%s: _total belongs on counters", m.Name)
		}
		if m.Help == "" || m.Ref == "" || !strings.HasSuffix(m.Help, ".") {
			t.Errorf("%s lacks help or reference", m.Name)
		}
		base := strings.TrimSuffix(m.Name, "_total")
		for _, o := range m.From {
			wraps := o.Bits != 0 && !o.Saturates
			if says := fmt.Sprintf("%d bits wide", o.Bits); wraps && !strings.Contains(m.Help, says) {
				t.Errorf("%s: the help does not say that the counter wraps: %q", m.Name, m.Help)
			}
			if o.Name == "" || o.Scale < 0 {
				t.Errorf("%s: bad origin %+v", m.Name, o)
			}
			if o.Scale != 0 && !slices.ContainsFunc(units, func(u string) bool { return strings.HasSuffix(base, u) }) {
				t.Errorf("%s is scaled by %v but names no unit", m.Name, o.Scale)
			}
		}
	}
}
