package exporter

import "sync"

// sharedText gives one exposition to all who ask for it while it is made, and
// takes the memory back when the last of them has done with it: at a scrape it
// is nine tenths of what would be garbage. The zero value is ready to use. Safe
// for concurrent use.
type sharedText struct {
	mu      sync.Mutex // protects all following fields, and users
	current *flight    // nil when none is being made
	spare   []byte
}

// flight is one exposition.
type flight struct {
	made  chan struct{} // closed when text is there
	text  []byte
	users int
}

// use calls with with what write appended to the memory given to it: now, or
// for somebody who came before and was still waiting. The text must not be
// changed, nor kept.
func (s *sharedText) use(write func(memory []byte) []byte, with func(text []byte)) {
	f, first := s.join()
	defer s.leave(f)
	if first {
		s.make(f, write)
	}
	<-f.made
	if f.text == nil {
		panic("the scrape that this one shares panicked") // an empty answer would look like a node without anything
	}
	with(f.text)
}

func (s *sharedText) join() (f *flight, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if first = s.current == nil; first {
		s.current = &flight{made: make(chan struct{}), text: s.spare}
		s.spare = nil
	}
	s.current.users++
	return s.current, first
}

// make lets go those who wait, and who comes next, even if write panics.
func (s *sharedText) make(f *flight, write func(memory []byte) []byte) {
	memory := f.text[:0]
	f.text = nil
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.current = nil
		close(f.made)
	}()
	f.text = write(memory)
}

func (s *sharedText) leave(f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.users--; f.users == 0 && cap(f.text) > cap(s.spare) {
		s.spare = f.text
	}
}
