package sampler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// machine is a sysfs whose files are computed when they are read, from the current time. It is faked at the level
// of file contents.
type machine struct {
	mu    sync.Mutex
	files map[string]func() (string, error)
	life  int // a change replaces all files
	// durations of a read before and after the time of its value
	latency func(path string) (before, after time.Duration)
	reads   map[string]int
	rails   []rail.Rail
	alarms  atomic.Int64 // number of open alarms
}

func newMachine() *machine {
	return &machine{files: map[string]func() (string, error){}, reads: map[string]int{}}
}

// set sets the content of a file.
func (m *machine) set(path string, content func() (string, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[path] = content
}

func (m *machine) text(path, content string) {
	m.set(path, func() (string, error) { return content, nil })
}

// openFile is an open file of a machine.
type openFile struct {
	m     *machine
	path  string
	life  int
	opens int
}

func (m *machine) open(path string) rail.File { return &openFile{m: m, path: path, life: -1} }

func (f *openFile) Read(buf []byte) ([]byte, error) {
	f.m.mu.Lock()
	latency := f.m.latency
	f.m.reads[f.path]++
	f.m.mu.Unlock()
	var before, after time.Duration
	if latency != nil {
		before, after = latency(f.path)
	}
	time.Sleep(before)
	f.m.mu.Lock()
	content := f.m.files[f.path]
	if f.life != f.m.life {
		f.life = f.m.life
		f.opens++
	}
	f.m.mu.Unlock()
	if content == nil {
		return nil, sysfs.Fail(f.path, unix.ENOENT)
	}
	text, err := content()
	time.Sleep(after)
	if err != nil {
		return nil, sysfs.Fail(f.path, err)
	}
	return buf[:copy(buf, text)], nil
}

func (f *openFile) Opens() int { return f.opens }
func (f *openFile) Close()     { f.life = -1 }

const gigabit = 125e6

// mlx5 adds a rail of a device with one port. Its counters follow carried, which returns the bytes in each
// direction since the start of the test.
func (m *machine) mlx5(device string, gbit int, carried [directions]func(since time.Duration) float64) rail.Rail {
	dir := "/sys/class/infiniband/" + device
	r := rail.Rail{Name: strings.TrimPrefix(device, "mlx5_"), Role: rail.Compute, Device: device, Port: 1,
		ID: device + "#1", Dir: dir,
		Netdev: "eth_" + device, LinkLayer: "Ethernet", Driver: "mlx5_core"}
	port := filepath.Join(dir, "ports/1")
	m.text(port+"/state", "4: ACTIVE\n")
	m.text(port+"/rate", fmt.Sprintf("%d Gb/sec (4X EDR)\n", gbit))
	begin := time.Now()
	for d, name := range [directions]string{"port_rcv_data", "port_xmit_data"} {
		m.set(port+"/counters/"+name, func() (string, error) {
			return strconv.FormatUint(1e6+uint64(carried[d](time.Since(begin)))/4, 10) + "\n", nil
		})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rails = append(m.rails, r)
	return r
}

// steady returns a constant load, as a part of the rate.
func steady(gbit int, part float64) func(time.Duration) float64 {
	return func(since time.Duration) float64 { return part * float64(gbit) * gigabit * since.Seconds() }
}

// pulses returns a load of a part of the rate during the first on of each period.
func pulses(gbit int, part float64, on, period time.Duration) func(time.Duration) float64 {
	return func(since time.Duration) float64 {
		sent := since / period * on
		return part * float64(gbit) * gigabit * (sent + min(since%period, on)).Seconds()
	}
}

func idle(time.Duration) float64 { return 0 }

func (m *machine) find() ([]rail.Rail, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]rail.Rail(nil), m.rails...), nil
}

// sampler returns a sampler of the machine.
func (m *machine) sampler(interval time.Duration, opts Options) *Sampler {
	opts.Sysfs, opts.Rails, opts.Interval = "/sys", m.find, interval
	opts.Alarm = func() Alarm {
		m.alarms.Add(1)
		return countedAlarm{RuntimeAlarm(), sync.OnceFunc(func() { m.alarms.Add(-1) })}
	}
	opts.Histogram = func() Histogram { return &observed{} }
	s := New(opts)
	s.open = m.open
	return s
}

// observed has every utilization that was observed.
type observed struct{ list []float64 }

func (o *observed) Observe(u float64) { o.list = append(o.list, u) }

// sum is the sum of the utilizations.
func (t Tally) sum() (sum float64) {
	if t.Samples > 0 {
		for _, u := range t.Utilization.(*observed).list[:t.Samples] {
			sum += u
		}
	}
	return sum
}

// outside returns those after the first n samples that are not from least to
// most.
func (t Tally) outside(n uint64, least, most float64) (list []float64) {
	for _, u := range t.Utilization.(*observed).list[n:t.Samples] {
		if u < least || u > most {
			list = append(list, u)
		}
	}
	return list
}

// countedAlarm is an alarm that is counted until it is closed.
type countedAlarm struct {
	Alarm
	closed func()
}

func (a countedAlarm) Close() {
	a.Alarm.Close()
	a.closed()
}

// run runs s in the bubble for a while, calls then and stops s. It returns the snapshot before that.
func run(t *testing.T, s *Sampler, runs time.Duration, then func()) (snap Snapshot) {
	t.Helper()
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	time.Sleep(runs)
	synctest.Wait()
	s.Snapshot(&snap)
	if then != nil {
		then()
	}
	cancel()
	<-done
	return snap
}

// gone makes all files of a device disappear; the returned function restores them.
func (m *machine) gone(device string) (back func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := maps.Clone(m.files)
	maps.DeleteFunc(m.files, func(path string, _ func() (string, error)) bool { return strings.Contains(path, device) })
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.files = was
		m.life++
	}
}

var errIO = errors.New("firmware command failed")
