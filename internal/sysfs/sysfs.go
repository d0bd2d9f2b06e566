// Package sysfs reads the small files of sysfs and procfs, cheaply and without
// trusting them: a file may say N/A, be empty, be a directory or a pipe,
// vanish, or never answer. Every failure is a [*Error] whose Reason is one of a
// short list, so that it can be counted.
//
// Readers do not protect themselves against a read that never returns; see
// package lane for that.
package sysfs

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Reasons a file could not be used. They become the reason label of
// source_errors_total, so the list is short and closed.
const (
	ReasonVanished    = "vanished"     // ENOENT, ENODEV, ENXIO, ESRCH: it was listed, now it is gone
	ReasonPermission  = "permission"   // EACCES, EPERM
	ReasonUnsupported = "unsupported"  // EINVAL, EOPNOTSUPP, ENOSYS, "N/A (no PMA)": the port has no such value
	ReasonNotRegular  = "not_regular"  // a directory, pipe, socket or device where a file belongs
	ReasonEmpty       = "empty"        // nothing but white space
	ReasonInvalid     = "invalid"      // not an unsigned decimal number: N/A, negative, binary
	ReasonRange       = "out_of_range" // a number over 64 bits
	ReasonTooLarge    = "too_large"    // more bytes than such a file ever has
	ReasonTimeout     = "timeout"      // the read did not end in time, or an earlier one has not ended yet
	ReasonIO          = "io"           // any other errno
)

// enotsupp is ENOTSUPP of include/linux/errno.h. User space has no name for it,
// but drivers let it out.
const enotsupp = unix.Errno(524)

// MaxFile is the most that [ReadString] reads of one file, in bytes: a page,
// the kernel's own limit for a sysfs attribute.
const MaxFile = 4096

// Error says which file could not be used and why.
type Error struct {
	Path   string
	Reason string // one of the Reason constants
	Err    error
}

func (e *Error) Error() string { return fmt.Sprintf("read %s: %v", e.Path, e.Err) }
func (e *Error) Unwrap() error { return e.Err }

// Reason returns the reason of err, for an [*Error] or a bare errno anywhere in
// its chain, and [ReasonIO] for anything else.
func Reason(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return ReasonIO
	}
	switch errno {
	case unix.ENOENT, unix.ENODEV, unix.ENXIO, unix.ENOTDIR, unix.ESTALE, unix.ESRCH:
		return ReasonVanished
	case unix.EACCES, unix.EPERM:
		return ReasonPermission
	case unix.EINVAL, unix.EOPNOTSUPP, unix.ENOSYS, enotsupp:
		return ReasonUnsupported
	case unix.EISDIR:
		return ReasonNotRegular
	}
	return ReasonIO
}

// Fail wraps err, an errno or a parse error, as the failure of path.
func Fail(path string, err error) *Error {
	return &Error{Path: path, Reason: Reason(err), Err: err}
}

// ParseUint parses an unsigned decimal number as the kernel prints counters,
// white space around it allowed. It accepts nothing else: no sign, no hex, no
// unit, because a number that has to be guessed is worse than none.
// Errors are [*Error] with ReasonEmpty, ReasonInvalid or ReasonRange.
func ParseUint(b []byte) (uint64, error) {
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return 0, &Error{Reason: ReasonEmpty, Err: errors.New("the file is empty")}
	}
	var v uint64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, &Error{Reason: ReasonInvalid, Err: fmt.Errorf("%q is not an unsigned decimal number", clip(b))}
		}
		d := uint64(c - '0')
		if v > (1<<64-1-d)/10 {
			return 0, &Error{Reason: ReasonRange, Err: fmt.Errorf("%q does not fit in 64 bits", clip(b))}
		}
		v = v*10 + d
	}
	return v, nil
}

// ParseCounter is [ParseUint] of a counter's file, which says in words where the
// port has no such counter: "N/A (no PMA)", printed by older kernels for ports
// without a performance agent (mlx4 VFs, i40iw). Its reason is ReasonUnsupported.
func ParseCounter(b []byte) (uint64, error) {
	v, err := ParseUint(b)
	if err == nil {
		return v, nil
	}
	b = bytes.TrimSpace(b)
	for _, words := range [...]string{"N/A", "not available", "not supported"} {
		if len(b) >= len(words) && bytes.EqualFold(b[:len(words)], []byte(words)) {
			return 0, &Error{Reason: ReasonUnsupported, Err: fmt.Errorf("no such counter: %q", clip(b))}
		}
	}
	return 0, err
}

// At fills in the path of an error of [ParseUint] and its like, which know only
// the content.
func At(path string, err error) error {
	if e, ok := errors.AsType[*Error](err); ok && e.Path == "" {
		e.Path = path
	}
	return err
}

// Invalid is the error of a file that does not hold what the kernel prints there:
// its content is what, "no MAC address".
func Invalid(path string, content []byte, what string) *Error {
	if len(bytes.TrimSpace(content)) == 0 {
		return &Error{Path: path, Reason: ReasonEmpty, Err: errors.New("the file is empty")}
	}
	return &Error{Path: path, Reason: ReasonInvalid, Err: fmt.Errorf("%q is %s", clip(bytes.TrimSpace(content)), what)}
}

// clip bounds what an error message quotes of a file. It copies, so that the
// buffer that numbers are parsed in need not be on the heap.
func clip(b []byte) string {
	const most = 40
	if len(b) > most {
		return string(b[:most]) + "..."
	}
	return string(b)
}

// ReadString returns the content of a small file without the white space
// around it. It opens, reads and closes; for what is read again and again use
// [File]. Errors are [*Error].
func ReadString(elem ...string) (string, error) {
	f := File{Path: filepath.Join(elem...)}
	defer f.Close()
	var buf [MaxFile + 1]byte
	b, err := f.Read(buf[:])
	return strings.TrimSpace(string(b)), err
}

// ReadUint is [ReadString] followed by [ParseUint].
func ReadUint(elem ...string) (uint64, error) {
	f := File{Path: filepath.Join(elem...)}
	defer f.Close()
	return f.ReadUint()
}

// Live reports whether path is on a real sysfs, and not on a captured tree. Only then do
// answers of the running kernel that come by another way, netlink or ioctl, describe the
// same machine.
func Live(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.SYSFS_MAGIC
}

// ValidNetdev reports whether name can be the name of a netdev, by the rules of
// dev_valid_name() in net/core/dev.c, so that it can be part of a path.
func ValidNetdev(name string) bool {
	if name == "" || len(name) > 15 || name == "." || name == ".." {
		return false
	}
	for _, c := range []byte(name) {
		if c == '/' || c == ':' || c <= ' ' || c == 0x7f {
			return false
		}
	}
	return true
}
