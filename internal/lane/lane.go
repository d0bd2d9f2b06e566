// Package lane keeps one thing that hangs from holding up the others. A read
// of sysfs, an ioctl or a call into a driver cannot be cancelled: it can sit in
// the kernel for ever. So each thing that may hang has a lane of its own: at
// most one call is in it, whoever asks waits a bounded time, and until the
// stuck call returns nobody enters that lane again.
//
// One goroutine calls into all lanes, one after another, because waking one for
// each costs more than most calls. When a call takes long, another goroutine goes
// on with the rest.
package lane

import (
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// State is how a call in a lane ended, as seen by the one who asked.
type State int

// The states of a [Result].
const (
	Done State = iota // it returned in time; Value is set
	Late              // it has not returned within the budget; its value will be dropped
	Busy              // an earlier call is still in the lane; nothing was started
	Died              // it panicked; Err says how
)

// Result is the outcome for one key.
type Result[T any] struct {
	Key   string
	State State
	Value T         // valid when Done
	Since time.Time // when the call now in the lane began (Late, Busy)
	Err   error     // nil when Done
}

// Group is a set of lanes, one per key. The zero value is ready to use. Safe
// for concurrent use.
type Group[T any] struct {
	mu   sync.Mutex           // protects all following fields
	busy map[string]time.Time // start of the call in each occupied lane
	idle []chan func()        // of workers that wait for a call
}

// patience is how long the calls that follow wait for one that takes long, before
// another goroutine makes them.
const patience = 2 * time.Millisecond

// Run calls fn once per key, each in its lane, and returns when all have returned
// or their budgets are over, whichever is first. The budget of a call starts when
// the call does. Results are in the order of keys. The value of a call that
// returns late is dropped, so fn must not write to anything the caller reads.
func (g *Group[T]) Run(budget time.Duration, keys []string, fn func(key string) T) []Result[T] {
	r := &round[T]{group: g, fn: fn, results: make([]Result[T], len(keys)), done: make(chan struct{})}
	for i, key := range keys {
		since, entered := g.enter(key)
		if entered {
			r.results[i] = Result[T]{Key: key, State: Late}
			r.calls = append(r.calls, i)
			continue
		}
		r.results[i] = Result[T]{Key: key, State: Busy, Since: since,
			Err: fmt.Errorf("a read that began %v ago has not returned", time.Since(since).Round(time.Millisecond))}
	}
	if r.left = len(r.calls); r.left == 0 {
		return r.results
	}
	g.start(r.work)
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
			g.start(r.work)
		}
		started = next
		timer.Reset(wait)
	}
}

// round is the calls of one Run.
type round[T any] struct {
	group *Group[T]
	fn    func(key string) T
	calls []int // indices of the results that calls are made for

	mu      sync.Mutex    // protects all following fields
	results []Result[T]   // not written any more once none is left
	next    int           // of calls: the next to make
	left    int           // calls that have neither returned nor become late
	done    chan struct{} // closed when all have returned
}

// work makes calls until none is left to make.
func (r *round[T]) work() {
	for {
		i, key := r.take()
		if i < 0 {
			return
		}
		res := call(key, r.fn)
		r.group.leave(key) // before the delivery: who gets the answer may ask again at once
		r.deliver(i, res)
	}
}

// take returns the result that the next call is for, or -1.
func (r *round[T]) take() (i int, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == len(r.calls) {
		return -1, ""
	}
	i = r.calls[r.next]
	r.next++
	r.results[i].Since = r.group.began(r.results[i].Key)
	return i, r.results[i].Key
}

func (r *round[T]) deliver(i int, res Result[T]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.results[i].Err != nil {
		return // late
	}
	r.results[i] = res
	if r.left--; r.left == 0 {
		close(r.done)
	}
}

// check gives up calls that are late, and returns when to check again, whether
// none is left, and how many calls were started.
func (r *round[T]) check(budget time.Duration) (wait time.Duration, over bool, started int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if wait = budget; r.next < len(r.calls) {
		wait = patience
	}
	for _, i := range r.calls[:r.next] {
		res := &r.results[i]
		if res.State != Late || res.Err != nil {
			continue
		}
		rest := budget - time.Since(res.Since)
		if rest > 0 {
			wait = min(wait, rest)
			continue
		}
		res.Err = fmt.Errorf("no answer within %v", budget)
		r.left--
	}
	return wait, r.left == 0, r.next
}

// idleFor is how long a goroutine waits for the next call before it ends. A new
// one would have to grow its stack first, at every scrape.
const idleFor = time.Minute

// start runs fn in a goroutine that is idle, or in a new one.
func (g *Group[T]) start(fn func()) {
	g.mu.Lock()
	n := len(g.idle)
	if n == 0 {
		g.mu.Unlock()
		go g.work(fn)
		return
	}
	worker := g.idle[n-1]
	g.idle = g.idle[:n-1]
	g.mu.Unlock()
	worker <- fn
}

// work runs fn, and then whatever start hands to it, until nobody has for a
// while.
func (g *Group[T]) work(fn func()) {
	inbox := make(chan func(), 1)
	timer := time.NewTimer(idleFor)
	defer timer.Stop()
	for {
		fn()
		g.mu.Lock()
		g.idle = append(g.idle, inbox)
		g.mu.Unlock()
		timer.Reset(idleFor)
		select {
		case fn = <-inbox:
		case <-timer.C:
			if g.retire(inbox) {
				return
			}
			fn = <-inbox // start took it in the same moment
		}
	}
}

// retire takes a worker off the idle ones, and reports whether it was there.
func (g *Group[T]) retire(inbox chan func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.idle, inbox)
	if i < 0 {
		return false
	}
	g.idle = slices.Delete(g.idle, i, i+1)
	return true
}

// Busy returns the keys of the lanes in which a call is, sorted.
func (g *Group[T]) Busy() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.busy))
}

func call[T any](key string, fn func(string) T) (res Result[T]) {
	res.Key = key
	defer func() {
		if p := recover(); p != nil {
			res.State, res.Err = Died, fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	res.Value = fn(key)
	return res
}

// enter takes the lane of key, or returns since when it is taken.
func (g *Group[T]) enter(key string) (since time.Time, entered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if since, taken := g.busy[key]; taken {
		return since, false
	}
	if g.busy == nil {
		g.busy = make(map[string]time.Time)
	}
	since = time.Now()
	g.busy[key] = since
	return since, true
}

// began notes that the call in a lane begins now.
func (g *Group[T]) began(key string) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy[key] = time.Now()
	return g.busy[key]
}

func (g *Group[T]) leave(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.busy, key)
}
