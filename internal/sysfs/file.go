package sysfs

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// File is one small file that is read repeatedly: opened at the first read, kept open, re-read with a single pread. A
// kernfs attribute returns a fresh value to every read at offset 0. Near the limit on descriptors it is opened, read
// and closed instead: see [Reserve]. The zero value with a Path is ready. Not safe for concurrent use.
type File struct {
	Path   string
	fd     int // file descriptor + 1, so that the zero value is closed
	opens  int
	unkept bool      // it is closed after each read
	copied bool      // not on sysfs: an open file does not report that it was replaced
	looked time.Time // when that was last checked, which is done once a second
	id     [2]uint64 // device and inode of what was opened last
}

// Opens returns how often the file was opened. A change means that the device behind the name may be another, so that a
// counter need not continue from its previous value.
func (f *File) Opens() int { return f.opens }

// open opens the file if it is not open. O_NONBLOCK is for a named pipe: it opens at once, and is then refused by type.
func (f *File) open() error {
	if f.fd != 0 {
		return nil
	}
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	fd, err := unix.Open(f.Path, flags|unix.O_NOATIME, 0)
	if errors.Is(err, unix.EPERM) { // only a file's owner may use O_NOATIME
		fd, err = unix.Open(f.Path, flags, 0)
	}
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Open(f.Path, flags, 0)
	}
	if err != nil {
		return Fail(f.Path, err)
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err != nil {
		err = Fail(f.Path, err)
	} else if st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = &Error{f.Path, ReasonNotRegular, fmt.Errorf("not a regular file (mode %#o)", st.Mode)}
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	var fs unix.Statfs_t
	f.copied = unix.Fstatfs(fd, &fs) == nil && fs.Type != unix.SYSFS_MAGIC
	id := [2]uint64{st.Dev, st.Ino}
	if !f.unkept || id != f.id { // what is opened for each read is still the same file
		f.opens++
	}
	f.fd, f.id, f.unkept = fd+1, id, fd >= keptBelow()
	return nil
}

// Read reads the file from its start into buf, which must be longer than any value. A file whose device went away and
// came back is opened again. Errors are [*Error].
func (f *File) Read(buf []byte) ([]byte, error) { return f.readAt(buf, time.Now()) }

func (f *File) readAt(buf []byte, now time.Time) ([]byte, error) {
	if f.fd == 0 {
		f.looked = now
	} else if f.copied && now.Sub(f.looked) >= time.Second {
		f.looked = now
		var st unix.Stat_t
		if unix.Fstat(f.fd-1, &st) != nil || st.Nlink == 0 {
			f.Close()
		}
	}
	b, err := f.read(buf)
	if f.unkept {
		f.Close()
	}
	return b, err
}

func (f *File) read(buf []byte) ([]byte, error) {
	for retried := false; ; retried = true {
		if err := f.open(); err != nil {
			return nil, err
		}
		n, err := unix.Pread(f.fd-1, buf, 0)
		for err == unix.EINTR { //nolint:errorlint // a bare errno, on the hottest path
			n, err = unix.Pread(f.fd-1, buf, 0)
		}
		switch {
		case err == nil && n == len(buf):
			return nil, tooLarge(f.Path, n-1)
		case err == nil:
			return buf[:n], nil
		case retried || Reason(err) != ReasonVanished:
			return nil, Fail(f.Path, err)
		}
		f.Close()
	}
}

func tooLarge(path string, most int) error {
	return &Error{path, ReasonTooLarge, fmt.Errorf("more than %d bytes", most)}
}

// ReadUint is Read and [ParseUint]. Errors are [*Error].
func (f *File) ReadUint() (uint64, error) {
	var buf [64]byte
	b, err := f.Read(buf[:])
	if err != nil {
		return 0, err
	}
	v, err := ParseUint(b)
	return v, At(f.Path, err)
}

// Close closes the file; the next read opens it again.
func (f *File) Close() {
	if f.fd != 0 {
		unix.Close(f.fd - 1)
		f.fd = 0
	}
}

// ReadSeq reads a whole file of procfs, of at most that many bytes. The kernel returns a seq_file in pieces of about a
// page, so one read is not enough, as it is on sysfs. Errors are [*Error].
func ReadSeq(path string, most int) ([]byte, error) {
	f := File{Path: path}
	if err := f.open(); err != nil {
		return nil, err
	}
	defer f.Close()
	var text []byte
	for buf := make([]byte, 8<<10); ; {
		n, err := unix.Pread(f.fd-1, buf, int64(len(text)))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, Fail(path, err)
		case n == 0:
			return text, nil
		}
		if text = append(text, buf[:n]...); len(text) > most {
			return nil, tooLarge(path, most)
		}
	}
}
