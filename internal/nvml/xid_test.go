package nvml_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/nvml/nvmltest"
)

// watched is a fake library with some GPUs and its readers.
type watched struct {
	*nvmltest.GPUs
	session *nvml.Session
	reader  *nvml.Reader[string]
	watcher *nvml.Watcher
}

func watch(lib *nvmltest.GPUs) *watched {
	s := nvml.NewSession(lib)
	return &watched{lib, s, nvml.NewReader(s, driver), nvml.NewWatcher(s)}
}

// read returns the XIDs of each GPU, and the first error.
func (w *watched) read(t *testing.T) (xids []nvml.XIDs, err error) {
	t.Helper()
	roster, _, err := w.reader.Read(budget)
	if err != nil {
		t.Fatal(err)
	}
	for i, res := range w.watcher.Read(roster, budget) {
		xids = append(xids, res.Value)
		if i == 0 {
			err = res.Err
		}
	}
	return xids, err
}

func (w *watched) want(t *testing.T, what string, code nvml.Code, recorded int, want ...nvml.XIDs) {
	t.Helper()
	got, err := w.read(t)
	wantCode(t, what, err, code)
	if diff := cmp.Diff(want, got); diff != "" || w.Recorded != recorded {
		t.Errorf("%s: recorded %d times, -want +got:\n%s", what, w.Recorded, diff)
	}
}

// TestXIDs: XIDs are counted for each GPU, including those just before NVML is released, and after it. They are
// freed before the library is closed; otherwise the fake panics. Counts belong to a GPU, not to an index.
func TestXIDs(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		w := watch(&nvmltest.GPUs{Number: 2, UUIDs: []string{"A", "B"}})
		w.want(t, "at first", 0, 2, nvml.XIDs{}, nvml.XIDs{})
		w.XIDs = [][]uint64{{79, 13, 13}, {31}}
		w.want(t, "counted", 0, 2, nvml.XIDs{79: 1, 13: 2}, nvml.XIDs{31: 1})
		w.want(t, "and once only", 0, 2, nvml.XIDs{79: 1, 13: 2}, nvml.XIDs{31: 1})
		w.XIDs[1] = []uint64{31}
		if err := w.session.Release(time.Minute); err != nil || w.Closed != 1 {
			t.Fatal(err, w.Closed)
		}
		time.Sleep(time.Minute)
		w.want(t, "opened again", 0, 4, nvml.XIDs{79: 1, 13: 2}, nvml.XIDs{31: 2})
		if err := w.session.Release(time.Minute); err != nil {
			t.Fatal(err)
		}
		w.Number, w.UUIDs = 1, []string{"B"}
		time.Sleep(time.Minute)
		w.XIDs[0] = []uint64{62}
		w.want(t, "the first GPU is gone", 0, 5, nvml.XIDs{62: 1})
	})
}

// TestXIDsBounded: one read takes 256 events, and a GPU has 16 XIDs; further XIDs count as other.
func TestXIDsBounded(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		w := watch(&nvmltest.GPUs{XIDs: [][]uint64{nil}})
		for i := range 300 {
			w.XIDs[0] = append(w.XIDs[0], uint64(i)%100+1)
		}
		for _, all := range []uint64{256, 300, 300} {
			xids, err := w.read(t)
			sum := uint64(0)
			for _, n := range xids[0] {
				sum += n
			}
			if err != nil || sum != all || len(xids[0]) != 17 || xids[0][nvml.OtherXID] < 100 {
				t.Errorf("%d of %d events, %v, %v", sum, all, xids[0], err)
			}
		}
	})
}

// TestXIDsHang: XIDs are read while another call for their GPU hangs. XIDs that hang affect nothing else, and NVML
// cannot be released until they return.
func TestXIDsHang(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		w := watch(&nvmltest.GPUs{Hang: make(chan struct{}), XIDs: [][]uint64{{119}}})
		w.want(t, "another call hangs", 0, 1, nvml.XIDs{119: 1})
		close(w.Hang)
		time.Sleep(budget)
		w.HangXIDs = make(chan struct{})
		roster, gpus, err := w.reader.Read(budget)
		if err != nil || gpus[0].Err != nil {
			t.Fatal(err, gpus)
		}
		wantCode(t, "XIDs hang", w.watcher.Read(roster, budget)[0].Err, nvml.CodeNoAnswer)
		_, gpus, err = w.reader.Read(budget)
		if err != nil || gpus[0].Err != nil {
			t.Error(err, gpus)
		}
		wantCode(t, "release", w.session.Release(time.Minute), nvml.CodeNoAnswer)
		close(w.HangXIDs)
		time.Sleep(budget)
		if err := w.session.Release(time.Minute); err != nil {
			t.Error(err)
		}
	})
}

// TestXIDsFail: recording is tried again after a minute, unless the GPU does not support events.
func TestXIDsFail(t *testing.T) {
	for code, again := range map[nvml.Code]int{999: 3, nvml.CodeNotSupported: 1, nvml.CodeNoFunction: 1} {
		lanetest.Test(t, func(t *testing.T) {
			w := watch(&nvmltest.GPUs{XIDErr: &nvml.Error{Call: "x", Code: code}})
			for _, recorded := range []int{1, 1, min(2, again), again} {
				w.want(t, "fails", code, recorded, nvml.XIDs{})
				time.Sleep(nvml.RetryInterval / 2)
				if recorded > 1 {
					time.Sleep(nvml.RetryInterval / 2)
				}
			}
		})
	}
}
