package amdgpu

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

	"github.com/railscope/railscope/internal/machines"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func machine(t *testing.T, name string) *machines.Tree {
	t.Helper()
	for _, m := range machines.All() {
		if m.Name == name {
			tree := machines.NewTree(t)
			m.Build(tree)
			return tree
		}
	}
	t.Fatalf("no machine %s", name)
	return nil
}

// find returns the GPUs as "index address".
func find(t *testing.T, f *Finder, at time.Time) string {
	t.Helper()
	gpus, err := f.GPUs(at)
	if err != nil {
		t.Error(err)
	}
	var list []string
	for _, g := range gpus {
		list = append(list, fmt.Sprint(g.Index, " ", g.PCIAddress))
	}
	return strings.Join(list, ", ")
}

// TestDriverLoaded: where there was no driver, one is seen after a while.
func TestDriverLoaded(t *testing.T) {
	tree := machine(t, "mixed-gpus")
	sys, driver := tree.Sys(), filepath.Join(tree.Sys(), "bus/pci/drivers/amdgpu")
	aside := filepath.Join(t.TempDir(), "amdgpu")
	if err := os.Rename(driver, aside); err != nil {
		t.Fatal(err)
	}
	f, now := NewFinder(sys), time.Now()
	if got := find(t, f, now); got != "" {
		t.Error("without a driver:", got)
	}
	if err := os.Rename(aside, driver); err != nil {
		t.Fatal(err)
	}
	if got := find(t, f, now.Add(ScanEvery-1)); got != "" {
		t.Error("it looked again too early:", got)
	}
	if got := find(t, f, now.Add(ScanEvery)); got != "2 0000:29:00.0, 3 0000:49:00.0" {
		t.Error("with the driver:", got)
	}
}

// TestIndexes: AMD's GPUs have the indexes after NVIDIA's, and keep them while a driver or a GPU is away.
func TestIndexes(t *testing.T) {
	tree := machine(t, "mixed-gpus")
	f, now := NewFinder(tree.Sys()), time.Now()
	const both = "2 0000:29:00.0, 3 0000:49:00.0"
	if got := find(t, f, now); got != both {
		t.Fatal(got)
	}
	tree.Remove("bus/pci/drivers/amdgpu/0000:29:00.0")
	if got := find(t, f, now); got != "3 0000:49:00.0" {
		t.Error("one has no driver:", got)
	}
	tree.Remove("bus/pci/drivers/amdgpu")
	if got := find(t, f, now); got != "" {
		t.Error("no driver:", got)
	}
	for _, address := range []string{"0000:29:00.0", "0000:49:00.0"} {
		tree.Link("bus/pci/drivers/amdgpu/"+address, "bus/pci/devices/"+address)
	}
	if got := find(t, f, now); got != both {
		t.Error("both again:", got)
	}
	tree.Remove("bus/pci/devices/0000:19:00.0") // a GPU of NVIDIA: NVML still counts it
	now = now.Add(ScanEvery)
	if got := find(t, f, now); got != both {
		t.Error("one GPU of NVIDIA less:", got)
	}
	if got := find(t, NewFinder(tree.Sys()), now); got != "1 0000:29:00.0, 2 0000:49:00.0" {
		t.Error("after a restart:", got)
	}
	tree.GPU("pci0000:70/0000:70:01.0/0000:71:00.0", machines.Function{})
	tree.GPU("pci0000:80/0000:80:01.0/0000:81:00.0", machines.Function{})
	now = now.Add(ScanEvery)
	if got := find(t, f, now); got != "3 0000:29:00.0, 4 0000:49:00.0" {
		t.Error("three of NVIDIA:", got)
	}
}

// TestScan: PCI is read when the driver's list changes, else every ScanEvery.
func TestScan(t *testing.T) {
	tree := machine(t, "mi300x-thor2")
	f, now := NewFinder(tree.Sys()), time.Now()
	all := find(t, f, now)
	if strings.Count(all, ",") != 7 || !strings.HasPrefix(all, "0 0000:09:00.0") {
		t.Fatal(all)
	}
	tree.File("bus/pci/devices/0000:09:00.0/class", "0x020000")
	if got := find(t, f, now.Add(ScanEvery-1)); got != all {
		t.Error("it was read too early:", got)
	}
	if got := find(t, f, now.Add(ScanEvery)); strings.Count(got, ",") != 6 {
		t.Error("it was not read again:", got)
	}
}

