package http

import (
	"net/http"
	"sync"
	"time"
)

// maxSlow is how many answers may wait for their clients to read them. A healthy client reads in milliseconds, and each
// waiting answer holds its text.
const maxSlow = 64

// slowAnswers ends the oldest answer when too many wait for their clients. The zero value is ready to use. Safe for
// concurrent use.
type slowAnswers struct {
	mu    sync.Mutex
	going []*slowAnswer // oldest first
}

// slowAnswer is a response whose writes count as slow while they block.
type slowAnswer struct {
	http.ResponseWriter
	among *slowAnswers
}

// Unwrap is for [http.ResponseController].
func (a *slowAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Write implements [http.ResponseWriter].
func (a *slowAnswer) Write(b []byte) (int, error) {
	a.among.begin(a)
	defer a.among.end(a)
	return a.ResponseWriter.Write(b)
}

func (s *slowAnswers) begin(a *slowAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.going) >= maxSlow {
		_ = http.NewResponseController(s.going[0]).SetWriteDeadline(time.Now()) // its write fails
		s.going = s.going[1:]
	}
	s.going = append(s.going, a)
}

func (s *slowAnswers) end(a *slowAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.going {
		if other == a {
			s.going = append(s.going[:i:i], s.going[i+1:]...)
			return
		}
	}
}
