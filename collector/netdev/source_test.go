package netdev

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/collectortest"
	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/ethtool/ethtooltest"
	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rtnl"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/internal/sysfstest"
)

var lagRails = []rail.Rail{
	{Name: "0", Device: "mlx5_bond_0", Port: 1, Netdev: "bond0"},
	{Name: "1", Device: "mlx5_2", Port: 1, Netdev: "ib0"},
	{Name: "2", Device: "mlx5_3", Port: 1},
}

// mlx5Stats returns statistics of a ConnectX-7 with PFC on for priority 3, among others that are not read. Each
// value is one more than the previous one.
func mlx5Stats(names ...string) (list []ethtooltest.Stat) {
	for i, name := range names {
		list = append(list, ethtooltest.Stat{Name: name, Value: uint64(i + 1)})
	}
	return list
}

func lagKernel() *ethtooltest.Kernel {
	return &ethtooltest.Kernel{Netdevs: map[string]*ethtooltest.Netdev{
		"bond0": {Before: refuse(unix.EOPNOTSUPP)},
		"ib0":   {Stats: mlx5Stats("rx_csum", "ch0_events")},
		"enp1s0f0np0": {Driver: "mlx5_core", Bus: "0000:01:00.0", FEC: unix.ETHTOOL_FEC_RS, Stats: mlx5Stats(
			"rx_packets", "rx_prio3_pause",
			"rx_prio3_pause_duration", "tx_prio3_pause", "tx_prio3_pause_duration",
			"rx_prio3_pause_transition", "rx_prio9_pause", "rx3_packets", "tx_global_pause", "rx_global_pause_duration",
			"tx_pause_storm_error_events",
			"rx_prio3_buf_discard", "rx_prio3_cong_discard", "rx_prio3_marked", "rx_prio3_discards", "tx_prio3_bytes",
			"rx_prio0_packets",
			"rx_out_of_buffer", "dev_out_of_buffer", "rx_discards_phy", "rx_pcs_symbol_err_phy",
			"rx_corrected_bits_phy", "rx_bits_phy", "rx_err_lane_2_phy",
			"rx_crc_errors_phy", "link_down_events_phy", "rx_vport_rdma_unicast_bytes",
			"tx_vport_rdma_multicast_packets", "tx_vport_unicast_bytes", "rx_vport_unicast_packets",
			"outbound_pci_stalled_rd", "outbound_pci_stalled_wr_events", "outbound_pci_buffer_overflow",
			"tx_pci_signal_integrity", "tx_bytes_phy", "rx_packets_phy")},
		"enp1s0f1np1": {Driver: "bnxt_en", Bus: "0000:01:00.1",
			Stats: mlx5Stats("rx_pfc_ena_frames_pri0", "tx_pfc_ena_frames_pri7", "pfc_pri3_rx_duration_us",
				"pfc_pri3_tx_transitions",
				"rx_pause_frames", "rx_fcs_err_frames", "rx_prio0_pause", "rx_bytes_pri4", "link_down_events",
				"rx_fec_corrected_blocks", "rx_fec_uncorrectable_blocks", "rx_corrected_bits")},
	}}
}

func newTestNetdev(root sysfstest.Root, rails func() ([]rail.Rail, error), k *ethtooltest.Kernel) *Source {
	return New(root.Sys(), rails, collectortest.Budget, k.Ioctl)
}

// lagFiles returns the sysfs files of a member of the LAG.
func lagFiles(netdev string, base int, up string) string {
	names := strings.Fields("receive_bytes transmit_bytes receive_packets transmit_packets receive_errors " +
		"transmit_errors receive_dropped transmit_dropped receive_missed receive_crc_errors")
	var b strings.Builder
	for i, name := range names {
		fmt.Fprintf(&b, "netdev_%s_total{rail=\"0\",netdev=%q} %d\n", name, netdev, base+i)
	}
	for _, line := range []string{"netdev_up %s " + up, "netdev_carrier %s " + up,
		"netdev_carrier_changes_total %s 3", "netdev_carrier_down_total %s 1"} {
		name, value, _ := strings.Cut(line, " %s ")
		fmt.Fprintf(&b, "%s{rail=\"0\",netdev=%q} %s\n", name, netdev, value)
	}
	return b.String()
}

func lagSysfs() string {
	return lagFiles("enp1s0f0np0", 1000, "1") + lagFiles("enp1s0f1np1", 2000, "0") + `
		netdev_speed_bytes_per_second{rail="0",netdev="enp1s0f0np0"} 2.5e+10
		netdev_up{rail="0",netdev="bond0"} 1
		netdev_carrier{rail="0",netdev="bond0"} 1
		netdev_speed_bytes_per_second{rail="0",netdev="bond0"} 2.5e+10
		netdev_carrier_changes_total{rail="0",netdev="bond0"} 2
		netdev_receive_bytes_total{rail="0",netdev="bond0"} 4000
		netdev_receive_bytes_total{rail="1",netdev="ib0"} 1.8446744073709552e+19`
}

