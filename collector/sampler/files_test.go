package sampler

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// tree writes files below a temporary /sys; "-> x" is a link.
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

// TestHungFile: the read of a real file hangs in the kernel. Other devices are sampled meanwhile, and the device is
// sampled after the read returns.
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
			s.Snapshot(&snap)
			if len(snap.Devices) == 2 && cond() {
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
