// Package state keeps what must survive the process, in one JSON file of one directory. Each user has a section of it;
// sections that this version does not know are kept as they are. One process writes, under a lock; others read.
//
// Nothing here stops or delays a start: a directory that is unusable is reported, and its content kept in memory.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/lane"
)

const (
	fileName = "state.json"
	lockName = "state.lock"
	version  = 1
	maxSize  = 1 << 20 // bytes, of the file

	answerTime = 2 * time.Second // of the file system
	retryEvery = time.Minute     // after a write that failed
)

// ErrLocked says that another process writes to the directory. It is always wrapped.
var ErrLocked = errors.New("another railscope uses it")

// Store is the state directory as one process sees it. Safe for concurrent use.
type Store struct {
	dir      string
	readOnly bool
	report   func(error)
	lanes    lane.Group[error] // one: whatever touches the directory

	mu       sync.Mutex // protects all following fields
	sections map[string]json.RawMessage
	own      map[string]bool // sections that this process has set
	lock     *os.File        // nil while another process has it
	loaded   bool            // the file was read, or there was none: writing loses nothing
	unread   bool            // the directory did not answer at the start, so it is not written
	dirty    bool
	writing  chan struct{} // closed when the write in progress has ended; nil: none is
	closed   bool
	retry    *time.Timer // of the next write; nil: none yet
	err      error
}

// Open returns the store in dir, which is made where only its last part is missing. report, which may be nil, is called
// with a problem, once until it changes, and with nil when it is gone; it must not wait.
func Open(dir string, report func(error)) *Store { return open(dir, false, report) }

// OpenReadOnly is Open for a process that changes neither the file nor the directory nor the lock.
func OpenReadOnly(dir string, report func(error)) *Store { return open(dir, true, report) }

func open(dir string, readOnly bool, report func(error)) *Store {
	s := &Store{dir: dir, readOnly: readOnly, report: report,
		sections: map[string]json.RawMessage{}, own: map[string]bool{}}
	s.readDirectory()
	return s
}

// readDirectory takes the lock and reads the file. A directory that does not answer in time is not written either: its
// content is unknown.
func (s *Store) readDirectory() {
	err := s.inLane(s.start)
	s.mu.Lock()
	s.unread = errors.Is(err, errNoAnswer)
	if err != nil && !s.readOnly && !s.unread {
		s.retryLaterLocked() // the other process may end, and nothing may be new to save then
	}
	s.mu.Unlock()
	s.setError(err)
}

var errNoAnswer = errors.New("the file system does not answer")

// inLane runs fn, which may hang, and waits for it for at most answerTime.
func (s *Store) inLane(fn func() error) error {
	res := s.lanes.Run(answerTime, []string{s.dir}, func(string) error { return fn() })[0]
	if res.Err != nil {
		return s.wrap(errNoAnswer)
	}
	return res.Value
}

// start is readDirectory in the lane. It may end after open has returned.
func (s *Store) start() error {
	if s.readOnly {
		return s.load(false)
	}
	err := s.acquire()
	loadErr := s.load(err == nil)
	if err != nil { // of the two errors the more important
		return s.wrap(err)
	}
	return loadErr
}

// acquire takes the lock, and makes the directory where it is missing.
func (s *Store) acquire() error {
	if err := os.Mkdir(s.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	lock, err := openLock(filepath.Join(s.dir, lockName))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lock = lock
	return nil
}

func (s *Store) wrap(err error) error {
	if errors.Is(err, ErrLocked) {
		return fmt.Errorf("state directory %s: %w; read only until that process ends", s.dir, err)
	}
	return fmt.Errorf("state directory %s: %w; changes are kept in memory", s.dir, err)
}

func openLock(path string) (*os.File, error) {
	const flags = os.O_RDWR | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	f, err := os.OpenFile(path, flags, 0)
	if errors.Is(err, os.ErrNotExist) {
		f, err = create(path, os.O_RDWR)
	}
	if errors.Is(err, os.ErrExist) { // another process has made it meanwhile
		f, err = os.OpenFile(path, flags, 0)
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, ErrLocked
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// load reads the file. One that this version did not write is reported and, where this process may write, set aside.
func (s *Store) load(mayWrite bool) error {
	path := filepath.Join(s.dir, fileName)
	sections, aside, err := readFile(path)
	switch {
	case err == nil || errors.Is(err, os.ErrNotExist):
		err = nil
	case aside == "":
		return s.wrap(err)
	default:
		err = fmt.Errorf("%s is ignored: %w", path, err)
		if mayWrite {
			if renameErr := os.Rename(path, path+aside); renameErr != nil {
				return s.wrap(errors.Join(err, renameErr))
			}
			err = fmt.Errorf("%w; kept as %s", err, fileName+aside)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, raw := range sections {
		if !s.own[name] {
			s.sections[name] = raw
		}
	}
	s.loaded = true
	return err
}

// Get reads a section into v, and reports whether there is one. The error is that of a section that does not fit v.
func (s *Store) Get(section string, v any) (found bool, err error) {
	s.mu.Lock()
	raw, found := s.sections[section]
	s.mu.Unlock()
	if !found {
		return false, nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return true, fmt.Errorf("section %s of %s: %w", section, filepath.Join(s.dir, fileName), err)
	}
	return true, nil
}

// Set replaces a section and starts a write of the file. It does not wait.
func (s *Store) Set(section string, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		s.setError(fmt.Errorf("section %s of the state: %w", section, err))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sections[section], s.own[section] = raw, true
	s.dirty = true
	s.startWriteLocked()
}

// Reject drops a section that its user cannot use: a copy of the file is kept, and why is reported.
func (s *Store) Reject(section string, why error) {
	err := fmt.Errorf("section %s of %s is ignored: %w", section, filepath.Join(s.dir, fileName), why)
	s.mu.Lock()
	delete(s.sections, section)
	mayWrite := s.lock != nil
	s.mu.Unlock()
	if mayWrite {
		keep := s.inLane(func() error {
			path := filepath.Join(s.dir, fileName)
			_ = os.Remove(path + corruptSuffix)
			return os.Link(path, path+corruptSuffix)
		})
		if keep == nil {
			err = fmt.Errorf("%w; kept in %s", err, fileName+corruptSuffix)
		}
	}
	s.setError(err)
}

// Err returns the problem of the directory: while it is not nil, changes are not saved, or the previous content could
// not be read.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// setError sets the problem, and reports it when it is new.
func (s *Store) setError(err error) {
	s.mu.Lock()
	same := fmt.Sprint(err) == fmt.Sprint(s.err)
	s.err = err
	s.mu.Unlock()
	if !same && s.report != nil {
		s.report(err)
	}
}
