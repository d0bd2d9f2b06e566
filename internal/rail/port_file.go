package rail

import (
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/sysfs"
)

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

// Files returns how files of the tree at sysfsRoot are opened.
func Files(sysfsRoot string) OpenFile {
	if sysfs.Live(sysfsRoot) {
		return func(path string) File { return &sysfs.File{Path: path} }
	}
	return func(path string) File { return &capturedFile{file: sysfs.File{Path: path}} }
}

// capturedFile is a file of a captured tree, where another file can take its name. The kernel's own files are never
// replaced: they say that they are gone. A replacement belongs to the same device unless a read failed in between.
type capturedFile struct {
	file     sysfs.File
	inode    uint64
	failed   bool
	replaced int // times that it was opened again for the same device
}

// Read implements File.
func (f *capturedFile) Read(buf []byte) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Stat(f.file.Path, &st); err != nil || st.Ino != f.inode {
		f.file.Close() // where there is no file any more, opening it says so
	}
	opens := f.file.Opens()
	b, err := f.file.Read(buf)
	if err == nil && !f.failed && opens > 0 {
		f.replaced += f.file.Opens() - opens
	}
	f.inode, f.failed = st.Ino, err != nil
	return b, err
}

// Opens implements File.
func (f *capturedFile) Opens() int { return f.file.Opens() - f.replaced }

// Close implements File. What is read after it need not be of the same device.
func (f *capturedFile) Close() {
	f.failed = true
	f.file.Close()
}
