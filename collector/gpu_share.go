package collector

import (
	"errors"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/nvml"
)

// NVMLShare lets several sources ask one NVML. There is one library in the
// process, and opening it anew ends what it was before for everybody; each
// source gets a view, and of those that find out that NVML must be initialised
// again the first one does it.
type NVMLShare struct {
	lib nvml.Library

	opening sync.Mutex   // held by Open, before mu
	mu      sync.RWMutex // held for reading by every call into the library, for writing while it is opened
	opens   int          // how often it was opened with success; a handle is good until the next time
}

// NewNVMLShare returns the share of lib, which nobody else may use.
func NewNVMLShare(lib nvml.Library) *NVMLShare { return &NVMLShare{lib: lib} }

// View returns the NVML for one source. Its Open opens the library only when no
// other view has since this one last did; while another's call hangs it fails
// with [nvml.CodeTimeout]. Handles from before an Open answer [nvml.CodeUninitialized].
func (s *NVMLShare) View() nvml.Library { return &nvmlView{share: s} }

// nvmlView is one source's NVML. Like every NVML it is opened by one goroutine
// at a time, and not while it is asked.
type nvmlView struct {
	share *NVMLShare
	seen  int // share.opens at the last Open
}

func (v *nvmlView) Open() error {
	s := v.share
	s.opening.Lock() // another view's Open is worth waiting for: it may be all that this one needs
	defer s.opening.Unlock()
	if s.opens == v.seen {
		if !s.idle() {
			return &nvml.Error{Call: "nvmlInit_v2", Code: nvml.CodeTimeout, Err: errors.New("NVML must be initialised, and a call into it has not returned")}
		}
		defer s.mu.Unlock()
		if err := s.lib.Open(); err != nil {
			return err
		}
		s.opens++
	}
	v.seen = s.opens
	return nil
}

// idle takes mu for writing when no call is in the library. It must not wait
// for one that hangs: whoever waits for a lock to write stops all who read.
func (s *NVMLShare) idle() bool {
	for range 20 {
		if s.mu.TryLock() {
			return true
		}
		time.Sleep(5 * time.Millisecond)
	}
	return false
}

func (v *nvmlView) Driver() (string, error) {
	return ask(v.share, v.seen, "nvmlSystemGetDriverVersion", v.share.lib.Driver)
}

func (v *nvmlView) Count() (int, error) {
	return ask(v.share, v.seen, "nvmlDeviceGetCount_v2", v.share.lib.Count)
}

func (v *nvmlView) GPU(index int) (nvml.Device, error) {
	d, err := ask(v.share, v.seen, "nvmlDeviceGetHandleByIndex_v2", func() (nvml.Device, error) { return v.share.lib.GPU(index) })
	if err != nil {
		return nil, err
	}
	return &sharedDevice{v.share, v.seen, d}, nil
}

// ask calls fn unless the library was opened anew since the time of seen.
func ask[T any](s *NVMLShare, seen int, call string, fn func() (T, error)) (T, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.opens != seen {
		var none T
		return none, &nvml.Error{Call: call, Code: nvml.CodeUninitialized}
	}
	return fn()
}

// sharedDevice is a handle that is not used after the library was opened anew.
type sharedDevice struct {
	share *NVMLShare
	seen  int
	nvml.Device
}

func (d *sharedDevice) Identity() (nvml.Identity, error) {
	return ask(d.share, d.seen, "nvmlDeviceGetUUID", d.Device.Identity)
}

func (d *sharedDevice) Memory() (nvml.Memory, error) {
	return ask(d.share, d.seen, "nvmlDeviceGetMemoryInfo_v2", d.Device.Memory)
}

func (d *sharedDevice) Numbers(q nvml.Query) ([4]uint64, error) {
	return ask(d.share, d.seen, string(q), func() ([4]uint64, error) { return d.Device.Numbers(q) })
}

func (d *sharedDevice) Processes(graphics bool) ([]nvml.Process, error) {
	return ask(d.share, d.seen, "nvmlDeviceGetComputeRunningProcesses", func() ([]nvml.Process, error) { return d.Device.Processes(graphics) })
}

func (d *sharedDevice) Instances() ([]nvml.Instance, error) {
	list, err := ask(d.share, d.seen, "nvmlDeviceGetMigDeviceHandleByIndex", d.Device.Instances)
	for i := range list {
		list[i].Device = &sharedDevice{d.share, d.seen, list[i].Device}
	}
	return list, err
}
