//go:build cgo

package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakegpu"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/memory"
)

// gpuEnds returns two workers with a rail and a fake GPU each, and a function that lists the allocations of both GPUs.
func gpuEnds(t *testing.T, env ...string) (a, b *Worker, ledger func() string) {
	t.Helper()
	cuda, hsa, dir, f := fakegpu.CUDA(t), fakegpu.HSA(t), t.TempDir(), fakeverbs.New(t)
	worker := func(node string, i int) *Worker {
		f.Add(node, fakeverbs.Device{Name: "mlx5_0", GIDs: fakeverbs.RoCE(fmt.Sprintf("10.0.0.%d", i)),
			Knobs: fakeverbs.Knobs{Rate: 100e6}})
		w, _ := newWorker(t, "worker", slices.Concat(f.Env(node), []string{"RAILSCOPE_LIBCUDA=" + cuda,
			"RAILSCOPE_LIBHSA=" + hsa, "FAKEGPU_LEDGER=" + filepath.Join(dir, node)}, env)...)
		return w
	}
	a, b = worker("a", 1), worker("b", 2)
	return a, b, func() (text string) {
		for _, node := range []string{"a", "b"} {
			data, _ := os.ReadFile(filepath.Join(dir, node)) // without the file nothing was allocated
			text += node + ": " + string(data) + "\n"
		}
		return text
	}
}

func gpuArgs(i int, kind memory.Kind, op Op) OpenArgs {
	args := openArgs(i)
	args.Memory, args.Rails[0].GPU, args.Rails[0].Op = string(kind), fakegpu.GPU, op
	return args
}

// TestGPUMemory: with each kind of memory, written and read bytes arrive in GPU memory and are verified completely, and
// nothing stays allocated.
func TestGPUMemory(t *testing.T) {
	for _, kind := range Memories() {
		kind, none := memory.Kind(kind), "contexts=0 memories=0 hosts=0 streams=0 events=0"
		if slices.Contains(MemoriesOf(true), string(kind)) {
			none = "inits=0 memories=0 hosts=0 exports=0"
		}
		for _, op := range []Op{Write, Read} {
			if kind == memory.CUDAStaged && op == Read {
				continue
			}
			t.Run(fmt.Sprint(kind, " ", op), func(t *testing.T) {
				a, b, ledger := gpuEnds(t)
				asker, target := gpuSessions(t, a, b, kind, op)
				if text := ledger(); text == "a: "+none+"\nb: "+none+"\n" {
					t.Errorf("nothing is allocated: %s", text)
				}
				at := target
				if op == Read {
					at = asker
				}
				for range 2 {
					done, err := burst(t.Context(), asker, size)
					if err != nil || !wrote(done, size) {
						t.Fatal(err, done)
					}
					if v, err := verify(t, at, seed, done, "0"); err != nil || v.Mismatch != -1 || v.Bytes != size {
						t.Errorf("%+v %v", v, err)
					}
				}
				for _, s := range []*Session{asker, target} {
					if _, err := s.Close(); err != nil {
						t.Error(err)
					}
				}
				if text := ledger(); text != "a: "+none+"\nb: "+none+"\n" {
					t.Errorf("left: %s", text)
				}
				if !asker.proc.ended() || a.Restarts() > 0 {
					t.Errorf("a process that has opened GPUs exists, or its end is one of %d failures", a.Restarts())
				}
			})
		}
	}
}

// gpuSessions opens and connects both ends.
func gpuSessions(t *testing.T, a, b *Worker, kind memory.Kind, op Op) (asker, target *Session) {
	t.Helper()
	asker, ours := open(t, a, gpuArgs(1, kind, op))
	target, theirs := open(t, b, gpuArgs(2, kind, op))
	for s, remote := range map[*Session]End{asker: theirs.Ends[0], target: ours.Ends[0]} {
		if c, err := s.Connect(t.Context(), ConnectArgs{RetryCount: 7, Rails: []ConnectRail{{Name: "0",
			Remote: remote, PathMTU: 4096, InFlight: time.Second}}}); err != nil || len(c) > 0 {
			t.Fatal(err, c)
		}
	}
	return asker, target
}

// TestGPUCopyFails: a rail whose copies fail has no figure, and one whose peer cannot copy is not verified.
func TestGPUCopyFails(t *testing.T) {
	a, b, _ := gpuEnds(t, "FAKECUDA_FAIL=cuMemcpyDtoHAsync_v2:999")
	asker, _ := gpuSessions(t, a, b, memory.CUDAStaged, Write)
	done, err := burst(t.Context(), asker, size)
	if err != nil || done.Rails[0].Failure == nil || done.Rails[0].Failure.Reason != failure.CUDAError ||
		done.Rails[0].Rate() != 0 {
		t.Errorf("%v, %+v", err, done)
	}
	a, b, _ = gpuEnds(t, "FAKECUDA_FAIL=cuMemcpyDtoH_v2:999")
	asker, target := gpuSessions(t, a, b, memory.CUDAStaged, Write)
	done, err = burst(t.Context(), asker, size)
	if err != nil || !wrote(done, size) {
		t.Fatal(err, done)
	}
	if _, err := verify(t, target, seed, done, "0"); reason(t, err) != failure.CUDAError {
		t.Error(err)
	}
}

// TestGPUMemoryFails: a rail whose GPU cannot provide the memory reports the reason, and nothing stays allocated.
func TestGPUMemoryFails(t *testing.T) {
	for _, tc := range []struct {
		env  string
		kind memory.Kind
		op   Op
		want failure.Reason
	}{
		{"FAKECUDA_INTEGRATED=1", memory.CUDADMABuf, Write, failure.UnifiedMemory},
		{"FAKECUDA_FAIL=cuMemAlloc_v2:2", memory.CUDADMABuf, Write, failure.CUDAOOM},
		{"FAKECUDA_FAIL=cuMemHostAlloc:2", memory.CUDAStaged, Write, failure.CUDAOOM},
		{"RAILSCOPE_LIBCUDA=/nonexistent/libcuda.so.1", memory.CUDAHost, Write, failure.NoLibCUDA},
		{"RAILSCOPE_LIBHSA=/nonexistent/libhsa-runtime64.so.1", memory.ROCmHost, Read, failure.NoLibHSA},
		{"FAKEHSA_FAIL=hsa_amd_portable_export_dmabuf:0x1000", memory.ROCmDMABuf, Write, failure.NoDMABuf},
		{"", memory.CUDAStaged, Read, failure.Other},
		{"", "cuda_unheard", Write, failure.Other},
	} {
		a, _, _ := gpuEnds(t)
		if tc.env != "" {
			a, _, _ = gpuEnds(t, tc.env)
		}
		s, o, err := a.Open(t.Context(), gpuArgs(1, tc.kind, tc.op))
		if err != nil || o.Ends[0].Failure == nil || o.Ends[0].Failure.Reason != tc.want {
			t.Errorf("%s: %v, %+v, want %s", tc.env, err, o.Ends, tc.want)
		}
		if s != nil {
			_, _ = s.Close()
		}
	}
}
