package lane_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/internal/lane/lanetest"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/lane"
)

const budget = time.Second

// seen is a Result without its message, for tables.
type seen struct {
	Key   string
	State lane.State
	Value string
	Age   time.Duration // age of the call in the lane
}

func view(results []lane.Result[string, string]) []seen {
	var out []seen
	for _, r := range results {
		s := seen{Key: r.Key, State: r.State, Value: r.Value}
		if !r.Since.IsZero() {
			s.Age = time.Since(r.Since)
		}
		out = append(out, s)
	}
	return out
}

// timed calls fn and returns its duration, which is exact in a synctest bubble.
func timed(fn func()) time.Duration {
	start := time.Now()
	fn()
	return time.Since(start)
}

func TestRunAllDone(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		var g lane.Group[string]
		var got []lane.Result[string, string]
		took := timed(func() {
			got = g.Run(budget, []string{"c", "a", "b"}, func(key string) string {
				time.Sleep(map[string]time.Duration{"a": 300, "b": 200, "c": 900}[key] *
					time.Millisecond) // the first key is the last to return
				return "value of " + key
			})
		})
		want := []seen{{"c", lane.Done, "value of c", 0}, {"a", lane.Done, "value of a", 0},
			{"b", lane.Done, "value of b", 0}}
		if diff := cmp.Diff(want, view(got)); diff != "" {
			t.Error(diff)
		}
		if took != 900*time.Millisecond {
			t.Errorf("took %v: the calls are to run side by side, and the last of them ends the wait", took)
		}
		for _, r := range got {
			if r.Err != nil {
				t.Errorf("%s: %v", r.Key, r.Err)
			}
		}
	})
}

func TestRunNothing(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		var g lane.Group[string]
		took := timed(func() {
			if got := g.Run(budget, nil, nil); len(got) != 0 {
				t.Error(got)
			}
		})
		if took != 0 {
			t.Errorf("waited %v for nobody", took)
		}
	})
}

// TestRunLate runs four rounds while one lane is stuck for 5 s.
func TestRunLate(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		var g lane.Group[string]
		round, calls := "first", 0
		fn := func(key string) string {
			mine := round + " " + key
			if key == "stuck" {
				calls++
				if calls == 1 {
					time.Sleep(5 * time.Second)
				}
			}
			return mine
		}
		type step struct {
			Took time.Duration
			Got  []seen
		}
		var got []step
		run := func(name string) {
			round = name
			var s step
			s.Took = timed(func() { s.Got = view(g.Run(budget, []string{"stuck", "well"}, fn)) })
			got = append(got, s)
			synctest.Wait()
		}
		run("first")
		run("second")
		time.Sleep(3 * time.Second)
		run("third")
		time.Sleep(time.Second) // the stuck call returns at 5 s
		synctest.Wait()
		run("fourth")
		want := []step{
			{budget, []seen{{"stuck", lane.Late, "", budget}, {"well", lane.Done, "first well", 0}}},
			{0, []seen{{"stuck", lane.Busy, "", 1 * time.Second}, {"well", lane.Done, "second well", 0}}},
			{0, []seen{{"stuck", lane.Busy, "", 4 * time.Second}, {"well", lane.Done, "third well", 0}}},
			{0, []seen{{"stuck", lane.Done, "fourth stuck", 0},
				{"well", lane.Done, "fourth well", 0}}}, // never "first stuck"
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if calls != 2 {
			t.Errorf("the stuck lane was entered %d times, want 2", calls)
		}
	})
}

func TestRunMessages(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		var g lane.Group[string]
		fn := func(string) string { time.Sleep(time.Minute); return "" }
		first := g.Run(budget, []string{"a"}, fn)[0].Err
		second := g.Run(budget, []string{"a"}, fn)[0].Err
		time.Sleep(time.Hour)
		want := []string{"no answer within 1s", "a read that began 1s ago has not returned"}
		if diff := cmp.Diff(want, []string{first.Error(), second.Error()}); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRunPanic(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		var g lane.Group[string]
		bad := true
		fn := func(key string) string {
			if bad && key == "bad" {
				panic(errors.New("index out of range"))
			}
			return key
		}
		got := g.Run(budget, []string{"bad", "good"}, fn)
		if diff := cmp.Diff([]seen{{"bad", lane.Died, "", 0}, {"good", lane.Done, "good", 0}}, view(got)); diff != "" {
			t.Error(diff)
		}
		if text := got[0].Err.Error(); !strings.HasPrefix(text,
			"panic: index out of range\n") || !strings.Contains(text, "lane_test.go") {
			t.Errorf("the message does not lead to the line that panicked: %s", text)
		}
		bad = false
		got = g.Run(budget, []string{"bad"}, fn)
		if diff := cmp.Diff([]seen{{"bad", lane.Done, "bad", 0}}, view(got)); diff != "" {
			t.Errorf("after a panic: %s", diff)
		}
	})
}

