// Package sampler measures the real traffic between scrapes: the bytes of every rail every 100 ms, GPU memory every
// second, and the TCP traffic of the rails every 5 s. It keeps only counters and histograms that never step back, so
// that any number of scrapers can share them at any interval. docs/architecture.md has the way of a sample.
//
// A read of a driver can hang and cannot be cancelled. One goroutine reads all devices. When it hangs, another one
// reads the other devices. So a hang costs the samples of its device, and delays the others once by 75 ms.
//
// Times are of the monotonic clock, read directly before and after each read.
package sampler

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// Options are the options of a [Sampler].
type Options struct {
	Sysfs string // mount point of sysfs
	// Rails returns the rails that exist now. It is called every second and returns in bounded time.
	Rails func() ([]rail.Rail, error)
	// Interval is the time between two samples of a rail, from MinInterval to MaxInterval.
	Interval time.Duration
	// InUse returns the names of the rails on which jobs have connected queue pairs, without blocking. Only these are
	// compared with each other, in a role that has any. Nil, or not known: all.
	InUse func() (rails map[string]bool, known bool)
	// GPUs returns the use of GPUs every second, in bounded time, and whether that is all of them; nil: there are none.
	GPUs func() (list []collector.GPUUse, known bool)
	// Paced is called when a device's interval changes, with how long a read takes. It must not block, and may be nil.
	Paced func(device string, every, took time.Duration)
	// Ethtool answers for the interfaces below Sysfs. By default it is the kernel if Sysfs is its own, else nothing.
	Ethtool ethtool.Ioctl
	// Own is what this node's own measurements put on a rail, which is no traffic of a job; nil: nothing.
	Own OwnTraffic
	// Alarm makes the alarms that ring at each tick, by default [KernelAlarm]. Tests in fake time need [RuntimeAlarm].
	Alarm func() Alarm
}

// OwnTraffic returns how many bytes of its traffic a rail owes to measurements since the start. settled is false while
// one is under way, whose bytes may not be in them. It must not block.
type OwnTraffic func(rail.Rail) (bytes [directions]uint64, settled bool)

// unionReach is how late a sample may be and still count as time in which any rail was busy.
const unionReach = 2 * time.Second

// Sampler samples. Safe for concurrent use.
type Sampler struct {
	opts  Options
	open  rail.OpenFile // replaced by tests
	ioctl ethtool.Ioctl // nil if sysfs is not this machine's
	epoch time.Time     // of tick 0

	mu       sync.Mutex // protects all following fields
	union    union
	rails    []rail.Rail
	accounts map[string]*account // by Rail.Key
	costs    map[string]*Device  // by device; outlive it
	devices  map[string]*device  // by Rail.ID
	dropped  [Reasons]uint64     // samples
	sets     [directions]Set
	seconds  int // since the start
	suspect  suspicion
	gpus     gpuHistories

	running sync.WaitGroup
}

// New returns a sampler that does nothing until Run.
func New(opts Options) *Sampler {
	if opts.Alarm == nil {
		opts.Alarm = KernelAlarm
	}
	s := &Sampler{opts: opts, ioctl: opts.Ethtool, open: rail.KeepOpen,
		accounts: map[string]*account{}, costs: map[string]*Device{}, devices: map[string]*device{}}
	s.gpus.add(nil, opts.GPUs == nil)
	s.union.ticks = make([]uint8, int((2*unionReach+MaxInterval)/opts.Interval)+16)
	return s
}

func (s *Sampler) tick(t time.Time) int64 { return int64(t.Sub(s.epoch) / s.opts.Interval) }

// after is when the next period begins. All begin at the epoch: what is due together needs one wake-up.
func (s *Sampler) after(t time.Time, period time.Duration) time.Time {
	return t.Add(period - t.Sub(s.epoch)%period)
}

// Run samples until ctx is done, and then waits for reads, which may hang.
func (s *Sampler) Run(ctx context.Context) {
	s.epoch = time.Now()
	if s.ioctl == nil && sysfs.Live(s.opts.Sysfs) {
		if socket, err := ethtool.Open(); err == nil { // without one, TCP traffic is unknown
			defer func() { _ = socket.Close() }() // nothing was written to it
			s.ioctl = socket.Ioctl
		}
	}
	s.updateDevices()
	s.running.Go(func() { s.guard(ctx) })
	s.running.Go(func() { s.watchTCP(ctx) })
	if s.opts.GPUs != nil {
		s.running.Go(func() {
			s.every(ctx, time.Second, func() {
				list, known := s.opts.GPUs()
				s.mu.Lock()
				defer s.mu.Unlock()
				s.gpus.add(list, known)
			})
		})
	}
	s.every(ctx, time.Second, func() {
		s.updateDevices()
		s.second()
	})
	for _, d := range s.devices {
		d.close()
	}
	s.running.Wait()
}

// every calls fn now and in each period until ctx is done. A call that takes longer than a period delays the next.
func (s *Sampler) every(ctx context.Context, period time.Duration, fn func()) {
	alarm := s.opts.Alarm()
	stop := context.AfterFunc(ctx, alarm.Close)
	defer stop()
	for alarm.Set(0); alarm.Wait(); alarm.Set(time.Until(s.after(time.Now(), period))) {
		fn()
	}
}