const lagEthtool = `
	port_pause_frames_total{rail="0",netdev="enp1s0f0np0",priority="3",direction="receive"} 2
	port_pause_seconds_total{rail="0",netdev="enp1s0f0np0",priority="3",direction="receive"} 3e-06
	port_pause_frames_total{rail="0",netdev="enp1s0f0np0",priority="3",direction="transmit"} 4
	port_pause_seconds_total{rail="0",netdev="enp1s0f0np0",priority="3",direction="transmit"} 5e-06
	port_global_pause_frames_total{rail="0",netdev="enp1s0f0np0",direction="transmit"} 9
	port_global_pause_seconds_total{rail="0",netdev="enp1s0f0np0",direction="receive"} 1e-05
	port_pause_storm_events_total{rail="0",netdev="enp1s0f0np0",severity="error"} 11
	port_priority_receive_discards_total{rail="0",netdev="enp1s0f0np0",priority="3",cause="host_buffer"} 12
	port_priority_receive_discards_total{rail="0",netdev="enp1s0f0np0",priority="3",cause="host_congestion"} 13
	port_priority_ecn_marked_total{rail="0",netdev="enp1s0f0np0",priority="3"} 14
	port_priority_receive_discards_total{rail="0",netdev="enp1s0f0np0",priority="3",cause="port_buffer"} 15
	port_priority_bytes_total{rail="0",netdev="enp1s0f0np0",priority="3",direction="transmit"} 16
	port_priority_packets_total{rail="0",netdev="enp1s0f0np0",priority="0",direction="receive"} 17
	netdev_receive_out_of_buffer_total{rail="0",netdev="enp1s0f0np0"} 18
	netdev_device_out_of_buffer_total{rail="0",netdev="enp1s0f0np0"} 19
	netdev_phy_discards_total{rail="0",netdev="enp1s0f0np0",direction="receive"} 20
	netdev_phy_symbol_errors_total{rail="0",netdev="enp1s0f0np0"} 21
	netdev_phy_fec_corrected_errors_total{rail="0",netdev="enp1s0f0np0"} 22
	netdev_phy_receivable_bytes_total{rail="0",netdev="enp1s0f0np0"} 2.875
	netdev_phy_lane_errors_total{rail="0",netdev="enp1s0f0np0",lane="2"} 24
	netdev_phy_crc_errors_total{rail="0",netdev="enp1s0f0np0"} 25
	netdev_phy_link_down_events_total{rail="0",netdev="enp1s0f0np0"} 26
	netdev_rdma_bytes_total{rail="0",netdev="enp1s0f0np0",cast="unicast",direction="receive"} 27
	netdev_rdma_packets_total{rail="0",netdev="enp1s0f0np0",cast="multicast",direction="transmit"} 28
	netdev_non_rdma_unicast_bytes_total{rail="0",netdev="enp1s0f0np0",direction="transmit"} 29
	netdev_non_rdma_unicast_packets_total{rail="0",netdev="enp1s0f0np0",direction="receive"} 30
	netdev_pci_stalled_ratio{rail="0",netdev="enp1s0f0np0",operation="read"} 0.31
	netdev_pci_stalled_seconds_total{rail="0",netdev="enp1s0f0np0",operation="write"} 32
	netdev_pci_buffer_overflow_packets_total{rail="0",netdev="enp1s0f0np0"} 33
	netdev_pci_signal_integrity_errors_total{rail="0",netdev="enp1s0f0np0",direction="transmit"} 34
	netdev_phy_bytes_total{rail="0",netdev="enp1s0f0np0",direction="transmit"} 35
	netdev_phy_packets_total{rail="0",netdev="enp1s0f0np0",direction="receive"} 36
	port_pause_frames_total{rail="0",netdev="enp1s0f1np1",priority="0",direction="receive"} 7
	port_pause_frames_total{rail="0",netdev="enp1s0f1np1",priority="7",direction="transmit"} 2
	port_pause_seconds_total{rail="0",netdev="enp1s0f1np1",priority="3",direction="receive"} 3e-06
	port_global_pause_frames_total{rail="0",netdev="enp1s0f1np1",direction="receive"} 5
	netdev_phy_crc_errors_total{rail="0",netdev="enp1s0f1np1"} 6
	port_priority_bytes_total{rail="0",netdev="enp1s0f1np1",priority="4",direction="receive"} 8
	netdev_phy_link_down_events_total{rail="0",netdev="enp1s0f1np1"} 9
	netdev_fec_info{rail="0",netdev="enp1s0f0np0",mode="rs"} 1
	netdev_fec_corrected_blocks_total{rail="0",netdev="enp1s0f1np1"} 10
	netdev_fec_uncorrectable_blocks_total{rail="0",netdev="enp1s0f1np1"} 11
	netdev_phy_fec_corrected_errors_total{rail="0",netdev="enp1s0f1np1"} 12`

