//go:build cgo

package memory

import (
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/verbs"
)

// allocation is memory that the library of a GPU allocated, on the GPU, on the host, or on both.
type allocation interface {
	Area() verbs.Area
	Host() []byte                      // memory on the host; nil if there is none
	Write(at int64, data []byte) error // copies data to the GPU
	Read(at int64, data []byte) error  // copies data from the GPU
	Close() error
}

// allocators returns the function that allocates each kind of memory.
func allocators() map[Kind]func(Spec) (allocation, error) {
	return map[Kind]func(Spec) (allocation, error){
		CUDADMABuf:  allocateCUDA,
		CUDAPeermem: allocateCUDA,
		CUDAHost:    allocateCUDA,
		CUDAStaged:  allocateCUDA,
		ROCmDMABuf:  allocateROCm,
		ROCmHost:    allocateROCm,
	}
}

// gpu is memory of any kind but [Host].
type gpu struct {
	allocation
	kind   Kind
	size   int64
	copied []byte // result of the last Read from the GPU
}

func mapGPU(spec Spec) (Memory, error) {
	allocate, known := allocators()[spec.Kind]
	if !known {
		return nil, failure.New("", failure.Other, "unknown memory %q", spec.Kind)
	}
	a, err := allocate(spec)
	if err != nil {
		return nil, err
	}
	return &gpu{allocation: a, kind: spec.Kind, size: spec.Size}, nil
}

func (g *gpu) Kind() Kind { return g.kind }

// onHost reports whether devices and the CPU use the same memory.
func (g *gpu) onHost() bool {
	area := g.Area()
	return !area.Device && area.Stage == nil
}

func (g *gpu) Write(at int64, data []byte) error {
	if err := inside(at, len(data), g.size); err != nil {
		return err
	}
	if g.onHost() {
		copy(g.Host()[at:], data)
		return nil
	}
	return g.allocation.Write(at, data)
}

func (g *gpu) Read(at int64, n int) ([]byte, error) {
	if err := inside(at, n, g.size); err != nil {
		return nil, err
	}
	host := g.Host()
	if g.onHost() {
		return host[at:][:n:n], nil
	}
	if g.Area().Stage != nil {
		if err := inside(at, n, int64(len(host))); err != nil {
			return nil, err
		}
		if err := g.allocation.Write(at, host[at:][:n]); err != nil {
			return nil, err
		}
	}
	if cap(g.copied) < n {
		g.copied = make([]byte, n)
	}
	return g.copied[:n], g.allocation.Read(at, g.copied[:n])
}
