package nvmltest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/internal/nvml"
)

// GPUs is a library in Go, with one GPU unless Number is set. It panics if it is used in violation of
// [nvml.Library]'s contract.
type GPUs struct {
	Number         int
	OpenTakes      time.Duration
	FindTakes      time.Duration // duration of Count and of GPU
	OpenErr        error
	CountErr       error
	Hang           chan struct{} // Processes waits until it is closed; nil: no wait
	Opened, Closed int

	UUIDs    []string   // per GPU; further GPUs: "GPU-1"
	XIDs     [][]uint64 // per GPU: the XIDs that occur next
	XIDErr   error      // error of recording
	HangXIDs chan struct{}
	Recorded int // number of times that recording began

	open      bool
	calls     atomic.Int32 // number of calls in flight
	recording atomic.Int32 // events that were not freed
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
	if n := g.recording.Load(); n != 0 {
		panic(fmt.Sprintf("closed while %d GPUs are recorded", n))
	}
	g.Closed, g.open = g.Closed+1, false
}

// alone panics unless no call is in flight and the library is open or not, as expected.
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
func (g *GPUs) GPU(index int) (nvml.Device, error) {
	defer g.enter()()
	time.Sleep(g.FindTakes)
	return &device{lib: g, index: index}, nil
}

type device struct {
	lib   *GPUs
	index int
	nvml.Device
}

func (d *device) Identity() (nvml.Identity, error) {
	defer d.lib.enter()()
	if d.index < len(d.lib.UUIDs) {
		return nvml.Identity{UUID: d.lib.UUIDs[d.index]}, nil
	}
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

func (d *device) XIDs() (nvml.Events, error) {
	defer d.lib.enter()()
	d.lib.Recorded++
	if d.lib.XIDErr != nil {
		return nil, d.lib.XIDErr
	}
	d.lib.recording.Add(1)
	return d, nil
}

// Next implements [nvml.Events].
func (d *device) Next() (xid uint64, ok bool, err error) {
	defer d.lib.enter()()
	if d.lib.HangXIDs != nil {
		<-d.lib.HangXIDs
	}
	if d.index >= len(d.lib.XIDs) || len(d.lib.XIDs[d.index]) == 0 {
		return 0, false, nil
	}
	queue := &d.lib.XIDs[d.index]
	xid, *queue = (*queue)[0], (*queue)[1:]
	return xid, true, nil
}

// Free implements [nvml.Events]. XIDs that were not returned are lost.
func (d *device) Free() {
	defer d.lib.enter()()
	d.lib.recording.Add(-1)
	if d.index < len(d.lib.XIDs) {
		d.lib.XIDs[d.index] = nil
	}
}
