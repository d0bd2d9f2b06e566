package fakeverbs

import (
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/rail"
)

// TestSysfs: the rails of a node are its devices, with the configured GIDs.
func TestSysfs(t *testing.T) {
	f := New(t)
	f.Add("A", Device{Name: "mlx5_0", GIDs: RoCE("192.0.2.1")})
	f.Add("A", Device{Name: "mlx5_1", GIDs: RoCE("198.51.100.1"), Firmware: "28.40.1000", PCIAddress: "0000:81:00.1"})
	f.Add("B", Device{Name: "mlx5_0", GIDs: RoCE("192.0.2.2")})
	rails, err := rail.NewFinder(f.Sysfs("A"), rail.Options{}, nil, time.Second).Rails()
	if err != nil {
		t.Fatal(err)
	}
	for i := range rails {
		rails[i].ID, rails[i].Dir, rails[i].SystemImageGUID = "", "", ""
	}
	one := rail.Rail{Name: "0", Device: "mlx5_0", Port: 1, Netdev: "eth-mlx5_0", LinkLayer: "Ethernet",
		PCIAddress: "0000:01:00.0", Place: "0000:01:00.0", Role: "compute",
		HCAType: "MT4129", BoardID: "MT_0000000838", Firmware: "28.39.1002", NodeGUID: "e8eb:d303:00a0:0001"}
	two := one
	two.Name, two.Device, two.Netdev, two.PCIAddress, two.Place, two.Firmware, two.NodeGUID = "1", "mlx5_1",
		"eth-mlx5_1", "0000:81:00.1", "0000:81:00.1", "28.40.1000", "e8eb:d303:00a0:0002"
	if diff := cmp.Diff([]rail.Rail{one, two}, rails); diff != "" {
		t.Error(diff)
	}
	table := rail.NewGIDTable(filepath.Join(f.Sysfs("A"), "class/infiniband/mlx5_0"), 1)
	choose := func() rail.GID {
		t.Helper()
		gids, errs := table.Read()
		if errs != nil {
			t.Fatal(errs)
		}
		return rail.ChooseGID(gids, "Ethernet", rail.Own(f.Sysfs("A"), "eth-mlx5_0")).GID
	}
	compare := func(got, want rail.GID) {
		t.Helper()
		if got != want {
			t.Errorf("chosen %v, want %v", got, want)
		}
	}
	compare(choose(), rail.GID{Index: 3, Addr: netip.MustParseAddr("::ffff:192.0.2.1"), Type: rail.TypeRoCEv2,
		Netdev: "eth-mlx5_0"})
	f.SetGIDs("A", "mlx5_0", []GID{{}, {Addr: netip.MustParseAddr("192.0.2.9"), Netdev: "eth0.7"}})
	compare(choose(), rail.GID{Index: 1, Addr: netip.MustParseAddr("::ffff:192.0.2.9"), Type: rail.TypeRoCEv2,
		Netdev: "eth0.7"})
	f.SetGIDs("A", "mlx5_0", RoCE("192.0.2.1"))
	compare(choose(), rail.GID{Index: 3, Addr: netip.MustParseAddr("::ffff:192.0.2.1"), Type: rail.TypeRoCEv2,
		Netdev: "eth-mlx5_0"})
	f.SetGIDs("A", "mlx5_0", nil)
	compare(choose(), rail.GID{})
	if empty, err := rail.NewFinder(f.Sysfs("C"), rail.Options{}, nil, time.Second).
		Rails(); empty != nil || err != nil {
		t.Error(empty, err)
	}
}
