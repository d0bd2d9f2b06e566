package sysfstest_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/internal/sysfstest"
)

func TestWrite(t *testing.T) {
	root := sysfstest.Write(t, t.TempDir(), []byte(`A comment, which is no member.
-- sys/devices/pci0000:00/0000:01:00.0/infiniband/mlx5_0/ports/1/state --
4: ACTIVE
-- sys/class/infiniband/mlx5_0 --
-> ../../devices/pci0000:00/0000:01:00.0/infiniband/mlx5_0
-- sys/class/infiniband/mlx5_0/fw_ver --
28.39.1002
-- sys/class/net/ --
-- sys/class/dangling --
-> ../nowhere
-- sys/empty --
-- proc/net/bonding/bond0 --
-> is not the only line
so this is a file
`))
	got := map[string]string{}
	err := filepath.WalkDir(root.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root.Dir, path)
		switch {
		case d.Type() == fs.ModeSymlink:
			target, _ := os.Readlink(path)
			got[name] = "link to " + target
		case d.Type().IsRegular():
			data, _ := os.ReadFile(path)
			got[name] = string(data)
		case name == "sys/class/net":
			got[name] = "directory"
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"sys/devices/pci0000:00/0000:01:00.0/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
		// written through the link
		"sys/devices/pci0000:00/0000:01:00.0/infiniband/mlx5_0/fw_ver": "28.39.1002\n",
		"sys/class/infiniband/mlx5_0": "link to " +
			"../../devices/pci0000:00/0000:01:00.0/infiniband/mlx5_0",
		"sys/class/net":      "directory",
		"sys/class/dangling": "link to ../nowhere",
		"sys/empty":          "",
		"proc/net/bonding/bond0": "-> is not the only line\nso this " +
			"is a file\n",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got, err := sysfs.ReadString(root.Sys("class",
		"infiniband/mlx5_0/ports/1/state")); got != "4: ACTIVE" || err != nil {
		t.Error(got, err)
	}
	if got, want := root.Proc("net"), filepath.Join(root.Dir, "proc/net"); got != want {
		t.Errorf("Proc: %s, want %s", got, want)
	}
}

// The tree for benchmarks must have the right number of devices, 21 and 32 counters, and no two equal values.
func TestWriteMlx5(t *testing.T) {
	sys := t.TempDir()
	if err := sysfstest.WriteMlx5(sys, 10); err != nil {
		t.Fatal(err)
	}
	type device struct{ Counters, HWCounters int }
	got, want := map[string]device{}, map[string]device{}
	values := map[uint64]string{}
	count := func(dir string) int {
		list, err := sysfs.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			path := filepath.Join(dir, e.Name)
			v, err := sysfs.ReadUint(path)
			if err != nil {
				t.Fatal(err)
			}
			if other, twice := values[v]; twice {
				t.Errorf("%s and %s are both %d", other, path, v)
			}
			values[v] = path
		}
		return len(list)
	}
	devices, err := sysfs.List(filepath.Join(sys, "class/infiniband"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range devices {
		port := filepath.Join(sys, "class/infiniband", e.Name, "ports/1")
		got[e.Name] = device{count(filepath.Join(port, "counters")), count(filepath.Join(port, "hw_counters"))}
	}
	for _, name := range []string{"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7",
		"mlx5_8", "mlx5_9"} {
		want[name] = device{21, 32}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
