package worker

import (
	"bytes"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestStderrLimited: of workers that print in a loop some lines are logged, and how many were not. A process that
// replaces one that crashed has no lines of its own: the bound is the node's.
func TestStderrLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged []string
		log := newStderrLog(func(line string) { logged = append(logged, line) })
		const restarts, lines = 100, 1000
		for range restarts { // within 200 s
			p := &process{log: log}
			if _, err := p.Write(bytes.Repeat([]byte("in a loop\n"), lines)); err != nil {
				t.Fatal(err)
			}
			if len(p.stderr) != maxStderr {
				t.Errorf("a crash is explained by %q", p.stderr)
			}
			time.Sleep(2 * time.Second)
		}
		synctest.Wait()
		if most := logLines + 2*int(200*time.Second/logEvery); len(logged) > most {
			t.Errorf("%d lines are logged within 200 s, want at most %d", len(logged), most)
		}
		time.Sleep(logEvery)
		synctest.Wait()
		logged = nil
		p := &process{log: log}
		if _, err := p.Write([]byte("the cause\n")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if !slices.Equal(logged, []string{"the cause"}) {
			t.Errorf("afterwards: %q", logged)
		}
	})
}

// TestStderrCounted: each line is logged or counted in a report, at the latest when the worker is closed.
func TestStderrCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged []string
		w := New(Options{Log: func(line string) { logged = append(logged, line) }})
		p := &process{log: w.stderr}
		for range 10 {
			_, _ = p.Write(bytes.Repeat([]byte("x\n"), 6))
		}
		time.Sleep(logEvery)
		synctest.Wait()
		_, _ = p.Write([]byte("a\nb\nc\n"))
		w.Close()
		if want := []string{"10 lines not logged: more than 50 at once, then one each 10s", "a",
			"2 lines not logged: more than 50 at once, then one each 10s"}; !slices.Equal(logged[logLines:], want) {
			t.Errorf("%q, want %q", logged[logLines:], want)
		}
	})
}
