//go:build !cgo

package worker

import "github.com/railscope/railscope/probe/internal/failure"

// verbsLibrary replaces libibverbs in a build without C.
type verbsLibrary struct{}

func (verbsLibrary) info(string) Info { return Info{} }

func (verbsLibrary) watch(string, []string, <-chan string, <-chan error, func(DeviceEvent)) error {
	return failure.New("", failure.NoCgo, "built without C")
}

func (verbsLibrary) open(string, OpenArgs, *sessionMemory) (engine, []End, error) {
	return nil, nil, failure.New("", failure.NoCgo,
		"this railscope was built without C: build it with CGO_ENABLED=1 on Linux")
}
