package nccl

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/internal/text"
)

// limits bound the cost, whatever is in the files.
type limits struct {
	files int           // followed at once, each an open descriptor
	names int           // listed in one directory
	total int           // listed in one listing
	scan  time.Duration // for one listing
	line  int           // bytes of a line that are read
	head  int64         // of a file that existed before: read from its beginning
	tail  int64         // and from its end; also of a file that grows too fast
	lag   int64         // unread bytes at which a file grows too fast
	pass  int64         // bytes read in one pass, all files together
	idle  time.Duration // without growing, after which a file is closed
}

func defaultLimits() limits {
	return limits{files: 256, names: 1 << 16, total: 1 << 18, scan: 2 * time.Second, line: 4 << 10, head: 16 << 20,
		tail: 1 << 20, lag: 64 << 20, pass: 16 << 20, idle: 7 * 24 * time.Hour}
}

// tailer polls regular files for what is appended, so that it never blocks on one. Not safe for concurrent use.
type tailer struct {
	limits limits
	globs  []glob
	jobs   *jobs
	files  map[fileID]*file
	before map[fileID]int64 // of files not followed: how much of them is not new; nil until the first listing
	turn   int              // index of the file that is read first
	owner  func(*unix.Stat_t) uint32
	buf    []byte
}

type fileID struct{ dev, ino uint64 }

//nolint:unconvert // 32 bits on some architectures
func statID(st *unix.Stat_t) fileID { return fileID{uint64(st.Dev), st.Ino} }

type file struct {
	id     fileID
	glob   *glob
	path   string
	fd     int
	log    *job
	off    int64  // up to here it has been read
	old    int64  // up to here it existed before it was listed: not new
	rest   bool   // off is inside a line of which the rest is left out
	head   []byte // its first bytes: if they change, the file was rewritten
	size   int64  // at the last read
	mtime  unix.Timespec
	done   bool // everything up to size has been read
	chosen bool // by the last listing
}

const (
	bufferSize = 64 << 10
	headSize   = 128
)

func newTailer(globs []glob, jobs *jobs) *tailer {
	return &tailer{limits: defaultLimits(), globs: globs, jobs: jobs, files: map[fileID]*file{},
		buf: make([]byte, bufferSize), owner: func(st *unix.Stat_t) uint32 { return st.Uid }}
}

func (f *tailer) close() {
	for _, file := range f.files {
		f.drop(file)
	}
}

func (f *tailer) drop(file *file) {
	f.detach(file)
	file.log.apply(event{kind: closed}, true)
}

// detach closes a file and keeps its log for its successor.
func (f *tailer) detach(file *file) {
	unix.Close(file.fd)
	delete(f.files, file.id)
}

// add begins to read a file, of which the first old bytes are not new; nil if it was replaced since it was listed.
func (f *tailer) add(c *candidate, job string, old int64) (*file, error) {
	for _, other := range f.files {
		if other.log.name == job && !other.chosen {
			f.finish(other) // it was rotated
		}
	}
	fd, _, err := c.glob.openFile(c.path, c.id)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, sysfs.Fail(c.path, err)
	}
	added := &file{id: c.id, glob: c.glob, path: c.path, fd: fd, log: f.jobs.open(job), old: old}
	f.files[c.id] = added
	return added, nil
}

// finish reads the rest of a file that will be closed, so errors do not matter.
func (f *tailer) finish(file *file) {
	budget := f.limits.tail
	_ = f.read(file, &budget)
}

// pass reads a bounded amount of what was appended, and reports whether there was more. It closes files that fail.
func (f *tailer) pass() (more bool, err error) {
	order := slices.SortedFunc(maps.Values(f.files), func(a, b *file) int { return strings.Compare(a.path, b.path) })
	budget := f.limits.pass
	var faults []error
	for i := range order {
		at := (f.turn + i) % len(order)
		if budget <= 0 {
			f.turn = at
			return true, errors.Join(faults...)
		}
		file := order[at]
		if err := f.read(file, &budget); err != nil {
			f.before[file.id] = max(file.off, file.old)
			f.drop(file)
			faults = append(faults, collector.NewFault("", err))
		}
		more = more || !file.done
	}
	return more, errors.Join(faults...)
}

func (f *tailer) read(file *file, budget *int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(file.fd, &st); err != nil {
		return sysfs.Fail(file.path, err)
	}
	if file.done && st.Size == file.size && st.Mtim == file.mtime {
		return nil
	}
	// A rewritten file can be longer than before; its first line, with a time or a process ID, differs.
	head := make([]byte, min(st.Size, headSize))
	n, err := unix.Pread(file.fd, head, 0)
	if err != nil {
		return sysfs.Fail(file.path, err)
	}
	if head = head[:n]; st.Size < file.off || !bytes.HasPrefix(head, file.head) {
		file.off, file.old, file.rest = 0, 0, false
		file.log.apply(event{kind: restarted}, true)
	}
	file.head, file.size, file.mtime, file.done = head, st.Size, st.Mtim, false
	for *budget > 0 && !file.done {
		f.skipBacklog(file, st.Size)
		n, err := unix.Pread(file.fd, f.buf, file.off)
		if err != nil {
			return sysfs.Fail(file.path, err)
		}
		*budget -= int64(n)
		file.done = f.lines(file, f.buf[:n]) == 0 // the end, or a line that is still being written
	}
	return nil
}

