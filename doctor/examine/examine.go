// Package examine examines the node once a minute while railscope runs, and keeps its findings in the store that all
// surfaces show.
package examine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/railscope/railscope/doctor/alike"
	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/classes"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/fingerprint"
	"github.com/railscope/railscope/internal/nodefact"
	"github.com/railscope/railscope/internal/priority"
)

const (
	every = time.Minute
	// Soon after the first examination a second one raises what is wrong at the start.
	soon = 10 * time.Second
	// mostEarly is the number of examinations between two regular ones: one finds a fault, the next confirms it.
	mostEarly = 2
	budget    = 20 * time.Second // time limit of one examination
	source    = "node"           // name of this source in the store
)

// Times for reading hard facts.
const (
	// again is the delay before a second reading confirms a finding: a device that is being renamed disappears briefly,
	// and a finder caches its listing for 20 ms.
	again  = 25 * time.Millisecond
	recent = 50 * time.Millisecond // age of facts that need no new reading
	// patience limits how long a caller waits: a healthy node answers in milliseconds, a hung device may never answer.
	patience = time.Second
	// follow is when hard facts are read once more after the last event, and the time between two readings in a storm.
	follow = time.Second
	// later is when they are read for the last time, after follow. If facts are missing then, because devices did not
	// answer in time, an examination follows, which waits longer for them.
	later = 5 * time.Second
	// Readings after events take at most this share of the time, and this many are made at once.
	share  = 0.005
	atOnce = 20
	// settles is how often hard facts are read after an event, every again: the GID table follows an address by a work
	// queue of the kernel (drivers/infiniband/core/roce_gid_mgmt.c).
	settles = 3
)

// Options are the dependencies of an [Examiner].
type Options struct {
	// Gather reads the facts of the node in bounded time.
	Gather func(context.Context) *facts.Facts
	// Hard reads the facts of [facts.Hard] in milliseconds, independently of Gather, which may wait for a hung device.
	// If nil, hard facts come from Gather.
	Hard func(context.Context) *facts.Facts
	// Series calls view with the exporter's series, at most a minute old, and the reasons of failed sources; nil if
	// there are none.
	Series func(view func(series facts.Series, failed map[string]string))
	// Faults returns the faults of a rail that ended in the last 10 minutes; nil: nothing watches its error counters.
	Faults func(rail string) []fingerprint.Fault
	// Class returns the traffic class of the probe's last round; nil: there was none.
	Class func() *uint8
	// Own returns the version of this program, and a digest of its configuration; nil: they are no facts of the node.
	Own func() (version, configuration string)
	// Uses reports whether this process uses RDMA itself. If not, missing permissions of the process are not a fault.
	Uses func() bool
	// Store keeps the findings.
	Store *finding.Store
}

// Exam describes the last examination.
type Exam struct {
	At     time.Time     // end of the examination; zero if there was none yet
	Took   time.Duration // rounded to milliseconds
	Unread []string      // facts that could not be read and were not judged
	Err    string        // reason why there is no result; empty if there is one
	Done   int           // examinations with a result; findings are complete after 2
	Hard   time.Time     // last reading of hard facts; zero if there was none
	// Classes are the priorities of the rails.
	Classes []priority.Use
	// Facts are those that equal nodes have in common.
	Facts []nodefact.Fact
}

// Examiner examines the node. Safe for concurrent use.
type Examiner struct {
	o       Options
	wanted  chan struct{} // an examination should be made soon
	history facts.History
	done    int // examinations with a result

	reading sync.Mutex // held while hard facts are read and judged

	mu     sync.Mutex // protects all the following fields
	last   Exam
	rails  []Port
	hard   time.Time // start of the last reading of hard facts
	partly bool      // the last reading of hard facts could not read all of them
}

// Port is the state of a rail's port.
type Port struct {
	Rail, Device, Netdev string

	Number int
	State  int // enum ib_port_state; 0 if unknown
	Unused bool
}

// New returns an examiner. Nothing runs until [Examiner.Run].
func New(o Options) *Examiner { return &Examiner{o: o, wanted: make(chan struct{}, 1)} }

// Last describes the last examination.
func (e *Examiner) Last() Exam {
	e.mu.Lock()
	defer e.mu.Unlock()
	last := e.last
	last.Hard = e.hard
	return last
}

