package check

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
)

const (
	switchPort = "sys/devices/pci0000:10/0000:10:01.0/0000:16:00.0/0000:"
	amdGPU     = switchPort + "17:01.0/0000:19:00.0/" // one of the four GPUs of system-amd
	rootPort   = "sys/devices/pci0000:10/0000:10:01.0/"
)

// spaces are the configuration spaces of all functions of the switch, with the adapter's device control and the ports'
// ACS control.
func spaces(deviceControl, acsControl uint16) doctortest.Tree {
	tree := doctortest.Tree{rootPort + "config": doctortest.ConfigSpace(0x2910, 0x5d),
		switchPort[:len(switchPort)-len("0000:")] + "config": doctortest.ConfigSpace(0x2910, 0)}
	for _, port := range []string{"17:00.0", "17:01.0", "17:02.0"} {
		tree[switchPort+port+"/config"] = doctortest.ConfigSpace(0x2910, acsControl)
	}
	tree[switchPort+"17:02.0/0000:1a:00.0/config"] = doctortest.ConfigSpace(deviceControl, 0x5d)
	return tree
}

// with merges changes into a copy of tree.
func with(tree, changes doctortest.Tree) doctortest.Tree {
	maps.Copy(tree, changes)
	return tree
}

// TestNoACS expects no finding where ACS does not matter or is configured correctly, and no complaint about data that
// only root can read.
func TestNoACS(t *testing.T) {
	const model = "Model: \t\t NVIDIA GB10\n"
	for name, change := range map[string]doctortest.Tree{
		"off":               spaces(0x2910, 0),
		"without redirect":  spaces(0x2910, 0x53),
		"a virtual machine": with(spaces(0, 0x5d), doctortest.Tree{"proc/cpuinfo": "flags\t\t: fpu vme hypervisor\n"}),
		"a virtual machine by its firmware": with(spaces(0, 0x5d), doctortest.Tree{
			"sys/class/dmi/id/modalias": "dmi:bvnEDKII:svnQEMU:pnQEMUVirtualMachine:\n"}),
		"no GPUDirect": with(spaces(0x2910, 0x5d), doctortest.Tree{
			"proc/driver/nvidia/gpus/0000:18:00.0/information": model,
			"proc/driver/nvidia/gpus/0000:19:00.0/information": model}),
		"no GPU below the switch": with(spaces(0x2910, 0x5d), doctortest.Tree{
			"sys/bus/pci/devices/0000:18:00.0": "", "sys/bus/pci/devices/0000:19:00.0": ""}),
		"a root port without relaxed ordering": with(spaces(0x2900, 0), doctortest.Tree{rootPort + "device": "0x2f08\n"}),
		"a root port of AMD A1100": with(spaces(0x2900, 0), doctortest.Tree{rootPort + "vendor": "0x1022\n",
			rootPort + "device": "0x1a01\n"}),
		"nonsense": {switchPort + "17:02.0/0000:1a:00.0/config": strings.Repeat("\xff", 4096),
			switchPort + "17:00.0/config": strings.Repeat("\xff", 4096),
			switchPort + "17:01.0/config": strings.Repeat("\x40", 300), switchPort + "17:02.0/config": "\x01"},
	} {
		t.Run(name, func(t *testing.T) {
			f := systemFacts(t, doctortest.System(t, pcieSwitch, change))
			if list := runSystem(f); len(list) > 0 {
				t.Error(findingsText(list))
			}
		})
	}
}

// TestRelaxedOrderingOfRails: an adapter that is no rail may keep its writes in order.
func TestRelaxedOrderingOfRails(t *testing.T) {
	f := systemFacts(t, doctortest.System(t, pcieSwitch, spaces(0x2900, 0)))
	found := func() []finding.Finding {
		return Node(f, func(c Check) bool { return c.ID == "relaxed_ordering_off" })
	}
	for _, a := range f.PCI.Adapters {
		if a.ReadRequest != 512 {
			t.Errorf("Max_Read_Request_Size of %s: %d", a.Address, a.ReadRequest)
		}
	}
	if list := found(); len(list) != 1 {
		t.Errorf("of a rail:\n%s", findingsText(list))
	}
	f.Rails = nil
	if list := found(); len(list) > 0 {
		t.Errorf("of another adapter:\n%s", findingsText(list))
	}
}

// TestACSWithoutRoot: a user who can read only 64 bytes of each function gets one note that ACS was not examined. The
// running railscope, which never can, reports nothing.
func TestACSWithoutRoot(t *testing.T) {
	o := doctortest.System(t, pcieSwitch, spaces(0x2900, 0x5d))
	list, err := filepath.Glob(filepath.Join(o.Sysfs, "bus/pci/devices/*/config"))
	if err != nil || len(list) < 6 {
		t.Fatal(err, list)
	}
	for _, path := range list {
		if err := os.Truncate(path, 64); err != nil {
			t.Fatal(err)
		}
	}
	for scope, want := range map[facts.Scope]int{facts.All: 1, facts.WithoutJobs: 0} {
		f := facts.New(o).Gather(t.Context(), scope)
		if len(f.Unread) != want || want > 0 &&
			!strings.Contains(f.Unread[0], "ACS and relaxed ordering: not examined") {
			t.Errorf("%q", f.Unread)
		}
		if list := runSystem(f); len(list) > 0 {
			t.Error(findingsText(list))
		}
	}
}
