// Package maintenance watches for the file that exists during maintenance of this node.
package maintenance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/railscope/railscope/internal/lane"
)

// Interval is between two checks. CheckTimeout bounds one: the path may be on a mount that hangs.
const (
	Interval     = 2 * time.Second
	CheckTimeout = time.Second
)

// State is the result of a check.
type State struct {
	Active  bool // the file exists; unchanged while Err is set
	Changed bool // since the last check
	Err     error
}

// Watch checks every [Interval] whether the file exists. Safe for concurrent use.
type Watch struct {
	path    atomic.Pointer[string]
	active  atomic.Bool
	lanes   lane.Group[error]
	observe func(State)
	stat    func(path string) error
}

// New returns a watch that passes every result to observe, from one goroutine at a time.
func New(path string, observe func(State)) *Watch {
	w := &Watch{observe: observe, stat: func(path string) error {
		_, err := os.Stat(path)
		return err
	}}
	w.SetPath(path)
	return w
}

// SetPath changes the path from the next check on.
func (w *Watch) SetPath(path string) { w.path.Store(&path) }

// Active reports whether the file existed at the last successful check.
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
	path := *w.path.Load()
	res := w.lanes.Run(CheckTimeout, []string{path}, w.stat)[0]
	s := State{Active: w.Active()}
	switch err := res.Value; {
	case res.Err != nil:
		s.Err = fmt.Errorf("stat %s: %w", path, res.Err)
	case err == nil:
		s.Active = true
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		s.Active = false
	default:
		s.Err = err
	}
	s.Changed = w.active.Swap(s.Active) != s.Active
	w.observe(s)
}
