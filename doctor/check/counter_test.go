package check

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/doctor/facts"
)

// TestGPULink: lost lanes are always a finding, a low speed only under load.
func TestGPULink(t *testing.T) {
	const gpu = "0000:1b:00.0"
	gen5 := facts.Link{Address: gpu, Speed: 32, Width: 16, MaxSpeed: 32, MaxWidth: 16}
	const idle, busy = 0.1, 0.9
	for name, tt := range map[string]struct {
		change func(f *facts.Facts, g *facts.GPU)
		want   string
	}{
		"healthy": {func(*facts.Facts, *facts.GPU) {}, ""},
		"half of its lanes": {func(_ *facts.Facts, g *facts.GPU) { g.Link.Width = 8 },
			"32 GT/s x8, both ends support 32 GT/s x16"},
		"idle": {func(_ *facts.Facts, g *facts.GPU) { g.Link.Speed = 2.5 }, ""},
		"idle while railscope runs": {func(f *facts.Facts, g *facts.GPU) {
			g.Link.Speed, f.Live = 2.5, &facts.Live{GPULoad: map[string]float64{gpu: idle}}
		}, ""},
		"slow under load": {func(f *facts.Facts, g *facts.GPU) {
			g.Link.Speed, f.Live = 8, &facts.Live{GPULoad: map[string]float64{gpu: busy}}
		}, "8 GT/s x16, both ends support 32 GT/s x16, and the GPU is busy"},
		"a slot of eight lanes": {func(_ *facts.Facts, g *facts.GPU) { g.Link.Width, g.Slot.MaxWidth = 8, 8 }, ""},
		"an unknown slot":       {func(_ *facts.Facts, g *facts.GPU) { g.Link.Width, g.Slot = 8, nil }, ""},
		"a GB10":                {func(f *facts.Facts, g *facts.GPU) { g.Link.Width, f.GPUDirect.Mode = 1, "unsupported" }, ""},
	} {
		link, slot := gen5, gen5
		f := &facts.Facts{}
		g := facts.GPU{Address: gpu, Link: &link, Slot: &slot}
		tt.change(f, &g)
		f.GPUs = []facts.GPU{g}
		var want, got []string
		if tt.want != "" {
			want = []string{"warning gpu_pcie_low, gpu 0000:1b:00.0: its PCIe link runs at " + tt.want}
		}
		for _, c := range Checks() {
			if c.ID == "gpu_pcie_low" {
				for _, one := range c.Find(f) {
					got = append(got, fmt.Sprintf("%s %s, %s: %s", one.Severity, one.Check, one.Subject, one.Evidence))
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
