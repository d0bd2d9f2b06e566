package collector

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/internal/nvml"
)

// countedNVML is a library with one GPU that counts how often it was opened,
// and whose calls can be made to hang.
type countedNVML struct {
	opens   int
	refuse  error
	opening time.Duration
	hang    chan struct{}
}

func (c *countedNVML) Open() error {
	time.Sleep(c.opening)
	if c.refuse == nil {
		c.opens++
	}
	return c.refuse
}
func (c *countedNVML) Driver() (string, error)      { return fmt.Sprint("after ", c.opens), nil }
func (c *countedNVML) Count() (int, error)          { return 1, nil }
func (c *countedNVML) GPU(int) (nvml.Device, error) { return &countedGPU{lib: c}, nil }

type countedGPU struct {
	lib *countedNVML
	nvml.Device
}

func (g *countedGPU) Identity() (nvml.Identity, error)      { return nvml.Identity{UUID: "GPU-1"}, nil }
func (g *countedGPU) Memory() (nvml.Memory, error)          { return nvml.Memory{Total: 1}, nil }
func (g *countedGPU) Numbers(nvml.Query) ([4]uint64, error) { return [4]uint64{}, nil }
func (g *countedGPU) Processes(bool) ([]nvml.Process, error) {
	if g.lib.hang != nil {
		<-g.lib.hang
	}
	return nil, nil
}
func (g *countedGPU) Instances() ([]nvml.Instance, error) {
	return []nvml.Instance{{Device: &countedGPU{lib: g.lib}}}, nil
}

// uninitialized fails the test unless err says that NVML must be opened.
func uninitialized(t *testing.T, what string, err error) {
	t.Helper()
	var e *nvml.Error
	if !errors.As(err, &e) || e.Code != nvml.CodeUninitialized {
		t.Errorf("%s: %v, want that NVML is not initialised", what, err)
	}
}

// TestNVMLShare: the library is opened once for both views, and once more when
// one of them finds that it must be; handles from before are not used again.
func TestNVMLShare(t *testing.T) {
	lib := &countedNVML{opening: 20 * time.Millisecond} // in real time: fake time stands still for locks
	share := NewNVMLShare(lib)
	a, b := share.View(), share.View()
	_, err := b.Count()
	if err != nil { // before any Open the library answers for itself
		t.Error(err)
	}
	var wg sync.WaitGroup
	for _, v := range []nvml.Library{a, b} {
		wg.Go(func() {
			if err := v.Open(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if lib.opens != 1 {
		t.Fatalf("opened %d times by two views at once, want 1", lib.opens)
	}
	gpu, err := b.GPU(0)
	if err != nil {
		t.Fatal(err)
	}
	instances, err := gpu.Instances()
	if err != nil {
		t.Fatal(err)
	}

	if err := a.Open(); err != nil || lib.opens != 2 { // a found that it must be
		t.Fatalf("opened %d times, %v", lib.opens, err)
	}
	_, err = b.Driver()
	uninitialized(t, "the other view", err)
	for _, d := range []nvml.Device{gpu, instances[0].Device} {
		_, err = d.Identity()
		uninitialized(t, "Identity", err)
		_, err = d.Memory()
		uninitialized(t, "Memory", err)
		_, err = d.Numbers(nvml.QueryPower)
		uninitialized(t, "Numbers", err)
		_, err = d.Processes(true)
		uninitialized(t, "Processes", err)
		_, err = d.Instances()
		uninitialized(t, "Instances", err)
	}
	if err := b.Open(); err != nil || lib.opens != 2 {
		t.Errorf("opened %d times, %v; what a did is enough", lib.opens, err)
	}
	if driver, err := b.Driver(); driver != "after 2" || err != nil {
		t.Error(driver, err)
	}
	lib.refuse = &nvml.Error{Call: "nvmlInit_v2", Code: nvml.CodeDriverNotLoaded}
	if err := b.Open(); !errors.Is(err, lib.refuse) {
		t.Error(err)
	}
}

// TestNVMLShareHangs: while one view's call hangs, the other cannot open the
// library, and says so soon; its calls go on.
func TestNVMLShareHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lib := &countedNVML{hang: make(chan struct{})}
		share := NewNVMLShare(lib)
		a, b := share.View(), share.View()
		if err := errors.Join(a.Open(), b.Open()); err != nil {
			t.Fatal(err)
		}
		gpu, _ := a.GPU(0)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = gpu.Processes(false) })
		synctest.Wait()
		start := time.Now()
		var e *nvml.Error
		if err := b.Open(); !errors.As(err, &e) || e.Code != nvml.CodeTimeout || time.Since(start) > time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if n, err := b.Count(); n != 1 || err != nil {
			t.Error(n, err)
		}
		close(lib.hang)
		wg.Wait()
		if err := b.Open(); err != nil || lib.opens != 2 {
			t.Errorf("opened %d times, %v", lib.opens, err)
		}
	})
}
