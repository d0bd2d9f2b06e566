package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const corruptSuffix = ".corrupt"

// readFile reads the sections. With aside, this version did not write the file: it is the suffix to keep it under.
func readFile(path string) (sections map[string]json.RawMessage, aside string, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, corruptSuffix, errors.New("symbolic link")
	}
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, "", err
	}
	if !info.Mode().IsRegular() {
		return nil, corruptSuffix, errors.New("not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, "", err
	}
	if len(data) > maxSize {
		return nil, corruptSuffix, fmt.Errorf("more than %d bytes", maxSize)
	}
	return parse(data)
}

// parse parses the content of the file.
func parse(data []byte) (sections map[string]json.RawMessage, aside string, err error) {
	if err := json.Unmarshal(data, &sections); err != nil {
		return nil, corruptSuffix, err
	}
	var v int
	if err := json.Unmarshal(sections["version"], &v); err != nil || v < 1 {
		return nil, corruptSuffix, errors.New("no version")
	}
	if v > version {
		return nil, fmt.Sprintf(".version-%d", v),
			fmt.Errorf("version %d; this railscope supports version %d", v, version)
	}
	delete(sections, "version")
	return sections, "", nil
}

// writeFile replaces the file in one step.
func writeFile(dir string, sections map[string]json.RawMessage) error {
	all := maps.Clone(sections)
	all["version"] = json.RawMessage(fmt.Sprint(version))
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if data = append(data, '\n'); len(data) > maxSize {
		return fmt.Errorf("the state has %d bytes, at most %d are saved", len(data), maxSize)
	}
	path := filepath.Join(dir, fileName)
	if err := os.Remove(path + ".new"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := create(path+".new", os.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(0o600), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// create makes a new file. Root gives it to the owner of the directory, who must be able to read it; where that fails
// it stays root's.
func create(path string, access int) (*os.File, error) {
	f, err := os.OpenFile(path, access|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil || os.Geteuid() != 0 {
		return f, err
	}
	var dir unix.Stat_t
	if unix.Stat(filepath.Dir(path), &dir) == nil && dir.Uid != 0 {
		_ = f.Chown(int(dir.Uid), int(dir.Gid))
	}
	return f, nil
}

// startWriteLocked starts a write, unless one is in progress, which then writes again.
func (s *Store) startWriteLocked() {
	if s.readOnly || s.unread || s.closed || s.writing != nil {
		return
	}
	if s.retry != nil {
		s.retry.Stop()
	}
	s.writing = make(chan struct{})
	go s.write()
}

// write writes until nothing is new, or it cannot.
func (s *Store) write() {
	for {
		s.mu.Lock()
		was := s.dirty
		s.dirty = false
		s.mu.Unlock()
		err := s.inLane(s.save)
		s.setError(err)
		s.mu.Lock()
		switch {
		case err != nil:
			s.dirty = s.dirty || was
			if !s.closed {
				s.retryLaterLocked()
			}
		case s.dirty:
			s.mu.Unlock()
			continue
		}
		close(s.writing)
		s.writing = nil
		s.mu.Unlock()
		return
	}
}

// retryLaterLocked starts a write after retryEvery.
func (s *Store) retryLaterLocked() {
	s.retry = time.AfterFunc(retryEvery, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.startWriteLocked()
	})
}

// save writes the file once, in the lane.
func (s *Store) save() error {
	s.mu.Lock()
	lock, loaded := s.lock, s.loaded
	s.mu.Unlock()
	if lock == nil {
		if err := s.acquire(); err != nil {
			return s.wrap(err)
		}
	}
	var err error
	if lock == nil || !loaded { // another process may have written and ended
		err = s.load(true)
	}
	s.mu.Lock()
	loaded, sections := s.loaded, maps.Clone(s.sections)
	s.mu.Unlock()
	if !loaded {
		return err
	}
	if err := writeFile(s.dir, sections); err != nil {
		return s.wrap(err)
	}
	return nil
}

// Close saves pending changes, waiting for them for at most 2 × answerTime, lets other processes write, and returns why
// changes could not be saved.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.dirty && s.err == nil {
		s.startWriteLocked()
	}
	s.closed = true
	if s.retry != nil {
		s.retry.Stop()
	}
	writing := s.writing
	s.mu.Unlock()
	if writing != nil {
		select {
		case <-writing:
		case <-time.After(2 * answerTime):
			return fmt.Errorf("state directory %s: a write does not end", s.dir)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock != nil {
		s.lock.Close()
		s.lock = nil
	}
	if s.dirty {
		return s.err
	}
	return nil
}