func (s *Sampler) updateDevices() {
	rails, err := s.opts.Rails()
	if len(rails) == 0 && err != nil {
		return // the finder failed: keep the devices
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rails = rails
	byID := map[string][]rail.Rail{}
	for _, r := range rails {
		byID[r.ID] = append(byID[r.ID], r)
	}
	for id, d := range s.devices {
		if !d.same(byID[id]) {
			delete(s.devices, id)
			s.running.Go(d.close)
		}
	}
	for id, of := range byID {
		if s.devices[id] == nil {
			s.devices[id] = s.newDeviceLocked(of)
		}
	}
}

func (s *Sampler) newDeviceLocked(rails []rail.Rail) *device {
	name := rails[0].Device
	if s.costs[name] == nil {
		s.costs[name] = &Device{Name: name}
	}
	now := time.Now()
	d := &device{s: s, cost: s.costs[name], turn: make(chan struct{}, 1), pace: newPace(s.opts.Interval),
		lastTick: s.tick(now), nextState: now}
	d.nextTick = d.lastTick + 1
	d.cost.Interval = s.opts.Interval
	for _, r := range rails {
		a := s.accounts[r.Key()]
		if a == nil {
			a = &account{}
			s.accounts[r.Key()] = a
		}
		d.ports = append(d.ports, &port{rail: r, account: a, files: rail.NewPort(s.opts.Sysfs, r, s.open), state: -1})
	}
	return d
}

// second judges the last second: utilization, balance, and how long any rail was busy.
func (s *Sampler) second() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seconds++
	accounts, limits := make([]*account, len(s.rails)), make([]rail.Limits, len(s.rails))
	for i, r := range s.rails {
		a := s.accounts[r.Key()]
		a.group.Role, a.group.LinkLayer = r.Role, r.LinkLayer
		for d := range a.history {
			a.history[d].add(s.seconds, a.now(d))
		}
		s.noteOwnLocked(r, a)
		accounts[i], limits[i] = a, a.limits
	}
	used, inRole := s.inUse()
	for i, c := range rail.Capacities(limits) {
		a, r := accounts[i], s.rails[i]
		a.unused = inRole[r.Role] && !used[r.Name]
		a.capacity = c
		a.lastCapacity = cmp.Or(c, a.lastCapacity)
		a.group.Rate = max(a.group.Rate, limits[i].Rate)
	}
	slowest := s.opts.Interval
	for _, d := range s.devices {
		slowest = max(slowest, d.cost.Interval)
	}
	// A sample that is still to come may cover ticks before it.
	busy := s.union.count(s.tick(time.Now().Add(-unionReach)) - int64(slowest/s.opts.Interval) + 1)
	for d := range s.sets {
		seconds := float64(busy[d]) * s.opts.Interval.Seconds()
		s.sets[d].Busy += seconds
		if s.sets[d].judge(d, accounts, windowSeconds(slowest)) {
			s.sets[d].Imbalanced += seconds
		}
	}
}

// inUse returns the rails on which jobs have connected queue pairs, and the roles that have such a rail.
func (s *Sampler) inUse() (rails, roles map[string]bool) {
	if s.opts.InUse == nil {
		return nil, nil
	}
	rails, known := s.opts.InUse()
	if !known {
		return nil, nil
	}
	roles = map[string]bool{}
	for _, r := range s.rails {
		roles[r.Role] = roles[r.Role] || rails[r.Name]
	}
	return rails, roles
}

// Rail is what is known of one rail.
type Rail struct {
	Name     string
	Tally    [directions]Tally
	TCP      [directions]uint64    // bytes of its interface that were not RDMA, since the start
	TCPKnown bool                  // the driver counts these separately
	Recent   [directions][]float64 // bytes per second in each of the last seconds, oldest first; NaN without samples
	Rate     [directions]float64   // bytes per second, over the last one to two seconds; NaN without samples
}

// Snapshot is everything that the sampler has at one moment.
type Snapshot struct {
	Rails    []Rail
	Devices  []Device        // of these rails, in order of name
	Dropped  [Reasons]uint64 // samples, of all devices so far
	Sets     [directions]Set
	GPUs     []GPUPeaks
	Fallback [suspicions]Suspicion // by reason
}

// Snapshot copies everything into the memory of snap. It reads nothing and does not block.
func (s *Sampler) Snapshot(snap *Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap.Rails = slices.Grow(snap.Rails[:0], len(s.rails))[:len(s.rails)]
	for i, r := range s.rails {
		a, to := s.accounts[r.Key()], &snap.Rails[i]
		to.Name, to.Tally, to.TCPKnown = r.Name, a.tally, a.tcp[Receive].exact && a.tcp[Transmit].exact
		for d := range a.history {
			to.Recent[d], to.Rate[d] = a.history[d].rates(to.Recent[d][:0], s.opts.Interval, a.now(d))
			to.TCP[d] = a.tcp[d].total
		}
	}
	snap.Devices = snap.Devices[:0]
	for _, d := range s.devices {
		cost := *d.cost
		if took := d.readFor(); took > time.Second {
			cost.Stuck = took
		}
		snap.Devices = append(snap.Devices, cost)
	}
	slices.SortFunc(snap.Devices, func(a, b Device) int { return cmp.Compare(a.Name, b.Name) })
	snap.Dropped, snap.Sets = s.dropped, s.sets
	snap.GPUs = s.gpus.appendTo(snap.GPUs[:0])
	snap.Fallback = s.suspect.now
}
