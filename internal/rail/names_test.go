package rail

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/sysfstest"
)

// called returns the names of the rails by device, and the missing rails.
func called(s Snapshot) string {
	var out []string
	for _, r := range s.Rails {
		out = append(out, r.Device+":"+r.Name)
	}
	for _, m := range s.Missing {
		out = append(out, fmt.Sprintf("missing:%s(%s/%d %s)", m.Name, m.Device, m.Port, m.PCIAddress))
	}
	return strings.Join(out, " ")
}

func (m *machine) expect(f *Finder, when, want string) {
	m.t.Helper()
	time.Sleep(settle)
	if got := called(f.Snapshot()); got != want {
		m.t.Errorf("%s: %s, want %s", when, got, want)
	}
}

// TestSlowDeviceKeepsItsPlace: neither the order in which devices answer nor a restart changes the names.
func TestSlowDeviceKeepsItsPlace(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine(t, "mlx5_0", "mlx5_1", "mlx5_2")
		var left []Record
		start := func() (f *Finder, answer func()) {
			f = NewFinder(m.dir, Options{}, nil, time10)
			if err := f.Remember(left, func(r []Record) { left = r }); err != nil {
				t.Fatal(err)
			}
			release := make(chan struct{})
			go f.examining.Run(time.Millisecond, []string{"mlx5_1"}, func(string) examined { <-release; return examined{} })
			return f, func() { close(release) }
		}
		f, answer := start()
		m.expect(f, "slow", "mlx5_0:0 mlx5_2:2")
		answer()
		m.expect(f, "answers", "mlx5_0:0 mlx5_1:1 mlx5_2:2")
		f, answer = start()
		m.expect(f, "slow after a restart", "mlx5_0:0 mlx5_2:2")
		answer()
		m.expect(f, "answers", "mlx5_0:0 mlx5_1:1 mlx5_2:2")
	})
}

// TestUdevRenames: devices that are renamed while serving keep their names as rails, also across reloads.
func TestUdevRenames(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine(t, "mlx5_0", "mlx5_1", "mlx5_2")
		for i := range 3 {
			m.write(fmt.Sprintf("b859:9f03:0000:000%d\n", i+1), "class/infiniband", fmt.Sprintf("mlx5_%d", i),
				"node_guid")
		}
		f := NewFinder(m.dir, Options{}, nil, time10)
		m.expect(f, "at first", "mlx5_0:0 mlx5_1:1 mlx5_2:2")
		for from, to := range map[string]string{"mlx5_0": "rocep93s0", "mlx5_1": "rocep58s0", "mlx5_2": "rocep24s0"} {
			m.must(os.Rename(m.path("class/infiniband", from), m.path("class/infiniband", to)))
		}
		m.expect(f, "renamed", "rocep24s0:2 rocep58s0:1 rocep93s0:0")
		for _, opts := range []Options{
			{Names: map[string]string{"rocep58s0/1": "east"}},
			{Include: regexp.MustCompile("^rocep(58|93)")},
			{},
		} {
			f.SetOptions(opts)
			want := "rocep24s0:2 rocep58s0:1 rocep93s0:0"
			switch {
			case opts.Names != nil:
				want = strings.Replace(want, ":1", ":east", 1)
			case opts.Include != nil:
				want = strings.TrimPrefix(want, "rocep24s0:2 ")
			}
			m.expect(f, fmt.Sprint("reload ", opts), want)
		}
		m.remove("rocep58s0")
		m.expect(f, "gone", "rocep24s0:2 rocep93s0:0 missing:1(rocep58s0/1 )")
		m.must(os.Rename(m.path("class/infiniband"), m.path("unloaded")))
		m.expect(f, "the driver is unloaded", "missing:0(rocep93s0/1 ) missing:1(rocep58s0/1 ) missing:2(rocep24s0/1 )")
		m.must(os.Rename(m.path("unloaded"), m.path("class/infiniband")))
		m.expect(f, "and loaded", "rocep24s0:2 rocep93s0:0 missing:1(rocep58s0/1 )")
	})
}

// TestPlaces: devices are identified by their place in the tree.
func TestPlaces(t *testing.T) {
	for machine, want := range map[string][]string{
		"dgx-spark":         {"0000:01:00.0", "0000:01:00.1", "0002:01:00.0", "0002:01:00.1"},
		"mlx5-bond":         {"0000:17:00.0"},
		"rxe-bonded":        {"net:0000:00:03.0/0", "net:0000:00:04.0/0"},
		"plain-directories": {"", ""},
	} {
		root := sysfstest.Unpack(t, "testdata/"+machine+".txtar")
		var got []string
		for _, r := range NewFinder(root.Sys(), Options{}, nil, time10).Snapshot().Rails {
			got = append(got, r.Place)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", machine, diff)
		}
	}
}

// TestAuxiliaryPlace: a device on an auxiliary bus is behind its PCI function, and differs from its neighbour
// there.
func TestAuxiliaryPlace(t *testing.T) {
	m := newMachine(t)
	for _, aux := range []string{"mana.rdma.0", "mana.rdma.1"} {
		dir := "devices/pci0000:00/0000:7a:00.0/" + aux
		m.write("", dir, "uevent")
		m.write("Ethernet\n", "class/infiniband", aux, "ports/1/link_layer")
		m.must(os.Symlink(m.path(dir), m.path("class/infiniband", aux, "device")))
	}
	f := NewFinder(m.dir, Options{}, nil, time10)
	var got []string
	for _, r := range f.Snapshot().Rails {
		got = append(got, r.Place+" "+r.PCIAddress)
	}
	if diff := cmp.Diff([]string{"0000:7a:00.0/mana.rdma.0 0000:7a:00.0", "0000:7a:00.0/mana.rdma.1 0000:7a:00.0"},
		got); diff != "" {
		t.Error(diff)
	}
}

