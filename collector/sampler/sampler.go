package sampler

import (
	"context"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// Options are what a [Sampler] needs.
type Options struct {
	Sysfs string // where sysfs is mounted
	// Rails returns the rails that exist now. It is called every second and returns in bounded time.
	Rails func() ([]rail.Rail, error)
	// Interval is the time between two samples of a rail, from MinInterval to MaxInterval.
	Interval time.Duration
	// GPUs returns what GPUs hold and do now, and whether these are all that exist. It is called every second and
	// returns in bounded time. nil is a machine without GPUs.
	GPUs func() (list []GPU, known bool)
	// Paced is called when a device is read at another interval than before, with how long a read of it usually
	// takes; nil for nobody. It must not wait.
	Paced func(device string, every, took time.Duration)
	// Ethtool answers for the drivers of the interfaces below Sysfs; nil is the kernel, where Sysfs is its own, and
	// nobody elsewhere.
	Ethtool ethtool.Ioctl
	// Alarm makes the alarms that wake readers; nil is [KernelAlarm]. Tests in fake time need [RuntimeAlarm].
	Alarm func() Alarm
}

// tcpBudget is how long a read of what a rail carries beside RDMA may take.
const tcpBudget = time.Second

// endBudget is how long goroutines may take to end.
const endBudget = time.Second

// unionReach is how late a sample may come, after the ticks that it covers, and still count for how long any rail was
// busy.
const unionReach = 2 * time.Second

// Sampler samples. Safe for concurrent use.
type Sampler struct {
	opts    Options
	open    rail.OpenFile // fakes are as low as the bytes of a file
	ioctl   ethtool.Ioctl // nil where sysfs is not this machine's
	epoch   time.Time     // of tick 0
	readers readers
	union   union

	mu       sync.Mutex // protects all following fields
	rails    []rail.Rail
	accounts map[string]*account             // by rail.Key
	windows  map[string]*[directions]window  // by rail.Key
	meters   map[string]*meter               // by device
	devices  map[string]*device              // by Rail.ID
	sets     [directions]Set                 //
	seconds  int                             // since the start
	reaches  map[string]*reach               // by rail.Key
	tcp      map[string]*[directions]tcpRate // by rail.Key
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
		accounts: map[string]*account{}, windows: map[string]*[directions]window{}, meters: map[string]*meter{},
		devices: map[string]*device{}, reaches: map[string]*reach{}, tcp: map[string]*[directions]tcpRate{}}
	s.readers = readers{interval: opts.Interval, newAlarm: opts.Alarm, running: &s.running}
	s.gpus.add(nil, opts.GPUs == nil)
	s.union.ticks = make([]uint8, int((2*unionReach+MaxInterval)/opts.Interval)+16)
	return s
}

// tick is the number of the last tick at or before t.
func (s *Sampler) tick(t time.Time) int64 { return int64(t.Sub(s.epoch) / s.opts.Interval) }

// when is the time of a tick.
func (s *Sampler) when(tick int64) time.Time {
	return s.epoch.Add(time.Duration(tick) * s.opts.Interval)
}

// after is when the next period begins after t. All periods begin at the epoch, so that what is due at the same time
// needs one wake-up.
func (s *Sampler) after(t time.Time, period time.Duration) time.Time {
	return t.Add(period - t.Sub(s.epoch)%period)
}

// Run samples until ctx is done, and returns when all has ended, but what is stuck in the kernel: that is given a
// second and left behind.
func (s *Sampler) Run(ctx context.Context) {
	s.epoch = time.Now()
	if s.ioctl == nil && sysfs.Live(s.opts.Sysfs) {
		if socket, err := ethtool.Open(); err == nil { // without one, nothing is known of what is not RDMA
			defer func() { _ = socket.Close() }() // nothing was written to it
			s.ioctl = socket.Ioctl
		}
	}
	s.readers.start()
	s.updateDevices()
	s.running.Go(func() { s.watchTCP(ctx) })
	if s.opts.GPUs != nil {
		s.running.Go(func() { s.every(ctx, time.Second, s.readGPUs) })
	}
	s.every(ctx, time.Second, func() {
		s.updateDevices()
		s.second()
	})
	s.readers.close()
	ended := make(chan struct{})
	go func() {
		s.running.Wait()
		close(ended)
	}()
	timer := time.NewTimer(endBudget)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
}

