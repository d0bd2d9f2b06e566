//go:build cgo

package verbs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakegpu"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/pattern"
	"github.com/railscope/railscope/probe/internal/transfer"
)

const nothing = "contexts=0 memories=0 hosts=0 streams=0 events=0"

// staged returns rails whose source is on a GPU and is copied to the host before writes.
func staged(t *testing.T, library string, rails, queuePairs, ring int, knobs fakeverbs.Knobs) *ends {
	t.Helper()
	ledger := fakegpu.Ledger(t)
	var memory []*CUDA
	var areas []Area
	t.Cleanup(func() { // runs after the rails are closed
		for _, m := range memory {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
		if got := ledger(); got != nothing {
			t.Errorf("after Close: %s", got)
		}
	})
	source := make([]byte, transfer.SourceLen)
	pattern.Fill(source, seed, 0)
	for range rails {
		m, _, err := FindGPU(library, fakegpu.GPU)
		if err != nil {
			t.Fatal(err)
		}
		memory = append(memory, m)
		if err := errors.Join(m.Alloc(CUDASpec{Device: transfer.SourceLen, Host: int64(ring * queuePairs)}),
			m.Write(0, source)); err != nil {
			t.Fatal(err)
		}
		areas = append(areas, m.Area())
	}
	return connectedFrom(t, areas, Spec{QueuePairs: queuePairs, Depth: 64}, ring,
		slices.Repeat([]fakeverbs.Knobs{knobs},
			rails)...)
}

// TestStaged: every byte of a rail's writes is on the host before the write, in every place of the rings and however
// many copies fit. The loop calls nothing that waits for a copy.
func TestStaged(t *testing.T) {
	const chunk = 8192
	library := fakegpu.CUDA(t)
	for _, tc := range []struct {
		rails, queuePairs, slots, depth int
		waits                           string
	}{
		{1, 1, 128, 64, "cuStreamSynchronize"}, {1, 1, 2, 8, "cuCtxSynchronize"}, {1, 1, 1, 8, "cuMemcpyDtoH_v2"},
		{1, 4, 3, 16, "cuStreamSynchronize"}, {2, 2, 40, 40, "cuCtxSynchronize"}, {3, 3, 5, 7, "cuMemcpyDtoH_v2"},
	} {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			e := staged(t, library, tc.rails, tc.queuePairs, tc.slots*chunk,
				fakeverbs.Knobs{Rate: 200e6, Latency: 100 * time.Microsecond})
			t.Setenv("FAKECUDA_FAIL", tc.waits+":999")
			for range 2 {
				if got, err := e.burst(e.single(chunk, tc.queuePairs)); err != nil || got.Failed() {
					t.Fatal(err, got)
				}
				o := transfer.BurstArgs{Loads: e.loads(chunk, tc.depth), Window: 20 * time.Millisecond, Writes: 32}
				if got, err := e.burst(o); err != nil || got.Failed() || got.Rails[0].Bytes < 32*chunk {
					t.Fatal(err, got)
				}
				if samples, _, err := e.run.Latency(e.rails[0], 8, 10, time.Second); err != nil || len(samples) != 10 {
					t.Fatal(err, samples)
				}
				copy(e.want[0], e.memory[0].Bytes()) // expected content of the rings
			}
			t.Setenv("FAKECUDA_FAIL", "")
		})
	}
}

