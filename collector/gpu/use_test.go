//go:build cgo

package gpu

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/collector"
)

// h200 is the first GPU of the capture h200.
var h200 = collector.GPUUse{Used: 20092120064, UsedKnown: true, Busy: true, BusyKnown: true}

// TestUse: the gpu source reports memory and load of GPUs on machines of all kinds, before and after its first
// read.
func TestUse(t *testing.T) {
	for capture, tc := range map[string]struct {
		want  []collector.GPUUse
		known bool
	}{
		"h200":     {[]collector.GPUUse{h200, {Index: 1, UsedKnown: true, BusyKnown: true}}, true},
		"mig":      {nil, true}, // the instance's own values, below
		"nogpu":    {nil, true},
		"nodevice": {nil, false},
	} {
		t.Run(capture, func(t *testing.T) {
			f := captured(t, capture)
			if f == nil {
				return
			}
			g := New(noAMD(), f.Procfs, f.session, 10*time.Second, 0)
			first, firstKnown := g.Use(10 * time.Second)
			used := map[string]float64{}
			_ = g.Read(func(s collector.Sample) { // invalid captures have their own test
				if s.Metric == g.memoryUsed && len(s.Labels) == 1 {
					used[s.Labels[0]] = s.Value
				}
			})
			list, known := g.Use(10 * time.Second)
			t.Log(list, known, used)
			if firstKnown != known || !cmp.Equal(first, list) {
				t.Errorf("before the first Read: %v (%v), after: %v (%v)", first, firstKnown, list, known)
			}
			if known != tc.known {
				t.Errorf("known is %v", known)
			}
			if tc.want != nil {
				if diff := cmp.Diff(tc.want, list); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
			}
			for _, use := range list {
				if want, ok := used[string(rune('0'+use.Index))]; ok != use.UsedKnown || float64(use.Used) != want {
					t.Errorf("GPU %d holds %d (%v), the source says %v (%v)", use.Index, use.Used, use.UsedKnown,
						want, ok)
				}
			}
		})
	}
}

// TestUseHangs: a call that hangs affects the use of its own GPU only, and no Read.
func TestUseHangs(t *testing.T) {
	f := captured(t, "h200")
	if f == nil {
		return
	}
	g := New(noAMD(), f.Procfs, f.session, 10*time.Second, 0)
	if err := g.Read(func(collector.Sample) {}); err != nil {
		t.Fatal(err)
	}
	f.Set(t, "nvmlDeviceGetUtilizationRates.1", "hang")
	list, known := g.Use(time.Second)
	if want := []collector.GPUUse{h200, {Index: 1}}; !known || !cmp.Equal(list, want) {
		t.Errorf("while it hangs: %v, %v", list, known)
	}
	f.Set(t, "nvmlDeviceGetUtilizationRates.1", "0 0 0")
	for {
		if list, _ := g.Use(time.Minute); len(list) == 2 && list[1].UsedKnown {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
