package demo

import (
	"math/rand/v2"
	"sync"
	"time"
)

// A step of the job: it computes, then more and more gradients go over the rails
// while it goes on computing, then it waits for the last of them. Now and then
// it writes a checkpoint, and the rails are idle.
const (
	stepTime        = 1100 * time.Millisecond // not a second: who looks every second is to see all of it
	checkpointEvery = time.Minute
	checkpointTime  = 3 * time.Second
	startTime       = 20 * time.Second // until it has allocated all of its memory
)

// phases are the parts of a step: until when, in parts of it, and how much of
// each rail is used, of what the rail carries.
var phases = [...]struct{ until, use float64 }{{0.15, 0}, {0.7, 0.6}, {1, 0.8}}

// How long the job stands aside: from when a round begins until its first bytes
// are under way, and after each sign that it goes on.
const (
	asideFirst = 3 * time.Second
	asideMore  = time.Second
)

// job is a training job on both nodes that exchanges gradients over all rails.
type job struct {
	began time.Time

	mu    sync.Mutex // protects all following fields
	aside time.Time  // until when it keeps off the rails
}

// standAside keeps the job off the rails for so long from now on. A real job does no such
// thing: the probe would not make the round while it is busy. Here rounds are to
// be seen, and what they show is to be the links' and not the job's.
func (j *job) standAside(d time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.aside = time.Now().Add(d)
}

// moment is what the job does at one time.
type moment struct {
	step       int
	part       float64 // of the step that is over
	use        float64 // of each rail
	checkpoint bool
	loaded     float64 // part of its memory that it has allocated
}

// at says what the job does at a time.
func (j *job) at(now time.Time) moment {
	since := now.Sub(j.began)
	m := moment{step: int(since / stepTime), part: (since % stepTime).Seconds() / stepTime.Seconds(),
		loaded: min(since.Seconds()/startTime.Seconds(), 1)}
	m.checkpoint = since > checkpointEvery && since%checkpointEvery < checkpointTime
	j.mu.Lock()
	defer j.mu.Unlock()
	if m.checkpoint || now.Before(j.aside) {
		return m
	}
	for _, p := range phases {
		if m.part < p.until {
			m.use = p.use
			break
		}
	}
	return m
}

// congested reports whether the network is short of room in a step: once in a
// while, and not for long.
func (m moment) congested() bool { return m.step%7 == 3 && m.use > 0.7 }

// move has the job send for the time d what it sends at this moment.
func (d *Demo) move(m moment, took time.Duration) {
	if m.use == 0 {
		return
	}
	for _, l := range d.links {
		for from := range nodes {
			l.mu.Lock()
			down := l.ports[0].down || l.ports[1].down
			l.mu.Unlock()
			if down {
				continue
			}
			use := m.use * (0.95 + 0.1*rand.Float64()) //nolint:gosec // it is to look alive, and to be no secret
			transport, rate := byRDMA, l.rate
			if d.opts.Fallback {
				transport, rate = byTCP, l.rate*tcpPart
			}
			payload := rate * use * took.Seconds()
			l.carry(from, transport, payload)
			if transport == byRDMA && m.congested() {
				l.congest(from, payload)
			}
		}
	}
}

// congest marks some of the packets of payload, which the other end notes and
// tells the sender.
func (l *link) congest(from int, payload float64) {
	_, packets := onWire(byRDMA, payload)
	l.mu.Lock()
	defer l.mu.Unlock()
	marked := packets / 500
	cnps := (marked + 3) / 4
	l.ports[1-from].marked += marked
	l.ports[1-from].cnps += cnps
	l.ports[from].slowed += cnps
	l.ports[from].paused.add(2, 1)
}
