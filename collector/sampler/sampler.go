// Package sampler measures the traffic between scrapes: the bytes of every rail every 100 ms, GPU memory every
// second, and the TCP traffic of the rails every 5 s. It keeps only counters and histograms that never decrease, so
// that any number of scrapers can read them at any interval. docs/architecture.md describes the path of a sample.
//
// A read of a driver can hang and cannot be cancelled. One goroutine reads all devices. If it hangs, another one
// reads the other devices. A hang therefore loses the samples of its device, and delays the others once by 75 ms.
//
// Times come from the monotonic clock, read directly before and after each read.
package sampler

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// Options configure a [Sampler].
type Options struct {
	Sysfs string // mount point of sysfs
	// Rails returns the rails that exist now. It is called every second and returns in bounded time.
	Rails func() ([]rail.Rail, error)
	// Interval is the time between two samples of a rail, from MinInterval to MaxInterval.
	Interval time.Duration
	// InUse returns the names of the rails on which jobs have connected queue pairs, with these jobs, sorted, without
	// blocking. In a role that has such rails, only these are compared with each other. If nil or not known, all are.
	InUse func() (jobs map[string][]string, known bool)
	// GPUs returns the use of GPUs, and whether the list is complete. It is called every second and returns in
	// bounded time. If nil, there are no GPUs.
	GPUs func() (list []collector.GPUUse, known bool)
	// Paced is called when a device's interval changes; took is the duration of a read. It must not block, and may
	// be nil.
	Paced func(device string, every, took time.Duration)
	// Ethtool answers for the interfaces below Sysfs. The default is the kernel if Sysfs is its own, otherwise
	// none.
	Ethtool ethtool.Ioctl
	// Own returns what this node's own measurements put on a rail, which is not traffic of a job; nil: nothing.
	Own OwnTraffic
	// Histogram makes the histogram of a rail's utilizations in one direction; nil: there is none.
	Histogram func() Histogram
	// Alarm makes the alarms that fire at each tick; the default is [KernelAlarm]. Tests in fake time need
	// [RuntimeAlarm].
	Alarm func() Alarm
}

// OwnTraffic returns how many bytes of a rail's traffic since the start belong to own measurements. settled is
// false while a measurement is under way whose bytes may be missing. It must not block.
type OwnTraffic func(rail.Rail) (bytes [directions]uint64, settled bool)

// unionReach is the maximum delay of a sample that still counts for the time in which any rail was busy.
const unionReach = 2 * time.Second

// Sampler samples the rails and GPUs. Safe for concurrent use.
type Sampler struct {
	opts  Options
	open  rail.OpenFile // replaced by tests
	ioctl ethtool.Ioctl // nil if sysfs is not this machine's
	epoch time.Time     // time of tick 0

	mu       sync.Mutex // protects all following fields
	union    union
	rails    []rail.Rail
	accounts map[string]*account // keyed by Rail.Key
	costs    map[string]*Device  // keyed by device; kept when the device disappears
	devices  map[string]*device  // keyed by Rail.ID
	dropped  [Reasons]uint64     // samples
	sets     [directions]Set
	passed
	suspect suspicion
	gpus    gpuHistories

	running sync.WaitGroup
}