// TestOneSlot: GPUs that a guest sees as functions of one slot have the nodes of their functions.
func TestOneSlot(t *testing.T) {
	tree := machines.NewTree(t)
	for i := range 2 {
		address := fmt.Sprintf("0000:11:00.%d", i)
		tree.Files("devices/pci0000:00/"+address, "vendor", "0x1002", "class", "0x120000")
		tree.Link("bus/pci/devices/"+address, "devices/pci0000:00/"+address)
		tree.Link("bus/pci/drivers/amdgpu/"+address, "devices/pci0000:00/"+address)
		tree.Files(fmt.Sprintf("class/kfd/kfd/topology/nodes/%d", i), "gpu_id", 100+i, "properties",
			fmt.Sprintf("simd_count 4\nlocation_id %d\n", 0x1100+i))
	}
	f := NewFinder(tree.Sys())
	nodes, err := f.Nodes()
	gpus, gpusErr := f.GPUs(time.Now())
	if err != nil || gpusErr != nil || len(gpus) != 2 {
		t.Fatal(gpus, err, gpusErr)
	}
	for i, g := range gpus {
		if ids := g.IDs(nodes); len(ids) != 1 || ids[0] != uint64(100+i) {
			t.Errorf("%s has nodes %v", g.PCIAddress, ids)
		}
	}
}

// TestNodes: each GPU of a machine has its own nodes of amdkfd, one for each partition.
func TestNodes(t *testing.T) {
	for name, want := range map[string]int{"mi300x-cpx": 8, "mi300x-thor2": 1} {
		tree := machine(t, name)
		tree.Files("class/kfd/kfd/topology/nodes/99", "gpu_id", 0, "properties", "cpu_cores_count 96\nsimd_count 0\n"+
			"location_id 0\ndomain 0") // a processor
		nodes, err := NewFinder(tree.Sys()).Nodes()
		if err != nil {
			t.Fatal(err)
		}
		gpus, err := NewFinder(tree.Sys()).GPUs(time.Now())
		if err != nil || len(gpus) != 8 {
			t.Fatal(gpus, err)
		}
		seen := map[uint64]bool{}
		for _, g := range gpus {
			ids := g.IDs(nodes)
			if len(ids) != want {
				t.Errorf("%s: %v has nodes %v", name, g, ids)
			}
			for _, id := range ids {
				if id == 0 || seen[id] {
					t.Errorf("%s: %d is there twice, or 0", name, id)
				}
				seen[id] = true
			}
		}
		// A node that cannot be read hides no other.
		tree.Remove("class/kfd/kfd/topology/nodes/3/properties")
		tree.Refuse("class/kfd/kfd/topology/nodes/3/properties")
		less, err := NewFinder(tree.Sys()).Nodes()
		if err == nil || len(less) != len(nodes)-1 {
			t.Errorf("%s: %d nodes of %d: %v", name, len(less), len(nodes), err)
		}
	}
	if nodes, err := NewFinder(t.TempDir()).Nodes(); nodes != nil || err != nil { // no amdkfd
		t.Error(nodes, err)
	}
}

// TestParseNode: the properties of an MI350X, from ROCm/rocm-systems#10274, shortened.
func TestParseNode(t *testing.T) {
	const mi350x = "cpu_cores_count 0\nsimd_count 1024\nmem_banks_count 1\ngfx_target_version 90500\nvendor_id 4098\n" +
		"device_id 30112\nlocation_id 33536\ndomain 0\nhive_id 0\nunique_id 5176797314141101417\nnum_xcc 8\n"
	for _, tt := range []struct {
		text string
		want Node
		ok   bool
	}{
		{mi350x, Node{Location: "0000:83:00", SIMDs: 1024}, true},
		{"simd_count 4\nlocation_id 65535\ndomain 65536\n", Node{Location: "10000:ff:1f", Function: 7, SIMDs: 4}, true},
		{"simd_count 4\nlocation_id 33541\n", Node{Location: "0000:83:00", Function: 5, SIMDs: 4}, true}, // the 6th partition
		{"", Node{Location: "0000:00:00"}, true},
		{"simd_count -1\n", Node{}, false},
		{"simd_count\n", Node{}, false},
		{"location_id 65536\n", Node{}, false},
	} {
		got, err := ParseNode(tt.text)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%q: %+v, %v", tt.text, got, err)
		}
	}
}

func FuzzParseNode(f *testing.F) {
	f.Add("simd_count 1024\nlocation_id 33536\ndomain 0\n")
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseNode(text)
		if err == nil && (len(n.Location) < len("0000:00:00") || strings.Count(n.Location, ":") != 2) || err != nil && n != (Node{}) {
			t.Errorf("%q: %+v, %v", text, n, err)
		}
	})
}