// TestStagedFails: a copy that fails or never completes is a failure of its rail, with CUDA's error and no figure.
func TestStagedFails(t *testing.T) {
	library := fakegpu.CUDA(t)
	for fail, want := range map[string]struct {
		reason failure.Reason
		detail string
	}{
		"cuMemcpyDtoHAsync_v2:999": {failure.CUDAError, "cuMemcpyDtoHAsync_v2: CUDA_ERROR_UNKNOWN (CUDA error 999)"},
		"cuEventQuery:999":         {failure.CUDAError, "mlx5_0: cuEventQuery: CUDA_ERROR_UNKNOWN"},
		"cuEventRecord:999":        {failure.CUDAError, "cuEventRecord"},
		"cuCtxPushCurrent_v2:999":  {failure.CUDAError, "cuCtxPushCurrent_v2"},
		"cuEventQuery:600":         {failure.Timeout, "write: not completed in time"},
	} {
		for what, do := range map[string]func(*ends) error{
			"latency": func(e *ends) error {
				samples, _, err := e.run.Latency(e.rails[0], 8, 10, 100*time.Millisecond)
				if len(samples) > 0 {
					t.Error(samples)
				}
				return err
			},
			"one write": func(e *ends) error { return e.failing(transfer.BurstArgs{}) },
			"burst": func(e *ends) error {
				return e.failing(transfer.BurstArgs{Window: 10 * time.Millisecond, Writes: 32})
			},
		} {
			t.Run(fail+" "+what, func(t *testing.T) {
				e := staged(t, library, 1, 1, 1<<20, fakeverbs.Knobs{})
				t.Setenv("FAKECUDA_FAIL", fail)
				if err := do(e); reason(err) != want.reason || !strings.Contains(err.Error(), want.detail) {
					t.Errorf("%v, want %s with %q", err, want.reason, want.detail)
				}
				t.Setenv("FAKECUDA_FAIL", "")
			})
		}
	}
}

// failing makes a burst without a figure.
func (e *ends) failing(o transfer.BurstArgs) error {
	o.Loads, o.Slow, o.Deadline = e.loads(4096, 16), time.Second, 100*time.Millisecond
	got, err := e.write(o)
	for _, r := range got.Rails {
		if r.Failure == nil || r.Measured != 0 || r.Rate() != 0 {
			e.t.Errorf("%+v", r)
		}
	}
	return err
}

// TestStagedCancel: copies that never complete do not block a canceled run.
func TestStagedCancel(t *testing.T) {
	e := staged(t, fakegpu.CUDA(t), 1, 1, 1<<20, fakeverbs.Knobs{})
	t.Setenv("FAKECUDA_FAIL", "cuEventQuery:600")
	e.run.Cancel()
	_, _, latency := e.run.Latency(e.rails[0], 8, 10, 10*time.Second)
	_, err := e.write(transfer.BurstArgs{Loads: e.loads(4096, 16), Window: time.Second, Writes: 32})
	if reason(latency) != failure.Canceled || reason(err) != failure.Canceled {
		t.Error(latency, err)
	}
	t.Setenv("FAKECUDA_FAIL", "")
}

// TestStagedOutside: copies stay inside the memory, and a rail refuses memory that cannot be its source.
func TestStagedOutside(t *testing.T) {
	ledger := fakegpu.Ledger(t)
	m, _, err := FindGPU(fakegpu.CUDA(t), fakegpu.GPU)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Alloc(CUDASpec{Device: 4096, Host: 64 << 10}); err != nil { // smaller than a source
		t.Fatal(err)
	}
	e := connectedFrom(t, []Area{m.Area()}, Spec{QueuePairs: 1, Depth: 8}, 64<<10, fakeverbs.Knobs{})
	got, err := e.run.Burst(e.rails, transfer.BurstArgs{Loads: e.loads(8192, 8), Slow: time.Second,
		Deadline: time.Second})
	if err == nil || !strings.Contains(err.Error(), "copy outside memory") || got.Rails[0].Bytes != 0 {
		t.Error(err, got)
	}
	for _, spec := range []Spec{{Op: transfer.Read}, {Stamps: true}} {
		r := &Rail{c: e.rails[0].c, spec: spec}
		if err := r.Register(m.Area()); reason(err) != failure.Other {
			t.Errorf("%+v: %v", spec, err)
		}
	}
	e.close()
	if err := m.Close(); err != nil || ledger() != nothing {
		t.Error(err, ledger())
	}
}

// TestCloseFails: Close frees the rest, and returns the failure.
func TestCloseFails(t *testing.T) {
	ledger := fakegpu.Ledger(t)
	m, _, err := FindGPU(fakegpu.CUDA(t), fakegpu.GPU)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Alloc(CUDASpec{Device: 1, Host: 1}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAKECUDA_FAIL", "cuMemFree_v2:999")
	if err := m.Close(); err == nil {
		t.Error("no error")
	}
	if got := ledger(); got != "contexts=0 memories=1 hosts=0 streams=0 events=0" {
		t.Errorf("after Close: %s", got)
	}
}
