package rail

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/ethtool/ethtooltest"
)

// stats returns statistics from alternating names and values.
func stats(list ...any) (out []ethtooltest.Stat) {
	for i := 0; i < len(list); i += 2 {
		out = append(out, ethtooltest.Stat{Name: list[i].(string), Value: uint64(list[i+1].(int))})
	}
	return out
}

func link(t *testing.T, target string, elem ...string) {
	t.Helper()
	path := filepath.Join(elem...)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

// TestStatistics: the counters of each driver for the physical port's bytes and their update interval, and for the
// network stack's bytes. The interface's own counters are 2 and 3.
func TestStatistics(t *testing.T) {
	for name, tc := range map[string]struct {
		driver string
		stats  []ethtooltest.Stat
		bus    string
		want   StatisticsReading
		ok     bool
	}{
		"mlx5": {driver: "mlx5_core", stats: stats("rx_bytes", 1, "rx_vport_unicast_bytes", 2, "tx_vport_unicast_bytes", 3,
			"rx_bytes_phy", 4, "tx_bytes_phy", 5), ok: true, want: StatisticsReading{Physical: [2]uint64{4, 5},
			HasPhysical: true, Stack: [2]uint64{2, 3}, HasStack: true, Generation: 2}},
		"mlx5, a virtual function": {driver: "mlx5_core", stats: stats("rx_bytes", 1, "rx_vport_unicast_bytes", 2,
			"tx_vport_unicast_bytes", 3), ok: true, want: StatisticsReading{Stack: [2]uint64{2, 3}, HasStack: true,
			Generation: 2}},
		"bnxt": {driver: "bnxt_en", stats: stats("[0]: rx_ucast_bytes", 1, "rx_bytes", 4, "tx_bytes", 5), ok: true,
			want: StatisticsReading{Physical: [2]uint64{4, 5}, HasPhysical: true, Period: time.Second,
				Stack: [2]uint64{2, 3}, HasStack: true, Generation: 2}},
		"bnxt, a virtual function": {driver: "bnxt_en", stats: stats("[0]: rx_ucast_bytes", 1), ok: true,
			want: StatisticsReading{Stack: [2]uint64{2, 3}, HasStack: true, Generation: 2}},
		"ice": {driver: "ice", stats: stats("rx_bytes", 1, "tx_bytes", 1, "rx_bytes.nic", 4, "tx_bytes.nic", 5), ok: true,
			want: StatisticsReading{Physical: [2]uint64{4, 5}, HasPhysical: true, Stack: [2]uint64{2, 3},
				HasStack: true, Generation: 2}},
		"i40e": {driver: "i40e", stats: stats("rx_bytes", 1, "tx_bytes", 1, "port.rx_bytes", 4, "port.tx_bytes", 5), ok: true,
			want: StatisticsReading{Physical: [2]uint64{4, 5}, HasPhysical: true, Stack: [2]uint64{2, 3},
				HasStack: true, Generation: 2}},
		"hns3": {driver: "hns3", stats: stats("mac_tx_total_oct_num", 5, "mac_rx_total_oct_num", 4), ok: true,
			want: StatisticsReading{Physical: [2]uint64{4, 5}, HasPhysical: true, Stack: [2]uint64{2, 3},
				HasStack: true, Generation: 2}},
		"ionic": {driver: "ionic", stats: stats("tx_bytes", 7, "rx_bytes", 6, "octets_rx_ok", 4, "octets_tx_ok", 5),
			ok: true, want: StatisticsReading{Physical: [2]uint64{4, 5}, HasPhysical: true, Period: time.Second,
				Stack: [2]uint64{6, 7}, HasStack: true, Generation: 2}},
		"mana, eight classes": {driver: "mana", stats: stats("hc_tc0_rx_byte_phy", 1, "hc_tc1_rx_byte_phy", 1,
			"hc_tc2_rx_byte_phy", 1, "hc_tc3_rx_byte_phy", 1, "hc_tc4_rx_byte_phy", 0, "hc_tc5_rx_byte_phy", 0,
			"hc_tc6_rx_byte_phy", 0, "hc_tc7_rx_byte_phy", 0, "hc_tc0_tx_byte_phy", 5, "hc_tc1_tx_byte_phy", 0,
			"hc_tc2_tx_byte_phy", 0, "hc_tc3_tx_byte_phy", 0, "hc_tc4_tx_byte_phy", 0, "hc_tc5_tx_byte_phy", 0,
			"hc_tc6_tx_byte_phy", 0, "hc_tc7_tx_byte_phy", 0), ok: true, want: StatisticsReading{
			Physical: [2]uint64{4, 5}, HasPhysical: true, Period: time.Second, Stack: [2]uint64{2, 3}, HasStack: true,
			Generation: 2}},
		"one direction only":        {driver: "mlx5_core", stats: stats("rx_bytes_phy", 4)},
		"a driver without":          {driver: "virtio_net", stats: stats("rx_bytes", 4, "tx_bytes", 5)},
		"a virtual function of ice": {driver: "iavf", stats: stats("rx_bytes", 4, "tx_bytes", 5)},
		"another machine's":         {driver: "mlx5_core", stats: stats("rx_bytes_phy", 4, "tx_bytes_phy", 5), bus: "0000:09:00.0"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			link(t, "../../../devices/0000:01:00.0", dir, "class/net/eth0/device")
			writeFile(t, "2\n", dir, "class/net/eth0/statistics/rx_bytes")
			writeFile(t, "3\n", dir, "class/net/eth0/statistics/tx_bytes")
			of := &ethtooltest.Netdev{Driver: tc.driver, Bus: "0000:01:00.0", Stats: tc.stats}
			if tc.bus != "" {
				of.Bus = tc.bus
			}
			k := &ethtooltest.Kernel{Netdevs: map[string]*ethtooltest.Netdev{"eth0": of}}
			s := NewStatistics(dir, "eth0", k.Ioctl)
			defer s.Close()
			got, ok := s.Read()
			got.At = (time.Time{})
			if ok != tc.ok {
				t.Errorf("ok %v", ok)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestTrafficPhysical: the physical port's bytes are reported beside the function's, on Ethernet only; for a bond,
// those of all members.
func TestTrafficPhysical(t *testing.T) {
	for name, tc := range map[string]struct {
		layer, netdev string
		want          [Directions]uint64
		physical      bool
	}{
		"alone":            {"Ethernet", "eth0", [2]uint64{1004, 1005}, true},
		"a bond":           {"Ethernet", "bond0", [2]uint64{3004, 3005}, true},
		"InfiniBand":       {"InfiniBand", "eth0", [2]uint64{40, 80}, false},
		"without ethtool":  {"Ethernet", "eth9", [2]uint64{40, 80}, false},
		"without a netdev": {"Ethernet", "", [2]uint64{40, 80}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			k := &ethtooltest.Kernel{Netdevs: map[string]*ethtooltest.Netdev{}}
			for i, netdev := range []string{"eth0", "eth1"} {
				bus := []string{"0000:01:00.0", "0000:01:00.1"}[i]
				link(t, "../../../devices/"+bus, dir, "class/net", netdev, "device")
				link(t, "../"+netdev, dir, "class/net/bond0", "lower_"+netdev)
				k.Netdevs[netdev] = &ethtooltest.Netdev{Driver: "mlx5_core", Bus: bus,
					Stats: stats("rx_bytes_phy", 1004+996*i, "tx_bytes_phy", 1005+995*i)}
			}
			writeFile(t, "eth0\n", dir, "class/net/bond0/bonding/slaves")
			writeFile(t, "10\n", dir, "ports/1/counters/port_rcv_data")
			writeFile(t, "20\n", dir, "ports/1/counters/port_xmit_data")
			p := NewPort(dir, Rail{Device: "mlx5_0", Dir: dir, Port: 1, LinkLayer: tc.layer, Netdev: tc.netdev}, nil)
			defer p.Close()
			p.UseStatistics(k.Ioctl)
			got, err := p.Traffic()
			if err != nil || got.Receive != 40 || got.Transmit != 80 || got.Port != tc.want ||
				got.Physical != tc.physical {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// TestTrafficPeriod: the driver's known period applies until the counters are seen to move more often.
func TestTrafficPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		count := func(v string) { writeFile(t, v, dir, "ports/1/counters/port_rcv_data") }
		writeFile(t, "0\n", dir, "ports/1/counters/port_xmit_data")
		p := NewPort(dir, Rail{Device: "bnxt_re0", Driver: "bnxt_en", Dir: dir, Port: 1}, nil)
		defer p.Close()
		for i, step := range []struct {
			after time.Duration
			value string
			want  time.Duration
		}{
			{0, "1", time.Second},
			{100 * time.Millisecond, "2", time.Second},            // one move: the period may have ended just now
			{100 * time.Millisecond, "2", time.Second},            // not two consecutive moves
			{100 * time.Millisecond, "3", time.Second},            //
			{300 * time.Millisecond, "4", 400 * time.Millisecond}, // two moves within 0.4 s
			{100 * time.Millisecond, "4", 400 * time.Millisecond},
			{time.Hour, "5", 400 * time.Millisecond},
			{time.Hour, "6", 400 * time.Millisecond},
			{50 * time.Millisecond, "7", 400 * time.Millisecond}, // the hour before it is too long
			{50 * time.Millisecond, "8", 100 * time.Millisecond},
		} {
			time.Sleep(step.after)
			count(step.value)
			got, err := p.Traffic()
			if err != nil || got.Period != step.want {
				t.Errorf("step %d: %v, %v; want %v", i, got.Period, err, step.want)
			}
		}
	})
}
