package rail

import (
	"testing"

	"github.com/railscope/railscope/internal/sysfstest"
)

// A port of a ConnectX-7 in mlx5_ib's format, one of rxe, and one with hardly any files.
const statusTree = `
-- sys/class/infiniband/mlx5_0/ports/1/state --
4: ACTIVE
-- sys/class/infiniband/mlx5_0/ports/1/rate --
200 Gb/sec (4X HDR)
-- sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data --
1000
-- sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data --
2000
-- sys/class/infiniband/mlx5_0/ports/1/hw_counters/local_ack_timeout_err --
3
-- sys/class/infiniband/mlx5_0/ports/1/hw_counters/packet_seq_err --
4
-- sys/class/infiniband/mlx5_0/ports/1/gids/0 --
0000:0000:0000:0000:0000:ffff:0a00:0001
-- sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/0 --
RoCE v2
-- sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0 --
ens1np0
-- sys/class/infiniband/mlx5_0/device/current_link_speed --
32.0 GT/s PCIe
-- sys/class/infiniband/mlx5_0/device/current_link_width --
4
-- sys/class/net/ens1np0/mtu --
9000
-- sys/class/infiniband/rxe0/ports/1/state --
1: DOWN
-- sys/class/infiniband/rxe0/ports/1/hw_counters/completer_retry_err --
5
-- sys/class/infiniband/rxe0/ports/1/hw_counters/out_of_seq_request --
3
-- sys/class/infiniband/rxe0/ports/1/hw_counters/duplicate_request --
4
-- sys/class/net/eth0/mtu --
1500
-- sys/class/net/eth0/statistics/tx_bytes --
77
-- sys/class/net/eth0/statistics/rx_bytes --
88
-- sys/class/infiniband/odd0/ports/1/state --
what
`

func TestStatusAndTraffic(t *testing.T) {
	root := sysfstest.Write(t, t.TempDir(), []byte(statusTree)).Sys()
	rails := []Rail{
		{Name: "0", Device: "mlx5_0", Port: 1, Dir: root + "/class/infiniband/mlx5_0", Netdev: "ens1np0",
			PCIAddress: "0000:01:00.0"},
		{Name: "1", Device: "rxe0", Port: 1, Dir: root + "/class/infiniband/rxe0", Netdev: "eth0", Software: true},
		{Name: "2", Device: "odd0", Port: 1, Dir: root + "/class/infiniband/odd0"},
		{Name: "3", Device: "gone", Port: 1, Dir: root + "/class/infiniband/gone"},
	}
	s, err := NewPort(root, rails[0], nil).Status()
	want := Limits{Active: true, Rate: 25e9, Link: Link{32, 4}.BytesPerSecond(), LinkKey: "0000:01:00"}
	if err != nil || s.StateID != StateActive || s.State != "4: ACTIVE" || s.NetdevMTU != 9000 || s.Limits != want ||
		len(s.GIDs) != 1 || s.GIDs[0].Netdev != "ens1np0" {
		t.Errorf("mlx5: %+v, %v", s, err)
	}
	if s, err := NewPort(root, rails[1], nil).
		Status(); err != nil || s.Limits.Active || s.State != "1: DOWN" || s.NetdevMTU != 1500 || s.Limits.Rate != 0 {
		t.Errorf("rxe: %+v, %v", s, err)
	}
	for _, r := range rails[2:] {
		if s, err := NewPort(root, r, nil).Status(); err == nil {
			t.Errorf("%s: %+v without an error", r, s)
		}
		if got, err := NewPort(root, r, nil).Traffic(); err == nil {
			t.Errorf("%s: traffic %+v without an error", r, got)
		}
	}
	if got, err := NewPort(root, rails[0], nil).
		Traffic(); err != nil || got.Transmit != 4000 || got.Receive != 8000 || got.Retransmits != 7 || got.Repeats !=
		0 || got.Period != 0 || got.At.IsZero() {
		t.Errorf("mlx5: %+v, %v", got, err)
	}
	if got, err := NewPort(root, rails[1], nil).
		Traffic(); err != nil || got.Transmit != 77 || got.Receive != 88 || got.Retransmits != 5 || got.Repeats != 7 ||
		got.Period != sharedPeriod {
		t.Errorf("rxe: %+v, %v", got, err)
	}
}