// TestNetdev reads a LAG: the bond, and both members through the bond's rail. On the second member, a name of
// another driver comes first in its row and is therefore used although it is later in the list.
func TestNetdev(t *testing.T) {
	root := sysfstest.Unpack(t, "testdata/lag.txtar")
	src := newTestNetdev(root, collectortest.Rails(lagRails...), lagKernel())
	for read := range 2 {
		lines, faults, _ := collectortest.ReadLines(t, src)
		if diff := cmp.Diff(collectortest.TextLines(lagSysfs()+"\n"+lagEthtool), lines); diff != "" {
			t.Errorf("samples (-want +got):\n%s", diff)
		}
		var want []string
		if read == 0 {
			want = []string{"bond0: unsupported (expected)"}
		}
		if diff := cmp.Diff(want, faults); diff != "" {
			t.Errorf("read %d: faults (-want +got):\n%s", read, diff)
		}
	}
}

// TestNetdevCaptured reads a captured tree: its names belong to another machine, so this machine's ethtool is not
// used.
func TestNetdevCaptured(t *testing.T) {
	root := sysfstest.Unpack(t, "testdata/lag.txtar")
	src := New(root.Sys(), collectortest.Rails(lagRails...), collectortest.Budget, nil)
	lines, faults, _ := collectortest.ReadLines(t, src)
	if diff := cmp.Diff(collectortest.TextLines(lagSysfs()), lines); diff != "" || len(faults) > 0 {
		t.Errorf("%v (-want +got):\n%s", faults, diff)
	}
}

// TestNetdevRails has interfaces that two rails share, an interface that is itself a member, and rails that come
// and go.
func TestNetdevRails(t *testing.T) {
	root := sysfstest.Unpack(t, "testdata/lag.txtar")
	var rails []rail.Rail
	src := newTestNetdev(root, func() ([]rail.Rail, error) { return rails, nil }, lagKernel())
	on := func(pairs ...string) (list []rail.Rail) {
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, rail.Rail{Name: pairs[i], Netdev: pairs[i+1]})
		}
		return list
	}
	for _, step := range []struct {
		name  string
		rails []rail.Rail
		want  []string // lines of netdev_receive_bytes_total and of one ethtool row
	}{
		{"a member itself", on("a", "enp1s0f0np0"), []string{"a enp1s0f0np0"}},
		{"two rails on it", on("b", "enp1s0f0np0", "a", "enp1s0f0np0"), []string{"a enp1s0f0np0", "b enp1s0f0np0"}},
		{"another", on("b", "ib0"), []string{"b ib0"}},
		{"back", on("c", "enp1s0f0np0"), []string{"c enp1s0f0np0"}},
		{"bond and member", on("b", "bond0", "m", "enp1s0f1np1"), []string{"b bond0", "b enp1s0f0np0", "b enp1s0f1np1",
			"m enp1s0f1np1"}},
	} {
		rails = step.rails
		var received, pause []string
		err := src.Read(func(s collector.Sample) {
			switch s.Metric.Name {
			case "netdev_receive_bytes_total":
				received = append(received, s.Labels[0]+" "+s.Labels[1])
			case "port_pause_frames_total":
				pause = append(pause, s.Labels[0]+" "+s.Labels[1])
			}
		})
		slices.Sort(received)
		slices.Sort(pause)
		pause = slices.Compact(pause)
		want := slices.DeleteFunc(slices.Clone(step.want), func(s string) bool {
			return strings.HasSuffix(s, "ib0") || strings.HasSuffix(s, "bond0")
		})
		if diff := cmp.Diff(step.want, received); diff != "" || !collectortest.AllExpected(err) {
			t.Errorf("%s: %v (-want +got):\n%s", step.name, err, diff)
		}
		if !slices.Equal(pause, want) {
			t.Errorf("%s: ethtool of %q, not %q", step.name, pause, want)
		}
	}
	rails = nil
	if err := src.Read(func(collector.Sample) {}); !errors.Is(err, collector.ErrAbsent) {
		t.Errorf("no rails: %v", err)
	}
}

