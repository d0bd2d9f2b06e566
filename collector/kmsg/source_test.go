package kmsg

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/collectortest"
	"github.com/railscope/railscope/internal/kernellog"
	"github.com/railscope/railscope/internal/rail"
)

func rails() ([]rail.Rail, error) {
	return []rail.Rail{{Name: "0", PCIAddress: "0000:18:00.0", Netdev: "enp24s0np0"},
		{Name: "1", PCIAddress: "0000:3a:00.0", Netdev: "enp58s0np0"}}, nil
}

// expected returns the records of the fixture, and the expected event of each.
func expected(t *testing.T) (records, want []string) {
	t.Helper()
	text, err := os.ReadFile("testdata/events.txt")
	if err != nil {
		t.Fatal(err)
	}
	for paragraph := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		if event, record, ok := strings.Cut(paragraph, "\n"); ok && !strings.HasPrefix(event, "#") {
			records, want = append(records, record+"\n"), append(want, event)
		}
	}
	return records, want
}

// log is a kernel log whose reads return the elements of next, a message or an errno each, and then EAGAIN.
type log struct{ next []any }

func (l *log) read(_ int, b []byte) (int, error) {
	if len(l.next) == 0 {
		return -1, unix.EAGAIN
	}
	first := l.next[0]
	l.next = l.next[1:]
	switch v := first.(type) {
	case unix.Errno:
		return -1, v
	case string:
		return copy(b, v), nil
	}
	panic("a message or an errno")
}

