package nvmltest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/internal/nvml"
)

// GPUs is a library in Go, with one GPU unless Number says otherwise. It panics where it is used otherwise than
// [nvml.Library] says.
type GPUs struct {
	Number         int
	OpenTakes      time.Duration
	FindTakes      time.Duration // Count and GPU, each
	OpenErr        error
	CountErr       error
	Hang           chan struct{} // Processes waits until it is closed; nil: it does not wait
	Opened, Closed int

	open  bool
	calls atomic.Int32 // in flight
}

// Open implements [nvml.Library].
func (g *GPUs) Open() error {
	g.alone(false)
	time.Sleep(g.OpenTakes)
	if g.OpenErr == nil {
		g.Opened, g.open = g.Opened+1, true
	}
	return g.OpenErr
}

// Close implements [nvml.Library].
func (g *GPUs) Close() {
	g.alone(true)
	g.Closed, g.open = g.Closed+1, false
}

// alone panics unless no call is in flight, and the library is open or not.
func (g *GPUs) alone(open bool) {
	if g.calls.Load() != 0 || g.open != open {
		panic(fmt.Sprintf("%d calls in flight, open %v", g.calls.Load(), g.open))
	}
}

func (g *GPUs) enter() (leave func()) {
	g.calls.Add(1)
	if !g.open {
		panic("called while it is not open")
	}
	return func() { g.calls.Add(-1) }
}

// Driver implements [nvml.Library].
func (g *GPUs) Driver() (string, error) {
	defer g.enter()()
	return fmt.Sprintf("%d.0", g.Opened), nil
}

// Count implements [nvml.Library].
func (g *GPUs) Count() (int, error) {
	defer g.enter()()
	time.Sleep(g.FindTakes)
	return max(g.Number, 1), g.CountErr
}

// GPU implements [nvml.Library].
func (g *GPUs) GPU(int) (nvml.Device, error) {
	defer g.enter()()
	time.Sleep(g.FindTakes)
	return &device{lib: g}, nil
}

type device struct {
	lib *GPUs
	nvml.Device
}

func (d *device) Identity() (nvml.Identity, error) {
	defer d.lib.enter()()
	return nvml.Identity{UUID: "GPU-1"}, nil
}

func (d *device) Memory() (nvml.Memory, error) {
	defer d.lib.enter()()
	return nvml.Memory{Total: 1}, nil
}

func (d *device) Numbers(nvml.Query) ([4]uint64, error) {
	defer d.lib.enter()()
	return [4]uint64{}, nil
}

func (d *device) Processes(bool) ([]nvml.Process, error) {
	defer d.lib.enter()()
	if d.lib.Hang != nil {
		<-d.lib.Hang
	}
	return nil, nil
}