// passed is the time that was processed.
type passed struct {
	seconds int   // number of seconds since the start
	minute  int64 // last minute that was compared, since the epoch
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

// after returns the start of the next period. All periods start at the epoch, so that calls that are due together
// need one wake-up.
func (s *Sampler) after(t time.Time, period time.Duration) time.Time {
	return t.Add(period - t.Sub(s.epoch)%period)
}

// Run samples until ctx is done, and then waits for running reads, which may hang.
func (s *Sampler) Run(ctx context.Context) {
	s.epoch = time.Now()
	if s.ioctl == nil && sysfs.Live(s.opts.Sysfs) {
		if socket, err := ethtool.Open(); err == nil { // without a socket, TCP traffic is unknown
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

// every calls fn now and once per period until ctx is done. A call that takes longer than a period delays the next.
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
			a = s.newAccount()
			s.accounts[r.Key()] = a
		}
		d.ports = append(d.ports, &port{rail: r, account: a, files: rail.NewPort(s.opts.Sysfs, r, s.open), state: -1})
	}
	return d
}

func (s *Sampler) newAccount() *account {
	a := &account{}
	for i := range a.tally {
		if s.opts.Histogram != nil {
			a.tally[i].Utilization = s.opts.Histogram()
		}
	}
	return a
}

// second processes the last second: utilization, balance, and how long any rail was busy.
func (s *Sampler) second() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seconds++
	accounts, limits := make([]*account, len(s.rails)), make([]rail.Limits, len(s.rails))
	for i, r := range s.rails {
		a := s.accounts[r.Key()]
		a.group.Role, a.group.LinkLayer = r.Role, r.LinkLayer
		a.name = r.Name
		settled := s.noteOwnLocked(r, a)
		for d := range a.history {
			p := a.now(d)
			p.own, p.settled = a.own[d], settled
			a.history[d].add(s.seconds, p)
		}
		accounts[i], limits[i] = a, a.limits
	}
	used, inRole := s.inUse()
	for i, c := range rail.Capacities(limits) {
		a, r := accounts[i], s.rails[i]
		a.unused = inRole[r.Role] && used[r.Name] == nil
		a.noteJobs(s.seconds, strings.Join(used[r.Name], "\xff"))
		a.capacity = c
		if c > 0 && c != a.lastCapacity {
			a.lastCapacity = c
			a.forgetLags()
		}
		a.group.Rate = max(a.group.Rate, limits[i].Rate)
		for d := range a.history {
			h := &a.history[d]
			h.peaks.second(*h.at(s.seconds), a.lastCapacity, a.impossible(), time.Now())
		}
	}
	s.minuteLocked(accounts)
	slowest := s.opts.Interval
	for _, d := range s.devices {
		slowest = max(slowest, d.cost.Interval)
	}
	for _, a := range accounts {
		slowest = max(slowest, a.lag())
	}
	// A later sample may cover ticks before it.
	busy := s.union.count(s.tick(time.Now().Add(-unionReach)) - int64(slowest/s.opts.Interval) + 1)
	for d := range s.sets {
		seconds := float64(busy[d]) * s.opts.Interval.Seconds()
		s.sets[d].Busy += seconds
		if s.sets[d].judge(d, accounts, windowSeconds(slowest)) {
			s.sets[d].Imbalanced += seconds
		}
	}
}

// inUse returns the rails on which jobs have connected queue pairs, with these jobs, and the roles that have such a
// rail.
func (s *Sampler) inUse() (jobs map[string][]string, roles map[string]bool) {
	if s.opts.InUse == nil {
		return nil, nil
	}
	jobs, known := s.opts.InUse()
	if !known {
		return nil, nil
	}
	roles = map[string]bool{}
	for _, r := range s.rails {
		roles[r.Role] = roles[r.Role] || jobs[r.Name] != nil
	}
	return jobs, roles
}

// Rail holds the samples of one rail.
type Rail struct {
	Name     string
	Tally    [directions]Tally
	TCP      [directions]uint64    // bytes of its interface other than RDMA, since the start
	TCPKnown bool                  // the driver counts TCP separately
	Recent   [directions][]float64 // bytes per second in each of the last seconds, oldest first; NaN without samples
	Rate     [directions]float64   // bytes per second, over the last one to two seconds; NaN without samples
	Peaks    [directions][PeakWindows]Peak
	Lag      [directions]Lag
}

// Snapshot is the state of the sampler at one moment.
type Snapshot struct {
	Rails    []Rail
	Devices  []Device        // devices of these rails, sorted by name
	Dropped  [Reasons]uint64 // samples dropped from all devices so far
	Sets     [directions]Set
	GPUs     []GPUPeaks
	Fallback [suspicions]Suspicion // indexed by reason
}

// Snapshot copies everything into the memory of snap. It reads nothing and does not block.
func (s *Sampler) Snapshot(snap *Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap.Rails = slices.Grow(snap.Rails[:0], len(s.rails))[:len(s.rails)]
	for i, r := range s.rails {
		a, to := s.accounts[r.Key()], &snap.Rails[i]
		to.Name, to.Tally, to.TCPKnown = r.Name, a.tally, a.tcp[Receive].exact && a.tcp[Transmit].exact
		interval := max(s.opts.Interval, a.lag())
		for d := range a.history {
			to.Recent[d], to.Rate[d] = a.history[d].rates(to.Recent[d][:0], interval, a.now(d))
			to.TCP[d] = a.tcp[d].total
			to.Lag[d] = a.history[d].lag.verdict(time.Now())
			for w := range to.Peaks[d] {
				to.Peaks[d][w] = a.history[d].peaks.highest(w, time.Now())
			}
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
