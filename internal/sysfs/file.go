package sysfs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// File is one small file that is read again and again: opened at the first
// read, kept open, re-read with a single pread. A kernfs attribute gives a
// fresh value to every read at offset 0. Where descriptors are few it is opened,
// read and closed instead: see [Reserve]. The zero value with a Path is ready. Not
// safe for concurrent use.
type File struct {
	Path   string
	fd     int // file descriptor + 1, so that the zero value is closed
	opens  int
	unkept bool      // it is closed after each read
	copied bool      // not on sysfs: an open file does not say that it was replaced
	id     [2]uint64 // device and inode of what was opened last
}

// Opens returns how often the file was opened. Where that has changed, what is
// read now need not go on from what was read before: the device behind the name
// may be another.
func (f *File) Opens() int { return f.opens }

// Replaced reports whether an open file of a captured tree was removed, or
// another put in its place. On sysfs a read says it, with ENODEV.
func (f *File) Replaced() bool {
	var st unix.Stat_t
	return f.fd != 0 && f.copied && (unix.Fstat(f.fd-1, &st) != nil || st.Nlink == 0)
}

// open opens the file once. O_NONBLOCK keeps a named pipe from holding us up:
// it opens at once and the type check then turns it away.
func (f *File) open() error {
	if f.fd != 0 {
		return nil
	}
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	fd, err := unix.Open(f.Path, flags|unix.O_NOATIME, 0)
	for errors.Is(err, unix.EINTR) || errors.Is(err,
		unix.EPERM) { // only a file's owner may leave its access time alone
		if fd, err = unix.Open(f.Path, flags, 0); errors.Is(err, unix.EPERM) {
			break
		}
	}
	if err != nil {
		return Fail(f.Path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return Fail(f.Path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return &Error{Path: f.Path, Reason: ReasonNotRegular, Err: fmt.Errorf("not a regular file (mode %#o)", st.Mode)}
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

// Read reads the file from its start into buf and returns the part filled. A
// file that fills buf is refused as too large: give one byte more than the
// longest value. A file whose device went away and came back is opened again.
// Errors are [*Error].
func (f *File) Read(buf []byte) ([]byte, error) {
	b, err := f.read(buf)
	if f.unkept {
		f.Close()
	}
	return b, err
}

func (f *File) read(buf []byte) ([]byte, error) {
	for again := range 2 {
		if err := f.open(); err != nil {
			return nil, err
		}
		n, err := unix.Pread(f.fd-1, buf, 0)
		for err == unix.EINTR { //nolint:errorlint // a bare errno, in the hottest line there is
			n, err = unix.Pread(f.fd-1, buf, 0)
		}
		switch {
		case err == nil && n == len(buf):
			return nil, &Error{Path: f.Path, Reason: ReasonTooLarge, Err: fmt.Errorf("more than %d bytes", n-1)}
		case err == nil:
			return buf[:n], nil
		case again == 0 && Reason(err) == ReasonVanished:
			f.Close()
		default:
			return nil, Fail(f.Path, err)
		}
	}
	panic("unreachable")
}

// ReadUint reads the file as one unsigned decimal number. Errors are [*Error].
func (f *File) ReadUint() (uint64, error) {
	var buf [64]byte
	b, err := f.Read(buf[:])
	if err != nil {
		return 0, err
	}
	v, err := ParseUint(b)
	if err != nil {
		return 0, At(f.Path, err)
	}
	return v, nil
}

// Close closes the file; the next read opens it again.
func (f *File) Close() {
	if f.fd != 0 {
		unix.Close(f.fd - 1)
		f.fd = 0
	}
}
