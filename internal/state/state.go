// Package state keeps what is to outlive the process, in one JSON file of one
// directory. Each user has a section of it; sections that this version does not
// know are kept as they are. One process writes, under a lock; others read.
//
// Nothing here stops or delays a start: a directory that cannot be used is
// reported, and what would be in it is kept in memory.
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

	patience   = 2 * time.Second // for a file system that hangs
	retryEvery = time.Minute     // after a write that failed
)

// ErrLocked says that another process writes to the directory. It is wrapped.
var ErrLocked = errors.New("another railscope uses it")

// Store is the state directory as one process sees it. Safe for concurrent use.
type Store struct {
	dir      string
	readOnly bool
	report   func(error)
	lanes    lane.Group[error] // one: whatever touches the directory

	mu       sync.Mutex // protects all following fields
	sections map[string]json.RawMessage
	mine     map[string]bool // sections that this process has set
	lock     *os.File        // nil while another process has it
	loaded   bool            // the file was read, or there was none: writing loses nothing
	silent   bool            // the directory did not answer at the start
	dirty    bool
	writing  chan struct{} // closed when the write in progress has ended; nil when none is
	closed   bool
	again    *time.Timer
	err      error
}

// Open returns the store in dir, which is made where only its last part is
// missing. report is told what is wrong with it, once until that changes, and nil
// when all is well again; it must not wait, and may be nil.
func Open(dir string, report func(error)) *Store { return open(dir, false, report) }

// OpenReadOnly is Open for a process that changes nothing: neither the file nor
// the directory nor the lock.
func OpenReadOnly(dir string, report func(error)) *Store { return open(dir, true, report) }

func open(dir string, readOnly bool, report func(error)) *Store {
	s := &Store{dir: dir, readOnly: readOnly, report: report,
		sections: map[string]json.RawMessage{}, mine: map[string]bool{}}
	s.begin()
	return s
}

// begin reads what there is. A directory that does not answer in time is not
// written either: what it holds is not known.
func (s *Store) begin() {
	err := s.inLane(s.start)
	s.mu.Lock()
	s.silent = errors.Is(err, errSilent)
	if err != nil && !s.readOnly && !s.silent {
		s.retryLocked() // the other process may end, and there may be nothing new to save then
	}
	s.mu.Unlock()
	s.told(err)
}

var errSilent = errors.New("the file system does not answer")

// inLane runs fn, which may hang, and waits for a while.
func (s *Store) inLane(fn func() error) error {
	res := s.lanes.Run(patience, []string{s.dir}, func(string) error { return fn() })[0]
	if res.Err != nil {
		return s.failed(errSilent)
	}
	return res.Value
}

// start takes the lock and reads the file. It may end after open has returned.
func (s *Store) start() error {
	if s.readOnly {
		return s.load(false)
	}
	err := s.acquire()
	loadErr := s.load(err == nil)
	if err != nil { // of the two that it cannot be written
		return s.failed(err)
	}
	return loadErr
}

// acquire takes the lock, in a directory that it makes where it has to.
func (s *Store) acquire() error {
	if err := os.Mkdir(s.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	lock, err := takeLock(filepath.Join(s.dir, lockName))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lock = lock
	return nil
}

func (s *Store) failed(err error) error {
	if errors.Is(err, ErrLocked) {
		return fmt.Errorf("state directory %s: %w; it is read, and written when that one has ended", s.dir, err)
	}
	return fmt.Errorf("state directory %s: %w; what is remembered is kept in memory", s.dir, err)
}

func takeLock(path string) (*os.File, error) {
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

// load reads the file. What is not of this version's making is set aside, where
// this process may write, and reported.
func (s *Store) load(mayWrite bool) error {
	path := filepath.Join(s.dir, fileName)
	sections, aside, err := readFile(path)
	switch {
	case err == nil || errors.Is(err, os.ErrNotExist):
		err = nil
	case aside == "":
		return s.failed(err)
	default:
		err = fmt.Errorf("%s: %w; it is not used", path, err)
		if mayWrite {
			if renameErr := os.Rename(path, path+aside); renameErr != nil {
				return s.failed(errors.Join(err, renameErr))
			}
			err = fmt.Errorf("%w, and kept as %s", err, fileName+aside)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, raw := range sections {
		if !s.mine[name] {
			s.sections[name] = raw
		}
	}
	s.loaded = true
	return err
}

// Get reads a section into v, and reports whether there is one. It is an error of
// the section that it does not fit.
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

// Set replaces a section, and has the file written soon. It does not wait.
func (s *Store) Set(section string, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		s.told(fmt.Errorf("section %s of the state: %w", section, err))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sections[section], s.mine[section] = raw, true
	s.dirty = true
	s.kickLocked()
}

// Reject is Set for a section that its user cannot use: the file is kept aside,
// and why reported. The user sets it anew.
func (s *Store) Reject(section string, why error) {
	err := fmt.Errorf("section %s of %s: %w; it is not used", section, filepath.Join(s.dir, fileName), why)
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
			err = fmt.Errorf("%w, and kept in %s", err, fileName+corruptSuffix)
		}
	}
	s.told(err)
}

// Err returns what is wrong with the directory now: as long as it is not nil,
// what is set is not saved, or what was there before could not be read.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// told notes what is wrong, and reports it when it is new.
func (s *Store) told(err error) {
	s.mu.Lock()
	same := fmt.Sprint(err) == fmt.Sprint(s.err)
	s.err = err
	s.mu.Unlock()
	if !same && s.report != nil {
		s.report(err)
	}
}
