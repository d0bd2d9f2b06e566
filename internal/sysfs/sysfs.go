// Package sysfs reads the small files of sysfs and procfs, cheaply and without trusting them: a file may contain
// N/A, be empty, be a directory or a pipe, disappear, or never answer. Every failure is a [*Error] with a Reason
// from a short list, so that it can be counted. Package lane protects against a read that never returns.
package sysfs

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Reasons why a file could not be used. They are label values of source_errors_total, so the list is short and
// complete.
const (
	ReasonVanished    = "vanished"     // ENOENT, ENODEV, ENXIO, ESRCH: it was listed and is gone now
	ReasonPermission  = "permission"   // EACCES, EPERM
	ReasonUnsupported = "unsupported"  // EINVAL, EOPNOTSUPP, ENOSYS, "N/A (no PMA)": the port has no such value
	ReasonNotRegular  = "not_regular"  // a directory, pipe, socket or device instead of a file
	ReasonEmpty       = "empty"        // only white space
	ReasonInvalid     = "invalid"      // not an unsigned decimal number: N/A, negative, binary
	ReasonRange       = "out_of_range" // a number over 64 bits
	ReasonTooLarge    = "too_large"    // more bytes than any valid content
	ReasonTimeout     = "timeout"      // this read, or an earlier one, has not returned in time
	ReasonIO          = "io"           // any other errno
)

// MaxFile is the maximum that [ReadString] reads, in bytes: a page, the kernel's limit for a sysfs attribute.
const MaxFile = 4096

// Error is returned for a file that could not be used.
type Error struct {
	Path   string
	Reason string // one of the Reason constants
	Err    error
}

func (e *Error) Error() string { return fmt.Sprintf("read %s: %v", e.Path, e.Err) }
func (e *Error) Unwrap() error { return e.Err }

// Reason returns the reason of an [*Error] or a bare errno in err's chain, and [ReasonIO] for anything else.
func Reason(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	errno, _ := errors.AsType[unix.Errno](err)
	switch errno {
	case unix.ENOENT, unix.ENODEV, unix.ENXIO, unix.ENOTDIR, unix.ESTALE, unix.ESRCH:
		return ReasonVanished
	case unix.EACCES, unix.EPERM:
		return ReasonPermission
	case unix.EINVAL, unix.EOPNOTSUPP, unix.ENOSYS, 524: // ENOTSUPP of include/linux/errno.h, which package unix lacks
		return ReasonUnsupported
	case unix.EISDIR:
		return ReasonNotRegular
	}
	return ReasonIO
}

// Fail wraps err, an errno or a parse error, as the failure of path.
func Fail(path string, err error) *Error { return &Error{path, Reason(err), err} }

// ParseUint parses an unsigned decimal number, surrounded by white space. Signs, hex and units are errors, because
// a guessed number is worse than none. Errors are [*Error] with ReasonEmpty, ReasonInvalid or ReasonRange.
func ParseUint(b []byte) (uint64, error) {
	b = bytes.TrimSpace(b)
	v, err := strconv.ParseUint(string(b), 10, 64)
	switch {
	case err == nil:
		return v, nil
	case errors.Is(err, strconv.ErrRange):
		return 0, &Error{Reason: ReasonRange, Err: fmt.Errorf("%q does not fit in 64 bits", clip(b))}
	}
	return 0, Invalid("", b, "not an unsigned decimal number")
}

// ParseCounter is like [ParseUint] for a counter's file. Older kernels print "N/A (no PMA)" for a counter that the
// port lacks because it has no performance agent (mlx4 VFs, i40iw); the reason is then ReasonUnsupported.
func ParseCounter(b []byte) (uint64, error) {
	v, err := ParseUint(b)
	if err == nil {
		return v, nil
	}
	text := bytes.ToLower(bytes.TrimSpace(b))
	for _, words := range [...]string{"n/a", "not available", "not supported"} {
		if bytes.HasPrefix(text, []byte(words)) {
			return 0, &Error{Reason: ReasonUnsupported,
				Err: fmt.Errorf("no such counter: %q", clip(bytes.TrimSpace(b)))}
		}
	}
	return 0, err
}

// At sets the path in an error of [ParseUint] and similar functions, which know only the content.
func At(path string, err error) error {
	if e, ok := errors.AsType[*Error](err); ok && e.Path == "" {
		e.Path = path
	}
	return err
}

// Invalid returns the error for a file with unexpected content; what describes it: "not a MAC address".
func Invalid(path string, content []byte, what string) *Error {
	content = bytes.TrimSpace(content)
	if len(content) == 0 {
		return &Error{path, ReasonEmpty, errors.New("the file is empty")}
	}
	return &Error{path, ReasonInvalid, fmt.Errorf("%q is %s", clip(content), what)}
}

// clip limits the part of a file that an error message quotes. It copies, which keeps the caller's buffer off the
// heap.
func clip(b []byte) string {
	const most = 40
	if len(b) > most {
		return string(b[:most]) + "..."
	}
	return string(b)
}

// ReadString returns the content of a small file without surrounding white space; use [File] for repeated reads.
// Errors are [*Error].
func ReadString(elem ...string) (string, error) {
	f := File{Path: filepath.Join(elem...)}
	defer f.Close()
	var buf [MaxFile + 1]byte
	b, err := f.Read(buf[:])
	return strings.TrimSpace(string(b)), err
}

// ReadUint combines [ReadString] and [ParseUint].
func ReadUint(elem ...string) (uint64, error) {
	f := File{Path: filepath.Join(elem...)}
	defer f.Close()
	return f.ReadUint()
}

// Live reports whether path is on a real sysfs, so that netlink and ioctl describe the same machine.
func Live(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.SYSFS_MAGIC
}

// ValidNetdev reports whether name is valid for dev_valid_name() of net/core/dev.c, so that it can be part of a
// path.
func ValidNetdev(name string) bool {
	invalid := func(c rune) bool { return c == '/' || c == ':' || c <= ' ' || c == 0x7f }
	return name != "" && len(name) <= 15 && name != "." && name != ".." && !strings.ContainsFunc(name, invalid)
}
