package sysfs

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNone means that a device does not have this value: there is nothing to report.
var ErrNone = errors.New("the device has no such value")

// RefusedFor is how long a file is not read that does not exist, or whose value the driver says the port does not have:
// each attempt may be a firmware command, and on some adapters a kernel log line (node_exporter issue 3434).
const RefusedFor = time.Minute

// Refusal is [Attr]'s policy for a value of several files: after a refusal, not read for [RefusedFor].
type Refusal struct {
	until time.Time
}

// Note records the outcome of a read. Only [ReasonUnsupported] is a refusal; anything else changes nothing.
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
	seen    bool // it existed once: that it is gone is an error
	refused Refusal
}

// Read is [File.Read], and returns [ErrNone] for a file that never existed.
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

// Resting reports whether the file is not read at the moment.
func (a *Attr) Resting(now time.Time) bool { return a.refused.Active(now) }

// Uint is Read and [ParseUint].
func (a *Attr) Uint(now time.Time) (v uint64, err error) {
	var buf [64]byte
	b, err := a.Read(buf[:], now)
	if err == nil {
		v, err = ParseUint(b)
	}
	return v, At(a.Path, err)
}

// Counter is Read and [ParseCounter]. What the driver refuses is ReasonUnsupported once, then [ErrNone] for a while.
func (a *Attr) Counter(now time.Time) (v uint64, err error) {
	var buf [64]byte
	b, err := a.Read(buf[:], now)
	if err == nil {
		v, err = ParseCounter(b)
	}
	if a.refused.Note(err, now); a.refused.Active(now) {
		a.Close()
	}
	return v, At(a.Path, err)
}

// Carrier reads an interface's carrier; [ErrNone] while it is administratively down (EINVAL).
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
