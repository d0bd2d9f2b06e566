// Package maintenance watches the file that exists during maintenance of this node, and the pod annotation that
// announces maintenance.
package maintenance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/railscope/railscope/internal/lane"
)

// Interval is the time between two checks. CheckTimeout limits one check: the path may be on a mount that hangs.
const (
	Interval     = 2 * time.Second
	CheckTimeout = time.Second
)

// State is the result of a check.
type State struct {
	Active  bool // the file exists, or the annotation is true; unchanged if Err is set and neither is known to be true
	Changed bool // Active differs from the last check
	Err     error
}

// Watch checks every [Interval]. Safe for concurrent use.
type Watch struct {
	path       atomic.Pointer[string]
	annotation string
	active     atomic.Bool
	lanes      lane.Group[error]
	observe    func(State)
	stat       func(path string) error // nil: maintenance; [fs.ErrNotExist]: no maintenance
}

// New returns a watch that passes every result to observe, never concurrently. annotation is the file of a
// downward-API volume with a pod annotation; the file is empty if the pod lacks the annotation. "": none.
func New(path, annotation string, observe func(State)) *Watch {
	w := &Watch{annotation: annotation, observe: observe}
	w.stat = func(path string) error {
		if path == annotation {
			return isTrue(path)
		}
		_, err := os.Stat(path)
		return err
	}
	w.SetPath(path)
	return w
}

// isTrue returns nil if a file contains true, and [fs.ErrNotExist] if it does not. A missing file is another error:
// the volume has one even without the annotation.
func isTrue(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no annotation file %s: mount the downward-API volume, or change --maintenance.annotation",
			path)
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	var text [16]byte
	n, err := io.ReadFull(f, text[:])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if strings.TrimSpace(string(text[:n])) != "true" {
		return fs.ErrNotExist
	}
	return nil
}

// SetPath changes the path from the next check on.
func (w *Watch) SetPath(path string) { w.path.Store(&path) }

// Active reports whether the last successful check found maintenance.
func (w *Watch) Active() bool { return w.active.Load() }

// Run checks until ctx is done.
func (w *Watch) Run(ctx context.Context) {
	ticker := time.NewTicker(Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.Check()
		}
	}
}

// Check checks now. Call it before Run, so that nothing starts during maintenance.
func (w *Watch) Check() {
	paths := []string{*w.path.Load()}
	if w.annotation != "" && w.annotation != paths[0] {
		paths = append(paths, w.annotation)
	}
	var s State
	var errs []error
	for _, res := range w.lanes.Run(CheckTimeout, paths, w.stat) {
		switch err := res.Value; {
		case res.Err != nil:
			errs = append(errs, fmt.Errorf("stat %s: %w", res.Key, res.Err))
		case err == nil:
			s.Active = true
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
			errs = append(errs, err)
		}
	}
	s.Err = errors.Join(errs...)
	s.Active = s.Active || s.Err != nil && w.Active()
	s.Changed = w.active.Swap(s.Active) != s.Active
	w.observe(s)
}
