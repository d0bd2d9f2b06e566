//go:build cgo

package memory

import (
	"errors"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/verbs"
)

// places returns what each kind allocates.
func places(spec Spec) (verbs.CUDASpec, bool) {
	s, known := map[Kind]verbs.CUDASpec{
		CUDADMABuf:  {Device: spec.Size, Export: true},
		CUDAPeermem: {Device: spec.Size},
		CUDAHost:    {Host: spec.Size},
		CUDAStaged:  {Device: spec.Size, Host: spec.Stage},
	}[spec.Kind]
	return s, known && (spec.Kind != CUDAStaged || spec.Stage > 0)
}

// refuse returns why a GPU cannot provide memory of a kind; nil if only an attempt can show it.
func refuse(spec Spec, i verbs.CUDAInfo) error {
	direct := spec.Kind == CUDADMABuf || spec.Kind == CUDAPeermem
	for _, known := range []struct {
		refused bool
		reason  failure.Reason
		text    string
	}{
		{direct && i.Integrated, failure.UnifiedMemory,
			"it is integrated and exports no memory; use host memory, which it shares"},
		{spec.Kind == CUDADMABuf && !i.Exports, failure.NoDMABuf,
			"libcuda has no cuMemGetHandleForAddressRange; needs a driver of CUDA 11.7 (515)"},
		{spec.Kind == CUDADMABuf && !i.DMABuf, failure.NoDMABuf,
			"the driver exports no dma-buf; needs its open kernel modules and Linux 5.12"},
		{spec.Kind == CUDAPeermem && !i.GPUDirect, failure.NoPeermem, "it does not support GPUDirect RDMA"},
	} {
		if known.refused {
			return failure.New("", known.reason, "GPU %s, CUDA %d.%d: %s: %s", spec.GPU, i.Driver/1000,
				i.Driver%1000/10, spec.Kind, known.text)
		}
	}
	return nil
}

func allocateCUDA(spec Spec) (allocation, error) {
	what, known := places(spec)
	if !known {
		return nil, failure.New("", failure.Other, "invalid memory %q with %d bytes on the host", spec.Kind, spec.Stage)
	}
	m, info, err := verbs.FindGPU(spec.Libraries.CUDA, spec.GPU)
	if err != nil {
		return nil, err
	}
	if err = refuse(spec, info); err == nil {
		err = m.Alloc(what)
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}
