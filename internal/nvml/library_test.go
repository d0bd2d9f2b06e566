//go:build cgo

package nvml_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/nvml/nvmltest"
)

const captures = "../../collector/gpu/testdata/"

// TestLibraryLacks: a function that the library lacks is an error and does not end the process, also if it was not
// looked up before: after go-nvml has used a newer library, it still calls functions that an older one lacks.
func TestLibraryLacks(t *testing.T) {
	l := nvmltest.Passing(t, captures+"h200.txtar")
	if l == nil {
		return
	}
	lib := nvml.NewLibrary(l.Path)
	ask := func() (err error) {
		t.Helper()
		if err := lib.Open(); err != nil {
			t.Fatal(err)
		}
		defer lib.Close()
		gpu, err := lib.GPU(0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := gpu.Numbers(nvml.QueryRemappedRows); err != nil {
			return err
		}
		_, err = gpu.Processes(false)
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	l.Compile(t, "-DNO_nvmlDeviceGetRemappedRows")
	if err := ask(); nvml.CodeOf(err) != nvml.CodeNoFunction || !strings.Contains(err.Error(), "RemappedRows") {
		t.Errorf("looked up: %v", err)
	}
	l.Compile(t, "-DNO_nvmlDeviceGetComputeRunningProcesses_v3", "-DNO_nvmlDeviceGetComputeRunningProcesses_v2")
	if err := ask(); nvml.CodeOf(err) != nvml.CodeNoFunction {
		t.Errorf("not looked up: %v", err)
	}
}

// TestLibraryOnce: a second library in one process is refused, not mixed up with the first.
func TestLibraryOnce(t *testing.T) {
	l := nvmltest.Passing(t, captures+"h200.txtar")
	if l == nil {
		return
	}
	first, second := nvml.NewLibrary(l.Path), nvml.NewLibrary(l.Path)
	if err := first.Open(); err != nil {
		t.Fatal(err)
	}
	if err := second.Open(); nvml.CodeOf(err) != nvml.CodeLibrary || !strings.Contains(err.Error(), "another NVML") {
		t.Error(err)
	}
	first.Close()
	if err := second.Open(); err != nil {
		t.Error(err)
	}
}

// TestReleaseClosesDevices: after NVML is released, no device file is open and the library is unloaded, whichever
// functions were called. The next initialization loads the library that is then on disk.
func TestReleaseClosesDevices(t *testing.T) {
	l := nvmltest.Passing(t, captures+"mig.txtar")
	if l == nil {
		return
	}
	lanetest.Test(t, func(t *testing.T) {
		session := nvml.NewSession(nvml.NewLibrary(l.Path))
		read := func() (driver string, err error) {
			roster, gpus, err := nvml.NewReader(session, everything).Read(time.Minute)
			for _, g := range nvml.NewWatcher(session).Read(roster, time.Minute) {
				if g.Err != nil {
					t.Error(g.Err)
				}
			}
			for _, g := range gpus {
				if g.Err != nil {
					t.Error(g.Err)
				}
			}
			return roster.Driver, err
		}
		want := func(what string, inits, shutdowns, devices int, loaded bool) {
			t.Helper()
			if got := l.Calls(t, "nvmlInit"); got != inits {
				t.Errorf("%s: %d initialisations", what, got)
			}
			if got := l.Calls(t, "nvmlShutdown"); got != shutdowns {
				t.Errorf("%s: %d shutdowns", what, got)
			}
			if got := l.Devices(t, os.Getpid()); got != devices || l.Loaded(t) != loaded {
				t.Errorf("%s: %d device files are open, the library is loaded: %v", what, got, l.Loaded(t))
			}
		}
		if _, err := read(); err != nil {
			t.Fatal(err)
		}
		want("in use", 1, 0, 1, true)
		if err := session.Release(time.Minute); err != nil {
			t.Error(err)
		}
		want("released", 1, 1, 0, false)
		if l.Calls(t, "nvmlEventSetCreate") != 1 || l.Calls(t, "nvmlEventSetFree") != 1 {
			t.Error("the event set is not freed")
		}

		// The driver and its library are replaced.
		l.Set(t, "nvmlInit_v2", "18")
		time.Sleep(time.Minute)
		_, err := read()
		if nvml.CodeOf(err) != nvml.CodeVersionMismatch || strings.Contains(err.Error(), "restart") {
			t.Errorf("with the old library: %v", err)
		}
		want("mismatch", 2, 1, 0, false)
		if err := os.Remove(l.Path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(nvml.RetryInterval)
		_, err = read()
		if nvml.CodeOf(err) != nvml.CodeLibrary {
			t.Errorf("without a library: %v", err)
		}
		l.Compile(t)
		l.Set(t, "nvmlInit_v2", "0")
		l.Set(t, "nvmlSystemGetDriverVersion", "0 999.1")
		time.Sleep(nvml.RetryInterval)
		if driver, err := read(); driver != "999.1" || err != nil {
			t.Errorf("with the new library: %q, %v", driver, err)
		}
		want("upgraded", 3, 1, 1, true)
	})
}

// TestLibraryStuck: a library that other code keeps loaded cannot be replaced, and the version mismatch error says
// what to do.
func TestLibraryStuck(t *testing.T) {
	l := nvmltest.Passing(t, captures+"mismatch.txtar")
	if l == nil {
		return
	}
	l.Compile(t, "-Wl,-z,nodelete")
	lib := nvml.NewLibrary(l.Path)
	for range 2 {
		err := lib.Open()
		if nvml.CodeOf(err) != nvml.CodeVersionMismatch || !strings.Contains(err.Error(), "restart railscope") {
			t.Errorf("%v", err)
		}
	}
}

// everything calls functions of every kind.
func everything(g nvml.GPU) (struct{}, error) {
	devices := []nvml.Device{g.Device}
	instances, _ := g.Instances()
	for _, i := range instances {
		devices = append(devices, i.Device)
	}
	for _, d := range devices {
		_, _ = d.Identity()
		_, _ = d.Memory()
		_, _ = d.Processes(false)
		_, _ = d.Processes(true)
		_, _ = d.Numbers(nvml.QueryUtilization)
	}
	return struct{}{}, nil
}
