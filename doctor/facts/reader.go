package facts

import (
	"fmt"
	"math"
	"path/filepath"
	"sync/atomic"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// reader reads small files and records what failed. A file that does not exist, or that the driver does not have for
// this port, is not a failure: the fact stays unknown. One goroutine reads; current is safe for concurrent use.
type reader struct {
	path   atomic.Pointer[string]
	unread []string
	put    func(*Facts) // writes what was read; nil: nothing
}

func (r *reader) at(elem ...string) string {
	path := filepath.Join(elem...)
	r.path.Store(&path)
	return path
}

func (r *reader) current() string {
	if p := r.path.Load(); p != nil {
		return *p
	}
	return ""
}

func (r *reader) say(format string, args ...any) {
	r.unread = append(r.unread, fmt.Sprintf(format, args...))
}

// fail records an error, with what to do about it. It ignores nil and what does not exist.
func (r *reader) fail(err error) {
	switch sysfs.Reason(err) {
	case sysfs.ReasonVanished, sysfs.ReasonUnsupported, sysfs.ReasonEmpty:
	case sysfs.ReasonPermission:
		r.say("%v: run it as root", err)
	default:
		if err != nil {
			r.say("%v", err)
		}
	}
}

func (r *reader) text(elem ...string) string {
	s, err := sysfs.ReadString(r.at(elem...))
	r.fail(err)
	return s
}

// uint returns the number in a file; nil if there is none.
func (r *reader) uint(elem ...string) *uint64 {
	v, err := sysfs.ReadUint(r.at(elem...))
	if err != nil {
		r.fail(err)
		return nil
	}
	return &v
}

// int returns the number in a file; 0 if there is none.
func (r *reader) int(elem ...string) int {
	if v := r.uint(elem...); v != nil && *v <= math.MaxInt32 {
		return int(*v)
	}
	return 0
}

func (r *reader) names(elem ...string) (names []string) {
	list, err := sysfs.List(r.at(elem...))
	r.fail(err)
	for _, e := range list {
		names = append(names, e.Name)
	}
	return names
}

// port returns the reader of a rail's port, or of an interface alone. The caller closes it.
func (r *reader) port(sysfsRoot string, v rail.Rail) *rail.Port {
	return rail.NewPort(sysfsRoot, v, func(path string) rail.File { return file{rail.KeepOpen(path), path, r} })
}

type file struct {
	rail.File
	path   string
	reader *reader
}

func (f file) Read(buf []byte) ([]byte, error) {
	f.reader.at(f.path)
	return f.File.Read(buf)
}
