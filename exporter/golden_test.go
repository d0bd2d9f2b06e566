package exporter

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/bond"
	"github.com/railscope/railscope/collector/events"
	"github.com/railscope/railscope/collector/gpu"
	"github.com/railscope/railscope/collector/gpudirect"
	"github.com/railscope/railscope/collector/kmsg"
	"github.com/railscope/railscope/collector/lldp"
	"github.com/railscope/railscope/collector/nccl"
	"github.com/railscope/railscope/collector/netdev"
	"github.com/railscope/railscope/collector/pcie"
	"github.com/railscope/railscope/collector/process"
	"github.com/railscope/railscope/collector/rdma"
	"github.com/railscope/railscope/exporter/internal/exportertest"
	"github.com/railscope/railscope/exporter/scrape"
	"github.com/railscope/railscope/exporter/table"
	"github.com/railscope/railscope/internal/amdgpu"
	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/sysfstest"
)

var update = flag.Bool("update", false, "write the goldens and docs/metrics.md anew")

// allSources returns the sources as cmd/railscope makes them, over a captured tree.
func allSources(t testing.TB, root sysfstest.Root) []collector.Source {
	t.Helper()
	const budget = time.Second
	finder := rail.NewFinder(root.Sys(), rail.Options{}, nil, budget)
	return []collector.Source{
		ports(root, finder, budget),
		bond.New(root.Sys(), root.Proc(), finder.Rails, budget),
		netdev.New(root.Sys(), finder.Rails, budget, nil),
		pcie.New(root.Sys(), finder.Snapshot, budget),
		gpu.New(amdgpu.NewFinder(root.Sys()), root.Proc(), noGPUs(), budget, 0),
		gpudirect.New(root.Sys(), root.Proc(), root.Dir, budget),
		process.New(process.Options{Sysfs: root.Sys(), Procfs: root.Proc(), Rootfs: root.Dir, Rails: finder.Rails,
			NVML:   noGPUs(),
			Kernel: func() process.Kernel { return queuePairs{root.Dir} }, Budget: budget}),
		ncclLogs(t, root),
		kernelLog(t, finder),
		deviceEvents(finder),
		lldp.New(root.Sys(), finder.Rails), // package lldp tests what switches announce
	}
}

// deviceEvents returns a source with events of two ports; package events tests what the kernel announces.
func deviceEvents(finder *rail.Finder) *events.Source {
	s := events.New(events.Options{Rails: finder.Snapshot})
	s.Note("mlx5_0", 1, "port_error", 2)
	s.Note("mlx5_0", 1, "port_active", 2)
	s.Note("rxe0", 1, "gid_changed", 1)
	return s
}

// ports returns the source of the rails of a process that has seen them before.
func ports(root sysfstest.Root, finder *rail.Finder, budget time.Duration) *rdma.Source {
	s := rdma.New(root.Sys(), finder.Snapshot, budget)
	keeper := expect.New(expect.Options{Sysfs: root.Sys(), Find: finder.Snapshot, Budget: budget})
	keeper.Observe()
	keeper.Observe()
	s.Expected = keeper.Expected
	return s
}

// kernelLog returns a source with an empty log; package kmsg tests messages.
func kernelLog(t testing.TB, finder *rail.Finder) *kmsg.Source {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kmsg")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return kmsg.New(kmsg.Options{Path: path, Rails: finder.Rails})
}

// queuePairs are the queue pairs of a capture: one for each file qps/DEVICE/NUMBER, which holds port, state and
// thread.
type queuePairs struct{ dir string }

func (q queuePairs) Close()                       {}
func (q queuePairs) SharedDevices() (bool, error) { return true, nil }
func (q queuePairs) Devices() (names []string, err error) {
	entries, _ := os.ReadDir(filepath.Join(q.dir, "qps"))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

func (q queuePairs) QueuePairs(device string, _ rdmanl.QPLimits, each func(rdmanl.QP)) error {
	files, err := filepath.Glob(filepath.Join(q.dir, "qps", device, "*"))
	for _, file := range files {
		var qp rdmanl.QP
		text, _ := os.ReadFile(file)
		if _, err := fmt.Sscan(string(text), &qp.Port, &qp.State, &qp.PID); err != nil {
			return err
		}
		each(qp)
	}
	return err
}

// ncclLogs returns a source that has read the logs of a capture; package nccl tests logs that grow.
func ncclLogs(t testing.TB, root sysfstest.Root) *nccl.Source {
	t.Helper()
	logs, err := nccl.New([]string{filepath.Join(root.Dir, "log/*.log")})
	if err != nil {
		t.Fatal(err)
	}
	logs.Pass()
	return logs
}

// noLibrary is the NVML of a machine without one, whether or not we are built with cgo.
type noLibrary struct{ nvml.Library }

func noGPUs() *nvml.Session { return nvml.NewSession(noLibrary{}) }

func (noLibrary) Open() error {
	return &nvml.Error{Call: "dlopen", Code: nvml.CodeLibrary, Err: os.ErrNotExist}
}

// TestGolden compares the whole exposition of every captured machine. Time is fake, so durations are 0 and nothing
// has to be omitted. The output is also compared with client_golang's for the same series on a pedantic registry.
func TestGolden(t *testing.T) {
	captures, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(captures) == 0 {
		t.Fatal("no captures", err)
	}
	for _, capture := range captures {
		t.Run(filepath.Base(capture), func(t *testing.T) {
			root := sysfstest.Unpack(t, capture)
			lanetest.Test(t, func(t *testing.T) {
				s := exportertest.Scraper(t, allSources(t, root)...)
				exportertest.Text(t, s)
				// the second scrape: faults have been counted, and nothing else has changed
				got := exportertest.Text(t, s)
				compareGolden(t, strings.TrimSuffix(capture, ".txtar")+".prom", got)
				compareClientGolang(t, s)
				problems, err := promlint.New(bytes.NewReader(got)).Lint()
				if err != nil || len(problems) > 0 {
					t.Errorf("promlint: %v %v", problems, err)
				}
			})
		})
	}
}

func compareGolden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (go test ./exporter -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got; go test ./exporter -update writes it anew):\n%s", file, diff)
	}
}

// compareClientGolang compares our text of the last scrape with client_golang's.
func compareClientGolang(t *testing.T, s *scrape.Scraper) {
	t.Helper()
	s.Update([]string{}, 0, func(series *table.Table, _ map[string]string) {
		if diff := cmp.Diff(exportertest.Pedantic(t, series), string(series.AppendText(nil))); diff != "" {
			t.Errorf("client_golang writes it differently (-its, +ours):\n%s", diff)
		}
	})
}
