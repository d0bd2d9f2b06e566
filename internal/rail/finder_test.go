package rail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/lane/lanetest"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/internal/sysfstest"
)

const time10 = 10 * time.Second // a budget that is never exceeded

// line formats a rail as one line, without Dir and values that change with the inode.
func line(r Rail) string {
	s := fmt.Sprintf("%s %s/%d netdev=%s %s pci=%s numa=%d driver=%s hca=%s board=%s fw=%s node=%s image=%s",
		r.Name, r.Device, r.Port, r.Netdev, r.LinkLayer, r.PCIAddress, r.NUMANode, r.Driver, r.HCAType, r.BoardID,
		r.Firmware, r.NodeGUID, r.SystemImageGUID)
	if r.Members > 0 {
		s += fmt.Sprintf(" members=%d", r.Members)
	}
	return s
}

// TestIWARP: the kernel reports Ethernet as the link layer of an RNIC.
func TestIWARP(t *testing.T) {
	root := sysfstest.Unpack(t, "testdata/mlx5-bond.txtar")
	file := root.Sys("class/infiniband/mlx5_bond_0/node_type")
	if err := os.WriteFile(file, []byte("4: RNIC\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	rails := NewFinder(root.Sys(), Options{}, nil, time10).Snapshot().Rails
	if len(rails) != 1 || rails[0].LinkLayer != IWARP {
		t.Errorf("%+v", rails)
	}
}

// view is a snapshot that can be compared whole.
type view struct {
	Rails, LeftOut []string
	Err            string
}

func viewOf(t *testing.T, s Snapshot, show func(Rail) string) view {
	t.Helper()
	var v view
	for _, r := range s.Rails {
		v.Rails = append(v.Rails, show(r))
		if filepath.Base(r.Dir) != r.Device || !strings.HasPrefix(r.ID, r.Device+"#") {
			t.Errorf("%s: Dir %s, ID %s", r, r.Dir, r.ID)
		}
	}
	for _, l := range s.LeftOut {
		v.LeftOut = append(v.LeftOut, l.String())
	}
	if s.Err != nil {
		v.Err = s.Err.Error()
	}
	return v
}

func TestFinderOnMachines(t *testing.T) {
	var hgx view
	bus := []string{"18", "3a", "4b", "5c", "9a", "ba", "ca", "da"}
	for i, b := range bus {
		hgx.Rails = append(hgx.Rails,
			fmt.Sprintf("%d mlx5_%d/1 netdev=ens%dnp0 Ethernet pci=0000:%s:00.0 numa=%d driver=mlx5_core "+
				"hca=MT4129 board=MT_0000000838 fw=28.39.1002 node=a088:c203:00%[4]s:0100 image=a088:c203:00%[4]s:0100",
				i, i, i+1, b, i/4))
	}
	hgx.Rails = append(hgx.Rails,
		"8 mlx5_10/1 netdev=ens20np0 Ethernet pci=0000:2a:00.0 numa=0 driver=mlx5_core hca=MT4129 "+
			"board=MT_0000000838 fw=28.38.1900 node=a088:c203:0029:0200 image=a088:c203:0029:0200",
		"9 mlx5_11/1 netdev=ens21np0 Ethernet pci=0000:c1:00.0 numa=1 driver=mlx5_core hca=MT4129 "+
			"board=MT_0000000838 fw=28.38.1900 node=a088:c203:00c0:0200 image=a088:c203:00c0:0200")
	hgx.LeftOut = []string{"mlx5_8 port 1: virtual_function of 0000:18:00.0", "mlx5_9 port 1: virtual_function of 0000:18:00.0"}
	for _, tt := range []struct {
		machine string
		want    view
	}{
		{"hgx-h100", hgx},
		{"dgx-spark", view{Rails: []string{
			"0 rocep1s0f0/1 netdev=enp1s0f0np0 Ethernet pci=0000:01:00.0 numa=-1 driver=mlx5_core hca=MT4129 " +
				"board=NVD0000000087 fw=28.45.4028 node=4cbb:4703:0000:0000 image=4cbb:4703:0022:0100",
			"1 rocep1s0f1/1 netdev=enp1s0f1np1 Ethernet pci=0000:01:00.1 numa=-1 driver=mlx5_core hca=MT4129 " +
				"board=NVD0000000087 fw=28.45.4028 node=4cbb:4703:0000:0100 image=4cbb:4703:0022:0100",
			"2 roceP2p1s0f0/1 netdev=enP2p1s0f0np0 Ethernet pci=0002:01:00.0 numa=-1 driver=mlx5_core hca=MT4129 " +
				"board=NVD0000000087 fw=28.45.4028 node=4cbb:4703:0022:0000 image=4cbb:4703:0022:0100",
			"3 roceP2p1s0f1/1 netdev=enP2p1s0f1np1 Ethernet pci=0002:01:00.1 numa=-1 driver=mlx5_core hca=MT4129 " +
				"board=NVD0000000087 fw=28.45.4028 node=4cbb:4703:0022:0100 image=4cbb:4703:0022:0100",
		}}},
		{"mlx5-bond", view{Rails: []string{
			"0 mlx5_bond_0/1 netdev=bond0 Ethernet pci=0000:17:00.0 numa=0 driver=mlx5_core hca=MT4125 " +
				"board=MT_0000000359 fw=22.36.1010 node=b859:9f03:00aa:0002 image=b859:9f03:00aa:0002 members=2",
		}}},
		{"rxe-bonded", view{Rails: []string{
			"0 rxe0/1 netdev=eth0 Ethernet pci= numa=-1 driver= hca= board= fw= node=5054:00ff:fe12:3400 " +
				"image=5054:00ff:fe12:3400",
			"1 rxe1/1 netdev=eth1 Ethernet pci= numa=-1 driver= hca= board= fw= node=5054:00ff:fe12:3401 " +
				"image=5054:00ff:fe12:3401",
		}}},
		{"plain-directories", view{Rails: []string{
			"0 mlx5_0/1 netdev=ens1np0 Ethernet pci= numa=-1 driver= hca=MT4129 board=MT_0000000838 fw=28.39.1002 " +
				"node=a088:c203:0018:0100 image=a088:c203:0018:0100",
			"1 mlx5_1/1 netdev=ens2np0 Ethernet pci= numa=-1 driver= hca=MT4129 board=MT_0000000838 fw=28.39.1002 " +
				"node=a088:c203:0018:0101 image=a088:c203:0018:0101",
		}}},
		{"no-rdma", view{}},
	} {
		t.Run(tt.machine, func(t *testing.T) {
			root := sysfstest.Unpack(t, "testdata/"+tt.machine+".txtar")
			kernel := kernelFunc(func(string, int) (string, error) {
				t.Error("the running kernel was asked about a captured tree")
				return "of-this-machine", nil
			})
			f := NewFinder(root.Sys(), Options{}, kernel, time10)
			if diff := cmp.Diff(tt.want, viewOf(t, f.Snapshot(), line)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFinderOptions(t *testing.T) {
	root := sysfstest.Unpack(t, "testdata/hgx-h100.txtar")
	short := func(r Rail) string { return r.String() }
	storage := regexp.MustCompile(`^mlx5_1\d$`)
	f := NewFinder(root.Sys(), Options{Include: storage}, nil, time10)
	var got []view
	look := func() { got = append(got, viewOf(t, f.Snapshot(), short)) }
	look()
	f.SetOptions(Options{Include: storage, Names: map[string]string{"mlx5_11/1": "west", "mlx5_7/1": "not included",
		"mlx5_10/2": "no such port"}})
	look() // at once: a reload must not wait
	f.SetOptions(Options{Include: regexp.MustCompile(`^mlx5_(0|8|1\d)$`)})
	look()
	if diff := cmp.Diff([]string{"mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7"},
		f.Snapshot().Excluded); diff != "" {
		t.Errorf("excluded, without virtual functions (-want +got):\n%s", diff)
	}
	excluded := func(from, to int) (list []string) {
		for n := from; n <= to; n++ {
			list = append(list, fmt.Sprintf("mlx5_%d port 1: excluded", n))
		}
		return append(list, "mlx5_8 port 1: virtual_function of 0000:18:00.0",
			"mlx5_9 port 1: virtual_function of 0000:18:00.0")
	}
	want := []view{
		{Rails: []string{"rail 0 (mlx5_10/1)", "rail 1 (mlx5_11/1)"}, LeftOut: excluded(0, 7)},
		{Rails: []string{"rail 0 (mlx5_10/1)", "rail west (mlx5_11/1)"}, LeftOut: excluded(0, 7)},
		// Given numbers stay: mlx5_0 comes first and is rail 2.
		{Rails: []string{"rail 2 (mlx5_0/1)", "rail 0 (mlx5_10/1)", "rail 1 (mlx5_11/1)"}, LeftOut: excluded(1, 7)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestFinderFollows: devices disappear, return and change, in fake time.
func TestFinderFollows(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine(t, "mlx5_0", "mlx5_1", "mlx5_2")
		f := NewFinder(m.dir, Options{}, nil, time10)
		expect := func(when string, want ...string) {
			t.Helper()
			if diff := cmp.Diff(view{Rails: want}, viewOf(t, f.Snapshot(), brief)); diff != "" {
				t.Errorf("%s: %s", when, diff)
			}
		}
		id := func(device string) string {
			for _, r := range f.Snapshot().Rails {
				if r.Device == device {
					return r.ID
				}
			}
			return ""
		}
		expect("at first", "0 mlx5_0 eth0 1", "1 mlx5_1 eth1 1", "2 mlx5_2 eth2 1")
		first := id("mlx5_1")

		m.remove("mlx5_1")
		time.Sleep(settle - time.Nanosecond)
		expect("within settle of the last scan", "0 mlx5_0 eth0 1", "1 mlx5_1 eth1 1", "2 mlx5_2 eth2 1")
		time.Sleep(time.Nanosecond)
		expect("vanished: its number stays its own", "0 mlx5_0 eth0 1", "2 mlx5_2 eth2 1")

		m.add("mlx5_1", "eth1")
		m.add("mlx5_3", "eth3")
		time.Sleep(settle)
		expect("back, and a new one", "0 mlx5_0 eth0 1", "1 mlx5_1 eth1 1", "2 mlx5_2 eth2 1", "3 mlx5_3 eth3 1")
		second := id("mlx5_1")
		if second == first {
			t.Errorf("lives of mlx5_1: %s, then %s", first, second)
		}

		// Recreated between two scans: the names stay.
		m.remove("mlx5_1")
		m.add("mlx5_1", "eth1")
		time.Sleep(settle)
		expect("made anew", "0 mlx5_0 eth0 1", "1 mlx5_1 eth1 1", "2 mlx5_2 eth2 1", "3 mlx5_3 eth3 1")
		if third := id("mlx5_1"); third == second {
			t.Errorf("both lives of mlx5_1 are %s", third)
		}

		m.must(os.Rename(m.path("class/infiniband/mlx5_2/device/net/eth2"),
			m.path("class/infiniband/mlx5_2/device/net/ens9")))
		m.must(os.Rename(m.path("class/net/eth2"), m.path("class/net/ens9")))
		time.Sleep(settle)
		expect("netdev renamed", "0 mlx5_0 eth0 1", "1 mlx5_1 eth1 1", "2 mlx5_2 ens9 1", "3 mlx5_3 eth3 1")

		examined := time.Now()
		m.write("2\n", "class/infiniband/mlx5_0/fw_ver") // a listing does not show that
		time.Sleep(examineEvery - time.Nanosecond)
		expect("within the minute", "0 mlx5_0 eth0 1", "1 mlx5_1 eth1 1", "2 mlx5_2 ens9 1", "3 mlx5_3 eth3 1")
		time.Sleep(settle)
		expect("after "+time.Since(examined).String(), "0 mlx5_0 eth0 2", "1 mlx5_1 eth1 1", "2 mlx5_2 ens9 1",
			"3 mlx5_3 eth3 1")

		// The module is unloaded and loaded again.
		m.must(os.Rename(m.path("class/infiniband"), m.path("unloaded")))
		time.Sleep(settle)
		expect("unloaded")
		m.must(os.Rename(m.path("unloaded"), m.path("class/infiniband")))
		time.Sleep(settle)
		expect("loaded", "0 mlx5_0 eth0 2", "1 mlx5_1 eth1 1", "2 mlx5_2 ens9 1", "3 mlx5_3 eth3 1")
	})
}

// Ports are sorted as numbers, in any order of the directory.
func TestFinderManyPorts(t *testing.T) {
	m := newMachine(t)
	var want view
	for port := 1; port <= 30; port++ {
		m.write("InfiniBand\n", "class/infiniband/mlx4_0/ports", fmt.Sprint(port), "link_layer")
		want.Rails = append(want.Rails, fmt.Sprintf("rail %d (mlx4_0/%d)", port-1, port))
	}
	if diff := cmp.Diff(want, viewOf(t, NewFinder(m.dir, Options{}, nil, time10).Snapshot(), Rail.String)); diff != "" {
		t.Error(diff)
	}
}

// A configured name stays with a device that is removed and returns.
func TestFinderNamesFollow(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine(t, "mlx5_0", "mlx5_1")
		f := NewFinder(m.dir, Options{Names: map[string]string{"mlx5_0/1": "east"}}, nil, time10)
		want := view{Rails: []string{"east mlx5_0 eth0 1", "1 mlx5_1 eth1 1"}}
		if diff := cmp.Diff(want, viewOf(t, f.Snapshot(), brief)); diff != "" {
			t.Error(diff)
		}
		m.remove("mlx5_0")
		time.Sleep(settle)
		f.Snapshot()
		m.add("mlx5_0", "eth0")
		time.Sleep(settle)
		if diff := cmp.Diff(want, viewOf(t, f.Snapshot(), brief)); diff != "" {
			t.Errorf("after a new life: %s", diff)
		}
	})
}

func TestFinderBrokenDevices(t *testing.T) {
	m := newMachine(t, "mlx5_0")
	m.write("1\n", "class/infiniband/mlx5_1/fw_ver")                      // no ports at all
	m.write("", "class/infiniband/mlx5_2/ports")                          // a file where a directory belongs
	m.must(os.MkdirAll(m.path("class/infiniband/mlx5_3/ports/0"), 0o755)) // no port, but no fault
	m.must(os.MkdirAll(m.path("class/infiniband/mlx5_3/ports/one"), 0o755))
	m.must(os.Symlink("nowhere", m.path("class/infiniband/mlx5_4")))
	m.must(os.MkdirAll(m.path("class/infiniband/mlx5_5"), 0o755))
	m.must(os.Symlink("ports", m.path("class/infiniband/mlx5_5/ports")))
	m.add("mlx5_6", "eth6")
	m.write("\x01\x02\xff", "class/infiniband/mlx5_6/fw_ver")
	m.write(strings.Repeat("x", sysfs.MaxFile+1), "class/infiniband/mlx5_6/board_id")
	f := NewFinder(m.dir, Options{}, nil, time10)
	s := f.Snapshot()
	ports := func(device, why string) string {
		return fmt.Sprintf("%s: read %s: %s", device, m.path("class/infiniband", device, "ports"), why)
	}
	want := view{
		Rails: []string{"0 mlx5_0 eth0 1", "5 mlx5_6 eth6 "}, // devices that could not be examined keep their places
		Err: strings.Join([]string{
			ports("mlx5_1", "no such file or directory"), ports("mlx5_2", "not a directory"),
			ports("mlx5_4", "no such file or directory"), ports("mlx5_5", "too many levels of symbolic links"),
		}, "\n"),
	}
	if diff := cmp.Diff(want, viewOf(t, s, brief)); diff != "" {
		t.Error(diff)
	}
	// Counting errors requires the device and the reason.
	got := map[string]string{}
	for _, err := range s.Err.(interface{ Unwrap() []error }).Unwrap() {
		if d, ok := errors.AsType[*DeviceError](err); ok {
			got[d.Device] = sysfs.Reason(err)
		}
	}
	if diff := cmp.Diff(map[string]string{"mlx5_1": "vanished", "mlx5_2": "vanished", "mlx5_4": "vanished",
		"mlx5_5": "io"}, got); diff != "" {
		t.Error(diff)
	}
}

// A failed device is examined again at the next scan, not only after a minute.
func TestFinderLooksAgainAfterError(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine(t, "mlx5_0")
		m.must(os.MkdirAll(m.path("class/infiniband/mlx5_1"), 0o755))
		f := NewFinder(m.dir, Options{}, nil, time10)
		if s := f.Snapshot(); s.Err == nil || len(s.Rails) != 1 {
			t.Errorf("%+v", s)
		}
		m.write("Ethernet\n", "class/infiniband/mlx5_1/ports/1/link_layer")
		time.Sleep(settle)
		if diff := cmp.Diff(view{Rails: []string{"0 mlx5_0 eth0 1", "1 mlx5_1  "}},
			viewOf(t, f.Snapshot(), brief)); diff != "" {
			t.Error(diff)
		}
	})
}

// A device that hangs does not affect others, is named, and keeps its last result: its own readings show what still
// works.
func TestFinderStuckDevice(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine(t, "mlx5_0", "mlx5_1", "mlx5_2")
		f := NewFinder(m.dir, Options{}, nil, time10)
		f.Snapshot()
		release := make(chan struct{})
		go f.examining.Run(time.Millisecond, []string{"mlx5_1"}, func(string) examined { <-release; return examined{} })
		time.Sleep(examineEvery)
		start := time.Now()
		s := f.Snapshot()
		if took := time.Since(start); took != 0 {
			t.Errorf("waited %v for a lane that is known to be stuck", took)
		}
		want := view{
			Rails: []string{"0 mlx5_0 eth0 1", "1 mlx5_1 eth1 1", "2 mlx5_2 eth2 1"},
			Err: "mlx5_1: read " + m.path("class/infiniband/mlx5_1") +
				": a read that began 1m0s ago has not returned",
		}
		if diff := cmp.Diff(want, viewOf(t, s, brief)); diff != "" {
			t.Error(diff)
		}
		if got := sysfs.Reason(s.Err); got != sysfs.ReasonTimeout {
			t.Errorf("reason %s", got)
		}
		close(release)
		time.Sleep(settle)
		if diff := cmp.Diff(view{Rails: []string{"0 mlx5_0 eth0 1", "1 mlx5_1 eth1 1", "2 mlx5_2 eth2 1"}},
			viewOf(t, f.Snapshot(), brief)); diff != "" {
			t.Errorf("released: %s", diff)
		}
	})
}

func TestFinderAbsent(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "loop/class"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("infiniband", filepath.Join(dir, "loop/class/infiniband")); err != nil {
		t.Fatal(err)
	}
	for sys, want := range map[string]string{
		dir:                          "",
		filepath.Join(dir, "absent"): "",
		filepath.Join(dir, "loop"): "read " + filepath.Join(dir,
			"loop/class/infiniband") + ": too many levels of symbolic links",
	} {
		rails, err := NewFinder(sys, Options{}, nil, time10).Rails()
		if message := fmt.Sprint(errors.Join(err)); len(rails) != 0 || want == "" && err != nil || want != "" &&
			message != want {
			t.Errorf("%s: %v, %v; want %q", sys, rails, err, want)
		}
	}
}

func TestFinderIsSafeForMany(t *testing.T) {
	m := newMachine(t, "mlx5_0", "mlx5_1")
	f := NewFinder(m.dir, Options{}, nil, time10)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if rails, err := f.Rails(); len(rails) != 2 || err != nil {
					t.Error(rails, err)
				}
				f.SetOptions(Options{})
			}
		})
	}
	wg.Wait()
}
