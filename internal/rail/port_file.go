package rail

import "github.com/railscope/railscope/internal/sysfs"

// File is a small file that is kept open; [sysfs.File] is one.
type File interface {
	// Read reads the file from its start into buf and returns the part filled.
	Read(buf []byte) ([]byte, error)
	// Opens returns how often it was opened: where that has changed, the device behind the name may be another.
	Opens() int
	Close()
}

// OpenFile returns the file at a path; nothing is opened before the first read.
type OpenFile func(path string) File

// KeepOpen is the OpenFile of real files.
func KeepOpen(path string) File { return &keptFile{file: sysfs.File{Path: path}} }

// keptFile is a file that another one may replace, as happens on a captured tree: the kernel's own files say that they
// are gone. A replacement belongs to the same device unless a read failed in between.
type keptFile struct {
	file     sysfs.File
	failed   bool
	replaced int // times that it was opened again for the same device
}

// Read implements File.
func (f *keptFile) Read(buf []byte) ([]byte, error) {
	if !f.file.Replaced() {
		b, err := f.file.Read(buf)
		f.failed = err != nil
		return b, err
	}
	goesOn, opens := !f.failed, f.file.Opens()
	f.file.Close() // where there is no file any more, opening it says so
	b, err := f.file.Read(buf)
	if f.failed = err != nil; goesOn && !f.failed {
		f.replaced += f.file.Opens() - opens
	}
	return b, err
}

// Opens implements File.
func (f *keptFile) Opens() int { return f.file.Opens() - f.replaced }

// Close implements File. What is read after it need not be of the same device.
func (f *keptFile) Close() {
	f.failed = true
	f.file.Close()
}
