package sampler

import (
	"path/filepath"

	"github.com/railscope/railscope/internal/sysfs"
)

// capturedFile is a file of a captured tree. There a file can be replaced by
// another of its name, which the kernel's own never are, and the one that is
// open would say the same for ever. What goes on in the same directory, without
// ever having been gone, is the same device's.
type capturedFile struct {
	file   sysfs.File
	dir    sysfs.Dir
	wasOK  bool
	goesOn int // times that it was opened anew for the same device
}

func newCapturedFile(path string) *capturedFile {
	return &capturedFile{file: sysfs.File{Path: path}, dir: sysfs.Dir{Path: filepath.Dir(path)}}
}

// Read implements file.
func (f *capturedFile) Read(buf []byte) ([]byte, error) {
	replaced, changed, err := f.dir.Look()
	if changed || err != nil {
		f.file.Close() // where there is no directory any more, opening the file says so
	}
	opens, goesOn := f.file.Opens(), f.wasOK && !replaced
	b, err := f.file.Read(buf)
	f.wasOK = err == nil
	if f.wasOK && goesOn {
		f.goesOn += f.file.Opens() - opens
	}
	return b, err
}

// Opens implements file.
func (f *capturedFile) Opens() int { return f.file.Opens() - f.goesOn }

// Close implements file.
func (f *capturedFile) Close() {
	f.wasOK = false
	f.file.Close()
	f.dir.Close()
}
