package rail

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/sysfstest"
)

func TestNaturalCompare(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"mlx5_0", "mlx5_0", 0},
		{"mlx5_0", "mlx5_1", -1},
		{"mlx5_2", "mlx5_10", -1},
		{"mlx5_9", "mlx5_10", -1},
		{"mlx5_99", "mlx5_100", -1},
		{"mlx4_9", "mlx5_0", -1},
		{"mlx5_0", "mlx5_bond_0", -1}, // digits before letters, as bytes
		{"mlx5", "mlx5_0", -1},
		{"rocep1s0f0", "rocep1s0f1", -1},
		{"rocep1s0f1", "rocep2s0f0", -1},
		{"rocep9s0", "rocep23s0", -1},
		// Case is ignored, so that a DGX Spark's PCI domain 0 comes before its domain 2.
		{"rocep1s0f1", "roceP2p1s0f0", -1},
		{"rocep2s0f0", "roceP2p1s0f0", 1},
		{"ROCE", "roce", -1}, // then byte by byte
		{"0000:09:00.0", "0000:10:00.0", -1},
		{"rxe007", "rxe7", -1}, // leading zeros do not change a number, but names differ
		{"rxe007", "rxe8", -1},
		{"a1b2", "a1b10", -1},
		{"99999999999999999998", "99999999999999999999", -1}, // more than 64 bits
		{"", "a", -1},
		{"", "", 0},
	} {
		if got := cmp.Compare(NaturalCompare(tt.a, tt.b), 0); got != tt.want {
			t.Errorf("NaturalCompare(%q, %q): %d, want %d", tt.a, tt.b, got, tt.want)
		}
		if got := cmp.Compare(NaturalCompare(tt.b, tt.a), 0); got != -tt.want {
			t.Errorf("NaturalCompare(%q, %q): %d, want %d", tt.b, tt.a, got, -tt.want)
		}
	}
}

// With an order in which a < b < c < a, the numbers of rails would depend on the order of a directory.
func FuzzNaturalCompare(f *testing.F) {
	f.Add("mlx5_2", "mlx5_10", "mlx5_bond_0")
	f.Add("0", "00", "a")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		if NaturalCompare(a, a) != 0 || cmp.Compare(NaturalCompare(a, b), 0) != -cmp.Compare(NaturalCompare(b, a), 0) {
			t.Fatalf("%q, %q", a, b)
		}
		if NaturalCompare(a, b) <= 0 && NaturalCompare(b, c) <= 0 && NaturalCompare(a, c) > 0 {
			t.Fatalf("%q <= %q <= %q, and yet the first is the greatest", a, b, c)
		}
	})
}

type kernelFunc func(device string, port int) (string, error)

func (f kernelFunc) PortNetdev(device string, port int) (string, error) { return f(device, port) }

