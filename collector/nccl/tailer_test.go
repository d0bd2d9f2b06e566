package nccl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/sysfs"
)

// logs is a directory of logs and a source that follows them.
type logs struct {
	*testing.T
	dir string
	*Source
}

func follow(t *testing.T, l limits, globs ...string) *logs {
	t.Helper()
	dir := t.TempDir()
	if globs == nil {
		globs = []string{"*.log"}
	}
	for i := range globs {
		globs[i] = filepath.Join(dir, globs[i])
	}
	s, err := New(globs)
	if err != nil {
		t.Fatal(err)
	}
	s.f.limits = l
	t.Cleanup(s.f.close)
	return &logs{t, dir, s}
}

func (l *logs) path(name string) string { return filepath.Join(l.dir, name) }

func (l *logs) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// append appends to a file, as a job does.
func (l *logs) append(name, text string) {
	l.Helper()
	f, err := os.OpenFile(l.path(name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	l.must(err)
	_, err = f.WriteString(text)
	l.must(err)
	l.must(f.Close())
}

// age sets the modification time of a file.
func (l *logs) age(name string, ago time.Duration) {
	l.Helper()
	at := time.Now().Add(-ago)
	l.must(os.Chtimes(l.path(name), at, at))
}

// list lists the files and reads everything.
func (l *logs) list() {
	l.next = time.Time{}
	for l.Pass() { //nolint:revive // until all is read
	}
}

// expect compares the source's series that are not 0.
func (l *logs) expect(when string, want ...string) {
	l.Helper()
	var err error
	got := series(func(emit func(collector.Sample)) { err = l.Read(emit) })
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" || err != nil && !errors.Is(err, collector.ErrAbsent) {
		l.Errorf("%s: %v (-want +got)\n%s", when, err, diff)
	}
}

// counts compares the number of files by state.
func (l *logs) counts(want map[string]int) {
	l.Helper()
	got := map[string]int{}
	_ = l.Read(func(s collector.Sample) {
		if s.Metric.Name == "nccl_files" && s.Value > 0 {
			got[s.Labels[0]] = int(s.Value)
		}
	})
	if diff := cmp.Diff(want, got); diff != "" {
		l.Errorf("files (-want +got)\n%s", diff)
	}
}

const (
	usingIB     = "h:1:1 [0] NCCL INFO Using network IB\n"
	usingSocket = "h:1:1 [0] NCCL INFO Using network Socket\n"
	channelIB   = "h:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0\n"
	timedOut    = "\nh:1:1 [0] x.cc:1 NCCL WARN Timeout waiting for connect\n"
)

var (
	aIB       = []string{`fallback["a"] 0`, `network_info["a" "IB"] 1`}
	oneWarned = `warnings_total["timeout"] 1`
)

func with(list []string, more ...string) []string { return append(slices.Clone(list), more...) }

// TestGrow: existing lines show how a job runs and are not counted. Appended lines are counted once, even if they
// are written in pieces.
func TestGrow(t *testing.T) {
	l := follow(t, defaultLimits())
	l.append("a.log", usingIB+timedOut)
	l.list()
	l.expect("at first", aIB...)
	l.append("a.log", timedOut[:20])
	l.list()
	l.expect("half a warning", aIB...)
	l.append("a.log", timedOut[20:])
	l.Pass()
	l.expect("the other half", with(aIB, oneWarned)...)
	l.list()
	l.expect("nothing new", with(aIB, oneWarned)...)
	l.append("b.log", usingIB+timedOut+channelIB)
	l.list()
	b := []string{`fallback["b"] 0`, `network_info["b" "IB"] 1`, `channels["b" "NET/IB"] 1`,
		`warnings_total["timeout"] 2`}
	l.expect("a new file is all new", with(aIB, b...)...)
	l.must(os.Remove(l.path("a.log")))
	l.list()
	l.expect("one is removed", b...)
}

// TestRotate: logs are renamed, or copied and truncated, while their job runs. No line is lost or counted twice,
// and the job's state is kept. A new run in the same file resets it.
func TestRotate(t *testing.T) {
	rename := func(l *logs) {
		l.must(os.Rename(l.path("a.log"), l.path("a.log.1")))
		l.append("a.log.1", timedOut) // the job still has it open
		l.append("a.log", timedOut)
	}
	truncate := func(l *logs) { l.must(os.Truncate(l.path("a.log"), 0)) }
	const newRun = "h:2:2 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>\n"
	for _, tc := range []struct {
		name   string
		rotate func(*logs)
		want   []string
	}{
		{"renamed", rename, with(aIB, `warnings_total["timeout"] 2`)},
		{"renamed, with more lines", func(l *logs) {
			l.must(os.Rename(l.path("a.log"), l.path("a.log.1")))
			l.append("a.log.1", channelIB)
			l.append("a.log", channelIB)
		}, with(aIB, `channels["a" "NET/IB"] 2`)},
		{"truncated", truncate, aIB},
		{"truncated, goes on", func(l *logs) {
			truncate(l)
			l.Pass()
			l.append("a.log", timedOut)
		}, with(aIB, oneWarned)},
		{"truncated and longer again", func(l *logs) {
			truncate(l)
			l.append("a.log", strings.Repeat("h:1:1 [0] NCCL INFO ring\n", 10)+timedOut)
		}, with(aIB, oneWarned)},
		{"truncated, with a hole", func(l *logs) { // truncated under a job without O_APPEND
			truncate(l)
			f, err := os.OpenFile(l.path("a.log"), os.O_WRONLY, 0)
			l.must(err)
			_, err = f.WriteAt([]byte(timedOut), 4096)
			l.must(err)
			l.must(f.Close())
		}, with(aIB, oneWarned)},
		{"truncated, with a hole of many reads", func(l *logs) {
			truncate(l)
			f, err := os.OpenFile(l.path("a.log"), os.O_WRONLY, 0)
			l.must(err)
			_, err = f.WriteAt([]byte(strings.TrimPrefix(timedOut, "\n")), 3*bufferSize+7)
			l.must(err)
			l.must(f.Close())
		}, with(aIB, oneWarned)},
		{"renamed to a name that is followed, too", func(l *logs) {
			l.must(os.Rename(l.path("a.log"), l.path("b.log")))
			l.append("b.log", timedOut) // the job still has it open
			l.append("a.log", timedOut)
			l.age("a.log", time.Second)
		}, append(with(aIB, `warnings_total["timeout"] 2`), `fallback["b"] 0`, `network_info["b" "IB"] 1`)},
		{"another run", func(l *logs) { truncate(l); l.append("a.log", newRun+usingSocket) },
			[]string{`fallback["a"] 1`, `fallback_reason_info["a" "unknown"] 1`, `network_info["a" "Socket"] 1`}},
		{"another run, of which little is known", func(l *logs) { truncate(l); l.append("a.log", newRun) }, nil},
		{"another run, in its place", func(l *logs) {
			l.must(os.Remove(l.path("a.log")))
			l.append("a.log", usingSocket)
		}, []string{`fallback["a"] 1`, `fallback_reason_info["a" "unknown"] 1`, `network_info["a" "Socket"] 1`}},
		{"a directory, in its place", func(l *logs) {
			l.must(os.Remove(l.path("a.log")))
			l.must(os.Mkdir(l.path("a.log"), 0o755))
		}, nil},
		{"renamed, to another job", func(l *logs) { l.must(os.Rename(l.path("a.log"), l.path("b.log"))) },
			[]string{`fallback["b"] 0`, `network_info["b" "IB"] 1`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := follow(t, defaultLimits())
			l.append("a.log", usingIB+timedOut)
			l.list()
			tc.rotate(l)
			l.list()
			l.expect("after", tc.want...)
		})
	}
}

// TestLongLines: only the beginning of a line of 1 MiB is parsed, whether it is written at once or in pieces. The
// next line is read.
func TestLongLines(t *testing.T) {
	long := "h:1:1 [0] NCCL WARN Timeout " + strings.Repeat("x", 1<<20)
	l := follow(t, defaultLimits())
	l.append("a.log", "")
	l.list()
	l.append("a.log", long+"\n"+usingIB)
	l.list()
	l.expect("at once", with(aIB, oneWarned, `cut_lines_total[] 1`)...)
	for piece := range slices.Chunk([]byte(long), 100_000) {
		l.append("a.log", string(piece))
		l.Pass()
	}
	l.append("a.log", "\n"+timedOut)
	l.Pass()
	l.expect("in pieces", with(aIB, `warnings_total["timeout"] 3`, `cut_lines_total[] 2`)...)
	const visible = "NCCL INFO Using network Lib"
	l.append("a.log", strings.Repeat(" ", defaultLimits().line-len(visible))+visible+"fabric\n")
	l.Pass()
	l.expect("a name that is cut off", with(aIB, `warnings_total["timeout"] 3`, `cut_lines_total[] 3`)...)
}

// TestRubbish: random bytes do not stop the tailer.
func TestRubbish(t *testing.T) {
	l := follow(t, defaultLimits())
	rubbish := make([]byte, 3<<20)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(rubbish)
	l.append("a.log", usingIB+string(rubbish)+"\n"+string(make([]byte, 1<<20))+"\n")
	l.list()
	l.append("a.log", timedOut)
	l.Pass()
	var got []string
	for _, s := range series(func(emit func(collector.Sample)) { l.must(l.Read(emit)) }) {
		if !strings.HasPrefix(s, "cut_lines") {
			got = append(got, s)
		}
	}
	if diff := cmp.Diff(with(aIB, oneWarned), got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestLarge: the beginning and the end of a large log are read; the number of its channels is then unknown. The
// backlog of a log that grows too fast is skipped.
func TestLarge(t *testing.T) {
	lim := defaultLimits()
	lim.head, lim.tail, lim.lag, lim.pass = 256<<10, 64<<10, 1<<20, 128<<10
	filler := strings.Repeat("h:1:1 [0] NCCL INFO nothing of interest\n", 1<<14)
	l := follow(t, lim)
	l.append("a.log", usingIB+channelIB+filler+"h NCCL INFO Using network IBext\n"+filler+
		"h NCCL INFO Using network IBext_v8\n"+timedOut)
	l.list()
	base := []string{`fallback["a"] 0`, `network_info["a" "IB"] 1`, `network_info["a" "IBext_v8"] 1`}
	skipped := func() (n float64) {
		_ = l.Read(func(s collector.Sample) {
			if s.Metric.Name == "nccl_skipped_bytes_total" {
				n = s.Value
			}
		})
		return n
	}
	first := skipped()
	l.expect("at first", with(base, fmt.Sprintf("skipped_bytes_total[] %v", first))...)
	if size := float64(2 * len(filler)); first < size/2 || first > size {
		t.Errorf("skipped %v of %v bytes", first, size)
	}
	l.append("a.log", timedOut+strings.Repeat(filler, 4)+timedOut)
	l.list()
	l.expect("it grows too fast", with(base, oneWarned, fmt.Sprintf("skipped_bytes_total[] %v", skipped()))...)
	if skipped() <= first {
		t.Error("nothing more was skipped")
	}
	l.append("b.log", usingIB+channelIB+strings.Repeat(filler, 4)) // new and large: its beginning is read, too
	l.list()
	l.expect("a new one", with(base, oneWarned, `fallback["b"] 0`, `network_info["b" "IB"] 1`,
		fmt.Sprintf("skipped_bytes_total[] %v", skipped()))...)
}

// TestTurns: a log that exceeds one pass does not prevent others from being read.
func TestTurns(t *testing.T) {
	lim := defaultLimits()
	lim.pass = 64 << 10
	l := follow(t, lim)
	l.append("a.log", strings.Repeat("x\n", 1<<20))
	l.append("b.log", usingIB)
	l.Pass()
	l.append("a.log", strings.Repeat("x\n", 1<<20))
	l.Pass()
	l.expect("b had its turn", `fallback["b"] 0`, `network_info["b" "IB"] 1`)
}

// TestRun: Run follows files until its context is done, and then closes all. A file system that does not answer is
// reported.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := follow(t, defaultLimits())
		l.append("a.log", usingIB)
		l.age("a.log", 0) // synctest's clock starts in the past
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); l.Source.Run(ctx) }()
		synctest.Wait()
		l.expect("at once", aIB...)
		l.append("a.log", timedOut)
		time.Sleep(passEvery)
		synctest.Wait()
		l.expect("after a pass", with(aIB, oneWarned)...)
		l.append("b.log", usingIB)
		time.Sleep(2 * listEvery)
		synctest.Wait()
		l.expect("after a listing", with(aIB, oneWarned, `fallback["b"] 0`, `network_info["b" "IB"] 1`)...)
		cancel()
		<-done
		if n := len(l.f.files); n != 0 {
			t.Errorf("%d files are still open", n)
		}
		time.Sleep(2 * stuck)
		if faults := collector.Faults(l.Read(func(collector.Sample) {})); len(faults) != 1 || faults[0].Reason !=
			sysfs.ReasonTimeout {
			t.Errorf("%v, want %s", faults, sysfs.ReasonTimeout)
		}
	})
}

