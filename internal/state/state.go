// Package state keeps data that must survive the process in one JSON file of a directory. Each user has one
// section; sections that this version does not know are kept unchanged. One process writes, under a lock; others
// read.
//
// An unusable directory never prevents or delays a start: it is reported, and changes are kept in memory.
package state

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/lane"
)

const (
	fileName = "state.json"
	lockName = "state.lock"
	version  = 1
	maxSize  = 1 << 20 // bytes, of the file

	answerTime = 2 * time.Second // wait for the file system
	retryEvery = time.Minute     // interval of retries after a failed write
)

// ErrLocked is returned, always wrapped, if another process writes to the directory.
var ErrLocked = errors.New("another railscope uses it")

// Store is one process's view of the state directory. Safe for concurrent use.
type Store struct {
	dir     string
	report  func(error)
	lanes   lane.Group[error] // one, for all access to the directory
	changed chan struct{}     // wakes the writer; nil: nothing is written
	done    chan struct{}     // closed when the writer has ended

	mu         sync.Mutex                 // protects all following fields
	file       map[string]json.RawMessage // sections of the file, when it was read
	own        map[string]json.RawMessage // sections that this process has set
	lock       *os.File                   // nil while another process has it
	loaded     bool                       // the file was read under the lock, or there was none: writing loses nothing
	set, saved int                        // calls of Set, and how many of them the file holds
	closed     bool
	err        error
}

// Open returns the store in dir, which is created if only its last part is missing. report may be nil. It is called
// once with a problem until the problem changes, and with nil when it is gone; it must not wait.
func Open(dir string, report func(error)) *Store {
	s := newStore(dir, report)
	s.open()
	return s
}

// OpenReadOnly is like Open for a process that changes neither the file nor the directory nor the lock.
func OpenReadOnly(dir string, report func(error)) *Store {
	s := newStore(dir, report)
	s.setError(s.inLane(func() error { return s.load(false) }))
	return s
}

func newStore(dir string, report func(error)) *Store {
	return &Store{dir: dir, report: report, own: map[string]json.RawMessage{}}
}

// open takes the lock, reads the file and starts the writer, unless the directory does not answer in time.
func (s *Store) open() {
	err := s.inLane(s.start)
	s.setError(err)
	if !errors.Is(err, errNoAnswer) {
		s.changed, s.done = make(chan struct{}, 1), make(chan struct{})
		go s.write(err)
	}
}

// write saves changes until the store is closed. After an error it retries: another process may free the lock.
func (s *Store) write(err error) {
	defer close(s.done)
	for {
		var retry <-chan time.Time
		if err != nil {
			retry = time.After(retryEvery)
		}
		select {
		case _, open := <-s.changed:
			if !open {
				return
			}
		case <-retry:
		}
		err = s.inLane(s.save)
		s.setError(err)
	}
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

// start takes the lock and reads the file, unless that is done, in the lane.
func (s *Store) start() error {
	s.mu.Lock()
	locked, loaded := s.lock != nil, s.loaded
	s.mu.Unlock()
	if loaded {
		return nil
	}
	var err error
	if !locked {
		err = s.acquire()
	}
	return cmp.Or(err, s.load(err == nil))
}

func (s *Store) acquire() error {
	if err := os.Mkdir(s.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return s.wrap(err)
	}
	lock, err := openLock(filepath.Join(s.dir, lockName))
	if err != nil {
		return s.wrap(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lock = lock
	return nil
}

func (s *Store) save() error {
	err := s.start()
	s.mu.Lock()
	loaded, set, sections := s.loaded, s.set, map[string]json.RawMessage{}
	maps.Copy(sections, s.file)
	maps.Copy(sections, s.own)
	s.mu.Unlock()
	if !loaded {
		return err
	}
	if err := writeFile(s.dir, sections); err != nil {
		return s.wrap(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved = set
	return nil
}

func (s *Store) wrap(err error) error {
	if errors.Is(err, ErrLocked) {
		return fmt.Errorf("state directory %s: %w; read only until that process ends", s.dir, err)
	}
	return fmt.Errorf("state directory %s: %w; changes are kept in memory", s.dir, err)
}

// load reads the file. One that this version did not write is reported and, if this process has the lock, its backup.
func (s *Store) load(locked bool) error {
	path := filepath.Join(s.dir, fileName)
	sections, err := readFile(path)
	switch {
	case err == nil || errors.Is(err, os.ErrNotExist):
		err = nil
	case !errors.As(err, &unusable{}):
		return s.wrap(err)
	default:
		err = fmt.Errorf("%s is ignored: %w", path, err)
		if locked {
			var kept bool
			err, kept = backUp(path, os.Rename, err)
			if !kept {
				return s.wrap(err)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file, s.loaded = sections, locked
	return err
}

// Get reads a section into v, and reports whether there is one. The error says that the section does not fit v.
func (s *Store) Get(section string, v any) (found bool, err error) {
	s.mu.Lock()
	raw, found := s.own[section]
	if !found {
		raw, found = s.file[section]
	}
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
	s.own[section] = raw
	s.set++
	if s.closed {
		return
	}
	select {
	case s.changed <- struct{}{}:
	default: // a write is pending, or nothing is written
	}
}

// Close saves changes, waits for at most 2 × answerTime, releases the lock, and returns an error if changes were
// not saved.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.changed != nil && !s.closed {
		close(s.changed)
	}
	s.closed = true
	s.mu.Unlock()
	if s.done != nil {
		select {
		case <-s.done:
		case <-time.After(2 * answerTime):
			return fmt.Errorf("state directory %s: a write has not finished", s.dir)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock != nil {
		s.lock.Close()
		s.lock = nil
	}
	if s.saved < s.set {
		return s.err
	}
	return nil
}

// Reject drops a section that its user cannot use. A backup of the file is kept, and why is reported.
func (s *Store) Reject(section string, why error) {
	s.drop(func(m map[string]json.RawMessage) { delete(m, section) }, os.Link,
		fmt.Errorf("section %s of %s is ignored: %w", section, filepath.Join(s.dir, fileName), why))
}

// SetAside drops all sections of a file that belongs to another node. It becomes the backup, and why is reported.
func (s *Store) SetAside(why error) {
	s.drop(func(m map[string]json.RawMessage) { clear(m) }, os.Rename,
		fmt.Errorf("%s is ignored: %w", filepath.Join(s.dir, fileName), why))
}

func (s *Store) drop(from func(sections map[string]json.RawMessage), keep func(path, backup string) error, why error) {
	s.mu.Lock()
	from(s.file)
	from(s.own)
	mayWrite := s.lock != nil
	s.mu.Unlock()
	if mayWrite {
		var kept error // error of the lane, which may outlive this call
		hung := s.inLane(func() error { kept, _ = backUp(filepath.Join(s.dir, fileName), keep, why); return nil })
		if hung == nil {
			why = kept
		}
	}
	s.setError(why)
}

// Owned reports whether this process holds the lock of the directory, so that no other process writes there.
func (s *Store) Owned() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lock != nil && !s.closed
}

// Err returns the directory's problem. While it is not nil, changes are not saved, or the old content was not read.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// setError sets the problem, and reports it if it is new.
func (s *Store) setError(err error) {
	s.mu.Lock()
	same := fmt.Sprint(err) == fmt.Sprint(s.err)
	s.err = err
	s.mu.Unlock()
	if !same && s.report != nil {
		s.report(err)
	}
}
