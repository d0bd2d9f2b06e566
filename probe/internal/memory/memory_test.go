//go:build cgo

package memory

import (
	"bytes"
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/testenv"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakegpu"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const (
	size = 3<<20 + 5
	none = "contexts=0 memories=0 hosts=0 streams=0 events=0"
	idle = "inits=0 memories=0 hosts=0 exports=0" // none, of HSA
)

func bytesOf(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i*7 + i>>8)
	}
	return data
}

// TestMemory: memory of each kind starts with zeros, keeps every byte that is written, and leaves nothing behind.
func TestMemory(t *testing.T) {
	libraries := Libraries{CUDA: fakegpu.CUDA(t), HSA: fakegpu.HSA(t)}
	for kind, held := range map[Kind]string{
		Host:        "",
		CUDADMABuf:  "contexts=1 memories=1 hosts=0 streams=0 events=0",
		CUDAPeermem: "contexts=1 memories=1 hosts=0 streams=0 events=0",
		CUDAHost:    "contexts=1 memories=0 hosts=1 streams=0 events=0",
		CUDAStaged:  "contexts=1 memories=1 hosts=1 streams=1 events=32",
		ROCmDMABuf:  "inits=1 memories=1 hosts=0 exports=1",
		ROCmHost:    "inits=1 memories=0 hosts=1 exports=0",
	} {
		t.Run(string(kind), func(t *testing.T) {
			ledger := fakegpu.Ledger(t)
			m, err := Map(Spec{kind, size, fakegpu.GPU, size, libraries})
			if err != nil {
				t.Fatal(err)
			}
			if got := ledger(); got != held || m.Kind() != kind {
				t.Errorf("%s, allocated %q, want %q", m.Kind(), got, held)
			}
			equal(t, m, 0, make([]byte, size))
			area := m.Area()
			exports := kind == CUDADMABuf || kind == ROCmDMABuf
			if area.Size != size || area.Addr == 0 || area.Device != (exports || kind == CUDAPeermem) ||
				(area.DMABuf >= 0) != exports || (area.Offset > 0) != (kind == ROCmDMABuf) {
				t.Errorf("area %+v", area)
			}
			if kind == CUDAStaged { // bytes that arrive on the host are copied to the GPU
				data, own := bytesOf(size), m.(*gpu)
				fill(t, m, 0, bytesOf(100))
				copy(own.Host(), data)
				equal(t, m, 5, data[5:])
				onGPU := make([]byte, 10)
				if err := own.allocation.Read(5, onGPU); err != nil || !bytes.Equal(onGPU, data[5:15]) {
					t.Errorf("on the GPU: %x, %v", onGPU, err)
				}
			} else {
				data := bytesOf(size - 100)
				fill(t, m, 99, data)
				equal(t, m, 99, data)
				equal(t, m, 0, make([]byte, 99))
				equal(t, m, size-1, []byte{0})
			}
			for _, at := range []int64{-1, size, math.MaxInt64} {
				if _, err := m.Read(at, 1); m.Write(at, []byte{1}) == nil || err == nil {
					t.Errorf("byte %d exists", at)
				}
			}
			if exports {
				exported(t, m)
			}
			if err := errors.Join(m.Close(), m.Close()); err != nil {
				t.Error(err)
			}
			if got := ledger(); kind != Host && got != none && got != idle {
				t.Errorf("after Close: %s", got)
			}
			if _, err := unix.FcntlInt(uintptr(max(area.DMABuf, 0)), unix.F_GETFD, 0); area.DMABuf > 0 && err == nil {
				t.Error("the dma-buf is open after Close")
			}
		})
	}
}

func fill(t *testing.T, m Memory, at int64, data []byte) {
	t.Helper()
	if err := m.Write(at, data); err != nil {
		t.Fatal(err)
	}
}

func equal(t *testing.T, m Memory, at int64, want []byte) {
	t.Helper()
	if got, err := m.Read(at, len(want)); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes at %d differ: %v", len(want), at, err)
	}
}

// exported checks that bytes written through the dma-buf are in the memory.
func exported(t *testing.T, m Memory) {
	t.Helper()
	area := m.Area()
	mapped, err := unix.Mmap(area.DMABuf, int64(area.Offset), size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mapped) }()
	data := bytesOf(size)
	copy(mapped, data)
	equal(t, m, 0, data)
}

// reasonTest is a failure of [Map].
type reasonTest struct {
	name, without, env string // without: missing part of the library; env: knob of the library
	spec               Spec
	reason             failure.Reason
	detail             string
}