// TestNetdevFinderFails has a finder that returns an error with some rails or none. An error does not mean that
// there are no rails.
func TestNetdevFinderFails(t *testing.T) {
	root := sysfstest.Unpack(t, "testdata/lag.txtar")
	broken := errors.New("the finder is broken")
	src := newTestNetdev(root, func() ([]rail.Rail, error) { return lagRails, broken }, lagKernel())
	if lines, faults, err := collectortest.ReadLines(t, src); len(lines) == 0 || !collectortest.AllExpected(err) {
		t.Errorf("some rails: %d samples, %v", len(lines), faults)
	}
	src = newTestNetdev(root, func() ([]rail.Rail, error) { return nil, broken }, lagKernel())
	if lines, _, err := collectortest.ReadLines(t, src); len(lines) > 0 || !errors.Is(err, broken) || errors.Is(err,
		collector.ErrAbsent) {
		t.Errorf("no rails: %d samples, %v", len(lines), err)
	}
}

// TestNetdevMovedPFC moves PFC to another priority, which changes the names but not their number. The link goes
// down and up.
func TestNetdevMovedPFC(t *testing.T) {
	root := sysfstest.Unpack(t, "testdata/lag.txtar")
	k := lagKernel()
	src := newTestNetdev(root, collectortest.Rails(rail.Rail{Name: "0", Netdev: "enp1s0f0np0"}), k)
	pause := func() (list []string) {
		lines, faults, _ := collectortest.ReadLines(t, src)
		if len(faults) > 0 {
			t.Error(faults)
		}
		for _, l := range lines {
			if strings.HasPrefix(l, "port_pause_frames_total") && strings.Contains(l, "receive") {
				list = append(list, l)
			}
		}
		return list
	}
	line := `port_pause_frames_total{rail="0",netdev="enp1s0f0np0",priority="%d",direction="receive"} 2`
	if diff := cmp.Diff([]string{fmt.Sprintf(line, 3)}, pause()); diff != "" {
		t.Error(diff)
	}
	netdev := k.Netdevs["enp1s0f0np0"]
	for i := range netdev.Stats {
		netdev.Stats[i].Name = strings.ReplaceAll(netdev.Stats[i].Name, "prio3", "prio4")
	}
	collectortest.Edit(t, root.Dir, map[string]string{"sys/class/net/enp1s0f0np0/carrier_changes": "5\n"})
	if diff := cmp.Diff([]string{fmt.Sprintf(line, 4)}, pause()); diff != "" {
		t.Error(diff)
	}
	calls := map[uint32]int{}
	netdev.Before = func(cmd uint32) error { calls[cmd]++; return nil }
	pause()
	if diff := cmp.Diff(map[uint32]int{unix.ETHTOOL_GSTATS: 1}, calls); diff != "" {
		t.Errorf("requests of a read (-want +got):\n%s", diff)
	}
}

