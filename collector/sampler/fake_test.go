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

// machine is a sysfs whose files are made when they are read: what a counter
// shows is worked out from the time. It is as low as the bytes of a file.
type machine struct {
	mu      sync.Mutex
	files   map[string]func() (string, error)
	life    int                                             // changes when all files are others
	latency func(path string) (before, after time.Duration) // of a read, before and after the time of its value
	reads   map[string]int
	rails   []rail.Rail
	alarms  atomic.Int64 // that are open
}

func newMachine() *machine {
	return &machine{files: map[string]func() (string, error){}, reads: map[string]int{}}
}

// set gives a file its content.
func (m *machine) set(path string, content func() (string, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[path] = content
}

func (m *machine) text(path, content string) {
	m.set(path, func() (string, error) { return content, nil })
}

// openFile is one open file of a machine.
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

// mlx5 adds a rail of a device with one port, whose counters follow what it
// carries: bytes in each direction since the start of the test.
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

// steady carries a part of the rate all the time.
func steady(gbit int, part float64) func(time.Duration) float64 {
	return func(since time.Duration) float64 { return part * float64(gbit) * gigabit * since.Seconds() }
}

// pulses carries a part of the rate in the first on of each period.
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
	s := New(opts)
	s.open = m.open
	return s
}

// countedAlarm is an alarm that counts until it is closed.
type countedAlarm struct {
	Alarm
	closed func()
}

func (a countedAlarm) Close() {
	a.Alarm.Close()
	a.closed()
}

// run runs s in the bubble for a while and returns what it has then.
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

// gone makes all files of a device vanish; the function it returns brings them
// back.
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
