package gpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/amdgpu"
	"github.com/railscope/railscope/internal/hungfs"
	"github.com/railscope/railscope/internal/machines"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/nvml/nvmltest"
)

// machine builds a machine of the zoo.
func machine(t testing.TB, name string) *machines.Tree {
	t.Helper()
	for _, m := range machines.All() {
		if m.Name == name {
			tree := machines.NewTree(t)
			m.Build(tree)
			tree.Proc("meminfo", "MemTotal:       527182776 kB\nMemAvailable:   400000000 kB")
			return tree
		}
	}
	t.Fatalf("no machine %s", name)
	return nil
}

// source returns the source of a machine whose NVIDIA GPUs have no library, except on a machine of both vendors.
func source(tree *machines.Tree, nvidia, processes int) *Source {
	lib := nvml.NewLibrary(filepath.Join(tree.Root, "libnvidia-ml.so.1"))
	if nvidia > 0 {
		lib = &nvmltest.GPUs{Number: nvidia}
	}
	return New(amdgpu.NewFinder(tree.Sys()), tree.Procfs(), nvml.NewSession(lib), 20*time.Second, processes)
}

// TestAMD reads machines of the zoo, and compares the samples with testdata/amd. RAILSCOPE_UPDATE=1 writes the files.
func TestAMD(t *testing.T) {
	for name, nvidia := range map[string]int{"mi300x-thor2": 0, "mi355x-pollara": 0, "mi300x-cpx": 0, "slingshot": 0,
		"azure-nd-mi300x": 0, "mixed-gpus": 2} {
		t.Run(name, func(t *testing.T) {
			tree := machine(t, name)
			processes := 0
			if name == "mi300x-cpx" {
				processes = 2
				addProcesses(t, tree)
			}
			src := source(tree, nvidia, processes)
			lines := readLines(src)
			if again := readLines(src); !slices.Equal(lines, again) {
				t.Errorf("the second read differs: %s", cmp.Diff(lines, again))
			}
			lines = slices.DeleteFunc(lines, func(line string) bool {
				_, gpu, _ := strings.Cut(line, `gpu="`)
				return nvidia == 0 && gpu != "" && gpu[0] > '1' // GPUs 0 and 1 stand for the others
			})
			got := strings.ReplaceAll(strings.Join(lines, "\n")+"\n", tree.Root, "ROOT")
			golden := filepath.Join("testdata/amd", name+".txt")
			if os.Getenv("RAILSCOPE_UPDATE") != "" {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if diff := cmp.Diff(string(want), got); diff != "" || err != nil {
				t.Errorf("%v, -want +got:\n%s", err, diff)
			}
		})
	}
}

// addProcesses adds three processes with memory on partitions of the first GPU, and one without.
func addProcesses(t *testing.T, tree *machines.Tree) {
	t.Helper()
	for pid, memory := range map[int][2]uint64{4711: {5 << 30, 7 << 30}, 4712: {1 << 30, 0}, 4713: {1 << 20, 0},
		4714: {}} {
		dir := fmt.Sprintf("class/kfd/kfd/proc/%d", pid)
		tree.Files(dir, "pasid", 32770, "vram_21948", memory[0], "vram_21955", memory[1])
	}
}

// TestAMDUse: the load and the memory of AMD's GPUs follow those of NVIDIA, with the indexes of their samples.
func TestAMDUse(t *testing.T) {
	tree := machine(t, "mixed-gpus")
	src := source(tree, 2, 0)
	function := "bus/pci/devices/0000:29:00.0/"
	for _, tt := range []struct {
		file, text string
		want       collector.GPUUse
	}{
		{"gpu_busy_percent", "9", collector.GPUUse{Used: 297000960, UsedKnown: true, BusyKnown: true}},
		{"gpu_busy_percent", "10", collector.GPUUse{Used: 297000960, UsedKnown: true, Busy: true, BusyKnown: true}},
		{"mem_info_vram_used", "200000000000", collector.GPUUse{Used: 200000000000, UsedKnown: true, Busy: true,
			BusyKnown: true}},
		{"gpu_busy_percent", "4294967295", collector.GPUUse{Used: 200000000000, UsedKnown: true}},
		{"power/runtime_status", "suspended", collector.GPUUse{Used: 200000000000, UsedKnown: true, BusyKnown: true}},
		{"mem_info_vram_used", "300000000000", collector.GPUUse{BusyKnown: true}}, // more than there is
	} {
		tree.File(function+tt.file, tt.text)
		list, known := src.Use(20 * time.Second)
		if !known || len(list) != 4 {
			t.Fatalf("%v (%v)", list, known)
		}
		tt.want.Index = 2
		if diff := cmp.Diff(tt.want, list[2]); diff != "" || list[3].Index != 3 || !list[3].BusyKnown {
			t.Errorf("%s = %s: -want +got: %s", tt.file, tt.text, diff)
		}
	}
	tree.Remove("bus/pci/drivers/amdgpu")
	if list, known := src.Use(20 * time.Second); len(list) != 2 || !known {
		t.Errorf("without amdgpu: %v (%v)", list, known)
	}
}

// TestAMDHang: a file that hangs costs its own GPU one budget, once; the other GPUs are read. When the read returns,
// the GPU is back.
func TestAMDHang(t *testing.T) {
	for _, file := range []string{"gpu_busy_percent", "mem_info_vram_used", "hwmon/hwmon1/power1_input",
		"ras/umc_err_count", "class/kfd/kfd/topology/nodes/1/properties"} {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			tree, mount := machine(t, "mi300x-thor2"), t.TempDir()
			const budget = 2 * time.Second
			none := nvml.NewSession(nvml.NewLibrary(filepath.Join(mount, "none")))
			src := New(amdgpu.NewFinder(tree.Sys()), tree.Procfs(), none, budget, 0)
			path, topology := filepath.Join(tree.Sys(), "bus/pci/devices/0000:19:00.0", file), strings.HasPrefix(file, "class")
			if topology {
				path = filepath.Join(tree.Sys(), file)
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			whole := readLines(source(tree, 0, 0))
			hung := hungfs.Mount(t, mount, map[string]string{"file": string(text)})
			if err := errors.Join(os.Remove(path), os.Symlink(filepath.Join(mount, "file"), path)); err != nil {
				t.Fatal(err)
			}
			alone := slices.DeleteFunc(slices.Clone(whole), func(line string) bool {
				return !topology && strings.Contains(line, `gpu="1"`) || topology && strings.HasPrefix(line, "gpu_partitions")
			})
			for i := range 2 {
				start := time.Now()
				got := readLines(src)
				if took := time.Since(start); i > 0 && took >= budget {
					t.Errorf("the second read took %v", took)
				}
				if !topology {
					last := got[len(got)-1]
					if !strings.HasPrefix(last, "fault timeout: gpu1: ") {
						t.Errorf("the last line is %q", last)
					}
					got = got[:len(got)-1]
				}
				if diff := cmp.Diff(alone, got); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				if n := hung.Waiting(); n != 1 {
					t.Errorf("%d reads hang, not 1", n)
				}
			}
			hung.Release()
			if !topology { // the nodes are read again later
				for !slices.Equal(readLines(src), whole) {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
}

// TestAMDUseHangs: a file that hangs makes the use of its own GPU unknown.
func TestAMDUseHangs(t *testing.T) {
	tree, mount := machine(t, "mi300x-thor2"), t.TempDir()
	hungfs.Mount(t, mount, map[string]string{"file": "0\n"})
	path := filepath.Join(tree.Sys(), "bus/pci/devices/0000:29:00.0/gpu_busy_percent")
	if err := errors.Join(os.Remove(path), os.Symlink(filepath.Join(mount, "file"), path)); err != nil {
		t.Fatal(err)
	}
	src := source(tree, 0, 0)
	for range 2 {
		list, known := src.Use(time.Second)
		if !known || len(list) != 8 {
			t.Fatalf("%v (%v)", list, known)
		}
		for _, use := range list {
			if hangs := use.Index == 2; use.UsedKnown == hangs || use.BusyKnown == hangs {
				t.Errorf("%+v", use)
			}
		}
	}
}

// TestAMDDescriptors: after a read, no file of the machine is open, so that nothing keeps amdgpu in use.
func TestAMDDescriptors(t *testing.T) {
	tree := machine(t, "mi300x-cpx")
	addProcesses(t, tree)
	src := source(tree, 0, 2)
	for range 2 {
		if lines := readLines(src); len(lines) < 100 {
			t.Fatal(lines)
		}
		src.Use(20 * time.Second)
	}
	descriptors, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range descriptors {
		if target, _ := os.Readlink("/proc/self/fd/" + d.Name()); strings.HasPrefix(target, tree.Root) {
			t.Errorf("%s is open", target)
		}
	}
}

// TestAMDComesAndGoes: a driver that was unloaded leaves no samples, and a fault; loaded again, all are back, also with
// another number of the hwmon device.
func TestAMDComesAndGoes(t *testing.T) {
	tree := machine(t, "mi300x-thor2")
	src := source(tree, 0, 0)
	before := readLines(src)
	driver, away := filepath.Join(tree.Sys(), "bus/pci/drivers/amdgpu"), filepath.Join(tree.Root, "away")
	if err := os.Rename(driver, away); err != nil {
		t.Fatal(err)
	}
	if got := readLines(src); len(got) != 1 ||
		!strings.HasPrefix(got[0], "fault no_gpu: there were GPUs of AMD before") {
		t.Errorf("unloaded: %q", got)
	}
	hwmon := filepath.Join(tree.Sys(), "bus/pci/devices/0000:19:00.0/hwmon/hwmon")
	if err := errors.Join(os.Rename(away, driver), os.Rename(hwmon+"1", hwmon+"9")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, readLines(src)); diff != "" {
		t.Errorf("loaded again: %s", diff)
	}
}

// TestAMDReset: a refusal during a reset is one fault, under its own reason, and stops the reads of sensors.
func TestAMDReset(t *testing.T) {
	tree := machine(t, "mi300x-thor2")
	gpus, err := amdgpu.NewFinder(tree.Sys()).GPUs(time.Now())
	if err != nil || len(gpus) != 8 {
		t.Fatal(gpus, err)
	}
	out := &collector.Reading{Device: "gpu0"}
	d := &amdDevice{writer: writer{table: newTable(), index: "0", out: out}, gpu: gpus[0]}
	if !d.failed(fmt.Errorf("%w: %w", amdgpu.ErrReset, unix.EPERM)) {
		t.Error("a refusal is no failure")
	}
	d.number(amdgpu.Busy, 100, d.busy)
	d.sensor(d.power, nil, amdgpu.PowerInput)
	faults := collector.Faults(errors.Join(out.Emit(func(s collector.Sample) {
		t.Errorf("%s was read", s.Metric.Name)
	})...))
	if len(faults) != 1 || faults[0].Reason != reasonReset || faults[0].Expected {
		t.Errorf("%v", faults)
	}
}

// TestNoAMD: without amdgpu, the source is absent, and the functions on PCI are not read.
func TestNoAMD(t *testing.T) {
	tree := machines.NewTree(t)
	tree.Remove("bus/pci/devices")
	tree.File("bus/pci/devices", "not a directory, so that a read fails")
	src := source(tree, 0, 0)
	if lines := readLines(src); len(lines) != 1 || !strings.HasPrefix(lines[0], "absent ") {
		t.Errorf("%q", lines)
	}
	if list, known := src.Use(time.Second); len(list) != 0 || !known {
		t.Error(list, known)
	}
}

// BenchmarkAMDRead reads eight GPUs.
func BenchmarkAMDRead(b *testing.B) {
	src := source(machine(b, "mi300x-thor2"), 0, 0)
	for b.Loop() {
		if err := src.Read(func(collector.Sample) {}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkNoAMD is the cost of the part for AMD on a machine without.
func BenchmarkNoAMD(b *testing.B) {
	src := source(machines.NewTree(b), 0, 0)
	for b.Loop() {
		src.amd.Read(func(collector.Sample) {})
	}
}
