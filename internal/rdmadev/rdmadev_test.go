package rdmadev

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/sysfstest"
)

// machine has two RoCE devices whose names begin alike, a LAG and an InfiniBand
// device with IPoIB.
const machine = `
-- sys/class/infiniband_verbs/uverbs2/ibdev --
mlx5_1
-- sys/class/infiniband_verbs/uverbs10/ibdev --
mlx5_10
-- sys/class/infiniband/mlx5_1/ports/1/gid_attrs/ndevs/0 --
eth1
-- sys/class/infiniband/mlx5_10/ports/1/gid_attrs/ndevs/0 --
eth10
-- sys/class/infiniband/mlx5_10/ports/1/gid_attrs/ndevs/1 --
eth10.7
-- sys/class/infiniband/mlx5_bond_0/ports/1/gid_attrs/ndevs/0 --
bond0
-- sys/class/infiniband/mlx5_bond_0/ports/2/gid_attrs/ndevs/0 --
bond0
-- sys/devices/pci0000:00/0000:01:00.0/class --
0x020700
-- sys/class/infiniband/ibp1/ports/1/state --
4: ACTIVE
-- sys/class/infiniband/ibp1/device --
-> ../../../devices/pci0000:00/0000:01:00.0
-- sys/class/net/ib0/device --
-> ../../../devices/pci0000:00/0000:01:00.0
-- sys/class/net/ib9/mtu --
2044
`

func finder(t *testing.T) Finder {
	t.Helper()
	dir := t.TempDir()
	sysfstest.Write(t, dir, []byte(machine))
	return Finder{Sysfs: dir + "/sys"}
}

// TestNodes: results that belong to another device, or are not device nodes, are dropped.
func TestNodes(t *testing.T) {
	f := finder(t)
	f.CharDevices = func(device string) []string {
		switch device {
		case "mlx5_1", "mlx5_10": // the result of a prefix match
			return []string{"/dev/infiniband/issm2", "/dev/infiniband/umad2", "/dev/infiniband/uverbs10",
				"/dev/infiniband/uverbs2",
				"/dev/infiniband/rdma_cm", "/dev/sda", "/dev/infiniband/../sda"}
		case "gone":
			panic("slice bounds out of range")
		}
		return nil
	}
	for _, tt := range []struct{ devices, want []string }{
		{[]string{"mlx5_1"}, []string{"/dev/infiniband/uverbs2", "/dev/infiniband/rdma_cm"}},
		{[]string{"mlx5_10", "mlx5_1"}, []string{"/dev/infiniband/uverbs2", "/dev/infiniband/uverbs10",
			"/dev/infiniband/rdma_cm"}},
		{[]string{"gone"}, nil},
		{[]string{"mlx5_9"}, nil},
	} {
		if diff := cmp.Diff(tt.want, f.Nodes(tt.devices...)); diff != "" {
			t.Errorf("%v: %s", tt.devices, diff)
		}
	}
	if got, want := Flags(f.Nodes("mlx5_1")),
		"--device=/dev/infiniband/uverbs2 --device=/dev/infiniband/rdma_cm"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if nodes := (Finder{}).Nodes("mlx5_1"); nodes != nil {
		t.Errorf("the zero value found %q", nodes)
	}
}

// TestPort: a result that sysfs does not confirm is dropped.
func TestPort(t *testing.T) {
	for _, tt := range []struct {
		netdev, answer string
		err            error
		want           string
	}{
		{"eth1", "mlx5_1", nil, "mlx5_1:1"},
		{"eth10.7", "mlx5_10", nil, "mlx5_10:1"},
		{"eth1", "mlx5_10", nil, ""},
		{"bond0", "mlx5_bond_0", nil, ""}, // either port
		{"ib0", "ibp1", nil, "ibp1:1"},
		{"ib9", "ibp1", nil, ""},
		{"ib0", "", nil, ""},
		{"ib0", "gone", nil, ""},
		{"eth9", "mlx5_1", errors.New("not found"), ""},
		{"panic", "", nil, ""},
	} {
		f := finder(t)
		f.DeviceOf = func(netdev string) (string, error) {
			if netdev == "panic" {
				panic("index out of range")
			}
			return tt.answer, tt.err
		}
		if got, ok := f.Port(tt.netdev); got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s, answer %q: %q, %v; want %q", tt.netdev, tt.answer, got, ok, tt.want)
		}
	}
	if name, ok := (Finder{}).Port("eth1"); ok {
		t.Errorf("the zero value found %q", name)
	}
}

// TestRunningKernel: the library's results are verified on this machine.
func TestRunningKernel(t *testing.T) {
	f := New("/sys")
	for _, node := range f.Nodes("mlx5_0", "rxe0") {
		t.Log(node)
	}
	if name, ok := f.Port("lo"); ok {
		t.Errorf("lo has the RDMA port %s", name)
	}
	if f := New(t.TempDir()); f.CharDevices != nil || f.DeviceOf != nil {
		t.Error("a captured tree is asked about with this machine's answers")
	}
}
