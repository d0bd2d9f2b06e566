package probe

import (
	"fmt"
	"math"
	"sync"
	"time"
)

// A model of jobs, in time since the start: which rails they use, and when.

// pattern is when the jobs of a fleet use the rails.
type pattern struct {
	name  string
	nodes int           // nodes of one job
	runs  time.Duration // how long a job runs; 0: for ever
	busy  float64       // part of the time in which a job runs
	step  time.Duration // time of a step; 0: the job has no gaps
	gaps  []time.Duration
	// spread is how far the length of each gap varies: from 1/spread of its length to spread times its length.
	spread float64
	apart  bool // each job has steps of its own phase; else all have the same
}

// forever is after the end of a run.
const forever = 1000 * time.Hour

// span is a time in which rails are quiet, since the start.
type span struct{ from, to time.Duration }

// jobs are the jobs of a fleet.
type jobs struct {
	pattern
	mu      sync.Mutex
	delayed map[string]map[time.Duration]time.Duration // delay of each step, by job and number, at the end of each gap
}

// chance returns a random number from 0 to 1 that depends on its arguments alone.
func chance(of ...int64) float64 {
	h := uint64(1)
	for _, v := range of { // SplitMix64, Steele, Lea and Flood 2014
		h += uint64(v) + 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return float64(h>>11) / (1 << 53)
}

// Kinds of random numbers.
const (
	drawShift = iota
	drawPhase
	drawGap
)

// running returns the number of the job that runs on a node at a time, and when that ends; negative: none runs.
func (j *jobs) running(node int, at time.Duration) (job int, until time.Duration) {
	if j.busy == 0 {
		return -1, forever
	}
	group := node / j.nodes
	if j.runs == 0 {
		return group, forever
	}
	cycle := time.Duration(float64(j.runs) / j.busy)
	shift := time.Duration(chance(drawShift, int64(group)) * float64(cycle))
	n := (at + shift) / cycle
	begin := n*cycle - shift
	if at-begin < j.runs {
		return group*1000 + int(n), begin + j.runs
	}
	return -1, begin + cycle
}

// quiet returns the first span from at on in which no job uses the rails of a node.
func (j *jobs) quiet(node int, at time.Duration) span {
	for at < forever {
		job, until := j.running(node, at)
		if job < 0 {
			return span{at, until}
		}
		if j.step > 0 {
			if s, ok := j.gap(job, at, until); ok {
				return s
			}
		}
		at = until
	}
	return span{forever, 2 * forever}
}

// gap returns the first gap of a job from at on, and before until.
func (j *jobs) gap(job int, at, until time.Duration) (span, bool) {
	phase := time.Duration(0)
	if j.apart {
		phase = time.Duration(chance(drawPhase, int64(job)) * float64(j.step))
	}
	for n := (at + phase) / j.step; n*j.step-phase < until; n++ {
		begin := n*j.step - phase
		share := j.step / time.Duration(len(j.gaps))
		for i, length := range j.gaps {
			if j.spread > 1 {
				c := 2*chance(drawGap, int64(job), int64(n), int64(i)) - 1
				length = time.Duration(float64(length) * math.Pow(j.spread, c))
			}
			s := span{begin + time.Duration(i)*share, begin + time.Duration(i)*share + min(length, share*9/10)}
			if s.to > at && s.from < until {
				return span{max(s.from, at), min(s.to, until)}, true
			}
		}
	}
	return span{}, false
}

// uses returns the part of the last 5 seconds in which a job used the rails of a node.
func (j *jobs) uses(node int, at time.Duration) float64 {
	const over = 5 * time.Second
	quiet := time.Duration(0)
	for from := max(at-over, 0); from < at; {
		s := j.quiet(node, from)
		quiet += max(min(s.to, at)-min(s.from, at), 0)
		from = max(s.to, from+time.Millisecond)
	}
	return 1 - quiet.Seconds()/over.Seconds()
}

// Times of a burst in a gap: the readings that show a rail quiet, the claim of the slot, the burst, and its
// verification.
const (
	simReading  = 5 * time.Millisecond
	simReadings = 5 * simReading
	simClaim    = time.Millisecond
	simBurst    = time.Millisecond
	simVerify   = 3 * time.Millisecond
)

// together returns the first span in which both nodes are quiet for long enough to be noticed.
func (j *jobs) together(a, b int, at, until time.Duration) (span, bool) {
	for at < until {
		x, y := j.quiet(a, at), j.quiet(b, at)
		both := span{max(x.from, y.from), min(x.to, y.to)}
		if both.to-both.from > simReadings {
			return both, both.from+simReadings < until
		}
		at = max(at+time.Microsecond, min(x.to, y.to))
	}
	return span{}, false
}

// meets records that a burst overlapped the traffic of the job of a node.
func (j *jobs) meets(node int, from, to time.Duration) bool {
	q := j.quiet(node, from)
	if q.from <= from && q.to >= to {
		return false
	}
	over := to - max(from, min(q.to, to))
	if q.from > from {
		over = to - from
	}
	if job, _ := j.running(node, to); job >= 0 && j.step > 0 {
		j.mu.Lock()
		defer j.mu.Unlock()
		key := fmt.Sprint(job, " ", to/j.step)
		if j.delayed[key] == nil {
			j.delayed[key] = map[time.Duration]time.Duration{}
		}
		end := min(q.to, to).Round(10 * time.Millisecond) // the nodes of a job leave a gap together
		j.delayed[key][end] = max(j.delayed[key][end], over)
	}
	return true
}