// TestProcesses: the memory of a process on all partitions of a GPU; one that went away during the read, or has no
// memory there, is not listed.
func TestProcesses(t *testing.T) {
	tree := machines.NewTree(t)
	for pid, memory := range map[string]string{"10": "1000", "11": "0", "12": "7", "13": "18446744073709551616",
		"x": "1"} {
		tree.Files("class/kfd/kfd/proc/"+pid, "vram_1", memory, "vram_2", 5, "vram_3", 0, "queues/0/size", 4096)
	}
	tree.Remove("class/kfd/kfd/proc/12/vram_1")
	list, err := NewFinder(tree.Sys()).Processes([]uint64{1, 3})
	if want := []Process{{10, 1000}}; !slices.Equal(list, want) || sysfs.Reason(err) != sysfs.ReasonRange {
		t.Errorf("%v, %v", list, err)
	}
	tree.Remove("class/kfd/kfd/proc/13")
	list, err = NewFinder(tree.Sys()).Processes([]uint64{1, 2})
	slices.SortFunc(list, func(a, b Process) int { return int(a.PID) - int(b.PID) })
	if want := []Process{{10, 1005}, {11, 5}, {12, 5}}; !slices.Equal(list, want) || err != nil {
		t.Errorf("%v, %v", list, err)
	}
	if list, err := NewFinder(t.TempDir()).Processes([]uint64{1}); list != nil || err != nil {
		t.Error(list, err)
	}
}

// TestParseErrors: the formats of amdgpu_ras_sysfs_read in Linux 5.4, 6.11 and during a reset.
func TestParseErrors(t *testing.T) {
	for _, tt := range []struct {
		text, reason string
		want         Errors
	}{
		{"ue: 0\nce: 0", "", Errors{}},
		{"ue: 3\nce: 14\n", "", Errors{Uncorrected: 3, Corrected: 14}},
		{"ue: 3\nce: 14\nde: 15\n", "", Errors{3, 14, 15, true}},
		{"ue: 3\nce: 14\nxx: 15\n", "", Errors{Uncorrected: 3, Corrected: 14}},
		{"Query currently inaccessible\n", sysfs.ReasonUnsupported, Errors{}},
		{"ue: 3\n", sysfs.ReasonInvalid, Errors{}},
		{"ue: 3\nue: 3\nce: 1\n", sysfs.ReasonInvalid, Errors{}},
		{"ue: -1\nce: 0\n", sysfs.ReasonInvalid, Errors{}},
		{"", sysfs.ReasonEmpty, Errors{}},
	} {
		got, err := ParseErrors(tt.text)
		if got != tt.want || (err == nil) != (tt.reason == "") || err != nil && sysfs.Reason(err) != tt.reason {
			t.Errorf("%q: %+v, %v", tt.text, got, err)
		}
	}
}

func FuzzParseErrors(f *testing.F) {
	f.Add("ue: 0\nce: 0\nde: 0\n")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := ParseErrors(text)
		whole := strings.Contains(text, "ue: ") && strings.Contains(text, "ce: ")
		if err != nil && e != (Errors{}) || err == nil && !whole {
			t.Errorf("%q: %+v, %v", text, e, err)
		}
	})
}