// every calls fn now and in each period until ctx is done. A call that takes longer than a period delays the next.
func (s *Sampler) every(ctx context.Context, period time.Duration, fn func()) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		fn()
		timer.Reset(time.Until(s.after(time.Now(), period)))
	}
}

// updateDevices makes the devices that are sampled those of the rails that exist now.
func (s *Sampler) updateDevices() {
	rails, err := s.opts.Rails()
	if len(rails) == 0 && err != nil {
		return // the finder failed: the devices are what they were
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
			d.stopped.Store(true)
			delete(s.devices, id)
		}
	}
	for id, of := range byID {
		if s.devices[id] == nil {
			s.devices[id] = s.newDeviceLocked(of)
			s.readers.add(s.devices[id])
		}
	}
}

// newDeviceLocked returns a device that is ready to be read.
func (s *Sampler) newDeviceLocked(rails []rail.Rail) *device {
	name := rails[0].Device
	if s.meters[name] == nil {
		s.meters[name] = &meter{cost: Device{Name: name}}
	}
	now := time.Now()
	d := &device{s: s, meter: s.meters[name], pace: newPace(s.opts.Interval), lastTick: s.tick(now), nextState: now}
	d.nextTick = d.lastTick + 1
	d.meter.mu.Lock()
	d.meter.cost.Interval = s.opts.Interval
	d.meter.mu.Unlock()
	for _, r := range rails {
		key := rail.Key(r.Device, r.Port)
		if s.accounts[key] == nil {
			s.accounts[key] = &account{}
			s.windows[key] = &[directions]window{}
		}
		files := rail.NewPort(s.opts.Sysfs, r, s.open)
		d.ports = append(d.ports, &port{rail: r, account: s.accounts[key], files: files, state: -1})
	}
	return d
}

// second judges the last second: utilisation, balance, and how long any rail was busy.
func (s *Sampler) second() {
	s.mu.Lock()
	defer s.mu.Unlock()
	accounts, windows := make([]*account, 0, len(s.rails)), make([]*[directions]window, 0, len(s.rails))
	limits := make([]rail.Limits, 0, len(s.rails))
	s.seconds++
	slowest := s.slowestLocked()
	apart := pointSeconds(slowest)
	for _, r := range s.rails {
		key := rail.Key(r.Device, r.Port)
		a, w := s.accounts[key], s.windows[key]
		accounts, windows = append(accounts, a), append(windows, w)
		a.mu.Lock()
		limits = append(limits, a.limits)
		for d := range w {
			a.recent[d].add(a.bytes[d], a.seconds[d], s.seconds, s.opts.Interval)
			if s.seconds%apart == 0 {
				w[d].push(point{a.bytes[d], a.seconds[d], a.tally[d].Busy}, s.seconds, apart)
			}
		}
		a.mu.Unlock()
	}
	reaches := make([]*reach, 0, len(s.rails))
	for i, c := range rail.Capacities(limits) {
		accounts[i].setCapacity(c)
		r := s.reachLocked(s.rails[i])
		r.update(c, limits[i].Rate)
		reaches = append(reaches, r)
	}
	// A sample that is still to come may cover ticks before it.
	busy := s.union.count(s.tick(time.Now().Add(-unionReach)) - int64(slowest/s.opts.Interval) + 1)
	for d := range s.sets {
		seconds := float64(busy[d]) * s.opts.Interval.Seconds()
		s.sets[d].Busy += seconds
		if s.sets[d].judge(d, reaches, windows) {
			s.sets[d].Imbalanced += seconds
		}
	}
}

// reachLocked is what is known of what a rail can carry, also while its device is gone.
func (s *Sampler) reachLocked(r rail.Rail) *reach {
	key := rail.Key(r.Device, r.Port)
	if s.reaches[key] == nil {
		s.reaches[key] = &reach{}
	}
	s.reaches[key].group.LinkLayer = r.LinkLayer
	return s.reaches[key]
}

// slowestLocked is the interval of the device that is sampled most rarely.
func (s *Sampler) slowestLocked() time.Duration {
	slowest := s.opts.Interval
	for _, d := range s.devices {
		d.meter.mu.Lock()
		slowest = max(slowest, d.meter.cost.Interval)
		d.meter.mu.Unlock()
	}
	return slowest
}