// TestReasons: failures of libcuda name what is missing, and leave nothing behind.
func TestReasons(t *testing.T) {
	without := map[string]Libraries{}
	for name, path := range map[string]string{"": fakegpu.CUDA(t), "NO_EXPORT": fakegpu.CUDA(t, "-DNO_EXPORT"),
		"NO_ALLOC": fakegpu.CUDA(t, "-DNO_ALLOC"), "FILE": "/nonexistent/libcuda.so.1"} {
		without[name] = Libraries{CUDA: path}
	}
	checkReasons(t, "FAKECUDA_", without, []reasonTest{
		{"no library", "FILE", "", Spec{Kind: CUDAHost}, failure.NoLibCUDA, "/nonexistent/libcuda.so.1"},
		{"no function", "NO_ALLOC", "", Spec{Kind: CUDAHost}, failure.NoLibCUDA, "has no cuMemAlloc_v2"},
		{"stub", "", "FAIL=cuInit:34", Spec{Kind: CUDAHost}, failure.NoLibCUDA, "CUDA_ERROR_STUB_LIBRARY"},
		{"no device", "", "FAIL=cuInit:100", Spec{Kind: CUDAHost}, failure.NoGPU, "cuInit: CUDA_ERROR_NO_DEVICE"},
		{"other GPU", "", "", Spec{Kind: CUDAHost, GPU: "0000:01:00.0"}, failure.NoGPU, "not among the 2 GPUs"},
		{"integrated", "", "INTEGRATED=1", Spec{Kind: CUDADMABuf}, failure.UnifiedMemory, "use host memory"},
		{"integrated", "", "INTEGRATED=1", Spec{Kind: CUDAPeermem}, failure.UnifiedMemory, "use host memory"},
		{"no export", "NO_EXPORT", "", Spec{Kind: CUDADMABuf}, failure.NoDMABuf, "CUDA 12.4: cuda_dmabuf: libcuda has no"},
		{"attribute 124", "", "NO_DMABUF=1", Spec{Kind: CUDADMABuf}, failure.NoDMABuf, "open kernel modules"},
		{"older driver", "", "FAIL=cuDeviceGetAttribute:1", Spec{Kind: CUDADMABuf}, failure.NoDMABuf, "exports no dma-buf"},
		{"attribute 116", "", "NO_RDMA=1", Spec{Kind: CUDAPeermem}, failure.NoPeermem, "GPUDirect RDMA"},
		{"export fails", "", "FAIL=cuMemGetHandleForAddressRange:801", Spec{Kind: CUDADMABuf}, failure.NoDMABuf,
			"GPU 0000:b3:00.0: cuMemGetHandleForAddressRange: CUDA_ERROR_NOT_SUPPORTED (CUDA error 801)"},
		{"too large", "", "", Spec{Kind: CUDAPeermem, Size: 65 << 20}, failure.CUDAOOM, "cuMemAlloc_v2"},
		{"context", "", "FAIL=cuDevicePrimaryCtxRetain:2", Spec{Kind: CUDAHost}, failure.CUDAOOM, "PrimaryCtxRetain"},
		{"pinned", "", "FAIL=cuMemHostAlloc:2", Spec{Kind: CUDAStaged, Stage: 2}, failure.CUDAOOM, "cuMemHostAlloc"},
		{"attribute", "", "FAIL=cuDeviceGetAttribute:999", Spec{Kind: CUDAHost}, failure.CUDAError, "CUDA_ERROR_UNKNOWN"},
		{"push", "", "FAIL=cuCtxPushCurrent_v2:777", Spec{Kind: CUDAHost}, failure.CUDAError,
			"unknown error (CUDA error 777)"},
		{"event", "", "FAIL=cuEventCreate:999", Spec{Kind: CUDAStaged, Stage: 2}, failure.CUDAError, "cuEventCreate"},
		{"memset", "", "FAIL=cuMemsetD8_v2:999", Spec{Kind: CUDADMABuf}, failure.CUDAError, "cuMemsetD8_v2"},
		{"no stage", "", "", Spec{Kind: CUDAStaged}, failure.Other, "0 bytes on the host"},
		{"kind", "", "", Spec{Kind: "vram"}, failure.Other, `"vram"`},
		{"size", "", "", Spec{Kind: Host, Size: -1}, failure.Other, "-1 bytes"},
	})
}

