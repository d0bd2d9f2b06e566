// Package lane prevents a call that hangs from blocking others. A read of sysfs, an ioctl or a call into a driver
// cannot be cancelled: it can block in the kernel forever. Therefore each device or file has its own lane: it holds
// at most one call, a caller waits a bounded time, and no other call enters the lane before a stuck one has
// returned.
//
// One goroutine makes the calls of all lanes, one after another, because waking one goroutine per call costs more
// than most calls. If a call takes long, another goroutine continues with the rest.
package lane

import (
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// State is the outcome of a call for its caller.
type State int

// States of a [Result].
const (
	Done State = iota // it returned in time; Value is set
	Late              // it did not return within the budget; its value will be dropped
	Busy              // an earlier call is still in the lane; no call was started
	Died              // it panicked
)

// Result is the outcome for one key.
type Result[K comparable, T any] struct {
	Key   K
	State State
	Value T         // valid if Done
	Since time.Time // start of the call in the lane (Late, Busy)
	Err   error     // nil if Done
}

// Lanes is a set of lanes, one per key. The zero value is ready to use. Safe for concurrent use.
type Lanes[K comparable, T any] struct {
	mu   sync.Mutex      // protects busy and the rounds
	busy map[K]time.Time // start of the call in each occupied lane
}

// Group is a set of lanes with names.
type Group[T any] = Lanes[string, T]

// patience is the time after which another goroutine makes the calls behind a slow one.
const patience = 2 * time.Millisecond

// Run calls fn once per key, each in its lane, and returns when all calls have returned or exceeded their budgets.
// The budget of a call starts when the call does. Results are in the order of keys. The value of a call that
// returns late is dropped, so fn must not write to anything that the caller reads.
func (g *Lanes[K, T]) Run(budget time.Duration, keys []K, fn func(key K) T) []Result[K, T] {
	r := &round[K, T]{Lanes: g, fn: fn, results: make([]Result[K, T], len(keys)), done: make(chan struct{})}
	r.enter(keys)
	if r.left == 0 {
		return r.results
	}
	go r.work()
	timer := time.NewTimer(min(patience, budget))
	defer timer.Stop()
	for started := 0; ; {
		select {
		case <-r.done:
			return r.results
		case <-timer.C:
		}
		wait, over, next := r.check(budget)
		if over {
			return r.results
		}
		if next == started && next < len(r.calls) {
			go r.work()
		}
		started = next
		timer.Reset(wait)
	}
}

type round[K comparable, T any] struct {
	*Lanes[K, T]
	fn      func(key K) T
	calls   []int          // index into results for each call
	results []Result[K, T] // not written after the end of the round
	next    int            // index of the next call to make
	left    int            // number of calls that have neither returned nor become late
	done    chan struct{}  // closed when all have returned
}

func (r *round[K, T]) enter(keys []K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy == nil {
		r.busy = make(map[K]time.Time)
	}
	now := time.Now()
	for i, key := range keys {
		if since, busy := r.busy[key]; busy {
			err := fmt.Errorf("a read that began %v ago has not returned", now.Sub(since).Round(time.Millisecond))
			r.results[i] = Result[K, T]{Key: key, State: Busy, Since: since, Err: err}
			continue
		}
		r.busy[key] = now
		r.results[i] = Result[K, T]{Key: key, State: Late}
		r.calls = append(r.calls, i)
	}
	r.left = len(r.calls)
}

func (r *round[K, T]) work() {
	for {
		r.mu.Lock()
		if r.next == len(r.calls) {
			r.mu.Unlock()
			return
		}
		i := r.calls[r.next]
		r.next++
		key := r.results[i].Key
		r.results[i].Since = time.Now()
		r.busy[key] = r.results[i].Since
		r.mu.Unlock()

		res := call(key, r.fn)
		r.mu.Lock()
		delete(r.busy, key)
		if r.results[i].Err == nil { // the call is not marked as late
			r.results[i] = res
			r.left--
			if r.left == 0 {
				close(r.done)
			}
		}
		r.mu.Unlock()
	}
}

// check marks calls that are late. It returns when to check again, whether all are done, and the number of calls
// that started.
func (r *round[K, T]) check(budget time.Duration) (wait time.Duration, over bool, started int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait = budget
	if r.next < len(r.calls) {
		wait = patience
	}
	for _, i := range r.calls[:r.next] {
		res := &r.results[i]
		if res.State != Late || res.Err != nil {
			continue
		}
		if rest := budget - time.Since(res.Since); rest > 0 {
			wait = min(wait, rest)
			continue
		}
		res.Err = fmt.Errorf("no answer within %v", budget)
		r.left--
	}
	return wait, r.left == 0, r.next
}

func call[K comparable, T any](key K, fn func(K) T) (res Result[K, T]) {
	res.Key = key
	defer func() {
		if p := recover(); p != nil {
			res.State, res.Err = Died, fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	res.Value = fn(key)
	return res
}

// Busy returns the keys of the lanes that hold a call.
func (g *Lanes[K, T]) Busy() []K {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.busy))
}
