//go:build cgo

package verbs

// #include <stdlib.h>
// #include "rocm.h"
import "C"

import (
	"cmp"
	"errors"
	"strings"
	"unsafe"

	"github.com/railscope/railscope/probe/internal/failure"
)

// ROCm is memory of an AMD GPU, or host memory that the GPU may access. Only one goroutine may use it at a time.
type ROCm struct {
	c    *C.struct_rs_rocm
	gpu  string
	host *Buffer // nil if there is none
}

// ROCmInfo describes the capabilities of a GPU and its library.
type ROCmInfo struct {
	Pool    bool // the GPU has memory of its own that can be allocated
	Exports bool // libhsa has the functions to export it
}

// FindROCmGPU loads libhsa-runtime64 (an empty path: libhsa-runtime64.so.1) and finds the GPU at a PCI address. It
// uses no GPU memory. Reasons: NoLibHSA, NoGPU, ROCmError.
func FindROCmGPU(library, gpu string) (*ROCm, ROCmInfo, error) {
	path, address := C.CString(cmp.Or(library, "libhsa-runtime64.so.1")), C.CString(gpu)
	defer C.free(unsafe.Pointer(path))
	defer C.free(unsafe.Pointer(address))
	m := &ROCm{c: C.rs_rocm_new(), gpu: gpu}
	if m.c == nil {
		return nil, ROCmInfo{}, failure.New("", failure.Other, "out of memory")
	}
	text := make([]byte, 512)
	e := C.rs_rocm_find(m.c, path, address, chars(text), C.uint32_t(len(text)))
	if err := m.check(e, cString(text)); err != nil {
		_ = m.Close()
		return nil, ROCmInfo{}, err
	}
	return m, ROCmInfo{Pool: m.c.pools > 0, Exports: m.c.exports != 0}, nil
}

// Alloc allocates zeroed memory on the GPU and exports it as a dma-buf. Reasons: ROCmOOM, NoDMABuf, ROCmError.
func (m *ROCm) Alloc(size int64) error {
	return m.check(C.rs_rocm_alloc(m.c, C.uint64_t(size)), "")
}

// AllocHost allocates zeroed memory on the host, on the thread's NUMA node, and lets the GPU access it. Reasons:
// ROCmOOM, ROCmError, Other.
func (m *ROCm) AllocHost(size int64) error {
	b, err := NewBuffer(int(size))
	if err != nil {
		return err
	}
	m.host = b
	return m.check(C.rs_rocm_lock(m.c, unsafe.Pointer(unsafe.SliceData(b.Bytes())), C.uint64_t(size)), "")
}

// Area returns the memory as a device sees it.
func (m *ROCm) Area() Area {
	if host := m.Host(); host != nil {
		return AreaOf(host)
	}
	return Area{Addr: uintptr(m.c.gpu), Size: int64(m.c.size), DMABuf: int(m.c.fd), Offset: uint64(m.c.offset),
		Device: true}
}

// Host returns the memory on the host, nil if there is none.
func (m *ROCm) Host() []byte {
	if m.host == nil {
		return nil
	}
	return m.host.Bytes()
}

// Write copies data to the GPU. When it returns, devices can read it there. The caller checks the bounds.
func (m *ROCm) Write(at int64, data []byte) error {
	p := unsafe.Pointer(unsafe.SliceData(data))
	return m.check(C.rs_rocm_write(m.c, C.uint64_t(at), p, C.uint64_t(len(data))), "")
}

// Read copies data from the GPU. The caller checks the bounds.
func (m *ROCm) Read(at int64, data []byte) error {
	p := unsafe.Pointer(unsafe.SliceData(data))
	return m.check(C.rs_rocm_read(m.c, C.uint64_t(at), p, C.uint64_t(len(data))), "")
}

// Close frees everything and shuts the library down. Closing again does nothing.
func (m *ROCm) Close() error {
	c, host := m.c, m.host
	m.c, m.host = nil, nil
	if c == nil {
		return nil
	}
	err := m.check(C.rs_rocm_free(c), "")
	if host != nil {
		err = errors.Join(err, host.Close())
	}
	return err
}

// check converts an error of HSA into a failure; nil if there is none. text may explain it.
func (m *ROCm) check(e C.struct_rs_gpu_error, text string) error {
	if e.op == nil {
		return nil
	}
	op, name, code := C.GoString(e.op), "unknown error", int(e.code)
	if e.name != nil { // the name, and after a colon what it means
		name, _, _ = strings.Cut(C.GoString(e.name), ":")
	}
	reason := rocmReason(op, code)
	switch {
	case code == 0:
		return failure.New("", reason, "%s: %s; install ROCm's runtime (hsa-rocr, libhsa-runtime64-1)", op, text)
	case op == "hsa_init":
		name += ": this process needs /dev/kfd and the GPU's /dev/dri/renderD*"
	case text != "":
		name = text + ": " + name
	}
	return failure.New("", reason, "GPU %s: %s: %s (HSA status %#x)", m.gpu, op, name, code)
}

// rocmReason returns the reason for an hsa_status_t of a call; 0: the library was not loaded.
func rocmReason(op string, code int) failure.Reason {
	switch {
	case code == 0:
		return failure.NoLibHSA
	case op == "hsa_init", op == "find GPU":
		return failure.NoGPU
	case op == "hsa_amd_portable_export_dmabuf":
		return failure.NoDMABuf
	case code == 0x1008: // HSA_STATUS_ERROR_OUT_OF_RESOURCES
		return failure.ROCmOOM
	}
	return failure.ROCmError
}