// TestNetdev removes the ways to find a port's interface one after another.
func TestNetdev(t *testing.T) {
	answer := func(name string) Kernel {
		return kernelFunc(func(device string, port int) (string, error) {
			if device != "mlx5_0" || port != 2 {
				return "", errors.New("another question")
			}
			return name, nil
		})
	}
	silent := kernelFunc(func(string, int) (string, error) { return "", errors.New("not supported") })
	const (
		parent = "-- class/infiniband/mlx5_0/parent --\nfrom-parent\n"
		one    = "-- class/infiniband/mlx5_0/device/net/only/dev_port --\n0\n"
		ports  = "-- class/infiniband/mlx5_0/device/net/first/dev_port --\n0\n-- " +
			"class/infiniband/mlx5_0/device/net/second/dev_port --\n1\n"
		alike = "-- class/infiniband/mlx5_0/device/net/first/dev_port --\n0\n-- " +
			"class/infiniband/mlx5_0/device/net/rep/dev_port --\n0\n"
		unnumbered = "-- class/infiniband/mlx5_0/device/net/only/ifindex --\n3\n"
	)
	gids := "-- class/infiniband/mlx5_0/ports/2/gid_attrs/ndevs/2 --\n\n" // an empty name
	// enough entries that the directory's order differs from that of the numbers
	for i := range 60 {
		gids += fmt.Sprintf("-- class/infiniband/mlx5_0/ports/2/gid_attrs/ndevs/%d --\nfrom-gid-%[1]d\n", 9+i)
	}
	for _, tt := range []struct {
		name   string
		kernel Kernel
		tree   string
		want   string
	}{
		{"the kernel knows best", answer("from-kernel"), parent + one + gids, "from-kernel"},
		{"the kernel has no answer", silent, parent + one + gids, "from-parent"},
		{"the parent of a software device", nil, parent + one + gids, "from-parent"},
		{"the only interface of the function, of another port", nil, one + gids, "from-gid-9"},
		{"the only interface of the function, without a number", nil, unnumbered + gids, "from-gid-9"},
		{"the interface with the port's number", nil, ports + gids, "second"},
		{"no interface with the port's number", nil, alike + gids, "from-gid-9"},
		{"the lowest GID that has one", nil, gids, "from-gid-9"},
		{"nothing", nil, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sys := sysfstest.Write(t, t.TempDir(), []byte(tt.tree)).Dir
			d := device{sysfs: sys, dir: sys + "/class/infiniband/mlx5_0", name: "mlx5_0", kernel: tt.kernel}
			if got := d.netdev(2, false); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestNetdevWithoutNumber: old kernels do not number interfaces, so the only one belongs to the first port.
func TestNetdevWithoutNumber(t *testing.T) {
	for names, want := range map[string]string{"eth0": "eth0", "eth0 eth1": ""} {
		dir := t.TempDir()
		for name := range strings.FieldsSeq(names) {
			writeFile(t, "3\n", dir, "device/net", name, "ifindex")
		}
		if got := (device{sysfs: dir, dir: dir}).netdev(1, false); got != want {
			t.Errorf("%s: %q, want %q", names, got, want)
		}
	}
}

// TestMembersOf: a bond's members are known by its links, or by theirs.
func TestMembersOf(t *testing.T) {
	const net = "class/net"
	for why, links := range map[string][]string{"its links": {"bond0/lower_eth0", "bond0/lower_eth1"},
		"their links": {"eth0/master", "eth1/master"}} {
		dir := t.TempDir()
		for _, name := range links {
			link(t, "../bond0", dir, net, name)
		}
		link(t, "../bond1", dir, net, "eth2/master")
		writeFile(t, "1\n", dir, net, "eth3/carrier")
		got := (device{sysfs: dir}).membersOf("bond0")
		slices.Sort(got)
		if !slices.Equal(got, []string{"eth0", "eth1"}) {
			t.Errorf("by %s: %q", why, got)
		}
	}
}

// TestHiddenSiblings: functions of the adapter with its driver, and with neither an RDMA device nor an interface here.
func TestHiddenSiblings(t *testing.T) {
	dir := t.TempDir()
	for function, driver := range map[string]string{"01:00.0": "mlx5_core", "01:00.1": "mlx5_core", "01:00.2": "mlx5_core",
		"01:00.3": "mlx5_core", "01:00.4": "vfio-pci", "02:00.0": "mlx5_core"} {
		link(t, "../drivers/"+driver, dir, function, "driver")
	}
	writeFile(t, "1\n", dir, "01:00.2/net/eth0/carrier")
	writeFile(t, "1\n", dir, "01:00.3/infiniband/mlx5_0/node_type")
	if got := (device{}).hiddenSiblings(dir + "/01:00.0"); !slices.Equal(got, []string{dir + "/01:00.1"}) {
		t.Errorf("%q", got)
	}
}

// TestPlace: the links that locate a device can point anywhere.
func TestPlace(t *testing.T) {
	type place struct {
		PCI, Driver string
		NUMA        int
		Why         string
	}
	for _, tt := range []struct {
		name, tree string
		want       place
	}{
		{"no link", "-- class/infiniband/x/fw_ver --\n1\n", place{NUMA: -1}},
		{"a link to nowhere", "-- class/infiniband/x/device --\n-> ../nowhere\n", place{NUMA: -1}},
		{"a link to itself", "-- class/infiniband/x/device --\n-> device\n", place{NUMA: -1}},
		{"a plain directory", "-- class/infiniband/x/device/vendor --\n0x15b3\n", place{NUMA: -1}},
		{
			"a function", "-- devices/pci0000:00/0000:18:00.0/numa_node --\n3\n-- " +
				"devices/pci0000:00/0000:18:00.0/driver --\n-> ../../../bus/pci/drivers/irdma\n-- " +
				"class/infiniband/x/device --\n-> ../../../devices/pci0000:00/0000:18:00.0\n",
			place{"0000:18:00.0", "irdma", 3, ""},
		},
		{
			"an auxiliary device of a function",
			"-- devices/pci0000:00/0000:18:00.0/ice.roce.0/x --\n\n-- devices/pci0000:00/0000:18:00.0/numa_node " +
				"--\nN/A\n-- class/infiniband/x/device --\n-> ../../../devices/pci0000:00/0000:18:00.0/ice.roce.0\n",
			place{"0000:18:00.0", "", -1, ""},
		},
		{
			"a domain of five digits",
			"-- devices/pci10000:00/10000:01:00.0/numa_node --\n-1\n-- class/infiniband/x/device --\n-> " +
				"../../../devices/pci10000:00/10000:01:00.0\n",
			place{"10000:01:00.0", "", -1, ""},
		},
		{
			"a virtual function",
			"-- devices/pci0000:00/0000:18:00.1/physfn --\n-> ../0000:18:00.0\n-- class/infiniband/x/device --\n-> " +
				"../../../devices/pci0000:00/0000:18:00.1\n",
			place{"0000:18:00.1", "", -1, "virtual_function 0000:18:00.0"},
		},
		{
			"a subfunction", "-- devices/pci0000:00/0000:18:00.0/mlx5_core.sf.4/sfnum --\n88\n-- " +
				"class/infiniband/x/device --\n-> ../../../devices/pci0000:00/0000:18:00.0/mlx5_core.sf.4\n",
			place{"0000:18:00.0", "", -1, "subfunction 0000:18:00.0"},
		},
	} {
		for _, relative := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				sys := sysfstest.Write(t, t.TempDir(), []byte(tt.tree)).Dir
				if relative { // as with --path.sysfs=sys
					t.Chdir(sys)
					sys = "."
				}
				d := device{sysfs: sys, dir: sys + "/class/infiniband/x", name: "x"}
				l := d.locate()
				r := d.rail(l)
				why := strings.TrimSpace(string(l.reason) + " " + l.of)
				if diff := gocmp.Diff(tt.want, place{r.PCIAddress, r.Driver, r.NUMANode, why}); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}
