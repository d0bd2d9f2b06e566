//go:build !cgo

package collector

import "errors"

// NewNVML returns an NVML that cannot be opened: the library is loaded with
// dlopen, and this binary was built without cgo.
func NewNVML(path string) NVML { return noNVML{} }

type noNVML struct{}

var errNoCgo = &NVMLError{Call: "dlopen", Code: CodeNotBuilt, Err: errors.New("this binary was built without cgo")}

func (noNVML) Open() error                       { return errNoCgo }
func (noNVML) Driver() (string, error)           { return "", errNoCgo }
func (noNVML) Count() (int, error)               { return 0, errNoCgo }
func (noNVML) GPU(index int) (NVMLDevice, error) { return nil, errNoCgo }