// TestNetdevFEC: mode and numbers are firmware commands, so they are read rarely and after the carrier changed.
// Numbers that are among the statistics are those of the statistics.
func TestNetdevFEC(t *testing.T) {
	const mlx5, bnxt = "enp1s0f0np0", "enp1s0f1np1"
	root, k := sysfstest.Unpack(t, "testdata/lag.txtar"), lagKernel()
	var calls []string
	k.Netdevs[mlx5].Before = func(cmd uint32) error {
		if cmd == unix.ETHTOOL_GFECPARAM {
			calls = append(calls, "mode")
		}
		return nil
	}
	src := newTestNetdev(root, collectortest.Rails(lagRails[0]), k)
	corrected, uncorrectable := uint64(1<<40), uint64(0)
	bits := uint64(7) // among the statistics of both
	bins := func(codewords ...uint64) (list []ethtool.FECBin) {
		for errors, n := range codewords {
			list = append(list, ethtool.FECBin{Low: uint32(errors), High: uint32(errors), Codewords: n})
		}
		return list
	}
	fec, failure := ethtool.FEC{Corrected: &corrected, Uncorrectable: &uncorrectable, Bits: &bits,
		Bins: bins(1000, 200, 30, 4)}, error(nil)
	var mu sync.Mutex // each interface is read in a lane of its own
	src.fec = func(netdev string) (ethtool.FEC, error) {
		mu.Lock()
		defer mu.Unlock()
		switch netdev {
		case mlx5:
			calls = append(calls, "numbers")
			return fec, failure
		case bnxt:
			return ethtool.FEC{Corrected: &bits, Uncorrectable: &bits, Bins: bins(5)}, nil
		}
		return ethtool.FEC{}, unix.EOPNOTSUPP
	}
	series := func(netdev, text string) string {
		return strings.NewReplacer("{", `{rail="0",netdev="`+netdev+`"`).Replace(text)
	}
	ofBnxt := "netdev_fec_corrected_blocks_total{} 10\nnetdev_fec_uncorrectable_blocks_total{} 11\n" +
		`netdev_fec_codewords_total{,errors="0"} 5`
	both := "netdev_fec_corrected_blocks_total{} 1.099511627776e+12\nnetdev_fec_uncorrectable_blocks_total{} 0\n" +
		`netdev_fec_codewords_total{,errors="0"} 1000` + "\n" + `netdev_fec_codewords_total{,errors="1-3"} 234` + "\n"
	asked := []string{"mode", "numbers"}
	for _, step := range []struct {
		name   string
		do     func()
		want   string // lines of mlx5
		faults []string
		calls  []string
	}{
		{"first", func() {}, `netdev_fec_info{,mode="rs"} 1` + "\n" + both, nil, asked},
		{"repeated", func() { corrected++ }, `netdev_fec_info{,mode="rs"} 1` + "\n" + both, nil, nil},
		{"other names", func() {
			k.Netdevs[mlx5].Stats, corrected = k.Netdevs[mlx5].Stats[1:], 1<<40
		}, `netdev_fec_info{,mode="rs"} 1` + "\n" + both, nil, asked},
		{"carrier changed, no numbers", func() {
			k.Netdevs[mlx5].FEC, fec = unix.ETHTOOL_FEC_OFF, ethtool.FEC{}
			collectortest.Edit(t, root.Dir, map[string]string{"sys/class/net/" + mlx5 + "/carrier_changes": "5\n"})
		}, `netdev_fec_info{,mode="off"} 1` + "\n", nil, asked},
		{"unsupported", func() {
			k.Netdevs[mlx5].FEC, failure = 0, unix.EINVAL
			collectortest.Edit(t, root.Dir, map[string]string{"sys/class/net/" + mlx5 + "/carrier_changes": "6\n"})
		}, "", nil, asked},
		{"not asked again", func() {}, "", nil, nil},
		{"mode without numbers", func() {
			k.Netdevs[mlx5].FEC, failure = unix.ETHTOOL_FEC_BASER, unix.EIO
			collectortest.Edit(t, root.Dir, map[string]string{"sys/class/net/" + mlx5 + "/carrier_changes": "7\n"})
		}, `netdev_fec_info{,mode="baser"} 1` + "\n", []string{mlx5 + ": io"}, asked},
	} {
		step.do()
		calls = nil
		lines, faults, _ := collectortest.ReadLines(t, src)
		lines = slices.DeleteFunc(lines, func(l string) bool { return !strings.HasPrefix(l, "netdev_fec_") })
		faults = slices.DeleteFunc(faults, func(f string) bool { return strings.HasPrefix(f, "bond0") })
		want := collectortest.TextLines(series(mlx5, step.want) + series(bnxt, ofBnxt))
		if diff := cmp.Diff(want, lines); diff != "" || !slices.Equal(faults, step.faults) {
			t.Errorf("%s: faults %q (-want +got):\n%s", step.name, faults, diff)
		}
		if diff := cmp.Diff(step.calls, calls); diff != "" {
			t.Errorf("%s: firmware commands (-want +got):\n%s", step.name, diff)
		}
	}
}

// TestMergeBins: classes end where codes do. A field is "low-high:codewords/lanes".
func TestMergeBins(t *testing.T) {
	text := func(bins []ethtool.FECBin) string {
		var list []string
		for _, b := range bins {
			list = append(list, fmt.Sprintf("%d-%d:%d/%v", b.Low, b.High, b.Codewords, b.Lanes))
		}
		return strings.Join(list, " ")
	}
	bins := func(errors ...uint32) (list []ethtool.FECBin) {
		for i := 0; i < len(errors); i += 2 {
			list = append(list, ethtool.FECBin{Low: errors[i], High: errors[i+1], Codewords: uint64(1 + i/2),
				Lanes: []uint64{1, 0}})
		}
		return list
	}
	var each []uint32
	for n := range uint32(18) {
		each = append(each, n, n)
	}
	for _, tc := range []struct {
		why    string
		errors []uint32
		want   string
	}{
		{"none", nil, ""},
		{"one bin for each number", each, "0-0:1/[1 0] 1-3:9/[3 0] 4-7:26/[4 0] 8-11:42/[4 0] 12-15:58/[4 0] 16-17:35/[2 0]"},
		{"few bins", []uint32{0, 0, 1, 3, 4, 7}, "0-0:1/[1 0] 1-3:2/[1 0] 4-7:3/[1 0]"},
		{"bins across classes", []uint32{0, 1, 2, 5, 6, 15}, "0-1:1/[1 0] 2-5:2/[1 0] 6-15:3/[1 0]"},
	} {
		list := bins(tc.errors...)
		if got := text(mergeBins(list)); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.why, got, tc.want)
		}
		if got := text(list); got != text(bins(tc.errors...)) {
			t.Errorf("%s: the bins changed: %s", tc.why, got)
		}
	}
}

// refuse answers every request with an error.
func refuse(err error) func(uint32) error { return func(uint32) error { return err } }

