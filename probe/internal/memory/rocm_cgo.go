//go:build cgo

package memory

import (
	"errors"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/verbs"
)

func allocateROCm(spec Spec) (allocation, error) {
	m, info, err := verbs.FindROCmGPU(spec.Libraries.HSA, spec.GPU)
	if err != nil {
		return nil, err
	}
	refused := func(reason failure.Reason, text string) error {
		return failure.New("", reason, "GPU %s: %s: %s", spec.GPU, spec.Kind, text)
	}
	switch {
	case spec.Kind == ROCmHost:
		err = m.AllocHost(spec.Size)
	case !info.Pool:
		err = refused(failure.UnifiedMemory, "it has no memory of its own; use host memory, which it shares")
	case !info.Exports:
		err = refused(failure.NoDMABuf, "libhsa has no hsa_amd_portable_export_dmabuf; install a newer ROCm")
	default:
		err = m.Alloc(spec.Size)
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}
