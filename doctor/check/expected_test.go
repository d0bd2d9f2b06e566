package check

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
)

const (
	gpu0      = "sys/bus/pci/devices/0000:3b:00.0"
	slotOf1   = "sys/devices/pci0000:37/0000:37:01.0/"
	linkOf1   = slotOf1 + "0000:3a:00.0/"
	lowRate   = "100 Gb/sec (4X EDR)"
	trainedX8 = "32 GT/s x8 (252.1 Gb/s) now, 32 GT/s x16 (504.1 Gb/s) on "
)

// lost lists faults on machines that were seen healthy before, and faults against the configuration. The finding has no
// command, unless it is about the link or the MTU.
var lost = []struct {
	fault
	config expect.Config
}{
	{fault{"trained at 100 Gb/s", "rate_lost", finding.Critical, "hgx", doctortest.File(mlx1+"rate", lowRate),
		"rail 1 (mlx5_1, ens2np0)", "100 Gb/s now, 400 Gb/s on ", nil}, expect.Config{}},
	{fault{"never had the configured rate", "rate_lost", finding.Critical, "lag", "", "rail 0",
		"100 Gb/s now, 400 Gb/s configured", nil}, expect.Config{Rate: 50e9}},
	{fault{"half its lanes", "pcie_lost", finding.Warning, "hgx", doctortest.File(linkOf1+"current_link_width", "8"),
		"rail 1", trainedX8, []string{"setpci -s 0000:37:01.0 CAP_EXP+10.w=20:20"}}, expect.Config{}},
	{fault{"a slower link that is fast enough", "pcie_lost", finding.Warning, "lag",
		doctortest.File("sys/devices/pci0000:16/0000:16:02.0/0000:17:00.0/current_link_speed", "8.0 GT/s PCIe"), "rail 0",
		"8 GT/s x16 (126 Gb/s) now, 16 GT/s x16", []string{"setpci -s 0000:16:02.0 CAP_EXP+10.w=20:20"}}, expect.Config{}},
	{fault{"moved to a narrow slot", "pcie_lost", finding.Warning, "hgx", doctortest.File(slotOf1+"max_link_width", "8") +
		doctortest.File(slotOf1+"current_link_width", "8") + doctortest.File(linkOf1+"current_link_width", "8"), "rail 1",
		trainedX8, nil}, expect.Config{}},
	{fault{"MTU 1500 among 9000", "mtu_lost", finding.Warning, "hgx", doctortest.File(ens2+"mtu", "1500"), "rail 1",
		"RoCE MTU 1024 now (ens2np0 has MTU 1500), 4096 on ", []string{"ip link set dev ens2np0 mtu 9000"}},
		expect.Config{}},
	{fault{"MTU of software, configured", "mtu_lost", finding.Warning, "rxe",
		doctortest.File("sys/class/net/eth1/mtu", "2200"), "rail 1", "RoCE MTU 2048 now (eth1 has MTU 2200), 4096 configured",
		[]string{"ip link set dev eth1 mtu 4200"}}, expect.Config{MTU: 4096}},
	{fault{"an adapter is gone", "rail_missing", finding.Critical, "hgx", "gone sys/class/infiniband/mlx5_1\n",
		"rail 1 (mlx5_1)", "mlx5_1 at 0000:3a:00.0 is known, and is not there; 7 of 8 rails are", nil}, expect.Config{}},
	{fault{"gone, and a number is configured", "rail_missing", finding.Critical, "hgx",
		"gone sys/class/infiniband/mlx5_1\n", "rail 1 (mlx5_1)", "7 of 8 rails are", nil}, expect.Config{Rails: 8}},
	{fault{"a software device is gone", "rail_missing", finding.Critical, "rxe", "gone sys/class/infiniband/rxe1\n",
		"rail 1 (rxe1)", "rxe1 at an unknown place is known", nil}, expect.Config{}},
	{fault{"one was never there", "rail_missing", finding.Critical, "hgx", "", "node", "8 rails now, 9 configured", nil},
		expect.Config{Rails: 9}},
	{fault{"a GPU is gone", "gpu_missing", finding.Critical, "hgx", "gone " + gpu0 + "\n", "node",
		"; missing: 0000:3b:00.0", nil}, expect.Config{}},
	{fault{"a GPU was never there", "gpu_missing", finding.Critical, "lag", "", "node", "0 GPUs on PCI now, 8 configured",
		nil}, expect.Config{GPUs: 8}},
	// These machines lost nothing, or their loss is a consequence of another fault.
	{fault{"down", "port_down", finding.Critical, "hgx", doctortest.File(mlx1+"state", "1: DOWN") +
		doctortest.File(mlx1+"rate", "10 Gb/sec (4X)"), "rail 1", `"1: DOWN"`,
		[]string{"ip link set dev ens2np0 down && ip link set dev ens2np0 up"}}, expect.Config{}},
	{fault{"a bond without a member", "bond_member_down", finding.Critical, "lag",
		doctortest.File("sys/class/net/ens1f1np1/bonding_slave/mii_status", "down") +
			doctortest.File("sys/class/net/ens1f1np1/carrier", "0") +
			doctortest.File("sys/class/infiniband/mlx5_bond_0/ports/1/rate", "50 Gb/sec (4X)"), "interface ens1f1np1",
		"it has no carrier", nil}, expect.Config{}},
}