// TestNetdevEthtoolFaults: sysfs is served whatever ethtool returns.
func TestNetdevEthtoolFaults(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(k *ethtooltest.Kernel)
		faults [2][]string // faults of the first and the second read
	}{
		"another namespace's interface": {func(k *ethtooltest.Kernel) {
			k.Netdevs["enp1s0f0np0"].Bus = "0000:81:00.0"
		}, [2][]string{{"enp1s0f0np0: other_namespace"}, {"enp1s0f0np0: other_namespace"}}},
		"unknown in this namespace": {func(k *ethtooltest.Kernel) {
			delete(k.Netdevs, "enp1s0f0np0")
		}, [2][]string{{"enp1s0f0np0: other_namespace"}, {"enp1s0f0np0: other_namespace"}}},
		"no statistics": {func(k *ethtooltest.Kernel) {
			k.Netdevs["enp1s0f0np0"].Stats, k.Netdevs["enp1s0f0np0"].FEC = nil, 0
		}, [2][]string{{"enp1s0f0np0: unsupported (expected)"}, nil}},
		"no driver information": {func(k *ethtooltest.Kernel) {
			k.Netdevs["enp1s0f0np0"].Driver = ""
		}, [2][]string{{"enp1s0f0np0: unsupported (expected)"}, nil}},
		"broken": {func(k *ethtooltest.Kernel) {
			k.Netdevs["enp1s0f0np0"].Before = refuse(unix.EIO)
		}, [2][]string{{"enp1s0f0np0: io"}, {"enp1s0f0np0: io"}}},
		"panics": {func(k *ethtooltest.Kernel) {
			k.Netdevs["enp1s0f0np0"].Before = func(uint32) error { panic("oh") }
		}, [2][]string{{"enp1s0f0np0: panic"}, {"enp1s0f0np0: panic"}}},
	} {
		t.Run(name, func(t *testing.T) {
			root := sysfstest.Unpack(t, "testdata/lag.txtar")
			k := lagKernel()
			tt.change(k)
			src := newTestNetdev(root, collectortest.Rails(rail.Rail{Name: "0", Netdev: "enp1s0f0np0"}), k)
			for read, faultsWant := range tt.faults {
				lines, faults, _ := collectortest.ReadLines(t, src)
				if diff := cmp.Diff(faultsWant, faults); diff != "" {
					t.Errorf("read %d: faults (-want +got):\n%s", read, diff)
				}
				var want []string
				for _, l := range collectortest.TextLines(lagSysfs()) {
					inLane := strings.HasPrefix(l, "netdev_carrier{") || strings.HasPrefix(l, "netdev_speed_")
					if strings.Contains(l, `"enp1s0f0np0"`) && !(name == "panics" && inLane) {
						want = append(want, l)
					}
				}
				if diff := cmp.Diff(want, lines); diff != "" {
					t.Errorf("read %d (-want +got):\n%s", read, diff)
				}
			}
		})
	}
}

func TestNetdevSpoilt(t *testing.T) {
	const netdev = "sys/class/net/enp1s0f0np0/"
	collectortest.TestSpoilt(t, []collectortest.Spoilt{
		{Path: netdev + "operstate", Costs: []string{"netdev_up enp1s0f0np0"}, Device: "enp1s0f0np0",
			Reasons: collectortest.WordReasons()},
		{Path: netdev + "carrier", Costs: []string{"netdev_carrier enp1s0f0np0"}, Device: "enp1s0f0np0"},
		{Path: netdev + "speed", Costs: []string{"netdev_speed_bytes_per_second enp1s0f0np0"}, Device: "enp1s0f0np0",
			Reasons: map[string]string{"negative": ""}},
		{Path: netdev + "carrier_changes", Costs: []string{"netdev_carrier_changes_total enp1s0f0np0"},
			Device: "enp1s0f0np0"},
		{Path: netdev + "statistics/rx_bytes", Costs: []string{"netdev_receive_bytes_total enp1s0f0np0"},
			Device: "enp1s0f0np0"},
	}, func(t *testing.T) (collector.Source, string) {
		root := sysfstest.Unpack(t, "testdata/lag.txtar")
		return newTestNetdev(root, collectortest.Rails(lagRails...), lagKernel()), root.Dir
	})
}

