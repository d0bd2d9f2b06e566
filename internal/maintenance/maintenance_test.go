package maintenance

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/internal/lane/lanetest"
)

// TestWatch: the file appears and disappears, also with its directory, and the path changes.
func TestWatch(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "run")
		path, other := filepath.Join(dir, "maintenance"), filepath.Join(dir, "other")
		var mu sync.Mutex // protects changes
		var changes []bool
		w := New(path, "", func(s State) {
			mu.Lock()
			defer mu.Unlock()
			if s.Err != nil {
				t.Error(s.Err)
			}
			if s.Changed {
				changes = append(changes, s.Active)
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.Run(ctx)
		want := func(what string, active bool, n int) {
			t.Helper()
			time.Sleep(Interval)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if w.Active() != active || len(changes) != n || n > 0 && changes[n-1] != active {
				t.Errorf("%s: active %v, changes %v", what, w.Active(), changes)
			}
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		want("no directory", false, 0)
		must(os.Mkdir(dir, 0o755))
		want("no file", false, 0)
		must(os.WriteFile(path, nil, 0o000))
		want("a file that nobody may read", true, 1)
		want("still there", true, 1)
		must(os.RemoveAll(dir))
		want("the directory is gone", false, 2)
		must(os.WriteFile(dir, nil, 0o644))
		want("the directory is a file", false, 2)
		must(os.Remove(dir))
		must(os.Mkdir(dir, 0o755))
		must(os.WriteFile(other, nil, 0o644))
		want("another file", false, 2)
		w.SetPath(other)
		want("which is the one now", true, 3)
	})
}

// TestWatchHangs: a path that hangs changes nothing, is reported, and uses one goroutine.
func TestWatchHangs(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		var last State
		hang, calls := make(chan struct{}), 0
		w := New("/mnt/maintenance", "", func(s State) { last = s })
		w.stat = func(string) error { return nil }
		w.Check()
		w.stat = func(string) error { calls++; <-hang; return os.ErrNotExist }
		for range 3 {
			start := time.Now()
			w.Check()
			if !w.Active() || last.Changed || last.Err == nil || time.Since(start) > CheckTimeout {
				t.Errorf("%+v after %v", last, time.Since(start))
			}
		}
		close(hang)
		synctest.Wait()
		w.Check()
		if want := (State{Changed: true}); last != want || calls != 2 {
			t.Errorf("%+v after %d calls", last, calls)
		}
	})
}

// TestWatchKeepsState: a path that cannot be checked changes nothing, and is reported.
func TestWatchKeepsState(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path, loop := filepath.Join(dir, "maintenance"), filepath.Join(dir, "loop")
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("loop", loop); err != nil {
			t.Fatal(err)
		}
		var last State
		w := New(path, "", func(s State) { last = s })
		w.Check()
		w.SetPath(loop)
		w.Check()
		if !w.Active() || last.Changed || last.Err == nil {
			t.Errorf("%+v", last)
		}
	})
}

// TestAnnotation: the file of an annotation is true, with or without a maintenance file, and empty without the
// annotation.
func TestAnnotation(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path, annotation := filepath.Join(dir, "maintenance"), filepath.Join(dir, "annotation")
		var last State
		w := New(path, annotation, func(s State) { last = s })
		for _, tt := range []struct {
			name, text string
			file, want bool
		}{
			{"no annotation", "", false, false},
			{"true", "true", false, true},
			{"true, as people write it", "true\n", false, true},
			{"false", "false", false, false},
			{"more than it should be", strings.Repeat("true", 100), false, false},
			{"false, and the file", "false", true, true},
		} {
			_ = os.Remove(path)
			err := os.WriteFile(annotation, []byte(tt.text), 0o644)
			if tt.file {
				err = errors.Join(err, os.WriteFile(path, nil, 0o644))
			}
			if err != nil {
				t.Fatal(err)
			}
			w.Check()
			if last.Active != tt.want || last.Err != nil {
				t.Errorf("%s: %+v", tt.name, last)
			}
		}
		if err := os.Remove(annotation); err != nil {
			t.Fatal(err)
		}
		w.Check()
		if !last.Active || last.Err == nil || !strings.Contains(last.Err.Error(), "downward-API volume") {
			t.Errorf("no annotation file: %+v", last)
		}
		if err := os.Symlink("annotation", annotation); err != nil { // a symlink loop
			t.Fatal(err)
		}
		w.Check()
		if !last.Active || last.Err == nil {
			t.Errorf("an annotation that cannot be read, and the file: %+v", last)
		}
	})
}
