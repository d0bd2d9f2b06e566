package exporter

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/lane/lanetest"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/bond"
	"github.com/railscope/railscope/collector/nccl"
	"github.com/railscope/railscope/collector/netdev"
	"github.com/railscope/railscope/collector/pcie"
	"github.com/railscope/railscope/collector/rdma"
	"github.com/railscope/railscope/collector/sampler"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/sysfstest"
)

var update = flag.Bool("update", false, "write the goldens and docs/metrics.md anew")

// allSources are the sources as cmd/railscope makes them, over a captured tree.
func allSources(t testing.TB, root sysfstest.Root) []collector.Source {
	t.Helper()
	const budget = time.Second
	finder := rail.NewFinder(root.Sys(), rail.Options{}, nil, budget)
	return []collector.Source{
		rdma.New(root.Sys(), finder.Rails, budget),
		bond.New(root.Sys(), root.Proc(), finder.Rails, budget),
		netdev.New(root.Sys(), finder.Rails, budget),
		pcie.New(root.Sys(), finder.Rails, budget),
		collector.NewGPU(root.Proc(), noLibrary{}, collector.GPUOptions{Budget: budget}),
		collector.NewGPUDirect(root.Sys(), root.Proc(), budget),
		collector.NewProcess(collector.ProcessOptions{Sysfs: root.Sys(), Procfs: root.Proc(), Rootfs: root.Dir, Rails: finder.Rails, NVML: noLibrary{},
			Kernel: func() collector.ProcessKernel { return queuePairs{root.Dir} }, Budget: budget}),
		ncclLogs(t, root),
	}
}

// queuePairs are those of a capture: one for each file qps/DEVICE/NUMBER, which
// holds port, state and thread.
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

// ncclLogs has read the logs of a capture; what they grow by is for the tests of
// package nccl.
func ncclLogs(t testing.TB, root sysfstest.Root) *nccl.Source {
	t.Helper()
	logs, err := nccl.New([]string{filepath.Join(root.Dir, "log/*.log")})
	if err != nil {
		t.Fatal(err)
	}
	logs.Pass()
	return logs
}

// noLibrary is a machine without NVML, whether or not we are built with cgo.
type noLibrary struct{ collector.NVML }

func (noLibrary) Open() error {
	return &collector.NVMLError{Call: "dlopen", Code: collector.CodeLibrary, Err: os.ErrNotExist}
}

func testScraper(t testing.TB, sources []collector.Source) *Scraper {
	t.Helper()
	s, err := NewScraper(sources, Options{
		Budget:  3 * time.Second,
		Logger:  slog.New(slog.DiscardHandler),
		Info:    Info{Version: "0.0.0", Revision: "test", GoVersion: "go"},
		Process: madeUpProcess(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// madeUpProcess is a process that always uses the same.
func madeUpProcess() prometheus.Gatherer {
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "process_cpu_seconds_total"}, func() float64 { return 1 }))
	for name, v := range map[string]float64{"process_open_fds": 9, "process_max_fds": 1024,
		"process_resident_memory_bytes": 1 << 20, "process_start_time_seconds": 946684800, "go_goroutines": 7} {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name}, func() float64 { return v }))
	}
	return reg
}

// TestGolden holds the whole exposition of every captured machine. Time is
// fake, so the durations are 0 and nothing has to be left out. What we write is
// also compared with what client_golang makes of the same series on a pedantic
// registry.
func TestGolden(t *testing.T) {
	captures, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(captures) == 0 {
		t.Fatal("no captures", err)
	}
	for _, capture := range captures {
		t.Run(filepath.Base(capture), func(t *testing.T) {
			root := sysfstest.Unpack(t, capture)
			lanetest.Test(t, func(t *testing.T) {
				s := testScraper(t, allSources(t, root))
				exposed(t, s)
				got := exposed(t, s) // the second scrape: faults have been counted, nothing else has changed
				compareGolden(t, strings.TrimSuffix(capture, ".txtar")+".prom", got)
				if diff := cmp.Diff(string(pedantic(t, s.table)), string(s.table.AppendText(nil))); diff != "" {
					t.Errorf("client_golang writes it differently (-its, +ours):\n%s", diff)
				}
				problems, err := promlint.New(bytes.NewReader(got)).Lint()
				if err != nil || len(problems) > 0 {
					t.Errorf("promlint: %v %v", problems, err)
				}
			})
		})
	}
}

// pedantic is what client_golang writes of a table.
func pedantic(t *testing.T, table *Table) []byte {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(table); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	enc := expfmt.NewEncoder(&b, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
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

// TestDocs holds docs/metrics.md equal to the rows.
func TestDocs(t *testing.T) {
	root := sysfstest.Root{Dir: t.TempDir()}
	compareGolden(t, "../docs/metrics.md", []byte(Docs(append(allSources(t, root), newTestProbe(), NewSampler(func(*sampler.Snapshot) {})))))
}

// exposed is the exposition in the text format.
func exposed(t testing.TB, s *Scraper) []byte {
	t.Helper()
	text, err := s.Exposition(expfmt.NewFormat(expfmt.TypeTextPlain), false)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
