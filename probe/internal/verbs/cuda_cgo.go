//go:build cgo

package verbs

// #include <stdlib.h>
// #include "cuda.h"
import "C"

import (
	"cmp"
	"unsafe"

	"github.com/railscope/railscope/probe/internal/failure"
)

// CUDA is memory of a GPU, or host memory that the GPU's driver pinned. Only one goroutine may use it at a time.
type CUDA struct {
	c   *C.struct_rs_cuda
	gpu string
}

// CUDAInfo describes the capabilities of a GPU and its driver.
type CUDAInfo struct {
	Driver     int  // 12040 is CUDA 12.4
	Integrated bool // the GPU has no memory of its own
	GPUDirect  bool // adapters may access its memory
	DMABuf     bool // the driver exports it
	Exports    bool // libcuda has the function to export
}

// CUDASpec is the memory to allocate, in bytes: at least one of Device and Host, or both, to copy from Device to Host.
type CUDASpec struct {
	Device int64 // bytes on the GPU
	Export bool  // exports the GPU memory as a dma-buf
	Host   int64 // pinned bytes on the host, on the thread's NUMA node
}

// FindGPU loads libcuda (an empty path: libcuda.so.1) and finds the GPU at a PCI address. It uses no GPU memory.
// Reasons: NoLibCUDA, NoGPU, CUDAError.
func FindGPU(library, gpu string) (*CUDA, CUDAInfo, error) {
	path, address := C.CString(cmp.Or(library, "libcuda.so.1")), C.CString(gpu)
	defer C.free(unsafe.Pointer(path))
	defer C.free(unsafe.Pointer(address))
	m := &CUDA{C.rs_cuda_new(), gpu}
	if m.c == nil {
		return nil, CUDAInfo{}, failure.New("", failure.Other, "out of memory")
	}
	text := make([]byte, 512)
	e := C.rs_cuda_find(m.c, path, address, chars(text), C.uint32_t(len(text)))
	if err := m.check(e, cString(text)); err != nil {
		_ = m.Close()
		return nil, CUDAInfo{}, err
	}
	return m, CUDAInfo{int(m.c.driver), m.c.integrated != 0, m.c.gpu_direct != 0, m.c.dmabuf != 0, m.c.exports != 0},
		nil
}

// Alloc allocates zeroed memory. Reasons: CUDAOOM, NoDMABuf, CUDAError.
func (m *CUDA) Alloc(spec CUDASpec) error {
	return m.check(C.rs_cuda_alloc(m.c, C.uint64_t(spec.Device), C.uint64_t(spec.Host), flag(spec.Export)), "")
}

// Area returns the memory as a device sees it; with memory of both kinds, the host's.
func (m *CUDA) Area() Area {
	if host := m.Host(); host != nil {
		area := AreaOf(host)
		if m.c.gpu != 0 {
			area.Stage = unsafe.Pointer(&m.c.stage)
		}
		return area
	}
	return Area{Addr: uintptr(m.c.gpu), Size: int64(m.c.size), DMABuf: int(m.c.fd), Device: true}
}

// Host returns the memory on the host, nil if there is none.
func (m *CUDA) Host() []byte {
	if m.c.host == nil {
		return nil
	}
	return unsafe.Slice((*byte)(m.c.host), m.c.host_size)
}

// Write copies data to the GPU. When it returns, devices can read it there. The caller checks the bounds.
func (m *CUDA) Write(at int64, data []byte) error {
	p := unsafe.Pointer(unsafe.SliceData(data))
	return m.check(C.rs_cuda_write(m.c, C.uint64_t(at), p, C.uint64_t(len(data))), "")
}

// Read copies data from the GPU. The caller checks the bounds.
func (m *CUDA) Read(at int64, data []byte) error {
	p := unsafe.Pointer(unsafe.SliceData(data))
	return m.check(C.rs_cuda_read(m.c, C.uint64_t(at), p, C.uint64_t(len(data))), "")
}

// Close frees everything, including the context. Closing again does nothing.
func (m *CUDA) Close() error {
	c := m.c
	m.c = nil
	if c == nil {
		return nil
	}
	return m.check(C.rs_cuda_free(c), "")
}

// check converts an error of CUDA into a failure; nil if there is none. text may explain it.
func (m *CUDA) check(e C.struct_rs_gpu_error, text string) error {
	if e.op == nil {
		return nil
	}
	op, name, code := C.GoString(e.op), "unknown error", int(e.code)
	if e.name != nil {
		name = C.GoString(e.name)
	}
	switch {
	case code == 0:
		return failure.New("", failure.NoLibCUDA, "%s: %s; install the NVIDIA driver, in a container with "+
			"NVIDIA_DRIVER_CAPABILITIES=compute", op, text)
	case text != "":
		name = text + ": " + name
	}
	return failure.New("", cudaReason(op, code), "GPU %s: %s: %s (CUDA error %d)", m.gpu, op, name, code)
}

// cudaReason returns the reason for a CUresult of a call.
func cudaReason(op string, code int) failure.Reason {
	for _, known := range []struct {
		op     string // empty for all
		code   int
		reason failure.Reason
	}{
		{"", 2, failure.CUDAOOM},                                 // OUT_OF_MEMORY
		{"", 34, failure.NoLibCUDA},                              // STUB_LIBRARY
		{"", 100, failure.NoGPU},                                 // NO_DEVICE
		{"cuMemGetHandleForAddressRange", 1, failure.NoDMABuf},   // INVALID_VALUE
		{"cuMemGetHandleForAddressRange", 801, failure.NoDMABuf}, // NOT_SUPPORTED
	} {
		if code == known.code && (known.op == "" || known.op == op) {
			return known.reason
		}
	}
	return failure.CUDAError
}