// unreadSource returns a source that reads l and has not read before.
func unreadSource(t *testing.T, l *log, opts Options) *Source {
	t.Helper()
	opts.Path, opts.Rails = filepath.Join(t.TempDir(), "kmsg"), rails
	if err := os.WriteFile(opts.Path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := New(opts)
	s.read = l.read
	t.Cleanup(func() {
		if s.fd >= 0 {
			unix.Close(s.fd)
		}
	})
	return s
}

// newSource returns an unreadSource that has read an empty log.
func newSource(t *testing.T, l *log, opts Options) *Source {
	t.Helper()
	s := unreadSource(t, l, opts)
	next := l.next
	l.next = nil
	if got, err := counted(t, s); err != nil || len(got) > 0 {
		t.Fatal(got, err)
	}
	l.next = next
	return s
}

// counted returns the events of a source that are not zero.
func counted(t *testing.T, s *Source) (lines []string, err error) {
	t.Helper()
	all, _, err := collectortest.ReadLines(t, s)
	return slices.DeleteFunc(all, func(l string) bool { return strings.HasSuffix(l, "{} 0") }), err
}

// TestEvents: each message of the fixture is counted as the fixture says.
func TestEvents(t *testing.T) {
	records, want := expected(t)
	total := map[string]int{}
	for i, record := range records {
		s := newSource(t, &log{next: []any{record}}, Options{})
		got, err := counted(t, s)
		name, subject, _ := strings.Cut(want[i], " ")
		lines := []string{}
		if name != "none" {
			lines = []string{fmt.Sprintf("kernel_events_total{event=%q,subject=%q} 1", name, subject)}
			total[lines[0]]++
		}
		if diff := cmp.Diff(lines, got); diff != "" || err != nil {
			t.Errorf("%s: %v, %s", record, err, diff)
		}
	}
	l := &log{}
	for _, record := range records {
		l.next = append(l.next, record)
	}
	got, err := counted(t, newSource(t, l, Options{}))
	var lines []string
	for _, line := range slices.Sorted(maps.Keys(total)) {
		lines = append(lines, strings.TrimSuffix(line, "1")+fmt.Sprint(total[line]))
	}
	if diff := cmp.Diff(lines, got); diff != "" || err != nil {
		t.Errorf("all of them: %v, %s", err, diff)
	}
	seen := map[string]bool{}
	for _, w := range want {
		seen[strings.Fields(w)[0]] = true
	}
	for _, p := range patterns() {
		if !seen[p.event] {
			t.Errorf("no message of the fixture is %s", p.event)
		}
	}
}

func message(sequence int) string {
	return fmt.Sprintf("6,%d,1,-;mlx5_core 0000:18:00.0 enp24s0np0: Link down\n SUBSYSTEM=pci\n "+
		"DEVICE=+pci:0000:18:00.0\n", sequence)
}

const down = `kernel_events_total{event="link_down",subject="rail 0"} `

// TestCursor: after a restart, reading continues at the cursor, but only in the same boot.
func TestCursor(t *testing.T) {
	var saved Cursor
	options := func(boot string) Options {
		return Options{Boot: boot, Last: saved, Save: func(c Cursor) { saved = c }}
	}
	l := &log{next: []any{message(7), message(8)}}
	if got, err := counted(t, newSource(t, l, options("a"))); err != nil || !slices.Equal(got, []string{down + "2"}) {
		t.Fatal(got, err)
	}
	if saved != (Cursor{"a", 8}) {
		t.Fatalf("saved %+v", saved)
	}
	l.next = []any{message(6), message(7), message(8), message(9)} // the kernel starts with the oldest message
	if got, err := counted(t, newSource(t, l, options("a"))); err != nil || !slices.Equal(got, []string{down + "1"}) {
		t.Error(got, err)
	}
	l.next = []any{message(1)}
	if got, err := counted(t, newSource(t, l, options("b"))); err != nil || !slices.Equal(got, []string{down + "1"}) ||
		saved != (Cursor{"b", 1}) {
		t.Error(got, err, saved)
	}
}

// TestFirstRead: messages before the first read are not counted, but the position of the last one is saved.
func TestFirstRead(t *testing.T) {
	var saved Cursor
	l := &log{next: []any{message(7), unix.EPIPE, message(9)}}
	s := unreadSource(t, l, Options{Boot: "a", Save: func(c Cursor) { saved = c }})
	got, err := counted(t, s)
	if lost := []string{"kernel_log_lost_messages_total{} 1"}; err != nil || !slices.Equal(got, lost) ||
		saved != (Cursor{"a", 9}) {
		t.Fatal(got, err, saved)
	}
	l.next = []any{message(10)}
	got, err = counted(t, s)
	if err != nil || !slices.Contains(got, down+"1") {
		t.Error(got, err)
	}
}

// TestLost: overwritten, oversized and malformed messages are counted, and reading continues.
func TestLost(t *testing.T) {
	l := &log{next: []any{message(7), unix.EPIPE, message(12), unix.EINVAL, "garbage", "x,y,z,-;text\n", "6,1;text",
		message(13)}}
	s := newSource(t, l, Options{})
	got, err := counted(t, s)
	want := []string{down + "3", "kernel_log_invalid_messages_total{} 4", "kernel_log_lost_messages_total{} 4"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, %s", err, diff)
	}
	l.next = []any{unix.EIO}
	got, err = counted(t, s)
	if !errors.Is(err, unix.EIO) || len(got) != len(want) || s.fd >= 0 {
		t.Errorf("an error: %v, %v, open %v", got, err, s.fd)
	}
	l.next = []any{message(14)}
	got, err = counted(t, s)
	if err != nil || !slices.Contains(got, down+"4") {
		t.Errorf("after it: %v, %v", got, err)
	}
}

// TestBounds: a read ends during a flood of messages, and the number of subjects is limited.
func TestBounds(t *testing.T) {
	l := &log{}
	for i := range maxRecords + 10 {
		l.next = append(l.next, fmt.Sprintf("6,%d,1,-;bnxt_en 0000:01:00.0 eno%d: NIC Link is Down\n "+
			"DEVICE=+pci:0000:01:00.0\n", i+1, i%1000))
	}
	s := newSource(t, l, Options{})
	got, err := counted(t, s)
	if f := collector.Faults(err); len(f) != 1 || f[0].Reason != "behind" || len(got) != maxSeries+1 {
		t.Errorf("%d series, %v", len(got), err)
	}
	got, err = counted(t, s)
	if err != nil || len(got) != maxSeries+1 || len(l.next) > 0 {
		t.Errorf("%d series, %v, %d messages left", len(got), err, len(l.next))
	}
}

// TestAbsent: without the device or the permission to read it, the error says what is needed.
func TestAbsent(t *testing.T) {
	s := New(Options{Path: filepath.Join(t.TempDir(), "kmsg"), Rails: rails})
	if _, err := counted(t, s); !errors.Is(err, os.ErrNotExist) ||
		!strings.Contains(err.Error(), "docs/kernel-log.md") {
		t.Error(err)
	}
}

// TestKernel: the machine's own log can be read, and messages from user space are not counted.
func TestKernel(t *testing.T) {
	const path = "/dev/kmsg"
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	s := New(Options{Path: path, Rails: rails})
	before, err := counted(t, s)
	if err != nil {
		t.Skip(err)
	}
	defer unix.Close(s.fd)
	start := s.cursor.Sequence
	for range 2 {
		if _, err := f.WriteString("<3>mlx5_core 0000:18:00.0 enp24s0np0: Link down\n"); err != nil {
			t.Fatal(err)
		}
	}
	after, err := counted(t, s)
	if err != nil || s.cursor.Sequence < start+2 || slices.ContainsFunc(after, func(l string) bool {
		return strings.Contains(l, `subject="rail`)
	}) {
		t.Errorf("%v, then %v (%v), sequence %d, then %d", before, after, err, start, s.cursor.Sequence)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(message(7)))
	f.Add([]byte("NVRM: Xid (PCI:0000:1b:00): 79, x"))
	list := patterns()
	f.Fuzz(func(t *testing.T, b []byte) {
		r, ok := kernellog.Parse(b)
		if !ok {
			return
		}
		if e, ok := classify(list, r); ok && (e.name == "" || strings.ContainsAny(e.name, " \n")) {
			t.Errorf("%q is %+v", b, e)
		}
	})
}