// TestNetdevGone removes an interface and recreates it under the same name.
func TestNetdevGone(t *testing.T) {
	root := sysfstest.Unpack(t, "testdata/lag.txtar")
	src := newTestNetdev(root, collectortest.Rails(lagRails...), lagKernel())
	want, _, _ := collectortest.ReadLines(t, src)
	dir := root.Sys("class/net/enp1s0f0np0")
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	lines, faults, _ := collectortest.ReadLines(t, src)
	if diff := cmp.Diff(slices.DeleteFunc(slices.Clone(want), func(l string) bool {
		return strings.Contains(l, `"enp1s0f0np0"`)
	}), lines); diff != "" {
		t.Errorf("gone (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"enp1s0f0np0: " + sysfs.ReasonVanished}, faults); diff != "" {
		t.Errorf("gone: faults (-want +got):\n%s", diff)
	}
	if err := os.Rename(dir+"-away", dir); err != nil {
		t.Fatal(err)
	}
	lines, faults, _ = collectortest.ReadLines(t, src)
	if diff := cmp.Diff(want, lines); diff != "" || len(faults) > 0 {
		t.Errorf("back: %v (-want +got):\n%s", faults, diff)
	}
}

// TestNetdevLive reads this machine's loopback interface, which has neither a speed nor ethtool statistics.
func TestNetdevLive(t *testing.T) {
	if !sysfs.Live("/sys/class/net") {
		t.Skip("/sys is no sysfs")
	}
	src := New("/sys", collectortest.Rails(rail.Rail{Name: "0", Device: "rxe0", Port: 1, Netdev: "lo"}),
		collectortest.Budget, nil)
	for _, want := range [][]string{{"lo: unsupported (expected)"}, nil} {
		lines, faults, _ := collectortest.ReadLines(t, src)
		if diff := cmp.Diff(want, faults); diff != "" {
			t.Errorf("faults (-want +got):\n%s", diff)
		}
		text := strings.Join(lines, "\n")
		if !strings.Contains(text, `netdev_carrier_changes_total{rail="0",netdev="lo"}`) || !strings.Contains(text,
			`netdev_receive_bytes_total{rail="0",netdev="lo"}`) || strings.Contains(text, "speed") {
			t.Errorf("%s", text)
		}
	}
}

// TestNetdevSlowNeighbour: an interface whose driver does not answer in time is named in a fault, and other
// interfaces lose no sample.
func TestNetdevSlowNeighbour(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		root := sysfstest.Unpack(t, "testdata/lag.txtar")
		kernel, stuck := lagKernel(), false
		source := New(root.Sys(), collectortest.SlowRails(true, collectortest.Rails(lagRails...)),
			collectortest.Budget, func(name string, req []byte) error {
				if stuck && name == "enp1s0f0np0" {
					time.Sleep(time.Minute)
				}
				return kernel.Ioctl(name, req)
			})
		read := func() (lines []string, faults []string) {
			err := source.Read(func(s collector.Sample) {
				if !slices.Contains(s.Labels, "enp1s0f0np0") {
					lines = append(lines, fmt.Sprint(s.Metric.Name, s.Labels, s.Value))
				}
			})
			for _, f := range collector.Faults(err) {
				if !f.Expected {
					faults = append(faults, f.Device+" "+f.Reason)
				}
			}
			slices.Sort(lines)
			return lines, faults
		}
		want, _ := read()
		stuck = true
		for range 3 {
			got, faults := read()
			if diff := cmp.Diff(want, got); diff != "" || len(got) == 0 {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"enp1s0f0np0 " + sysfs.ReasonTimeout}, faults); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		}
	})
}

// TestNetdevBondSilent: while the directory of a bond does not answer, its last known members are read.
func TestNetdevBondSilent(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		root := sysfstest.Unpack(t, "testdata/lag.txtar")
		source := New(root.Sys(), collectortest.Rails(lagRails...), collectortest.Budget, lagKernel().Ioctl)
		read := func() (members int, err error) {
			err = source.Read(func(s collector.Sample) {
				if slices.Contains(s.Labels, "enp1s0f0np0") || slices.Contains(s.Labels, "enp1s0f1np1") {
					members++
				}
			})
			return members, err
		}
		want, _ := read()
		release := make(chan struct{})
		source.bonds.Run(time.Millisecond, []string{"bond0"}, func(string) []string { <-release; return nil })
		time.Sleep(collector.FactsEvery)
		for range 2 {
			got, err := read()
			if got != want || want == 0 {
				t.Errorf("%d samples of members, want %d", got, want)
			}
			if !slices.ContainsFunc(collector.Faults(err), func(f *collector.Fault) bool {
				return f.Device == "bond0" && f.Reason == sysfs.ReasonTimeout
			}) {
				t.Errorf("no fault of the bond in %v", err)
			}
		}
		close(release)
	})
}

// TestNetdevBudget: a slow finder or slow firmware takes no time from an interface's budget.
func TestNetdevBudget(t *testing.T) {
	collectortest.TestBudget(t, func(t *testing.T, slow bool) collector.Source {
		root := sysfstest.Unpack(t, "testdata/lag.txtar")
		kernel, rails := lagKernel(), collectortest.SlowRails(slow, collectortest.Rails(lagRails...))
		return New(root.Sys(), rails, collectortest.Budget, func(name string, req []byte) error {
			if slow && name == "enp1s0f0np0" {
				time.Sleep(collectortest.Slow / 5) // at most five requests
			}
			return kernel.Ioctl(name, req)
		})
	})
}