// Run examines the node at once, after 10 s, and then every minute, until ctx is done. Twice in between it examines it
// earlier if that is wanted, because hard facts could not be read in time after an event, or not be confirmed; not
// within 10 s of the examination before.
func (e *Examiner) Run(ctx context.Context) {
	timer := time.NewTimer(soon)
	defer timer.Stop()
	for early := 0; ; {
		e.Examine(ctx)
		end, wanted := time.Now(), e.wanted
		if early == mostEarly {
			wanted = nil
		}
		select {
		case <-timer.C:
			early = 0
			timer.Reset(every)
		case <-wanted:
			early++
			sleep(ctx, soon-time.Since(end))
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// want asks for an examination before the next regular one.
func (e *Examiner) want() {
	select {
	case e.wanted <- struct{}{}:
	default:
	}
}

// Now reads hard facts, unless they were just read, and returns the ports of the rails. If read is false, that was not
// possible in time and the ports are unknown.
func (e *Examiner) Now(ctx context.Context) (ports []Port, read bool) {
	if e.o.Hard == nil {
		return nil, false
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.read(context.WithoutCancel(ctx), false)
	}()
	select {
	case <-done:
	case <-time.After(patience):
	case <-ctx.Done():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rails, time.Since(e.hard) < patience
}

// pass describes one or two readings of hard facts.
type pass struct {
	n      int
	took   time.Duration // sum
	raised bool          // they raised a finding
}

// read reads hard facts, unless another caller does so while it waits, or without anew, if one just did. It raises
// findings that a second reading confirms.
func (e *Examiner) read(ctx context.Context, anew bool) (r pass) {
	asked := time.Now()
	e.reading.Lock()
	defer e.reading.Unlock()
	e.mu.Lock()
	known := !anew && time.Since(e.hard) < recent || e.hard.After(asked)
	e.mu.Unlock()
	if known {
		return r
	}
	for r.n < 2 {
		start, found, judged := e.readHard(ctx)
		r.n, r.took = r.n+1, r.took+time.Since(start)
		if judged == nil {
			return r
		}
		before := e.unraised(found)
		e.o.Store.Reread(source, start, found, judged)
		left := e.unraised(found)
		if r.n == 2 || !left {
			r.raised = before && !left
			return r
		}
		time.Sleep(again)
	}
	return r
}

// readHard reads and judges hard facts. judged is nil if they could not be read.
func (e *Examiner) readHard(ctx context.Context) (start time.Time, found []finding.Finding,
	judged func(finding.Finding) bool) {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	e.mu.Lock()
	e.partly = true // until it is known
	e.mu.Unlock()
	defer func() { // a panic ends only this reading
		if recover() != nil {
			judged = nil
		}
	}()
	start = time.Now()
	f := e.o.Hard(ctx)
	if ctx.Err() != nil {
		return start, nil, nil
	}
	found = judge(f, func(c check.Check) bool { return check.Hard(c.ID) })
	ports := make([]Port, len(f.Rails))
	for i, r := range f.Rails {
		ports[i] = Port{Rail: r.Name, Device: r.Device, Netdev: r.Netdev, Number: r.Port, State: r.StateID,
			Unused: r.Unused}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rails, e.hard, e.partly = ports, start, len(f.Unread) > 0
	return start, found, func(one finding.Finding) bool { return check.Hard(one.Check) && check.Judges(f, one) }
}

// missing reports whether the last reading of hard facts could not read some.
func (e *Examiner) missing() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.partly
}

// unraised reports whether any of the findings is not raised yet.
func (e *Examiner) unraised(found []finding.Finding) bool {
	return slices.ContainsFunc(found, func(f finding.Finding) bool { return !e.o.Store.Stands(source, f) })
}

// Examine runs all checks once; calls must not overlap. A panic in a check ends this examination, not the process.
func (e *Examiner) Examine(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	start := time.Now()
	exam := Exam{Done: e.done}
	defer func() {
		if v := recover(); v != nil {
			exam.Err = fmt.Sprintf("panic: %v", v)
		}
		exam.At, exam.Took = time.Now(), time.Since(start).Round(time.Millisecond)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.last = exam
	}()
	f := e.o.Gather(ctx)
	if err := ctx.Err(); err != nil {
		exam.Err = err.Error() // missing facts must not look like faults
		return
	}
	if e.o.Series != nil {
		e.o.Series(func(series facts.Series, failed map[string]string) {
			f.Live = e.history.Live(series, failed,
				start)
		})
		e.addFaults(f)
	}
	exam.Unread = check.ServedUnread(f.Unread)
	e.done++
	exam.Done = e.done
	var class *uint8
	if e.o.Class != nil {
		class = e.o.Class()
	}
	exam.Classes = classes.Served(f, class)
	if e.o.Own != nil {
		version, configuration := e.o.Own()
		exam.Facts = alike.Of(f, version, configuration)
	}
	e.add(ctx, start, Judge(f, e.o.Uses()), func(one finding.Finding) bool { return check.Judges(f, one) })
}

// addFaults adds what the error counters showed.
func (e *Examiner) addFaults(f *facts.Facts) {
	if e.o.Faults == nil {
		return
	}
	f.Live.Faults = map[string][]fingerprint.Fault{}
	for _, r := range f.Rails {
		if list := e.o.Faults(r.Name); len(list) > 0 {
			f.Live.Faults[r.Name] = list
		}
	}
}

// add adds the findings of an examination. Its hard facts may be seconds old, so they are read again; those that cannot
// be read now are as the examination found them, which waited longer for them.
func (e *Examiner) add(ctx context.Context, start time.Time, found []finding.Finding,
	judged func(finding.Finding) bool) {
	if e.o.Hard == nil {
		e.o.Store.UpdateJudged(source, start, found, judged)
		return
	}
	e.reading.Lock()
	_, hard, judgedNow := e.readHard(ctx)
	found = slices.DeleteFunc(found, func(f finding.Finding) bool {
		return check.Hard(f.Check) && judgedNow != nil && judgedNow(f)
	})
	e.o.Store.UpdateJudged(source, start, append(found, hard...), func(f finding.Finding) bool {
		if check.Hard(f.Check) {
			return judgedNow != nil && judgedNow(f)
		}
		return judged(f)
	})
	e.reading.Unlock()
	switch {
	case e.unraised(hard):
		time.Sleep(again)
		e.read(ctx, true)
	case slices.ContainsFunc(found, func(f finding.Finding) bool { return check.Hard(f.Check) }) && e.unraised(found):
		e.want()
	}
}

// Judge runs all checks on the facts of this node, and returns the findings in the form for metrics. uses reports
// whether this process uses RDMA itself.
func Judge(f *facts.Facts, uses bool) []finding.Finding {
	return judge(f, func(c check.Check) bool { return uses || !c.Own() })
}

func judge(f *facts.Facts, wanted func(check.Check) bool) (found []finding.Finding) {
	for _, one := range check.Node(f, wanted) {
		one.Node = "" // this node
		found = append(found, check.Served(one))
	}
	return finding.Causes(found)
}
