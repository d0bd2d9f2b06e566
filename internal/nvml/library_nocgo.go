//go:build !cgo

package nvml

import "errors"

// NewLibrary returns an NVML that cannot be opened, because this binary was built without cgo.
func NewLibrary(path string) Library { return noLibrary{} }

type noLibrary struct{}

var errNoCgo = &Error{Call: "dlopen", Code: CodeNotBuilt, Err: errors.New("this binary was built without cgo")}

func (noLibrary) Open() error                   { return errNoCgo }
func (noLibrary) Close()                        {}
func (noLibrary) Driver() (string, error)       { return "", errNoCgo }
func (noLibrary) Count() (int, error)           { return 0, errNoCgo }
func (noLibrary) GPU(index int) (Device, error) { return nil, errNoCgo }
