package sampler

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/hungfs"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfstest"
	"github.com/railscope/railscope/internal/testenv"
)

func TestMain(m *testing.M) {
	hungfs.Main()
	testenv.Setup()
	os.Exit(m.Run())
}

// tree writes files below a /sys of its own; "-> x" is a link.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for path, content := range files {
		write(t, content, dir, path)
	}
	return dir
}

func write(t *testing.T, content string, elem ...string) {
	t.Helper()
	path := filepath.Join(elem...)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if target, link := strings.CutPrefix(content, "-> "); err == nil && link {
		err = os.Symlink(target, path)
	} else if err == nil {
		err = os.WriteFile(path, []byte(content), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestOpenBytes: what counts a rail's bytes, by driver.
func TestOpenBytes(t *testing.T) {
	for name, tc := range map[string]struct {
		files    map[string]string
		software bool
		want     [directions]uint64
		err      bool
	}{
		"mlx5, in words":        {map[string]string{"ports/1/counters/port_rcv_data": "10", "ports/1/counters/port_xmit_data": "20", "ports/1/hw_counters/rx_bytes": "7", "ports/1/hw_counters/tx_bytes": "7"}, false, [directions]uint64{40, 80}, false},
		"efa":                   {map[string]string{"ports/1/hw_counters/rx_bytes": "10", "ports/1/hw_counters/tx_bytes": "20"}, false, [directions]uint64{10, 20}, false},
		"irdma, the sum of two": {map[string]string{"ports/1/hw_counters/ip4InOctets": "1", "ports/1/hw_counters/ip6InOctets": "2", "ports/1/hw_counters/ip4OutOctets": "3", "ports/1/hw_counters/ip6OutOctets": "4"}, false, [directions]uint64{3, 7}, false},
		"rxe":                   {map[string]string{"net/rx_bytes": "10", "net/tx_bytes": "20"}, true, [directions]uint64{10, 20}, false},
		"an interface's bytes are not a hardware rail's": {map[string]string{"net/rx_bytes": "10", "net/tx_bytes": "20"}, false, [directions]uint64{}, true},
		"half of them":                   {map[string]string{"ports/1/counters/port_rcv_data": "10"}, false, [directions]uint64{}, true},
		"no PMA, as old kernels have it": {map[string]string{"ports/1/counters/port_rcv_data": "N/A (no PMA)", "ports/1/counters/port_xmit_data": "N/A (no PMA)"}, false, [directions]uint64{}, true},
	} {
		dir := t.TempDir()
		for path, content := range tc.files {
			path = strings.Replace(path, "net/", "class/net/eth0/statistics/", 1)
			write(t, content+"\n", dir, path)
		}
		s := New(Options{Sysfs: dir, Interval: DefaultInterval})
		c, err := openBytes(s.open, dir, rail.Rail{Name: "0", Dir: dir, Port: 1, Netdev: "eth0", Software: tc.software}, make([]byte, 64))
		if (err != nil) != tc.err {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			if !strings.Contains(err.Error(), ErrUncounted.Error()) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		var got [directions]uint64
		for d := range got {
			if got[d], _, err = c[d].read(make([]byte, 64)); err != nil {
				t.Error(err)
			}
		}
		c.close()
		if got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestHungFile: a real file whose read sits in the kernel. Others are sampled
// meanwhile, and the device is when it returns.
func TestHungFile(t *testing.T) {
	sys, mount := t.TempDir(), t.TempDir()
	if err := sysfstest.WriteMlx5(sys, 2); err != nil {
		t.Fatal(err)
	}
	hung := hungfs.Mount(t, mount, map[string]string{"file": "250\n"})
	path := filepath.Join(sys, "class/infiniband/mlx5_1/ports/1/counters/port_xmit_data")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	write(t, "-> "+filepath.Join(mount, "file"), path)
	finder := rail.NewFinder(sys, rail.Options{}, nil, time.Second)
	s := New(Options{Sysfs: sys, Rails: finder.Rails, Interval: MinInterval})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(t.Context())
	}()
	t.Cleanup(func() { <-ended })
	var snap Snapshot
	until := func(what string, cond func() bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if s.Snapshot(&snap); len(snap.Devices) == 2 && cond() {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("not %s: %+v", what, snap.Devices)
			}
		}
	}
	until("stuck", func() bool { return snap.Devices[1].Stuck > 0 && hung.Waiting() == 1 })
	was := snap.Devices[0].Samples
	until("sampled beside it", func() bool { return snap.Devices[0].Samples > was+20 })
	if snap.Devices[1].Samples != 0 || hung.Waiting() != 1 {
		t.Errorf("%d samples, %d reads wait", snap.Devices[1].Samples, hung.Waiting())
	}
	hung.Release()
	until("sampled again", func() bool { return snap.Devices[1].Stuck == 0 && snap.Devices[1].Samples > 20 })
}

// TestBonds: links of members and changes of the active one, over bonds and
// members that come and go.
func TestBonds(t *testing.T) {
	sys := tree(t, map[string]string{
		"class/net/bond0/bonding/active_slave":    "eth0\n",
		"class/net/bond0/lower_eth0":              "-> ../eth0",
		"class/net/bond0/lower_eth1":              "-> ../eth1",
		"class/net/eth0/bonding_slave/mii_status": "up\n",
		"class/net/eth1/bonding_slave/mii_status": "up\n",
		"class/net/eth0/carrier_changes":          "2\n",
		"class/net/eth1/carrier_changes":          "4\n",
		"class/net/bonding_masters":               "bond0\n",
		"class/net/eth2/carrier_changes":          "1\n",
	})
	s := New(Options{Sysfs: sys, Interval: DefaultInterval})
	w := &bondWatch{net: filepath.Join(sys, "class/net"), open: s.open, buf: make([]byte, 128), past: map[string]*link{}}
	defer w.close()
	look := func() (counts map[string]uint64) {
		w.until = 0
		counts = map[string]uint64{}
		for _, b := range w.look() {
			counts[strings.TrimSuffix(b.Name+"/"+b.Member, "/")] = b.Active.Changes + b.Links.Changes
		}
		return counts
	}
	for _, step := range []struct {
		name  string
		files map[string]string
		want  map[string]uint64
	}{
		{"at first", nil, map[string]uint64{"bond0": 0, "bond0/eth0": 0, "bond0/eth1": 0}},
		{"eth0 fails", map[string]string{"bond0/bonding/active_slave": "eth1\n", "eth0/bonding_slave/mii_status": "down\n", "eth0/carrier_changes": "3\n"}, map[string]uint64{"bond0": 1, "bond0/eth0": 1, "bond0/eth1": 0}},
		{"so does eth1", map[string]string{"bond0/bonding/active_slave": "\n", "eth1/bonding_slave/mii_status": "down\n"}, map[string]uint64{"bond0": 1, "bond0/eth0": 1, "bond0/eth1": 1}},
		{"eth1 comes", map[string]string{"bond0/bonding/active_slave": "eth1\n", "eth1/bonding_slave/mii_status": "up\n", "eth1/carrier_changes": "6\n"}, map[string]uint64{"bond0": 1, "bond0/eth0": 1, "bond0/eth1": 2}},
		{"eth1 flaps within a second", map[string]string{"eth1/carrier_changes": "8\n"}, map[string]uint64{"bond0": 1, "bond0/eth0": 1, "bond0/eth1": 4}},
		{"a second bond", map[string]string{"bond1/bonding/active_slave": "eth2\n", "bond1/lower_eth2": "-> ../eth2"}, map[string]uint64{"bond0": 1, "bond0/eth0": 1, "bond0/eth1": 4, "bond1": 0, "bond1/eth2": 0}},
	} {
		for path, content := range step.files {
			write(t, content, sys, "class/net", path)
		}
		if diff := cmp.Diff(step.want, look()); diff != "" {
			t.Errorf("%s: -want +got\n%s", step.name, diff)
		}
	}
	if err := os.Remove(filepath.Join(sys, "class/net/bond0/lower_eth0")); err != nil {
		t.Fatal(err)
	}
	delete(look(), "")
	if got := look(); got["bond0/eth1"] != 4 || len(got) != 4 {
		t.Errorf("without eth0: %v", got)
	}
	write(t, "-> ../eth0", sys, "class/net/bond0/lower_eth0")
	if got := look(); got["bond0/eth0"] != 1 {
		t.Errorf("with eth0 again: %v", got)
	}
}