// skipBacklog skips the middle of a large file that existed before, and the backlog of one that grows too fast. The
// beginning of every file is read: there a job reports how it runs.
func (f *tailer) skipBacklog(file *file, size int64) {
	to := size - f.limits.tail
	if file.off < f.limits.head || to <= file.off {
		return
	}
	if file.off < file.old || size-file.off > f.limits.lag {
		file.log.apply(event{kind: skipped, count: to - file.off}, true)
		file.off, file.rest = to, true
	}
}

// lines passes on the whole lines in data, which begins at file.off, and returns how many bytes are done.
func (f *tailer) lines(file *file, data []byte) (done int) {
	for {
		for !file.rest && done < len(data) && data[done] == 0 {
			done++ // the hole that a job without O_APPEND leaves when its log is truncated
		}
		i := bytes.IndexByte(data[done:], '\n')
		if i < 0 {
			break
		}
		if !file.rest {
			f.line(file, data[done:done+i], file.off+int64(done))
		}
		file.rest = false
		done += i + 1
	}
	if left := len(data) - done; file.rest || left == len(f.buf) {
		if !file.rest {
			f.line(file, data[done:], file.off+int64(done))
		}
		file.rest = true
		done = len(data)
	}
	file.off += int64(done)
	return done
}

// line passes on a line that begins at offset at, or the beginning of a long one.
func (f *tailer) line(file *file, line []byte, at int64) {
	if len(line) > f.limits.line {
		file.log.apply(event{kind: cut}, true)
		line = line[:f.limits.line]
		line[len(line)-1] = 0xff // makes a name that is cut off invalid
	}
	file.log.line(line, at >= file.old)
}

type glob struct {
	fixed   string // the part of dir without wildcards
	dir     string
	pattern string // of the name
}

func newGlob(pattern string) (g glob, err error) {
	clean := filepath.Clean(pattern)
	_, err = filepath.Match(pattern, "")
	switch {
	case err != nil:
		return g, fmt.Errorf("%q: unclosed [ or trailing \\ (syntax: https://pkg.go.dev/path/filepath#Match)", pattern)
	case !filepath.IsAbs(pattern):
		return g, fmt.Errorf("%q must be an absolute path, such as /var/log/nccl/*.log", pattern)
	case strings.HasSuffix(pattern, "/"):
		return g, fmt.Errorf("%q is a directory: name the files, such as %s", pattern, filepath.Join(clean, "*.log"))
	case strings.Contains(pattern, "**"):
		return g, fmt.Errorf("%q: ** is not supported; write one * for each directory, such as /var/log/nccl/*/*.log",
			pattern)
	}
	g.dir, g.pattern = filepath.Dir(clean), filepath.Base(clean)
	g.fixed = g.dir
	for strings.ContainsAny(g.fixed, `*?[\`) {
		g.fixed = filepath.Dir(g.fixed)
	}
	return g, nil
}

func (g *glob) relative(path string) string {
	return strings.Trim(strings.TrimPrefix(path, g.fixed), "/")
}

// job returns the label job of a file: its path below the fixed part, without an extension that all files have (.log,
// or the glob's). Any other distinguishes logs: host or process of NCCL_DEBUG_FILE=….%h.%p, .err and .out.
func (g *glob) job(path string) string {
	name := g.relative(path)
	ext := filepath.Ext(name)
	if (ext == ".log" || ext == filepath.Ext(g.pattern)) && strings.Trim(ext, ".0123456789") != "" &&
		ext != filepath.Base(name) {
		name = strings.TrimSuffix(name, ext)
	}
	if half := text.MaxLabel / 2; len(name) > 2*half {
		// Pod, container and rank: the logs of one directory differ at the end.
		name = name[:half-2] + ".." + name[len(name)-half:]
	}
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = text.Label(part)
	}
	return strings.Join(parts, "/")
}

// open opens a path below the fixed part without blocking or following links, as jobs write there; err is an errno.
func (g *glob) open(path string, flags int) (fd int, err error) {
	fd, err = openat(unix.AT_FDCWD, g.fixed, unix.O_PATH|unix.O_DIRECTORY)
	parts := strings.Split(cmp.Or(g.relative(path), "."), "/")
	for i, part := range parts {
		if err != nil {
			return -1, err
		}
		how := unix.O_PATH | unix.O_DIRECTORY
		if i == len(parts)-1 {
			how = flags | unix.O_NONBLOCK | unix.O_NOCTTY
		}
		if part == ".." {
			unix.Close(fd)
			return -1, unix.EXDEV
		}
		dir := fd
		fd, err = openat(dir, part, how|unix.O_NOFOLLOW)
		unix.Close(dir)
	}
	return fd, err
}

// openFile opens a regular file that was listed. It fails with ENOENT if another one has its path now.
func (g *glob) openFile(path string, id fileID) (fd int, st unix.Stat_t, err error) {
	if fd, err = g.open(path, unix.O_RDONLY); err != nil {
		return -1, st, err
	}
	if err = unix.Fstat(fd, &st); err == nil && (statID(&st) != id || st.Mode&unix.S_IFMT != unix.S_IFREG) {
		err = unix.ENOENT
	}
	if err != nil {
		unix.Close(fd)
	}
	return fd, st, err
}

func openat(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}