// TestBondTakesFunctions: the second function of an adapter is not missing while the driver has combined both into
// one device. It is missing after the bond has lost it.
func TestBondTakesFunctions(t *testing.T) {
	root := sysfstest.Unpack(t, "testdata/mlx5-bond.txtar")
	before := []Record{
		{Number: 0, Device: "mlx5_0", Port: 1, Place: "0000:17:00.0", PCIAddress: "0000:17:00.0",
			NodeGUID: "b859:9f03:00aa:0002"},
		{Number: 1, Device: "mlx5_1", Port: 1, Place: "0000:17:00.1", PCIAddress: "0000:17:00.1",
			NodeGUID: "b859:9f03:00aa:0003"},
		{Number: 2, Device: "mlx5_2", Port: 1, Place: "0000:5c:00.0", PCIAddress: "0000:5c:00.0",
			NodeGUID: "b859:9f03:00aa:0004"},
	}
	look := func() string {
		f := NewFinder(root.Sys(), Options{}, nil, time10)
		if err := f.Remember(before, nil); err != nil {
			t.Fatal(err)
		}
		return called(f.Snapshot())
	}
	if got, want := look(), "mlx5_bond_0:0 missing:2(mlx5_2/1 0000:5c:00.0)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if err := os.Remove(root.Sys("class/net/bond0/lower_ens1f1np1")); err != nil {
		t.Fatal(err)
	}
	if got, want := look(), "mlx5_bond_0:0 missing:1(mlx5_1/1 0000:17:00.1) missing:2(mlx5_2/1 0000:5c:00.0)"; got !=
		want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestExcludedIsNotMissing: a port that the configuration excludes keeps its number.
func TestExcludedIsNotMissing(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine(t, "mlx5_0", "mlx5_1")
		f := NewFinder(m.dir, Options{}, nil, time10)
		m.expect(f, "at first", "mlx5_0:0 mlx5_1:1")
		f.SetOptions(Options{Include: regexp.MustCompile("_[1-9]$")})
		m.add("mlx5_2", "eth2")
		m.expect(f, "excluded", "mlx5_1:1 mlx5_2:2")
		if diff := cmp.Diff([]string{"mlx5_0"}, f.Snapshot().Excluded); diff != "" {
			t.Error(diff)
		}
		release := make(chan struct{})
		for _, d := range f.devices {
			d.location.Store(nil)
		}
		go f.examining.Run(time.Millisecond, []string{"mlx5_0"}, func(string) examined { <-release; return examined{} })
		time.Sleep(time.Minute)
		m.expect(f, "excluded, and its files hang", "mlx5_1:1 mlx5_2:2")
		close(release)
		f.SetOptions(Options{})
		m.expect(f, "included", "mlx5_0:0 mlx5_1:1 mlx5_2:2")
	})
}

// TestRememberRefuses: records that this version did not write are not used, and the rails that are found are saved
// instead.
func TestRememberRefuses(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine(t, "mlx5_0")
		f := NewFinder(m.dir, Options{}, nil, time10)
		var saved [][]Record
		twice := []Record{{Number: 7, Device: "mlx5_0", Port: 1}, {Number: 7, Device: "mlx5_1", Port: 1}}
		if err := f.Remember(twice, func(r []Record) { saved = append(saved, r) }); err == nil {
			t.Error("taken")
		}
		m.expect(f, "first look", "mlx5_0:0")
		m.expect(f, "second look", "mlx5_0:0")
		if diff := cmp.Diff([][]Record{{{Number: 0, Device: "mlx5_0", Port: 1}}}, saved); diff != "" {
			t.Errorf("saved once (-want +got):\n%s", diff)
		}
	})
}

// TestSoftRoCEBeingAdded: while rxe adds or removes a device, its parent reads "(null)", or names an interface that is
// gone. The port is the known one of its name.
func TestSoftRoCEBeingAdded(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		add := func(device, parent, guid string) {
			m.write("Ethernet\n", "class/infiniband", device, "ports/1/link_layer")
			m.write(parent+"\n", "class/infiniband", device, "parent")
			m.write(guid+"\n", "class/infiniband", device, "node_guid")
		}
		m.write("1500\n", "class/net/eth0/mtu")
		m.write("1500\n", "class/net/eth1/mtu")
		const guid0, guid1, none = "5054:00ff:fe00:0002", "5054:00ff:fe00:0102", "0000:0000:0000:0000"
		add("rxe0", "eth0", guid0)
		add("rxe1", "eth1", guid1)
		f := NewFinder(m.dir, Options{}, nil, time10)
		m.expect(f, "at first", "rxe0:0 rxe1:1")
		for _, parent := range []string{"(null)", "gone", ""} {
			for _, guid := range []string{none, guid1} {
				m.remove("rxe1")
				add("rxe1", parent, guid)
				m.expect(f, "being added, parent "+parent+", GUID "+guid, "rxe0:0 rxe1:1")
				if netdev := f.Snapshot().Rails[1].Netdev; netdev == noParent {
					t.Errorf("its interface is %s", netdev)
				}
				m.remove("rxe1")
				add("rxe1", "eth1", guid1)
				m.expect(f, "added", "rxe0:0 rxe1:1")
			}
		}
	})
}
