package worker

import (
	"io"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
)

// disturbedEngine makes a number of disturbed bursts, then good ones.
type disturbedEngine struct {
	engine
	until, made int
	failed      bool
}

func (e *disturbedEngine) progress() []int64 { return nil }

func (e *disturbedEngine) burst(_ []byte, _ BurstArgs) (BurstDone, error) {
	e.made++
	r := BurstRail{Bytes: 100, Disturbed: e.made < e.until}
	if e.failed {
		r.Failure = failure.New("", failure.RetryExceeded, "gone")
	}
	return BurstDone{Rails: []BurstRail{r}}, nil
}

// TestRepeats: a disturbed burst is repeated up to 3 times, and its bytes include those of all attempts. A failure ends
// it. A burst over TCP, which slow lanes disturb, runs once.
func TestRepeats(t *testing.T) {
	for why, tc := range map[string]struct {
		e        disturbedEngine
		warmup   time.Duration
		deadline time.Duration
		made     int
		figure   bool
	}{
		"at once":            {disturbedEngine{until: 1}, 0, time.Minute, 1, true},
		"the third":          {disturbedEngine{until: 3}, 0, time.Minute, 3, true},
		"never":              {disturbedEngine{until: 99}, 0, time.Minute, 1 + MaxRepeats, false},
		"a failure":          {disturbedEngine{until: 99, failed: true}, 0, time.Minute, 1, false},
		"over TCP":           {disturbedEngine{until: 99}, time.Millisecond, time.Minute, 1, false},
		"no time for others": {disturbedEngine{until: 99}, 0, time.Millisecond, 1, false},
	} {
		s := &server{engine: &tc.e, out: io.Discard}
		done, err := s.burst(1, BurstArgs{Loads: []Load{{Rail: "0"}}, Warmup: tc.warmup, Slow: time.Second,
			Deadline: tc.deadline})
		if err != nil || tc.e.made != tc.made || done.Disturbed() == (tc.figure || tc.e.failed) ||
			done.Rails[0].Bytes != int64(100*tc.made) {
			t.Errorf("%s: %d bursts, %+v, %v; want %d", why, tc.e.made, done, err, tc.made)
		}
	}
}