// TestReadCopies: two reads emit equal samples, whose rows are in the table.
func TestReadCopies(t *testing.T) {
	l := follow(t, defaultLimits())
	log, err := os.ReadFile("testdata/2.30-fused.log")
	l.must(err)
	l.append("a.log", string(bytes.Repeat(log, 3)))
	l.list()
	first := series(func(emit func(collector.Sample)) { l.must(l.Read(emit)) })
	second := series(func(emit func(collector.Sample)) { l.must(l.Read(emit)) })
	if diff := cmp.Diff(first, second); diff != "" || len(first) < 5 {
		t.Errorf("(-first +second)\n%s", diff)
	}
	known := map[*collector.Metric]bool{}
	for _, m := range l.Metrics() {
		known[m] = true
	}
	l.must(l.Read(func(s collector.Sample) {
		if !known[s.Metric] || len(s.Labels) != len(s.Metric.Labels) {
			t.Errorf("%v is not a row of the table", s)
		}
	}))
}

// TestListPause: one slow listing does not hide new logs for hours.
func TestListPause(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{0: listEvery, 40 * time.Millisecond: 20 * time.Second,
		20 * time.Second: time.Minute, time.Hour: time.Minute} {
		if got := listPause(took); got != want {
			t.Errorf("after %v the next is after %v, want %v", took, got, want)
		}
	}
}