// TestReasonsROCm: failures of libhsa name what is missing, and leave nothing behind.
func TestReasonsROCm(t *testing.T) {
	without := map[string]Libraries{}
	for name, path := range map[string]string{"": fakegpu.HSA(t), "NO_EXPORT": fakegpu.HSA(t, "-DNO_EXPORT"),
		"NO_ALLOCATE": fakegpu.HSA(t, "-DNO_ALLOCATE"), "FILE": "/nonexistent/libhsa-runtime64.so.1"} {
		without[name] = Libraries{HSA: path}
	}
	checkReasons(t, "FAKEHSA_", without, []reasonTest{
		{"no library", "FILE", "", Spec{Kind: ROCmHost}, failure.NoLibHSA, "/nonexistent/libhsa-runtime64.so.1"},
		{"no function", "NO_ALLOCATE", "", Spec{Kind: ROCmHost}, failure.NoLibHSA, "no hsa_amd_memory_pool_allocate"},
		{"no device", "", "FAIL=hsa_init:0x1008", Spec{Kind: ROCmHost}, failure.NoGPU,
			"hsa_init: HSA_STATUS_ERROR_OUT_OF_RESOURCES: this process needs /dev/kfd"},
		{"other GPU", "", "", Spec{Kind: ROCmHost, GPU: "0000:01:00.0"}, failure.NoGPU, "not among the 4 GPUs of ROCm"},
		{"no address", "", "", Spec{Kind: ROCmHost, GPU: "-"}, failure.NoGPU, "not among the 0 GPUs"},
		{"other function", "", "", Spec{Kind: ROCmHost, GPU: "0000:b3:00.1"}, failure.NoGPU, "not among the 4 GPUs"},
		{"agents", "", "FAIL=hsa_iterate_agents:0x1000", Spec{Kind: ROCmHost}, failure.ROCmError,
			"GPU 0000:b3:00.0: hsa_iterate_agents: HSA_STATUS_ERROR (HSA status 0x1000)"},
		{"agent", "", "FAIL=hsa_agent_get_info:0x1000", Spec{Kind: ROCmHost}, failure.ROCmError, "hsa_agent_get_info"},
		{"pool", "", "FAIL=hsa_amd_memory_pool_get_info:0x1000", Spec{Kind: ROCmHost}, failure.ROCmError,
			"hsa_amd_memory_pool_get_info"},
		{"pools", "", "FAIL=hsa_amd_agent_iterate_memory_pools:0x1000", Spec{Kind: ROCmHost}, failure.ROCmError,
			"hsa_amd_agent_iterate_memory_pools"},
		{"no pool", "", "NO_POOL=1", Spec{Kind: ROCmDMABuf}, failure.UnifiedMemory, "use host memory"},
		{"no export", "NO_EXPORT", "", Spec{Kind: ROCmDMABuf}, failure.NoDMABuf, "install a newer ROCm"},
		{"export refused", "", "FAIL=hsa_amd_portable_export_dmabuf:0x1008", Spec{Kind: ROCmDMABuf}, failure.NoDMABuf,
			"hsa_amd_portable_export_dmabuf: HSA_STATUS_ERROR_OUT_OF_RESOURCES"},
		{"too large", "", "", Spec{Kind: ROCmDMABuf, Size: 65 << 20}, failure.ROCmOOM, "hsa_amd_memory_pool_allocate"},
		{"lock", "", "FAIL=hsa_amd_memory_lock:0x1008", Spec{Kind: ROCmHost}, failure.ROCmOOM, "hsa_amd_memory_lock"},
		{"elsewhere", "", "ELSEWHERE=1", Spec{Kind: ROCmDMABuf}, failure.ROCmError, "the memory is not on this GPU"},
		{"pointer", "", "FAIL=hsa_amd_pointer_info:0x1000", Spec{Kind: ROCmDMABuf}, failure.ROCmError, "pointer_info"},
		{"fill", "", "FAIL=hsa_amd_memory_fill:0x2777", Spec{Kind: ROCmDMABuf}, failure.ROCmError,
			"hsa_amd_memory_fill: unknown error (HSA status 0x2777)"},
	})
}

// TestSickAgent: a GPU that cannot be asked, and a pool, hide no other.
func TestSickAgent(t *testing.T) {
	t.Setenv("FAKEHSA_SICK", "1")
	m, err := Map(Spec{Kind: ROCmDMABuf, GPU: fakegpu.GPU, Size: 4096, Libraries: Libraries{HSA: fakegpu.HSA(t)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

func checkReasons(t *testing.T, prefix string, without map[string]Libraries, tests []reasonTest) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			ledger := fakegpu.Ledger(t)
			if knob, value, set := strings.Cut(test.env, "="); set {
				t.Setenv(prefix+knob, value)
			}
			spec := test.spec
			spec.Libraries = without[test.without]
			if spec.Size == 0 {
				spec.Size = 4096
			}
			if spec.GPU == "" {
				spec.GPU = fakegpu.GPU
			}
			before := descriptors(t)
			_, err := Map(spec)
			f, _ := errors.AsType[*failure.Failure](err)
			if f == nil || f.Reason != test.reason || !strings.Contains(f.Detail, test.detail) {
				t.Errorf("%v, want %s and %q", err, test.reason, test.detail)
			}
			if got := ledger(); got != "" && got != none && got != idle {
				t.Errorf("left: %s", got)
			}
			if after := descriptors(t); after != before {
				t.Errorf("%d descriptors, before %d", after, before)
			}
		})
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}
