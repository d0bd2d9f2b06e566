//go:build !cgo

package nvml

import (
	"errors"
)

// NewLibrary returns an NVML that cannot be opened: the library is loaded with
// dlopen, and this binary was built without cgo.
func NewLibrary(path string) Library { return noNVML{} }

type noNVML struct{}

var errNoCgo = &Error{Call: "dlopen", Code: CodeNotBuilt, Err: errors.New("this binary was built without cgo")}

func (noNVML) Open() error                   { return errNoCgo }
func (noNVML) Driver() (string, error)       { return "", errNoCgo }
func (noNVML) Count() (int, error)           { return 0, errNoCgo }
func (noNVML) GPU(index int) (Device, error) { return nil, errNoCgo }
