package sysfs

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNone says that a device has no such value: there is nothing to report.
var ErrNone = errors.New("the device has no such value")

// RefusedFor is how long a file is left alone that is not there, or of which the
// driver said that the port has no such value: each attempt may be a firmware
// command, and on some adapters a line in the kernel's log (node_exporter issue 3434).
const RefusedFor = time.Minute

// checkEvery is how often a file of a captured tree is looked for under its name.
const checkEvery = time.Second

// Kept is a [File] that also notices on a captured tree, within a second, that it
// was removed or another took its name. The zero value with a Path is ready. Not
// safe for concurrent use.
type Kept struct {
	File
	checked time.Time
}

// Read is [File.Read].
func (k *Kept) Read(buf []byte) ([]byte, error) { return k.readAt(buf, time.Now()) }

func (k *Kept) readAt(buf []byte, now time.Time) ([]byte, error) {
	if now.Sub(k.checked) >= checkEvery {
		if k.checked = now; k.Replaced() {
			k.Close()
		}
	}
	return k.File.Read(buf)
}

// Attr is a [Kept] file that not every kernel and driver has, or has a value in.
// The zero value with a Path is ready. Not safe for concurrent use.
type Attr struct {
	Kept
	seen    bool      // it was there once: that it is gone is an error
	absent  time.Time // until when a file that was never there is left alone
	refused Refusal
}

// Read is [File.Read], and gives [ErrNone] for a file that was never there.
func (a *Attr) Read(buf []byte, now time.Time) ([]byte, error) {
	if a.Resting(now) {
		return nil, ErrNone
	}
	b, err := a.readAt(buf, now)
	if err == nil {
		a.seen = true
	} else if !a.seen && errors.Is(err, unix.ENOENT) {
		a.absent = now.Add(RefusedFor)
		return nil, ErrNone
	}
	return b, err
}

// Seen reports whether the file was there once.
func (a *Attr) Seen() bool { return a.seen }

// Uint is Read as one unsigned number.
func (a *Attr) Uint(now time.Time) (uint64, error) {
	var buf [64]byte
	b, err := a.Read(buf[:], now)
	if err != nil {
		return 0, err
	}
	v, err := ParseUint(b)
	return v, At(a.Path, err)
}

// Carrier reads the carrier of an interface; ok is false while it is
// administratively down, which the kernel says by EINVAL.
func (a *Attr) Carrier(now time.Time) (carrier, ok bool, err error) {
	v, err := a.Uint(now)
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, ErrNone):
		return false, false, nil
	case err == nil && v > 1:
		err = Invalid(a.Path, fmt.Append(nil, v), "neither 0 nor 1")
	}
	return v == 1, err == nil, err
}

// Counter is Uint of a counter. What the driver refuses, by an error or in words,
// is an error with ReasonUnsupported once, and [ErrNone] for a while.
func (a *Attr) Counter(now time.Time) (uint64, error) {
	var buf [64]byte
	b, err := a.Read(buf[:], now)
	if errors.Is(err, ErrNone) {
		return 0, ErrNone
	}
	var v uint64
	if err == nil {
		v, err = ParseCounter(b)
		err = At(a.Path, err)
	}
	if a.refused.Note(err, now); a.refused.Active(now) {
		a.Close()
	}
	return v, err
}

// Resting reports whether the file is left alone at the moment.
func (a *Attr) Resting(now time.Time) bool { return now.Before(a.absent) || a.refused.Active(now) }

// Inode returns what tells one life of a device from the next: the number of its
// directory, which is another one when the device is recreated. Errors are
// [*Error].
func Inode(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, Fail(path, err)
	}
	return st.Ino, nil
}