// learned gathers the facts of a machine that was seen before the change.
func learned(t *testing.T, machine, change string, config expect.Config) *facts.Facts {
	t.Helper()
	f := facts.New(doctortest.Learned(t, machine, change, config)).Gather(t.Context(), facts.All)
	f.Node = machine
	return f
}

// TestLost: less than was seen before, or than is configured, is its own finding, and no other check contradicts it.
func TestLost(t *testing.T) {
	for _, c := range lost {
		t.Run(c.name, func(t *testing.T) {
			f := learned(t, c.machine, c.change, c.config)
			list := judge(f, nil)
			compare(t, c.fault, list)
			if best := strings.HasSuffix(c.read, " on "); len(list) == 1 && best &&
				!strings.Contains(list[0].Evidence, c.read+time.Now().UTC().Format("2006-01-")) {
				t.Errorf("no date, or not where it is from: %q", list[0].Evidence)
			}
			last := list[0].Fix[len(list[0].Fix)-1]
			if strings.HasSuffix(c.check, "_lost") && !strings.Contains(last, "after a planned change") {
				t.Errorf("it does not say how to reset what is expected: %q", last)
			}
		})
	}
}

// TestFaultsWithHistory: a node that was seen healthy yields the same findings, or the findings of what it lost
// instead.
func TestFaultsWithHistory(t *testing.T) {
	closer := map[string]string{"pcie_link_low": "pcie_lost", "mtu_low": "mtu_lost"}
	// Devices that the machine of a fault lacks are missing, and nothing else is.
	without := map[string][]string{
		"the only cable pulled":        {"rail_missing", "rail_missing"},
		"two ports on one narrow link": {"rail_missing", "rail_missing", "rate_lost"},
	}
	for _, c := range faults {
		want := []string{c.check}
		f := learned(t, c.machine, c.change, expect.Config{})
		hasMemory := slices.ContainsFunc(f.Rails, func(r facts.Rail) bool { return r.Expected.MTU.Known() })
		if better := closer[c.check]; better != "" && hasMemory {
			want = []string{better}
		}
		var got []string
		for _, x := range judge(f, nil) {
			got = append(got, x.Check)
		}
		want = append(want, without[c.name]...)
		if !slices.Equal(slices.Sorted(slices.Values(got)),
			slices.Sorted(slices.Values(want))) {
			t.Errorf("%s: %q, want %q", c.name, got, want)
		}
	}
	for _, name := range []string{"hgx", "spark", "rxe", "lag"} {
		f := learned(t, name, "", expect.Config{})
		if list := append(judge(f, nil), judge(f, f)...); len(list) > 0 {
			t.Errorf("%s: %+v", name, list)
		}
	}
}

// TestUnreadIsNotMissing: a rail that does not answer, or GPUs that cannot be listed, are not missing.
func TestUnreadIsNotMissing(t *testing.T) {
	config := expect.Config{Rails: 9, GPUs: 99}
	o := doctortest.Learned(t, "hgx", "", config)
	find := o.Rails
	o.Rails = func() rail.Snapshot {
		snap := find()
		snap.Rails = snap.Rails[1:]
		snap.Err = &rail.DeviceError{Device: "mlx5_0", Err: errors.New("no answer")}
		return snap
	}
	for _, f := range judge(facts.New(o).Gather(t.Context(), facts.All), nil) {
		if f.Check != "gpu_missing" {
			t.Errorf("%+v", f)
		}
	}
}

// TestPeerRateLost: the lost rate of one end is not reported again as a difference.
func TestPeerRateLost(t *testing.T) {
	low := doctortest.File(mlx1+"rate", lowRate)
	here, there := learned(t, "hgx", low, expect.Config{}), learned(t, "hgx", "", expect.Config{})
	there.Node = "other"
	if list := append(judge(here, there), judge(there, here)...); len(list) > 0 {
		t.Errorf("%+v", list)
	}
	if list := judge(doctortest.Machine(t, "hgx", low), there); len(list) != 1 || list[0].Check != "peer_rate" {
		t.Errorf("without memory: %+v", list)
	}
}
