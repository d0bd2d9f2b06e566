package collector

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// readLines reads the source once and returns its samples as sorted lines, and
// its faults as "device: reason". It fails the test where a sample does not fit
// its row.
func readLines(tb testing.TB, src Source) (lines, faults []string, err error) {
	tb.Helper()
	rows := src.Metrics()
	err = src.Read(func(s Sample) {
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
		lines = append(lines, fmt.Sprintf("%s{%s} %s", s.Metric.Name, strings.Join(pairs, ","), strconv.FormatFloat(s.Value, 'g', -1, 64)))
	})
	for _, f := range Faults(err) {
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

// textLines returns the non-empty lines of a text, sorted.
func textLines(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

// badContents are what stands in a file that should hold a number. Each turns a
// healthy file bad; reason is how that is to be counted.
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

// spoilt is one file of a capture, and what depends on it.
type spoilt struct {
	path string // below the capture
	// costs are the rows that go away, each with the label value that it is
	// about: "bond_member_up eth0".
	costs []string
	// device is that of the fault.
	device string
	// reasons are the reasons that differ from those of a number's file; "" where
	// the content is a normal way of saying nothing.
	reasons map[string]string
}

// wordReasons are for files that hold a word: no number is out of range there.
func wordReasons(more ...string) map[string]string {
	m := map[string]string{"out of range": sysfs.ReasonInvalid}
	for i := 0; i < len(more); i += 2 {
		m[more[i]] = more[i+1]
	}
	return m
}

// testSpoilt turns each file bad in every way, between two reads of one source,
// and checks that the loss is that file's alone and is told.
func testSpoilt(t *testing.T, files []spoilt, setUp func(t *testing.T) (src Source, root string)) {
	for _, file := range files {
		for _, bad := range badContents {
			reason, differs := file.reasons[bad.name]
			if !differs {
				reason = bad.reason
			}
			t.Run(filepath.Base(file.path)+"/"+bad.name, func(t *testing.T) {
				if bad.name == "unreadable" && os.Getuid() == 0 {
					t.Skip("root may read everything")
				}
				src, root := setUp(t)
				before, _, err := readLines(t, src)
				if err != nil && !allExpected(err) {
					t.Fatalf("healthy read: %v", err)
				}
				path := filepath.Join(root, file.path)
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				if err := bad.spoil(path); err != nil {
					t.Fatal(err)
				}
				if bad.name == "unreadable" {
					if err := os.Chmod(path, 0); err != nil {
						t.Fatal(err)
					}
				}
				after, faults, _ := readLines(t, src)
				var wantFaults []string
				if reason != "" {
					wantFaults = []string{file.device + ": " + reason}
				}
				if !slices.Equal(faults, wantFaults) {
					t.Errorf("faults %q, not %q", faults, wantFaults)
				}
				var want []string
				for _, line := range before {
					if !file.explains(line) {
						want = append(want, line)
					}
				}
				if len(want) == len(before) {
					t.Errorf("%v are in no line", file.costs)
				}
				if !slices.Equal(after, want) {
					t.Errorf("read\n%s\nnot\n%s", strings.Join(after, "\n"), strings.Join(want, "\n"))
				}
			})
		}
	}
}

func (f spoilt) explains(line string) bool {
	for _, cost := range f.costs {
		name, value, _ := strings.Cut(cost, " ")
		if strings.HasPrefix(line, name+"{") && (value == "" || strings.Contains(line, strconv.Quote(value))) {
			return true
		}
	}
	return false
}

func allExpected(err error) bool {
	for _, f := range Faults(err) {
		if !f.Expected {
			return false
		}
	}
	return true
}

func noRails() ([]rail.Rail, error) { return nil, nil }

func someRails(rails ...rail.Rail) func() ([]rail.Rail, error) {
	return func() ([]rail.Rail, error) { return rails, nil }
}

// TestNetTables holds the rows of the sources to the rules of names and units.
func TestNetTables(t *testing.T) {
	units := []string{"_bytes", "_seconds", "_ratio", "_bytes_per_second", "_info", "_id"}
	seen := make(map[string]bool)
	for _, src := range []Source{NewBond("", "", noRails, 0), NewNetdev("", noRails, 0), NewGPUDirect("", "", 0)} {
		for _, m := range src.Metrics() {
			if seen[m.Name] {
				t.Errorf("%s is there twice", m.Name)
			}
			seen[m.Name] = true
			if strings.HasSuffix(m.Name, "_total") != (m.Kind == Counter) {
				t.Errorf("%s: _total belongs on counters", m.Name)
			}
			if m.Help == "" || m.Ref == "" || len(m.From) == 0 || !strings.HasSuffix(m.Help, ".") {
				t.Errorf("%s lacks help, reference or origin", m.Name)
			}
			for _, o := range m.From {
				if o.Name == "" || o.Scale < 0 {
					t.Errorf("%s: bad origin %+v", m.Name, o)
				}
				base := strings.TrimSuffix(m.Name, "_total")
				if o.Scale != 0 && !slices.ContainsFunc(units, func(u string) bool { return strings.HasSuffix(base, u) }) {
					t.Errorf("%s is scaled by %v but names no unit", m.Name, o.Scale)
				}
			}
		}
	}
}

// TestKeptDirReplaced replaces a directory under the same name, as a netdev
// that is removed and made again does.
func TestKeptDirReplaced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "eth0")
	write := func(text string) {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "mtu"), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("1500\n")
	buf := make([]byte, 64)
	d := newKeptDir(dir, "mtu", "never")
	steps := []struct {
		name string
		do   func()
		born bool
		want uint64
	}{
		{"first", func() {}, true, 1500},
		{"again", func() {}, false, 1500},
		{"rewritten in place", func() { write("4200\n") }, false, 4200},
		{"made anew", func() { os.Rename(dir, dir+"-gone"); write("9000\n") }, true, 9000},
	}
	for _, step := range steps {
		step.do()
		born, err := d.check()
		if err != nil || born != step.born {
			t.Errorf("%s: check gives %v, %v; want %v", step.name, born, err, step.born)
		}
		if v, ok, err := d.uint(0, buf); v != step.want || !ok || err != nil {
			t.Errorf("%s: read %v, %v, %v; want %v", step.name, v, ok, err, step.want)
		}
		if _, ok, err := d.uint(1, buf); ok || err != nil {
			t.Errorf("%s: a file that was never there: %v, %v", step.name, ok, err)
		}
	}
	os.RemoveAll(dir)
	if _, err := d.check(); sysfs.Reason(err) != sysfs.ReasonVanished {
		t.Errorf("gone: %v", err)
	}
}
