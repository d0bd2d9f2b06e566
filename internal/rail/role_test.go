package rail

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/sysfstest"
)

// Layouts of real machines, below /sys/devices. Ports of bridges that a report lacks are made up.
const (
	// HGX H100: a switch with one GPU and one adapter (topology file in github.com/aliyun/SimAI, issue 128).
	hgxSwitch = "pci0000:d6/0000:d6:01.0/0000:d7:00.0"
	hgxGPU    = hgxSwitch + "/0000:d8:00.0/0000:d9:00.0"
	hgxNIC    = hgxSwitch + "/0000:d8:01.0/0000:da:00.0"
	hgxGPU2   = "pci0000:b5/0000:b5:01.0/0000:b6:00.0/0000:b7:00.0/0000:b8:00.0"
	hgxNIC2   = "pci0000:b5/0000:b5:01.0/0000:b6:00.0/0000:b7:01.0/0000:b9:00.0"
	hgxBond   = "pci0000:80/0000:80:03.1/0000:81:00.0"

	// DGX A100: two switches behind a switch. nvidia-smi topo -m prints PXB (github.com/NVIDIA/nccl, issue 1505).
	a100Switch = "pci0000:00/0000:00:01.1/0000:01:00.0"
	a100GPU    = a100Switch + "/0000:02:00.0/0000:03:00.0/0000:04:00.0/0000:05:00.0/0000:06:00.0/0000:07:00.0"
	a100NIC    = a100Switch + "/0000:02:01.0/0000:0a:00.0/0000:0b:00.0/0000:0c:00.0"

	// DGX Spark: each adapter and the GPU have their own host bridge.
	sparkGPU  = "pci000f:00/000f:00:00.0/000f:01:00.0"
	sparkNIC  = "pci0000:00/0000:00:00.0/0000:01:00.0"
	sparkNIC2 = "pci0002:00/0002:00:00.0/0002:01:00.0"

	// A workstation (lspci -t and topo -m in github.com/noonghunna/club-3090, issue 1229: PHB between cards).
	deskGPU = "pci0000:00/0000:00:01.1/0000:01:00.0"
	deskNIC = "pci0000:00/0000:00:03.1/0000:02:00.0"

	// Azure: each device is below its own PCI bus, which is below a virtual bus.
	azureBus = "LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/"
	azureGPU = azureBus + "47505500-0001-0000-3130-444531303244/pci0001:00/0001:00:00.0"
	azureNIC = azureBus + "4e494300-0101-0000-3135-423331303145/pci0101:00/0101:00:00.0"
)

func TestDistance(t *testing.T) {
	on := func(dir string, numa int) function {
		if dir != "" {
			dir = "/sys/devices/" + dir
		}
		return function{dir, numa}
	}
	for _, tt := range []struct {
		name string
		a, b function
		want Distance
	}{
		{"HGX: one switch", on(hgxGPU, 1), on(hgxNIC, 1), PIX},
		{"HGX: the other switch of the socket", on(hgxGPU, 1), on(hgxNIC2, 1), NODE},
		{"HGX: storage on the other socket", on(hgxGPU, 1), on(hgxBond, 0), SYS},
		{"DGX A100: switches behind a switch", on(a100GPU, 3), on(a100NIC, 3), PXB},
		{"one behind a bridge behind the switch", on(hgxGPU, 1), on(hgxSwitch+"/0000:d8:02.0/0000:db:00.0/0000:dc:00.0", 1),
			PXB},
		{"two GPUs below the inner switch", on(a100GPU, 3), on(path.Dir(path.Dir(a100GPU))+"/0000:06:01.0/0000:08:00.0", 3),
			PIX},
		{"two functions of one card", on(hgxNIC, 1), on(path.Dir(hgxNIC)+"/0000:da:00.1", 1), PIX},
		{"the same function", on(hgxNIC, 1), on(hgxNIC, 1), PIX},
		{"DGX Spark", on(sparkGPU, -1), on(sparkNIC, -1), NODE},
		{"DGX Spark, only one of them has a NUMA node", on(sparkGPU, 0), on(sparkNIC, -1), NODE},
		{"workstation", on(deskGPU, -1), on(deskNIC, -1), PHB},
		{"two functions of the root complex", on("pci0000:00/0000:00:02.0", 0), on("pci0000:00/0000:00:1e.0", 0), PHB},
		{"Azure, one NUMA node", on(azureGPU, 0), on(azureNIC, 0), NODE},
		{"Azure, two NUMA nodes", on(azureGPU, 0), on(azureNIC, 1), SYS},
		{"host bridges of one name on two virtual buses", on("a/pci0000:00/0000:00:00.0", 0),
			on("b/pci0000:00/0000:00:00.0", 0), NODE},
		{"a software device", on("", -1), on(hgxGPU, 1), ""},
		{"not below a host bridge", on("platform/0000:d9:00.0", 0), on(hgxGPU, 1), ""},
	} {
		if got, back := distance(tt.a, tt.b), distance(tt.b, tt.a); got != tt.want || back != tt.want {
			t.Errorf("%s: %q, the other way %q; want %q", tt.name, got, back, tt.want)
		}
	}
}

