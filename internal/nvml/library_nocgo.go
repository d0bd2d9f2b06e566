//go:build !cgo

package nvml

import "errors"

// NewLibrary returns an NVML that cannot be opened, because this binary was built without cgo.
func NewLibrary(path string) Library { return noLibrary{} }

// noLibrary implements only Open: no other method is called before Open succeeds.
type noLibrary struct{ Library }

func (noLibrary) Open() error {
	return &Error{Call: "dlopen", Code: CodeNotBuilt, Err: errors.New("this binary was built without cgo")}
}
