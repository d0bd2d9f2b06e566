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

// readFile reads the sections. With aside the file is not one that this version
// writes, and that is the suffix to keep it under.
func readFile(path string) (sections map[string]json.RawMessage, aside string, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, corruptSuffix, errors.New("it is a symbolic link")
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
		return nil, corruptSuffix, errors.New("it is not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, "", err
	}
	if len(data) > maxSize {
		return nil, corruptSuffix, fmt.Errorf("it has more than %d bytes", maxSize)
	}
	return parse(data)
}

// parse takes the content apart.
func parse(data []byte) (sections map[string]json.RawMessage, aside string, err error) {
	if err := json.Unmarshal(data, &sections); err != nil {
		return nil, corruptSuffix, err
	}
	var v int
	if err := json.Unmarshal(sections["version"], &v); err != nil || v < 1 {
		return nil, corruptSuffix, errors.New("it has no version")
	}
	if v > version {
		return nil, fmt.Sprintf(".version-%d", v),
			fmt.Errorf("it is of version %d, and this railscope knows version %d", v, version)
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
		return fmt.Errorf("the state would have %d bytes; at most %d are written", len(data), maxSize)
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

// create makes a file that was not there. What root makes is given to the owner of
// the directory, who is to read it; where that fails it stays root's.
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

// kickLocked starts a write unless one is going on, which then goes on with what
// is new.
func (s *Store) kickLocked() {
	if s.readOnly || s.silent || s.closed || s.writing != nil {
		return
	}
	if s.again != nil {
		s.again.Stop()
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
		s.told(err)
		s.mu.Lock()
		switch {
		case err != nil:
			s.dirty = s.dirty || was
			if !s.closed {
				s.retryLocked()
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

// retryLocked has the file written in a while.
func (s *Store) retryLocked() {
	s.again = time.AfterFunc(retryEvery, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.kickLocked()
	})
}

// save writes the file once, in the lane.
func (s *Store) save() error {
	s.mu.Lock()
	lock, loaded := s.lock, s.loaded
	s.mu.Unlock()
	if lock == nil || !loaded { // the other process may have ended, and have written
		if lock == nil {
			if err := s.acquire(); err != nil {
				return s.failed(err)
			}
		}
		if err := s.load(true); err != nil && !s.isLoaded() {
			return err
		}
	}
	s.mu.Lock()
	sections := maps.Clone(s.sections)
	s.mu.Unlock()
	if err := writeFile(s.dir, sections); err != nil {
		return s.failed(err)
	}
	return nil
}

func (s *Store) isLoaded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loaded
}

// Close saves what is not saved yet, waiting for a while at most, lets other
// processes write, and returns what could not be saved.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.dirty && s.err == nil {
		s.kickLocked()
	}
	s.closed = true
	if s.again != nil {
		s.again.Stop()
	}
	writing := s.writing
	s.mu.Unlock()
	if writing != nil {
		select {
		case <-writing:
		case <-time.After(2 * patience):
			return fmt.Errorf("state directory %s: a write has not ended", s.dir)
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