func FuzzDistance(f *testing.F) {
	for _, seed := range []string{hgxGPU, a100NIC, azureNIC, "", "/", "pci0000:00", "//pci0000:00//"} {
		f.Add(seed, hgxNIC, 0, 1)
	}
	f.Fuzz(func(t *testing.T, a, b string, numaA, numaB int) {
		there := distance(function{a, numaA}, function{b, numaB})
		if back := distance(function{b, numaB}, function{a, numaA}); there != back || there != "" && there.rank() < 0 {
			t.Errorf("%q, the other way %q", there, back)
		}
	})
}

func TestAssignRoles(t *testing.T) {
	rule := func(role, devices string) RoleRule { return RoleRule{role, regexp.MustCompile(devices)} }
	const all = "mlx5_0+ mlx5_1+ mlx5_2 mlx5_bond_0" // + marks a rail near a GPU
	for _, tt := range []struct {
		name, rails string
		rules       []RoleRule
		want        string
	}{
		{"no rails", "", nil, ""},
		{"no GPU is near", "mlx5_0 mlx5_1", nil, "compute compute"},
		{"all are near", "mlx5_0+ mlx5_1+", nil, "compute compute"},
		{"some are", all, nil, "compute compute other other"},
		{"a rule for one of the others", all, []RoleRule{rule("storage", "^mlx5_bond")}, "compute compute other storage"},
		{"the first rule counts", all, []RoleRule{rule("a", "_2$"), rule("b", "^mlx5_")}, "b b a b"},
		{"rules for those that are near", all, []RoleRule{rule("train", "^mlx5_[01]$")}, "train train compute compute"},
		{"a rule for compute", all, []RoleRule{rule("compute", "_2$")}, "other other compute other"},
		{"a rule without rails", all, []RoleRule{rule("storage", "^none$")}, "compute compute other other"},
	} {
		var list []Rail
		var near []bool
		for name := range strings.FieldsSeq(tt.rails) {
			device, found := strings.CutSuffix(name, "+")
			list, near = append(list, Rail{Device: device, Role: "before"}), append(near, found)
		}
		assignRoles(list, near, tt.rules)
		var got []string
		for _, r := range list {
			got = append(got, r.Role)
		}
		if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// pciTree is a capture with PCI functions (drivers/pci/pci-sysfs.c).
type pciTree struct{ strings.Builder }

func (p *pciTree) file(dir, name, content string) {
	fmt.Fprintf(p, "-- sys/%s/%s --\n%s\n", dir, name, content)
}

func (p *pciTree) function(dir, vendor, class string, numa int) {
	p.file("devices/"+dir, "vendor", vendor)
	p.file("devices/"+dir, "class", class)
	p.file("devices/"+dir, "numa_node", fmt.Sprint(numa))
	p.file("bus/pci/devices", path.Base(dir), "-> ../../../devices/"+dir)
}

func (p *pciTree) nic(device, dir string, numa int) {
	p.function(dir, "0x15b3", "0x020000", numa)
	ib := "devices/" + dir + "/infiniband/" + device
	p.file(ib, "device", "-> ../../../"+path.Base(dir))
	p.file(ib, "ports/1/link_layer", "Ethernet")
	p.file("class/infiniband", device, "-> ../../"+ib)
}

func (p *pciTree) gpu(dir string, numa int) { p.function(dir, "0x10de", "0x030200", numa) }

func (p *pciTree) write(t *testing.T) sysfstest.Root {
	t.Helper()
	return sysfstest.Write(t, t.TempDir(), []byte(p.String()))
}

func roleLine(r Rail) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", r.Device, r.Role, r.GPU, r.GPUDistance))
}

func roleLines(list []Rail) (lines []string) {
	for _, r := range list {
		lines = append(lines, roleLine(r))
	}
	return lines
}

func TestNearestGPU(t *testing.T) {
	for _, tt := range []struct {
		name  string
		build func(p *pciTree)
		want  []string
	}{
		{"HGX H100", func(p *pciTree) {
			p.nic("mlx5_0", hgxNIC, 1)
			p.nic("mlx5_1", hgxNIC2, 1)
			p.nic("mlx5_bond_0", hgxBond, 0)
			p.gpu(hgxGPU, 1)
			p.gpu(hgxGPU2, 1)
		}, []string{"mlx5_0 compute 0000:d9:00.0 PIX", "mlx5_1 compute 0000:b8:00.0 PIX",
			"mlx5_bond_0 other 0000:b8:00.0 SYS"}},
		{"DGX A100, in part", func(p *pciTree) { p.nic("mlx5_0", a100NIC, 3); p.gpu(a100GPU, 3) },
			[]string{"mlx5_0 compute 0000:07:00.0 PXB"}},
		{"DGX Spark", func(p *pciTree) {
			p.nic("rocep1s0f0", sparkNIC, -1)
			p.nic("roceP2p1s0f0", sparkNIC2, -1)
			p.gpu(sparkGPU, -1)
		}, []string{"rocep1s0f0 compute 000f:01:00.0 NODE", "roceP2p1s0f0 compute 000f:01:00.0 NODE"}},
		{"workstation", func(p *pciTree) { p.nic("mlx5_0", deskNIC, -1); p.gpu(deskGPU, -1) },
			[]string{"mlx5_0 compute 0000:01:00.0 PHB"}},
		{"without a GPU, but with a display of the BMC", func(p *pciTree) {
			p.nic("mlx5_0", deskNIC, 0)
			p.function("pci0000:00/0000:00:1c.0/0000:04:00.0", "0x1a03", "0x030000", 0)
		}, []string{"mlx5_0 compute"}},
		{"AMD: a processing accelerator, and a bridge", func(p *pciTree) {
			p.nic("mlx5_0", hgxNIC, 1)
			p.function(hgxGPU, "0x1002", "0x120000", 1)
			p.function(hgxSwitch, "0x1002", "0x060400", 1)
		}, []string{"mlx5_0 compute 0000:d9:00.0 PIX"}},
	} {
		var p pciTree
		tt.build(&p)
		finder := NewFinder(p.write(t).Sys(), Options{}, nil, time10)
		if diff := cmp.Diff(tt.want, roleLines(finder.Snapshot().Rails)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestGPUGone: a GPU that falls off the bus is no longer the nearest one, but its rail keeps its role.
func TestGPUGone(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		var p pciTree
		p.nic("mlx5_0", hgxNIC, 1)
		p.nic("mlx5_1", hgxNIC2, 1)
		p.gpu(hgxGPU, 1)
		p.gpu(hgxGPU2, 1)
		root := p.write(t)
		finder := NewFinder(root.Sys(), Options{}, nil, time10)
		before := roleLines(finder.Snapshot().Rails)
		if err := os.Remove(root.Sys("bus/pci/devices/0000:d9:00.0")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(examineEvery)
		want := [][]string{{"mlx5_0 compute 0000:d9:00.0 PIX", "mlx5_1 compute 0000:b8:00.0 PIX"},
			{"mlx5_0 compute 0000:b8:00.0 NODE", "mlx5_1 compute 0000:b8:00.0 PIX"}}
		if diff := cmp.Diff(want, [][]string{before, roleLines(finder.Snapshot().Rails)}); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		finder.SetOptions(Options{Roles: []RoleRule{{"storage", regexp.MustCompile("_1$")}}})
		if diff := cmp.Diff("mlx5_1 storage 0000:b8:00.0 PIX", roleLine(finder.Snapshot().Rails[1])); diff != "" {
			t.Errorf("after a reload (-want +got):\n%s", diff)
		}
	})
}

func TestExclude(t *testing.T) {
	var p pciTree
	for i := range 4 {
		p.nic(fmt.Sprintf("mlx5_%d", i), fmt.Sprintf("pci0000:00/0000:00:0%d.0/0000:0%d:00.0", i, i+1), 0)
	}
	s := NewFinder(p.write(t).Sys(), Options{Include: regexp.MustCompile("[012]$"),
		Exclude: regexp.MustCompile("[23]$")}, nil, time10).Snapshot()
	got := append(roleLines(s.Rails), s.Excluded...)
	if diff := cmp.Diff([]string{"mlx5_0 compute", "mlx5_1 compute", "mlx5_2", "mlx5_3"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestVirtualFunctions: with the option, virtual functions are listed separately from the rails.
func TestVirtualFunctions(t *testing.T) {
	var p pciTree
	const pf, vf = "pci0000:d6/0000:d6:01.0/0000:d7:00.0", "pci0000:d6/0000:d6:01.0/0000:d7:"
	p.nic("mlx5_0", pf, 0)
	for i, address := range []string{"00.2", "00.3"} { // drivers/pci/iov.c: virtfnN and physfn
		p.nic(fmt.Sprintf("mlx5_%d", i+1), vf+address, 0)
		p.file("devices/"+vf+address, "physfn", "-> ../0000:d7:00.0")
		p.file("devices/"+pf, fmt.Sprintf("virtfn%d", i), "-> ../0000:d7:"+address)
	}
	// A virtual function whose physical function has no RDMA device and no link to it: a container with a part of
	// /sys.
	p.nic("mlx5_3", "pci0000:10/0000:10:00.2", 0)
	p.file("devices/pci0000:10/0000:10:00.2", "physfn", "-> ../0000:10:00.0")
	root := p.write(t)
	want := []string{"mlx5_1/1 of mlx5_0, 0", "mlx5_2/1 of mlx5_0, 1", "mlx5_3/1 of 0000:10:00.0, -1"}
	for _, report := range []bool{false, true} {
		s := NewFinder(root.Sys(), Options{VirtualFunctions: report}, nil, time10).Snapshot()
		var got []string
		for _, v := range s.Virtual {
			got = append(got, fmt.Sprintf("%s of %s, %d", v.Key(), v.PF, v.VF))
		}
		if report != (cmp.Diff(want, got) == "") || !report && got != nil || len(s.Rails) != 1 || len(s.LeftOut) != 3 {
			t.Errorf("report %v: %v, %d rails, left out %v", report, got, len(s.Rails), s.LeftOut)
		}
	}
}

// TestGPUs: GPUs of NVIDIA and AMD, without their SR-IOV virtual functions. A function that cannot be identified
// hides no other.
func TestGPUs(t *testing.T) {
	var p pciTree
	const below = "pci0000:d6/0000:d6:01.0/0000:d7:"
	p.gpu(below+"00.0", 1)
	for _, vgpu := range []string{"00.4", "00.5"} {
		p.gpu(below+vgpu, 1)
		p.file("devices/"+below+vgpu, "physfn", "-> ../0000:d7:00.0")
	}
	p.function("pci0000:00/0000:01:00.0", "0x1002", "0x120000", 0) // MI300X
	p.function("pci0000:00/0000:02:00.0", "0x1a03", "0x030000", 0) // ASPEED
	p.function("pci0000:00/0000:03:00.0", "0x10de", "0x068000", 0) // NVSwitch
	p.file("devices/pci0000:00/0000:04:00.0/vendor", "x", "")      // not readable
	p.file("bus/pci/devices", "0000:04:00.0", "-> ../../../devices/pci0000:00/0000:04:00.0")
	list, err := GPUs(p.write(t).Sys())
	var got []string
	for _, g := range list {
		got = append(got, fmt.Sprint(g.PCIAddress, " ", g.NUMANode, " ", g.NVIDIA))
	}
	want := []string{"0000:01:00.0 0 false", "0000:d7:00.0 1 true"}
	if diff := cmp.Diff(want, got); diff != "" || err == nil {
		t.Error(diff, err)
	}
	if list, err := GPUs(t.TempDir()); list != nil || err != nil { // no PCI bus
		t.Error(list, err)
	}
}

// TestGPUsOfJobs: which of AMD's functions are GPUs of jobs depends on what else the machine has.
func TestGPUsOfJobs(t *testing.T) {
	const accelerator, card, processor, nvidia = "pci0000:10/0000:11:00.0", "pci0000:20/0000:21:00.0",
		"pci0000:00/0000:0f:00.0", "pci0000:30/0000:31:00.0"
	add := map[string]func(*pciTree){
		"MI300X":    func(p *pciTree) { p.function(accelerator, "0x1002", "0x120000", 0) },
		"MI300A":    func(p *pciTree) { p.function(accelerator, "0x1002", "0x038000", 0) },
		"radeon":    func(p *pciTree) { p.function(card, "0x1002", "0x030000", 0) },
		"processor": func(p *pciTree) { p.function(processor, "0x1002", "0x030000", 0) },
		"hybrid":    func(p *pciTree) { p.function(processor, "0x1002", "0x038000", 0) },
		"nvidia":    func(p *pciTree) { p.gpu(nvidia, 0) },
		"geforce":   func(p *pciTree) { p.function(nvidia, "0x10de", "0x030000", 0) },
	}
	files := map[string]string{ // with amdgpu
		"MI300X": accelerator + " gpu_busy_percent mem_busy_percent", "MI300A": accelerator +
			" gpu_busy_percent mem_busy_percent", "radeon": card + " gpu_busy_percent mem_busy_percent",
		"processor": processor + " gpu_busy_percent", "hybrid": processor + " gpu_busy_percent",
	}
	for _, tt := range []struct {
		machine string
		driver  bool
		want    string
	}{
		{"MI300X", true, "0000:11:00.0 compute"},
		{"MI300X", false, "0000:11:00.0 compute"},
		{"MI300A", true, "0000:11:00.0 compute"},
		{"MI300A", false, "0000:11:00.0 compute"},
		{"radeon", true, "0000:21:00.0"},
		{"processor", true, "0000:0f:00.0 integrated"}, // alone, it is the GPU of its machine
		{"hybrid", true, "0000:0f:00.0 compute integrated"},
		{"processor", false, "0000:0f:00.0"},
		{"MI300X radeon processor", true, "0000:11:00.0 compute"},
		{"MI300X radeon processor", false, "0000:11:00.0 compute"},
		{"MI300A hybrid", true, "0000:11:00.0 compute"},
		{"radeon processor", true, "0000:21:00.0"},
		{"nvidia processor", true, "0000:31:00.0 nvidia compute"},
		{"nvidia processor", false, "0000:31:00.0 nvidia compute"},
		{"nvidia radeon processor", true, "0000:31:00.0 nvidia compute"},
		{"geforce radeon processor", true, "0000:21:00.0, 0000:31:00.0 nvidia compute"}, // a machine for both
		{"nvidia MI300X radeon", true, "0000:11:00.0 compute, 0000:31:00.0 nvidia compute"},
	} {
		var p pciTree
		for kind := range strings.FieldsSeq(tt.machine) {
			add[kind](&p)
			words := strings.Fields(files[kind])
			for i := 1; i < len(words) && tt.driver; i++ {
				p.file("devices/"+words[0], words[i], "0")
			}
		}
		list, err := GPUs(p.write(t).Sys())
		var got []string
		for _, g := range list {
			text := g.PCIAddress
			for _, is := range []struct {
				word string
				is   bool
			}{{"nvidia", g.NVIDIA}, {"compute", g.Compute}, {"integrated", g.Integrated}} {
				if is.is {
					text += " " + is.word
				}
			}
			got = append(got, text)
		}
		if all := strings.Join(got, ", "); all != tt.want || err != nil {
			t.Errorf("%s, driver %v: %s (%v), want %s", tt.machine, tt.driver, all, err, tt.want)
		}
	}
}
