package process

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/rdmanl"
)

// TestProcessSlow: a dump that takes longer than a scrape waits does not delay the scrape. The next scrape uses it,
// with its age. It is not repeated at once, and expires.
func TestProcessSlow(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := capture(t, "kubernetes")
		m.nvml.err = &nvml.Error{Call: "dlopen", Code: nvml.CodeLibrary}
		m.kernel.qps["mlx5_0"] = m.kernel.qps["mlx5_0"][:5]
		m.kernel.each = func() { time.Sleep(time.Second) } // 5 s for mlx5_0, 10 s for mlx5_1
		m.kernel.devices = []string{"mlx5_0"}
		p := m.source(0)
		read := func() (took time.Duration, pairs, age float64, lines []string) {
			start := time.Now()
			pairs, age = -1, -1
			err := p.Read(func(s collector.Sample) {
				switch s.Metric.Name {
				case "process_queue_pairs":
					pairs = max(pairs, 0) + s.Value
				case "process_queue_pairs_age_seconds":
					age = s.Value
				}
			})
			for _, f := range collector.Faults(err) {
				lines = append(lines, f.Reason+" "+f.Device)
			}
			return time.Since(start), pairs, age, lines
		}
		took, pairs, _, faults := read()
		if took != time.Second || pairs != -1 || fmt.Sprint(faults) != "[timeout mlx5_0]" {
			t.Errorf("the first read: %v, %v queue pairs, faults %v", took, pairs, faults)
		}
		time.Sleep(14 * time.Second) // the dump ended 10 s ago
		took, pairs, age, faults := read()
		if took > time.Millisecond || pairs != 3 || age != 10 || faults != nil {
			t.Errorf("15 s later: %v, %v queue pairs of age %v, faults %v", took, pairs, age, faults)
		}
		time.Sleep(35 * time.Second) // nine times its duration has passed: it may be repeated
		m.kernel.each = func() { time.Sleep(time.Hour) }
		_, pairs, age, faults = read()
		if pairs != 3 || age != 46 || faults != nil {
			t.Errorf("a dump that hangs: %v queue pairs of age %v, faults %v", pairs, age, faults)
		}
		time.Sleep(2 * time.Minute)
		_, pairs, _, faults = read()
		if pairs != -1 || fmt.Sprint(faults) != "[timeout mlx5_0]" {
			t.Errorf("two minutes later: %v queue pairs, faults %v", pairs, faults)
		}
		time.Sleep(10 * time.Hour) // let it finish
	})
}

// TestProcessMany: 100,000 queue pairs of 64 processes, from a kernel that lists them one by one. It measures the
// time and the heap, garbage included.
func TestProcessMany(t *testing.T) {
	const qps, processes = 100_000, 64
	m := newProcessMachine(t, []byte("-- proc/self/ns/pid --\n-> pid:[4026531836]\n"))
	m.nvml.err = &nvml.Error{Call: "dlopen", Code: nvml.CodeLibrary}
	for pid := range processes {
		id := fmt.Sprint(pid + 10)
		m.task(t, []string{id, id, "1", id, "0", "5", "/", "rank" + id})
	}
	m.kernel.devices = []string{"mlx5_0"}
	runtime.GC()
	var most uint64
	heap := func() uint64 {
		s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	before := heap()
	p := m.source(32)
	p.opts.Kernel = nil
	p.pairs.kernel = func() Kernel { return &manyRDMA{m.kernel, qps, processes, func() { most = max(most, heap()) }} }
	start, sum, series := time.Now(), 0.0, 0
	err := p.Read(func(s collector.Sample) {
		if s.Metric.Name == "process_queue_pairs" {
			sum += s.Value
			series++
		}
	})
	most = max(most, heap())
	grown := float64(most-min(most, before)) / (1 << 20)
	t.Logf("%d queue pairs: %v, at most %.1f MiB of heap", qps, time.Since(start).Round(time.Millisecond), grown)
	if err != nil || sum != qps || series != 32 {
		t.Errorf("%v queue pairs in %d series, %v", sum, series, err)
	}
	if grown > 16 {
		t.Errorf("the heap grew by %.1f MiB", grown)
	}
}

// manyRDMA has many queue pairs on one device.
type manyRDMA struct {
	*fakeRDMA
	qps, processes int
	peek           func()
}

func (k *manyRDMA) QueuePairs(_ string, _ rdmanl.QPLimits, each func(rdmanl.QP)) error {
	for i := range k.qps {
		each(rdmanl.QP{Port: 1, State: rdmanl.RTS, PID: uint32(i%k.processes + 10)})
		if i%1000 == 0 {
			k.peek()
		}
	}
	return nil
}

// TestProcessManyOwners: as many threads as queue pairs; those above the limit are counted and reported.
func TestProcessManyOwners(t *testing.T) {
	m := newProcessMachine(t, []byte("-- proc/self/ns/pid --\n-> pid:[4026531836]\n"))
	m.nvml.err = &nvml.Error{Call: "dlopen", Code: nvml.CodeLibrary}
	var tally qpTally
	tally.owners = map[qpOwner]uint32{}
	for i := range 2 * maxOwner {
		tally.add(rdmanl.QP{PID: uint32(i + 1), State: rdmanl.RTS})
	}
	if len(tally.owners) != maxOwner || tally.rest != maxOwner {
		t.Errorf("%d owners, %d left over", len(tally.owners), tally.rest)
	}
	m.kernel.devices = []string{"mlx5_0"}
	p := m.source(0)
	p.opts.Budget = time.Nanosecond // too short to look up a process
	p.pairs.kernel = func() Kernel { return &manyRDMA{m.kernel, 2 * maxOwner, 2 * maxOwner, func() {}} }
	var last atomic.Pointer[qpTally]
	p.pairs.dump("mlx5_0", &last)
	if got := last.Load(); got == nil || got.cut == nil || !strings.Contains(got.cut.Error(),
		"belong to more than 32768 threads") {
		t.Errorf("%+v", got)
	}
}

// TestProcessDriverReloaded: if every GPU is uninitialized, NVML is initialized again.
func TestProcessDriverReloaded(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := capture(t, "kubernetes")
		p := m.source(0)
		memory := func() (series int) {
			_ = p.Read(func(s collector.Sample) {
				if s.Metric.Name == "process_gpu_memory_bytes" {
					series++
				}
			})
			return series
		}
		if n := memory(); n != 4 || m.nvml.opens != 1 {
			t.Fatalf("%d series, opened %d times", n, m.nvml.opens)
		}
		for _, gpu := range m.nvml.gpus {
			gpu.err = &nvml.Error{Call: "nvmlDeviceGetComputeRunningProcesses", Code: nvml.CodeUninitialized}
		}
		time.Sleep(2 * time.Minute)
		if n := memory(); n != 0 || m.nvml.opens != 1 {
			t.Fatalf("the driver is gone: %d series, opened %d times", n, m.nvml.opens)
		}
		for _, gpu := range m.nvml.gpus {
			gpu.err = nil
		}
		if n := memory(); n != 4 || m.nvml.opens != 2 {
			t.Errorf("it is back: %d series, opened %d times", n, m.nvml.opens)
		}
	})
}