func TestNetdevTable(t *testing.T) {
	collectortest.TestTable(t, New("", collectortest.NoRails, 0, nil))
}

// TestNetdevNetlink: netlink and the files hold the same values, for every interface of this machine that has an
// address. Counters may have increased.
func TestNetdevNetlink(t *testing.T) {
	if !sysfs.Live("/sys/class/net") {
		t.Skip("/sys is no sysfs")
	}
	entries, err := os.ReadDir("/sys/class/net")
	if err != nil {
		t.Skip(err)
	}
	var rails []rail.Rail
	for i, e := range entries {
		rails = append(rails, rail.Rail{Name: fmt.Sprint(i), Netdev: e.Name()})
	}
	finder := collectortest.Rails(rails...)
	byNetlink, byFile := New("/sys", finder, collectortest.Budget, nil), New("/sys", finder, collectortest.Budget, nil)
	byFile.live = func(string) bool { return false }
	read := func(s *Source) map[string]float64 {
		values := map[string]float64{}
		s.Read(func(s collector.Sample) { values[fmt.Sprint(s.Metric.Name, s.Labels)] = s.Value })
		return values
	}
	before, got, after := read(byFile), read(byNetlink), read(byFile)
	if len(got) != len(before) || len(got) == 0 {
		t.Errorf("%d series, %d by file", len(got), len(before))
	}
	for series, v := range got {
		if low, there := before[series]; !there || v < low || v > after[series] {
			t.Errorf("%s: %v, by file %v and then %v", series, v, low, after[series])
		}
	}
	var netlink rtnl.Client
	if _, err := netlink.Links(nil); len(*byNetlink.links.Load()) == 0 && err == nil {
		t.Error("nothing came by netlink")
	}
	netlink.Close()
	release := make(chan struct{}) // the RTNL lock is held
	byNetlink.asking.Run(time.Millisecond, []string{"links"},
		func(string) map[string]*rtnl.Link { <-release; return nil })
	if got := read(byNetlink); len(got) != len(before) || len(*byNetlink.links.Load()) != 0 {
		t.Errorf("without netlink: %d series, %d by file", len(got), len(before))
	}
	close(release)
	other := New("/sys", finder, collectortest.Budget, nil)
	other.Read(func(collector.Sample) {})
	for _, l := range *other.links.Load() {
		l.Index++ // an interface of another network namespace
	}
	for k := range map[string]bool{"lo": true, "eth0": true} {
		u := &unlocked{source: other, name: k, labels: collector.RailLabels("0", k),
			files: collector.NewFiles(other.net, k)}
		if u.link(time.Now()) != nil {
			t.Errorf("%s of another network namespace is taken for ours", k)
		}
	}
}

// BenchmarkNetdevRead reads ten interfaces that have every file, with 2000 statistics each, of which 36 are used.
func BenchmarkNetdevRead(b *testing.B) {
	const count = 10
	root := sysfstest.Unpack(b, "testdata/lag.txtar")
	stats := append(lagKernel().Netdevs["enp1s0f0np0"].Stats, make([]ethtooltest.Stat, 2000)...)
	k := &ethtooltest.Kernel{Netdevs: make(map[string]*ethtooltest.Netdev)}
	var rails []rail.Rail
	for i := range count {
		name := fmt.Sprintf("eth%d", i)
		if err := os.CopyFS(root.Sys("class/net", name), os.DirFS(root.Sys("class/net/enp1s0f0np0"))); err != nil {
			b.Fatal(err)
		}
		k.Netdevs[name] = &ethtooltest.Netdev{Driver: "mlx5_core", Bus: "0000:01:00.0", Stats: stats}
		rails = append(rails, rail.Rail{Name: fmt.Sprint(i), Netdev: name})
	}
	for name, src := range map[string]*Source{
		"sysfs":   New(root.Sys(), collectortest.Rails(rails...), collectortest.Budget, nil),
		"ethtool": newTestNetdev(root, collectortest.Rails(rails...), k),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := src.Read(func(collector.Sample) {}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkNetdevLive compares netlink with the files on this machine's own
// interfaces.
func BenchmarkNetdevLive(b *testing.B) {
	entries, err := os.ReadDir("/sys/class/net")
	if err != nil || !sysfs.Live("/sys/class/net") {
		b.Skip("no sysfs", err)
	}
	var rails []rail.Rail
	for i, e := range entries {
		rails = append(rails, rail.Rail{Name: fmt.Sprint(i), Netdev: e.Name()})
	}
	for name, netlink := range map[string]bool{"netlink": true, "files": false} {
		b.Run(name, func(b *testing.B) {
			s := New("/sys", collectortest.Rails(rails...), collectortest.Budget, nil)
			s.live = func(string) bool { return netlink }
			b.ReportAllocs()
			for b.Loop() {
				s.Read(func(collector.Sample) {})
			}
		})
	}
}
