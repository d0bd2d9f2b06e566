package amdgpu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/machines"
	"github.com/railscope/railscope/internal/sysfstest"
)

// described returns what this package reads of a machine, apart from the boards' identity.
func described(t *testing.T, sys, procfs string) (list []string) {
	t.Helper()
	f := NewFinder(sys)
	gpus, err := f.GPUs(time.Now())
	if err != nil {
		t.Error(err)
	}
	nodes, err := f.Nodes()
	if err != nil {
		t.Error(err)
	}
	for _, g := range gpus {
		memory, memoryErr := g.Memory(procfs)
		busy, busyErr := g.Number(Busy)
		heat, heatErr := g.Sensor(TemperatureEdge, TemperatureJunction)
		counts, countErr := g.Errors()
		x, xErr := g.XGMI()
		ids := g.IDs(nodes)
		slices.Sort(ids)
		compute, partition, modesErr := g.Modes()
		list = append(list, fmt.Sprint(g.Index, g.PCIAddress, g.Display, g.Integrated, " ", memory, memoryErr != nil,
			busy, busyErr != nil, heat, heatErr != nil, counts, countErr != nil, x, xErr != nil, compute, partition,
			modesErr != nil, " nodes ", ids, " ", g.Identity().Name))
	}
	return list
}

// TestDump: a machine that is built from a dump is read as the machine itself, and its boards are not identified.
func TestDump(t *testing.T) {
	for _, name := range []string{"mi300x-thor2", "mi300x-cpx", "mixed-gpus", "azure-nd-mi300x", "slingshot"} {
		t.Run(name, func(t *testing.T) {
			tree := machine(t, name)
			f := NewFinder(tree.Sys())
			gpus, err := f.GPUs(time.Now())
			if err != nil || len(gpus) == 0 {
				t.Fatal(gpus, err)
			}
			var b strings.Builder
			for _, g := range gpus {
				if err := g.Dump(&b); err != nil {
					t.Error(err)
				}
			}
			if err := f.DumpNodes(&b); err != nil {
				t.Error(err)
			}
			text := b.String()
			if strings.Contains(text, "unique_id") || strings.Contains(text, "8af70525") || !strings.Contains(text, "simd_count") {
				t.Error("a board is identified, or nodes are missing:", text)
			}
			root := sysfstest.Root{Dir: t.TempDir()}
			sysfstest.Write(t, root.Dir, []byte(text))
			got, want := described(t, root.Sys(), tree.Procfs()), described(t, tree.Sys(), tree.Procfs())
			if name == "mixed-gpus" { // the GPUs of NVIDIA are not in the dump
				want = []string{strings.Replace(want[0], "2", "0", 1), strings.Replace(want[1], "3", "1", 1)}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-machine +dump: %s", diff)
			}
		})
	}
}

// TestDumpPartly: a suspended GPU is not woken, a file that fails is reported, and the others are there.
func TestDumpPartly(t *testing.T) {
	g := gpu(t, map[string]string{"power/runtime_status": "suspended", "mem_info_vram_total": "1", "gpu_busy_percent": "2",
		"xgmi_error": "1", "product_name": ""})
	g.PCIAddress = "0000:01:00.0"
	if err := os.Mkdir(filepath.Join(g.dir, "mem_info_vram_used"), 0o755); err != nil { // it cannot be read
		t.Fatal(err)
	}
	var b strings.Builder
	err := g.Dump(&b)
	if err == nil || !strings.Contains(err.Error(), "mem_info_vram_used") {
		t.Error(err)
	}
	const dir = "-- sys/bus/pci/devices/0000:01:00.0/"
	want := "-- sys/bus/pci/drivers/amdgpu/0000:01:00.0 --\n-> ../../devices/0000:01:00.0\n" +
		dir + "power/runtime_status --\nsuspended\n" + dir + "mem_info_vram_total --\n1\n" + dir + "product_name --\n\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("-want +got: %s", diff)
	}
	if err := NewFinder(machines.NewTree(t).Sys()).DumpNodes(&b); err != nil {
		t.Error("no amdkfd:", err)
	}
}
