package worker

import (
	"bytes"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// lines collects the stderr of workers. It has a lock for tests with synctest too: a Wait does not order what a
// goroutine did before it ended (runtime/synctest.go of Go 1.26), and that of a timer ends.
type lines struct {
	mu   sync.Mutex
	list []string
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, line)
}

// take returns what was added since it was last called.
func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.list
	l.list = nil
	return taken
}

// TestStderrLimited: of workers that print in a loop some lines are logged, and how many were not. A process that
// replaces one that crashed has no lines of its own: the bound is the node's.
func TestStderrLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged lines
		log := newStderrLog(logged.add)
		const restarts, each = 100, 1000
		for range restarts { // within 200 s
			p := &process{log: log}
			if _, err := p.Write(bytes.Repeat([]byte("in a loop\n"), each)); err != nil {
				t.Fatal(err)
			}
			if len(p.stderr) != maxStderr {
				t.Errorf("a crash is explained by %q", p.stderr)
			}
			time.Sleep(2 * time.Second)
		}
		synctest.Wait()
		if n, most := len(logged.take()), logLines+2*int(200*time.Second/logEvery); n > most {
			t.Errorf("%d lines are logged within 200 s, want at most %d", n, most)
		}
		time.Sleep(logEvery)
		synctest.Wait()
		logged.take()
		p := &process{log: log}
		if _, err := p.Write([]byte("the cause\n")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := logged.take(); !slices.Equal(got, []string{"the cause"}) {
			t.Errorf("afterwards: %q", got)
		}
	})
}

// TestStderrCounted: each line is logged or counted in a report, at the latest when the worker is closed.
func TestStderrCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged lines
		w := New(Options{Log: logged.add})
		p := &process{log: w.stderr}
		for range 10 {
			_, _ = p.Write(bytes.Repeat([]byte("x\n"), 6))
		}
		time.Sleep(logEvery)
		synctest.Wait()
		_, _ = p.Write([]byte("a\nb\nc\n"))
		w.Close()
		if got, want := logged.take()[logLines:], []string{"10 lines not logged: more than 50 at once, then one each 10s",
			"a", "2 lines not logged: more than 50 at once, then one each 10s"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