// A panic after the budget has no caller to report to. It must neither end the process nor occupy the lane.
func TestRunLatePanic(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		var g lane.Group[string]
		g.Run(budget, []string{"a"}, func(string) string { time.Sleep(2 * budget); panic("late") })
		time.Sleep(2 * budget)
		got := g.Run(budget, []string{"a"}, func(string) string { return "well" })
		if diff := cmp.Diff([]seen{{"a", lane.Done, "well", 0}}, view(got)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRunTwiceAtOnce(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		var g lane.Group[string]
		entered := 0
		states := make(chan lane.State, 2)
		for range 2 {
			go func() {
				got := g.Run(budget, []string{"a"}, func(string) string {
					entered++ // no lock: the lane runs one call at a time
					time.Sleep(budget / 2)
					return ""
				})
				states <- got[0].State
			}()
		}
		time.Sleep(budget)
		if got := []lane.State{<-states, <-states}; cmp.Diff([]lane.State{lane.Busy, lane.Done}, got) != "" {
			t.Errorf("states %v, want the one Busy at once and the other Done", got)
		}
		if entered != 1 {
			t.Errorf("%d calls entered, want 1", entered)
		}
	})
}

func TestRunSameKeyTwice(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		var g lane.Group[string]
		got := g.Run(budget, []string{"a", "a"}, func(string) string { time.Sleep(budget / 2); return "value" })
		if diff := cmp.Diff([]seen{{"a", lane.Done, "value", 0}, {"a", lane.Busy, "", budget / 2}},
			view(got)); diff != "" {
			t.Error(diff)
		}
	})
}

// A caller may call again as soon as it has the result, so the lane must be free before the result is delivered.
// Real goroutines in real time.
func TestRunBackToBack(t *testing.T) {
	var g lane.Group[int]
	keys := []string{"a", "b", "c", "d"}
	var calls atomic.Int64
	for round := range 1000 {
		for _, r := range g.Run(time.Minute, keys, func(string) int { calls.Add(1); return round }) {
			if r.State != lane.Done || r.Value != round {
				t.Fatalf("round %d: %+v", round, r)
			}
		}
	}
	if n := calls.Load(); n != int64(1000*len(keys)) {
		t.Errorf("%d calls", n)
	}
}

// Many callers on many lanes: in any order, a lane holds one call.
func TestRunManyAskers(t *testing.T) {
	var g lane.Group[string]
	keys := []string{"a", "b", "c"}
	inside := map[string]*atomic.Int32{}
	for _, k := range keys {
		inside[k] = &atomic.Int32{}
	}
	var wg sync.WaitGroup
	for asker := range 8 {
		wg.Go(func() {
			for range 200 {
				for i, r := range g.Run(time.Minute, keys, func(key string) string {
					if inside[key].Add(1) != 1 {
						panic("two calls in the lane of " + key)
					}
					defer inside[key].Add(-1)
					return key
				}) {
					ok := r.Key == keys[i] && (r.State == lane.Busy && r.Err != nil || r.State == lane.Done &&
						r.Value == r.Key && r.Err == nil)
					if !ok {
						t.Error(fmt.Sprint(asker), r)
					}
				}
			}
		})
	}
	wg.Wait()
}

// TestWorkers: there is at most one goroutine per call, and none without calls.
func TestWorkers(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		var g lane.Group[int]
		keys := []string{"a", "b", "c", "d"}
		before := runtime.NumGoroutine()
		for range 1000 {
			g.Run(time.Second, keys, func(string) int { return 0 })
			synctest.Wait()
			if n := runtime.NumGoroutine() - before; n > len(keys) {
				t.Fatalf("%d goroutines for %d lanes", n, len(keys))
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		n := runtime.NumGoroutine() - before
		for range 1_000_000 { // the runtime counts a goroutine for a moment after it has ended
			if n <= 0 {
				break
			}
			runtime.Gosched()
			n = runtime.NumGoroutine() - before
		}
		if n > 0 {
			t.Errorf("%d goroutines are there after an hour of rest", n)
		}
		for _, r := range g.Run(time.Second, keys, func(string) int { return 7 }) {
			if r.State != lane.Done || r.Value != 7 {
				t.Errorf("after that: %+v", r)
			}
		}
	})
}

// TestRunOneGoroutine: fast calls are made by one goroutine, one after another. If one is slow, other goroutines
// continue, and each call has its whole budget.
func TestRunOneGoroutine(t *testing.T) {
	for _, tc := range []struct {
		takes time.Duration
		most  int           // maximum number of concurrent calls
		took  time.Duration // maximum duration
		state lane.State
	}{
		{0, 1, 0, lane.Done},
		{time.Millisecond, 1, 64 * time.Millisecond, lane.Done},
		{budget * 9 / 10, 64, budget*9/10 + 256*time.Millisecond, lane.Done},
		{time.Hour / 2, 64, budget + 256*time.Millisecond, lane.Late},
	} {
		lanetest.Test(t, func(t *testing.T) {
			var g lane.Group[string]
			var mu sync.Mutex
			inside, most := 0, 0
			var keys []string
			for i := range 64 {
				keys = append(keys, fmt.Sprint(i))
			}
			var got []lane.Result[string, string]
			took := timed(func() {
				got = g.Run(budget, keys, func(key string) string {
					mu.Lock()
					inside++
					most = max(most, inside)
					mu.Unlock()
					time.Sleep(tc.takes)
					mu.Lock()
					defer mu.Unlock()
					inside--
					return key
				})
			})
			mu.Lock()
			defer mu.Unlock()
			if most > tc.most || took > tc.took {
				t.Errorf("calls of %v: %d side by side, took %v; want at most %d and %v", tc.takes, most, took, tc.most,
					tc.took)
			}
			for _, r := range got {
				if r.State != tc.state || (r.Value == r.Key) != (tc.state == lane.Done) {
					t.Errorf("calls of %v: %+v", tc.takes, r)
				}
			}
		})
	}
}
