package sysfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// File is a small file that is opened at the first read, kept open, and re-read with a single pread. A kernfs attribute
// returns a fresh value to every read at offset 0. Near the limit on descriptors it is opened, read and closed instead:
// see [Reserve]. The zero value with a Path is ready to use. Not safe for concurrent use.
type File struct {
	Path   string
	fd     int // file descriptor + 1, so that the zero value is closed
	opens  int
	unkept bool      // it is closed after each read
	copied bool      // not on sysfs: an open file does not show that it was replaced
	looked time.Time // time of the last check for that, once a second
	id     [2]uint64 // device and inode of the file that was opened last
}

// Opens returns how many times the file was opened. After a change, the device and its counters may be different.
func (f *File) Opens() int { return f.opens }

// open opens the file unless it is open. With O_NONBLOCK a named pipe opens at once, and is then rejected by its
// type.
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
	if !f.unkept || id != f.id { // the file that is opened for each read is still the same
		f.opens++
	}
	f.fd, f.id, f.unkept = fd+1, id, fd >= keptBelow()
	return nil
}

// Read reads the file into buf, which must be longer than any value. It reopens the file after the device was
// removed. Errors are [*Error].
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
			return nil, TooLarge(f.Path, n-1)
		case err == nil:
			return buf[:n], nil
		case retried || Reason(err) != ReasonVanished:
			return nil, Fail(f.Path, err)
		}
		f.Close()
	}
}

// TooLarge returns the error for a file with more than most bytes.
func TooLarge(path string, most int) error {
	return &Error{path, ReasonTooLarge, fmt.Errorf("more than %d bytes", most)}
}

// ReadUint combines Read and [ParseUint]. Errors are [*Error].
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

// Reserve returns how many descriptors of this process's limit are reserved for everything but files of devices:
// ports (512 and 64 connections), the worker, sockets, logs. With the usual limit of 1,024 it is 640.
func Reserve() int { return reserve(limit()) }

func reserve(limit uint64) int { return int(limit / 8 * 5) }

// limit returns the soft limit on descriptors, which Go raises to the hard limit at start.
func limit() uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return 1024 // it cannot fail; this is the kernel's default
	}
	return min(l.Cur, 1<<30)
}

// keptBelow returns the lowest descriptor that is not kept open: the kernel assigns the lowest free descriptor, so
// its number shows how many are in use.
func keptBelow() int {
	l := limit()
	return int(l) - reserve(l)
}

// FewDescriptors reports whether files are closed after each read because the limit is near.
func FewDescriptors() (few bool, most uint64) {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return true, limit()
	}
	unix.Close(fd)
	return fd >= keptBelow(), limit()
}

// Entry is a name in a directory. Ino changes when its file is recreated.
type Entry struct {
	Name string
	Ino  uint64
}

// MaxEntries limits a listing; sysfs directories hold hundreds of names at most.
const MaxEntries = 1 << 16

// List returns the names in a directory except "." and "..", in the kernel's order. It never accesses the entries,
// so an entry that hangs does not hang the listing. Errors are [*Error].
func List(path string) ([]Entry, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, Fail(path, err)
	}
	defer unix.Close(fd)
	var list []Entry
	buf := make([]byte, 8192)
	for len(list) <= MaxEntries {
		n, err := unix.Getdents(fd, buf)
		if err != nil {
			return nil, Fail(path, err)
		}
		if n == 0 {
			return list, nil
		}
		list = appendEntries(list, buf[:n])
	}
	return nil, &Error{path, ReasonTooLarge, fmt.Errorf("more than %d entries", MaxEntries)}
}

// appendEntries decodes struct linux_dirent64: inode u64, offset s64, record length u16, type u8, name.
func appendEntries(list []Entry, b []byte) []Entry {
	const head = int(unsafe.Offsetof(unix.Dirent{}.Name))
	for len(b) >= head {
		size := int(binary.NativeEndian.Uint16(b[16:]))
		if size < head || size > len(b) {
			return list
		}
		name, _, _ := bytes.Cut(b[head:size], []byte{0})
		if s := string(name); s != "." && s != ".." {
			list = append(list, Entry{Name: s, Ino: binary.NativeEndian.Uint64(b)})
		}
		b = b[size:]
	}
	return list
}

// ErrNone is returned if a device does not have this value: there is nothing to report.
var ErrNone = errors.New("the device has no such value")

// RefusedFor is the time for which a file is not read if it does not exist, or if the driver reports that the port
// lacks its value: each attempt may be a firmware command, and on some adapters a kernel log line (node_exporter
// issue 3434).
const RefusedFor = time.Minute

// Refusal is [Attr]'s policy for a value from several files: after a refusal, it is not read for [RefusedFor].
type Refusal struct {
	until time.Time
}

// Note records the outcome of a read. Only [ReasonUnsupported] is a refusal; other outcomes change nothing.
func (r *Refusal) Note(err error, now time.Time) {
	if err != nil && Reason(err) == ReasonUnsupported {
		r.until = now.Add(RefusedFor)
	}
}

// Active reports whether the value must not be read now.
func (r *Refusal) Active(now time.Time) bool { return now.Before(r.until) }

// Attr is a [File] that some kernels or drivers lack, or have without a value. Not safe for concurrent use.
type Attr struct {
	File
	seen    bool // it existed once, so its absence is an error
	refused Refusal
}

// Read is like [File.Read], and returns [ErrNone] for a file that never existed.
func (a *Attr) Read(buf []byte, now time.Time) ([]byte, error) {
	if a.Resting(now) {
		return nil, ErrNone
	}
	b, err := a.readAt(buf, now)
	if err == nil {
		a.seen = true
	} else if !a.seen && errors.Is(err, unix.ENOENT) {
		a.refused.until = now.Add(RefusedFor)
		return nil, ErrNone
	}
	return b, err
}

// Resting reports whether reads are paused after a refusal.
func (a *Attr) Resting(now time.Time) bool { return a.refused.Active(now) }

// Uint combines Read and [ParseUint].
func (a *Attr) Uint(now time.Time) (v uint64, err error) {
	var buf [64]byte
	b, err := a.Read(buf[:], now)
	if err == nil {
		v, err = ParseUint(b)
	}
	return v, At(a.Path, err)
}

// Counter combines Read and [ParseCounter]. A value that the driver refuses is ReasonUnsupported once, then
// [ErrNone] for a while.
func (a *Attr) Counter(now time.Time) (v uint64, err error) {
	var buf [64]byte
	b, err := a.Read(buf[:], now)
	if err == nil {
		v, err = ParseCounter(b)
	}
	a.refused.Note(err, now)
	if a.refused.Active(now) {
		a.Close()
	}
	return v, At(a.Path, err)
}

// Carrier reads an interface's carrier. It returns [ErrNone] while the interface is administratively down (EINVAL).
func (a *Attr) Carrier(now time.Time) (bool, error) {
	v, err := a.Uint(now)
	switch {
	case errors.Is(err, unix.EINVAL):
		err = ErrNone
	case err == nil && v > 1:
		err = Invalid(a.Path, fmt.Append(nil, v), "neither 0 nor 1")
	}
	return v == 1, err
}

// Inode returns the inode of a path, which changes when a device is recreated. Errors are [*Error].
func Inode(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, Fail(path, err)
	}
	return st.Ino, nil
}

// Exists returns nil if the path exists. Errors are [*Error].
func Exists(path string) error {
	_, err := Inode(path)
	return err
}
