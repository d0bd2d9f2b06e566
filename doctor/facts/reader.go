package facts

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/railscope/railscope/internal/sysfs"
)

// reader reads small files and keeps what went wrong. A file that does not exist,
// or that the driver does not have for this port, is no fault: the fact stays
// unknown. One goroutine reads; where is safe for concurrent use.
type reader struct {
	at     atomic.Pointer[string] // the file that is being read
	unread []string
}

// where is the file that is being read, or was last.
func (r *reader) where() string {
	if p := r.at.Load(); p != nil {
		return *p
	}
	return ""
}

func (r *reader) text(elem ...string) string {
	path := filepath.Join(elem...)
	r.at.Store(&path)
	s, err := sysfs.ReadString(path)
	if err != nil {
		r.fail(err)
		return ""
	}
	return s
}

// say keeps what could not be read, and what to do about it.
func (r *reader) say(format string, args ...any) {
	r.unread = append(r.unread, fmt.Sprintf(format, args...))
}

// fail keeps err, if it is one, with what to do about it.
func (r *reader) fail(err error) {
	if err == nil {
		return
	}
	text := err.Error()
	switch sysfs.Reason(err) {
	case sysfs.ReasonVanished, sysfs.ReasonUnsupported, sysfs.ReasonEmpty:
		return
	case sysfs.ReasonPermission:
		text += ": run it as root"
	}
	r.unread = append(r.unread, text)
}

// uint returns the number in a file, nil if there is none.
func (r *reader) uint(elem ...string) *uint64 {
	path := filepath.Join(elem...)
	r.at.Store(&path)
	v, err := sysfs.ReadUint(path)
	if err != nil {
		r.fail(err)
		return nil
	}
	return &v
}

// int returns the number in a file that may be negative; fallback if there
// is none.
func (r *reader) int(fallback int, elem ...string) int {
	s := r.text(elem...)
	if s == "" {
		return fallback
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		r.fail(&sysfs.Error{Path: filepath.Join(elem...), Reason: sysfs.ReasonInvalid, Err: errors.New("not a number")})
		return fallback
	}
	return n
}

// names lists a directory.
func (r *reader) names(elem ...string) (names []string) {
	path := filepath.Join(elem...)
	r.at.Store(&path)
	list, err := sysfs.List(path)
	r.fail(err)
	for _, e := range list {
		names = append(names, e.Name)
	}
	return names
}
