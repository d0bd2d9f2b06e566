// Package memory provides the memory that the devices of a session read from and write to, on this host or on a GPU.
//
// Memory of a GPU needs a context on it, and time to allocate. A [Memory] is closed after the rails on which it is
// registered, and leaves nothing on the GPU. Only one goroutine may use it at a time.
package memory

import (
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/verbs"
)

// Kind is the location of memory and the way devices access it.
type Kind string

// Kinds of memory.
const (
	Host        Kind = "host"
	CUDADMABuf  Kind = "cuda_dmabuf"  // on the GPU, registered as a dma-buf
	CUDAPeermem Kind = "cuda_peermem" // on the GPU, registered by its address with nvidia-peermem
	CUDAHost    Kind = "cuda_host"    // on the host, pinned by the GPU's driver
	CUDAStaged  Kind = "cuda_staged"  // on the GPU, copied to pinned host memory before writes, and back
	ROCmDMABuf  Kind = "rocm_dmabuf"  // on a GPU of AMD, registered as a dma-buf
	ROCmHost    Kind = "rocm_host"    // on the host, registered with a GPU of AMD
)

// Spec specifies the memory to map. Memory of the host is on the NUMA node of the calling thread.
type Spec struct {
	Kind      Kind
	Size      int64
	GPU       string // PCI address, such as 0000:0f:00.0
	Stage     int64  // bytes of host memory for [CUDAStaged]: the rings
	Libraries Libraries
}

// Libraries has the paths of the libraries of GPUs; empty for the linker's.
type Libraries struct {
	CUDA string // libcuda
	HSA  string // libhsa-runtime64
}

// Memory is what a device reads from or writes to in a session. It starts with zeros.
type Memory interface {
	Kind() Kind       // kind that was mapped
	Area() verbs.Area // memory as the device sees it
	// Write fills the memory. With [CUDAStaged] that is the GPU's, which a device sees only after a copy.
	Write(at int64, data []byte) error
	// Read returns the bytes that the device reads or wrote, valid until the next call. With [CUDAStaged] they are what
	// it wrote to the host, after a copy to the GPU and back.
	Read(at int64, n int) ([]byte, error)
	Close() error // frees everything
}

// Map maps memory of the requested kind. Its reasons for failure are NoCgo, NoLibCUDA, NoLibHSA, NoGPU, UnifiedMemory,
// NoDMABuf, NoPeermem, CUDAOOM, CUDAError, ROCmOOM, ROCmError and Other. Registering the memory may still fail: see
// Register of [verbs.Rail].
func Map(spec Spec) (Memory, error) {
	switch {
	case spec.Size <= 0:
		return nil, failure.New("", failure.Other, "%s memory of %d bytes", spec.Kind, spec.Size)
	case spec.Kind != Host:
		return mapGPU(spec)
	}
	buffer, err := verbs.NewBuffer(int(spec.Size))
	if err != nil {
		return nil, err
	}
	return host{buffer}, nil
}

type host struct{ *verbs.Buffer }

func (host) Kind() Kind         { return Host }
func (h host) Area() verbs.Area { return verbs.AreaOf(h.Bytes()) }

func (h host) Write(at int64, data []byte) error {
	if err := inside(at, len(data), int64(len(h.Bytes()))); err != nil {
		return err
	}
	copy(h.Bytes()[at:], data)
	return nil
}

func (h host) Read(at int64, n int) ([]byte, error) {
	if err := inside(at, n, int64(len(h.Bytes()))); err != nil {
		return nil, err
	}
	return h.Bytes()[at:][:n:n], nil
}

func inside(at int64, n int, size int64) error {
	if n < 0 || at < 0 || int64(n) > size || at > size-int64(n) {
		return failure.New("", failure.Other, "%d bytes at %d are outside memory of %d bytes", n, at, size)
	}
	return nil
}
