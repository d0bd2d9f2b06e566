package probe

import (
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/schedule"
	"github.com/railscope/railscope/probe/result"
)

// TestSchedule: every peer has its own offset and one turn per cycle, whenever its rounds end.
func TestSchedule(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	for _, tc := range []struct {
		peers    int
		interval time.Duration
		took     time.Duration
		pace     time.Duration
		cycle    time.Duration
	}{
		{1, time.Second, 250 * time.Millisecond, 0, time.Second},
		{4, time.Minute, 4 * time.Second, 7 * time.Second, time.Minute}, // the default fan-out, with slow rounds
		{8, time.Minute, 4 * time.Second, 7 * time.Second, 2 * time.Minute},
		{16, time.Minute, time.Second, 8190 * time.Millisecond, 3 * time.Minute}, // the budget allows no shorter cycle
		{100, time.Minute, time.Second, 0, 5 * time.Minute},
		{999, time.Minute, time.Second, 0, 48 * time.Minute},
		{10000, time.Minute, time.Second, 1 << 62, 240000 * time.Hour},
		{9999, time.Minute, time.Second, 0, 477 * time.Minute},
	} {
		s := schedule.NewSchedule("self", tc.interval, func(time.Duration) time.Duration { return 0 })
		s.Took, s.Pace = tc.took, func() time.Duration { return tc.pace }
		s.Set(fleet(tc.peers), start)
		if got := s.Cycle(); got != tc.cycle {
			t.Errorf("%d peers, rounds of %v: a cycle of %v, want %v", tc.peers, tc.took, got, tc.cycle)
		}
		if tc.peers > 1000 {
			continue // each step looks at all peers: too slow
		}
		asked := map[string]time.Time{}
		offsets := map[time.Time]bool{}
		for range 3 * tc.peers {
			peer, at := s.Next()
			if last, again := asked[peer]; again && at.Sub(last) != tc.cycle || !again && at.Sub(start) >= tc.cycle {
				t.Fatalf("%d peers: %s at %v, last %v", tc.peers, peer, at.Sub(start), last.Sub(start))
			}
			asked[peer], offsets[at] = at, true
			s.Begin(peer)
			if !s.End(peer, &result.Result{Outcome: result.OK, Transport: result.RDMA, Duration: tc.took},
				at.Add(tc.took)) {
				t.Fatal("a round without a result")
			}
		}
		if len(asked) != tc.peers || len(offsets) < 3*tc.peers*99/100 {
			t.Errorf("%d of %d peers, at %d times", len(asked), tc.peers, len(offsets))
		}
	}
}

// TestScheduleRetries: a denied round is retried until its cycle ends, and then has one result.
func TestScheduleRetries(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	denied := func(after time.Duration) *result.Result {
		return &result.Result{Outcome: result.Skipped, Transport: result.NoTransport, Reason: failure.Busy,
			RetryAfter: after}
	}
	for _, tc := range []struct {
		name string
		res  *result.Result
		wait time.Duration // time until the next attempt; 0: none, the result is final
		late time.Duration // wait in the second half of the cycle
		want int           // attempts
	}{
		{"the slot is taken", denied(protocol.RetryLeast), 3 * time.Second, 1500 * time.Millisecond, 10 + 20},
		{"the budget is refilled in a while", denied(20 * time.Second), 20 * time.Second, 20 * time.Second, 3},
		{"not within the cycle", denied(time.Hour), 0, 0, 1},
		{"a job uses the rails", denied(0), 0, 0, 1},
		{"done", &result.Result{Outcome: result.OK, Transport: result.RDMA}, 0, 0, 1},
	} {
		s := schedule.NewSchedule("self", time.Minute, func(n time.Duration) time.Duration { return n / 2 })
		s.Set([]string{"b:1"}, start)
		_, first := s.Next()
		now, attempts := first, 0
		for {
			s.Begin("b:1")
			late := now.Sub(first) >= 30*time.Second
			if s.Overdue("b:1", now) != late {
				t.Errorf("%s: after %v, overdue is %v", tc.name, now.Sub(first), !late)
			}
			if peer, _ := s.Next(); peer != "" {
				t.Errorf("%s: %s is asked twice at once", tc.name, peer)
			}
			attempts++
			final := s.End("b:1", tc.res, now)
			_, at := s.Next()
			if final {
				if at.Sub(first) != time.Minute {
					t.Errorf("%s: the next cycle after %v", tc.name, at.Sub(first))
				}
				break
			}
			want := tc.wait
			if late {
				want = tc.late
			}
			if at.Sub(now) != want {
				t.Errorf("%s: again after %v, want %v", tc.name, at.Sub(now), want)
			}
			now = at
		}
		if attempts != tc.want {
			t.Errorf("%s: %d attempts, want %d", tc.name, attempts, tc.want)
		}
	}
}

// TestScheduleSet: peers that stay keep their turn. A peer that left during its round leaves nothing behind.
func TestScheduleSet(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := schedule.NewSchedule("self", time.Minute, func(time.Duration) time.Duration { return 0 })
	s.Set([]string{"b:1", "c:1"}, now)
	before := *s.Turns["b:1"]
	s.Begin("c:1")
	s.Set([]string{"b:1", "d:1"}, now.Add(10*time.Second))
	if *s.Turns["b:1"] != before || len(s.Turns) != 2 {
		t.Errorf("%+v, it was %+v; %d turns", *s.Turns["b:1"], before, len(s.Turns))
	}
	if !s.End("c:1", &result.Result{Outcome: result.Skipped, RetryAfter: time.Second}, now) || len(s.Turns) != 2 {
		t.Error("a peer that left is asked again")
	}
	s.Set(nil, now)
	if s.Cycle() != 0 {
		t.Errorf("a cycle of %v without peers", s.Cycle())
	}
}