// gpu returns a GPU whose function has these files.
func gpu(t *testing.T, files map[string]string) GPU {
	t.Helper()
	g := GPU{dir: t.TempDir()}
	for name, text := range files {
		path := filepath.Join(g.dir, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text+"\n"), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	return g
}

func TestMemory(t *testing.T) {
	tree := machines.NewTree(t)
	tree.Proc("meminfo", "MemTotal: 1000 kB\nMemAvailable: 600 kB")
	for name, tt := range map[string]struct {
		total, used, gtt string
		integrated       bool
		want             Memory
	}{
		"MI300X": {"206141652992", "297000960", "5", false, Memory{205844652032 + 297000960, 205844652032, 297000960,
			false}},
		"MI300A":         {"0", "0", "4096", false, Memory{1024000, 614400, 4096, true}},
		"integrated":     {"512", "100", "4096", true, Memory{1024512, 614812, 4196, true}},
		"more than all":  {"512", "513", "0", false, Memory{}},
		"not a number":   {"512", "N/A", "0", false, Memory{}},
		"no gtt":         {"0", "0", "", false, Memory{}},
		"no driver":      {"", "", "", false, Memory{}},
		"as much as all": {"512", "512", "0", false, Memory{512, 0, 512, false}},
	} {
		files := map[string]string{}
		for file, text := range map[string]string{VRAMTotal: tt.total, VRAMUsed: tt.used, GTTUsed: tt.gtt} {
			if text != "" {
				files[file] = text
			}
		}
		g := gpu(t, files)
		g.Integrated = tt.integrated
		got, err := g.Memory(tree.Procfs())
		if diff := cmp.Diff(tt.want, got); diff != "" || (err == nil) != (tt.want != Memory{}) {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
}

func TestSensor(t *testing.T) {
	mi300x := gpu(t, map[string]string{"hwmon/hwmon7/temp2_input": "43000", "hwmon/hwmon7/power1_input": "173000000"})
	if v, err := mi300x.Sensor(TemperatureEdge, TemperatureJunction); v != 43000 || err != nil {
		t.Error(v, err)
	}
	if v, err := mi300x.Sensor(PowerAverage); !errors.Is(err, sysfs.ErrNone) {
		t.Error(v, err)
	}
	if v, err := gpu(t, nil).Sensor(PowerInput); !errors.Is(err, sysfs.ErrNone) {
		t.Error(v, err)
	}
	empty := gpu(t, map[string]string{"hwmon/hwmon7/power1_input": ""}) // ROCm/legacy-rocm-build#4268
	if v, err := empty.Sensor(PowerInput); sysfs.Reason(err) != sysfs.ReasonEmpty {
		t.Error(v, err)
	}
}

func TestErrors(t *testing.T) {
	for file, ok := range map[string]bool{"ras/umc_err_count": true, "ras/aca_umc": true, "ras/features": false} {
		e, err := gpu(t, map[string]string{file: "ue: 1\nce: 2\nde: 3"}).Errors()
		if want := (Errors{1, 2, 3, true}); ok && (e != want || err != nil) || !ok && !errors.Is(err, sysfs.ErrNone) {
			t.Errorf("%s: %+v, %v", file, e, err)
		}
	}
}

func TestIdentity(t *testing.T) {
	for _, tt := range []struct {
		files map[string]string
		want  Identity
	}{
		{map[string]string{"unique_id": "8af705259683161c", "product_name": "AMD Instinct MI300X OAM", "device": "0x74a1"},
			Identity{"GPU-8af705259683161c", "AMD Instinct MI300X OAM"}},
		{map[string]string{"unique_id": "", "product_name": "", "device": "0x74b5"}, Identity{"", "AMD 0x74b5"}},
		{nil, Identity{"", "AMD"}},
	} {
		if got := gpu(t, tt.files).Identity(); got != tt.want {
			t.Errorf("%v: %+v", tt.files, got)
		}
	}
}

func TestModes(t *testing.T) {
	for _, tt := range []struct {
		files           map[string]string
		compute, memory string
		ok              bool
	}{
		{map[string]string{"current_compute_partition": "CPX", "current_memory_partition": "NPS4"}, "CPX", "NPS4", true},
		{map[string]string{"current_compute_partition": "UNKNOWN"}, "UNKNOWN", "", true},
		{nil, "", "", true},
		{map[string]string{"current_compute_partition": "something long", "current_memory_partition": "NPS1"}, "", "NPS1",
			false},
	} {
		compute, memory, err := gpu(t, tt.files).Modes()
		if compute != tt.compute || memory != tt.memory || (err == nil) != tt.ok {
			t.Errorf("%v: %q, %q, %v", tt.files, compute, memory, err)
		}
	}
}

// TestExplain: EPERM, which amdgpu answers during a reset although the file can be opened, is no matter of permissions.
func TestExplain(t *testing.T) {
	for errno, want := range map[unix.Errno]error{unix.EPERM: ErrReset, unix.ENOENT: sysfs.ErrNone,
		unix.EIO: unix.EIO} {
		if err := explain(sysfs.Fail("file", errno)); !errors.Is(err, want) {
			t.Errorf("%v: %v", errno, err)
		}
	}
}

// TestXGMI: formats of amdgpu_xgmi_show_attrs and amdgpu_xgmi_show_num_links (amdgpu_xgmi.c).
func TestXGMI(t *testing.T) {
	const hive, links = "xgmi_hive_info/xgmi_hive_id", "xgmi_num_links"
	for _, tt := range []struct {
		files  map[string]string
		want   XGMI
		reason string
	}{
		{map[string]string{hive: "10245786123456789012", links: "00 01 0a ff \n"},
			XGMI{"10245786123456789012", []int{0, 1, 10, 255}}, ""},
		{nil, XGMI{}, ""},
		{map[string]string{hive: "7"}, XGMI{Hive: "7"}, ""},
		{map[string]string{hive: "0x7"}, XGMI{}, sysfs.ReasonInvalid},
		{map[string]string{hive: "7", links: ""}, XGMI{Hive: "7"}, sysfs.ReasonEmpty},
		{map[string]string{hive: "7", links: "00 100"}, XGMI{Hive: "7"}, sysfs.ReasonInvalid},
		{map[string]string{hive: "7", links: strings.Repeat("01 ", maxHive+1)}, XGMI{Hive: "7"}, sysfs.ReasonInvalid},
	} {
		got, err := gpu(t, tt.files).XGMI()
		if diff := cmp.Diff(tt.want, got); diff != "" || (err == nil) != (tt.reason == "") ||
			err != nil && sysfs.Reason(err) != tt.reason {
			t.Errorf("%v: %v %s", tt.files, err, diff)
		}
	}
}
