//go:build !cgo

package memory

import "github.com/railscope/railscope/probe/internal/failure"

func mapGPU(spec Spec) (Memory, error) {
	return nil, failure.New("", failure.NoCgo,
		"%s memory: this railscope was built without C: build it with CGO_ENABLED=1 on Linux", spec.Kind)
}
