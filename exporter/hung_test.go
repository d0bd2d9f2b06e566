package exporter

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/collector/rdma"
	"github.com/railscope/railscope/exporter/internal/exportertest"
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

// TestHungFile: a file that never returns, as when a firmware command hangs, affects only its own device and costs
// one budget, once. The device is back when the read returns. The test covers each file of the source.
func TestHungFile(t *testing.T) {
	for file, content := range map[string]string{
		"fw_ver":                             "28.39.1002",
		"ports/1/link_layer":                 "Ethernet",
		"ports/1/counters/port_rcv_data":     "250",
		"ports/1/hw_counters/rp_cnp_handled": "7",
		"ports/1/state":                      "4: ACTIVE",
		"ports/1/rate":                       "400 Gb/sec (4X NDR)",
	} {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			sys, mount := t.TempDir(), t.TempDir()
			if err := sysfstest.WriteMlx5(sys, 3); err != nil {
				t.Fatal(err)
			}
			hung := hungfs.Mount(t, mount, map[string]string{"file": content + "\n"})
			spoil := func() {
				replaceByLink(t, filepath.Join(sys, "class/infiniband/mlx5_1", file), filepath.Join(mount, "file"))
			}

			const budget = 3 * time.Second
			finder := rail.NewFinder(sys, rail.Options{}, nil, budget)
			s := exportertest.Within(t, 2*budget, rdma.New(sys, finder.Snapshot, budget))

			if strings.Contains(file, "link_layer") || file == "fw_ver" {
				spoil() // read when the device is opened
			} else {
				exportertest.Text(t, s) // a normal scrape first: none of its series may remain when the device hangs
				spoil()
				time.Sleep(1100 * time.Millisecond) // a file of a captured tree is looked for once a second
			}
			series := func(device string) int {
				return strings.Count(string(exportertest.Text(t, s)), `device="`+device+`",port="1"`)
			}
			whole := series("mlx5_0") // the first scrape that reads it waits
			if hung.Waiting() != 1 {
				t.Fatalf("%d reads hang, not 1", hung.Waiting())
			}
			start := time.Now()
			text := string(exportertest.Text(t, s))
			if took := time.Since(start); took >= budget {
				t.Errorf("the second scrape took %v: it waited for a read that is known to hang", took)
			}
			if n := strings.Count(text, `device="mlx5_1"`); n != 1 || !strings.Contains(text,
				`railscope_source_errors_total{device="mlx5_1",reason="timeout",source="rdma"} 2`) {
				t.Errorf("the hung device has %d series; it must have none but its count of timeouts", n)
			}
			if n := strings.Count(text, `device="mlx5_2",port="1"`); n != whole || whole < 50 {
				t.Errorf("another device has %d series, the first had %d", n, whole)
			}
			if hung.Waiting() != 1 {
				t.Errorf("%d reads hang: a second one was started", hung.Waiting())
			}
			hung.Release()
			for deadline := time.Now().Add(20 * time.Second); series("mlx5_1") != whole; time.Sleep(5 *
				time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("the device did not come back: %d series, want %d", series("mlx5_1"), whole)
				}
			}
		})
	}
}

func replaceByLink(t *testing.T, path, target string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}
