package rdma

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/sysfs"
)

// TestRDMARefusedFile: a file that returns EINVAL is not a failure of the source. It is counted, and then not read
// for a minute, because each attempt may be a firmware command. The loopback interface's speed returns EINVAL on
// every machine.
func TestRDMARefusedFile(t *testing.T) {
	const speed = "/sys/class/net/lo/speed"
	if _, err := os.ReadFile(speed); !errors.Is(err, unix.EINVAL) {
		t.Skipf("%s: %v", speed, err)
	}
	lanetest.Test(t, func(t *testing.T) {
		tree := newRDMATree(t)
		whole, _ := tree.read()
		path := tree.port(1, "counters/VL15_dropped")
		if err := errors.Join(os.Remove(path), os.Symlink(speed, path)); err != nil {
			t.Fatal(err)
		}
		delete(whole, "port_vl15_dropped_total 1 mlx5_1 1")
		device := filepath.Join(tree.sys, "class/infiniband/mlx5_1")
		tree.replace(device)
		for _, step := range []struct {
			wait   time.Duration
			faults []string
		}{
			{0, []string{"mlx5_1 unsupported"}},
			{0, nil},
			{2 * sysfs.RefusedFor, nil},
			{time.Hour, nil},
		} {
			time.Sleep(step.wait)
			got, faults := tree.read()
			if diff := cmp.Diff(step.faults, faults); diff != "" {
				t.Errorf("after %v: faults (-want +got):\n%s", step.wait, diff)
			}
			if diff := cmp.Diff(whole, got); diff != "" {
				t.Errorf("after %v (-want +got):\n%s", step.wait, diff)
			}
		}
		if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte("5\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		const series = "port_vl15_dropped_total 1 mlx5_1 1"
		time.Sleep(2 * sysfs.RefusedFor)
		if got, _ := tree.read(); got[series] == 5 {
			t.Error("read again although the driver refused it")
		}
		tree.replace(device)
		if got, faults := tree.read(); got[series] != 5 || len(faults) > 0 {
			t.Errorf("of a new device: %v, %v", got[series], faults)
		}
		tree.write(path, "N/A\n") // it answered once, so the state is temporary
		if _, faults := tree.read(); !cmp.Equal([]string{"mlx5_1 unsupported"}, faults) {
			t.Errorf("refused for a while: %v", faults)
		}
		tree.write(path, "6\n")
		time.Sleep(sysfs.RefusedFor)
		if got, faults := tree.read(); got[series] != 6 || len(faults) > 0 {
			t.Errorf("when it answers again: %v, %v", got[series], faults)
		}
	})
}

// TestRDMAGIDChanges: entries that appear, disappear or change in a GID table are counted, also across the removal
// of the device.
func TestRDMAGIDChanges(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		tree := newRDMATree(t)
		set := func(index, gid, typ, netdev string) {
			for name, content := range map[string]string{"gids": gid, "gid_attrs/types": typ,
				"gid_attrs/ndevs": netdev} {
				path := tree.port(0, name, index)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				tree.write(path, content+"\n")
			}
		}
		const zero, v4, other = "0000:0000:0000:0000:0000:0000:0000:0000", "0000:0000:0000:0000:0000:ffff:0a00:0001",
			"0000:0000:0000:0000:0000:ffff:0a00:0002"
		set("0", v4, "RoCE v2", "eth7")
		set("1", zero, "", "")
		device := filepath.Join(tree.sys, "class/infiniband/mlx5_0")
		for _, step := range []struct {
			name string
			do   func()
			want float64
		}{
			{"at first", func() {}, 0},
			{"nothing", func() {}, 0},
			{"one more", func() { set("1", other, "RoCE v2", "eth7") }, 1},
			{"moved to a bond", func() { set("0", v4, "RoCE v2", "bond0") }, 2},
			{"another type", func() { set("0", v4, "IB/RoCE v1", "bond0") }, 3},
			{"both gone", func() { set("0", zero, "", ""); set("1", zero, "", "") }, 5},
			{"device gone and back with one", func() {
				tree.replace(device)
				set("0", v4, "RoCE v2", "eth7")
			}, 6},
		} {
			step.do()
			time.Sleep(collector.FactsEvery)
			if got, faults := tree.read(); got["gid_changes_total 0 mlx5_0 1"] != step.want || len(faults) > 0 {
				t.Errorf("%s: %v changes, want %v; %v", step.name, got["gid_changes_total 0 mlx5_0 1"],
					step.want, faults)
			}
		}
	})
}
