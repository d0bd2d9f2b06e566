package http

import (
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxSlow is how many answers may wait for clients, each holding its text. A healthy client reads in milliseconds.
const maxSlow = 64

// slowAnswers ends the oldest answer when too many wait for their clients. Safe for concurrent use.
type slowAnswers struct {
	mu      sync.Mutex
	waiting []*slowAnswer // oldest first
}

// slowAnswer is a response whose writes count as waiting while they block.
type slowAnswer struct {
	http.ResponseWriter
	all *slowAnswers
}

func (a *slowAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *slowAnswer) Write(b []byte) (int, error) {
	a.all.add(a)
	defer a.all.remove(a)
	return a.ResponseWriter.Write(b)
}

func (s *slowAnswers) add(a *slowAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) >= maxSlow {
		_ = http.NewResponseController(s.waiting[0]).SetWriteDeadline(time.Now()) // its write fails
		s.waiting = s.waiting[1:]
	}
	s.waiting = append(s.waiting, a)
}

func (s *slowAnswers) remove(a *slowAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(other *slowAnswer) bool { return other == a })
}
