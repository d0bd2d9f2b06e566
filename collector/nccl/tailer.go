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

// limits bound the cost for any content of the files.
type limits struct {
	files int           // files that are followed at once, each with an open descriptor
	names int           // names listed in one directory
	total int           // names listed in one listing
	scan  time.Duration // duration of one listing
	line  int           // bytes of a line that are read
	head  int64         // bytes read at the beginning of a file that existed before
	tail  int64         // bytes read at its end; also of a file that grows too fast
	lag   int64         // unread bytes above which a file grows too fast
	pass  int64         // bytes read in one pass, all files together
	idle  time.Duration // time without growth after which a file is closed
}

func defaultLimits() limits {
	return limits{files: 256, names: 1 << 16, total: 1 << 18, scan: 2 * time.Second, line: 4 << 10, head: 16 << 20,
		tail: 1 << 20, lag: 64 << 20, pass: 16 << 20, idle: 7 * 24 * time.Hour}
}

// tailer polls regular files for appended lines, so that it never blocks. Not safe for concurrent use.
type tailer struct {
	limits limits
	globs  []glob
	jobs   *jobs
	files  map[fileID]*file
	before map[fileID]int64 // for files that are not followed: bytes that are not new; nil until the first listing
	turn   map[uint32]int   // keyed by owner: index of the file that the next pass reads first
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
	uid    uint32 // UID of the owner
	off    int64  // offset up to which it was read
	old    int64  // size when it was first listed: bytes before it are not new
	rest   bool   // off is inside a line whose rest is skipped
	head   []byte // its first bytes: if they change, the file was rewritten
	size   int64  // size at the last read
	mtime  unix.Timespec
	done   bool // everything up to size has been read
	chosen bool // chosen by the last listing
}

const (
	bufferSize = 64 << 10
	headSize   = 128
)

func newTailer(globs []glob, jobs *jobs) *tailer {
	return &tailer{limits: defaultLimits(), globs: globs, jobs: jobs, files: map[fileID]*file{},
		turn: map[uint32]int{}, buf: make([]byte, bufferSize), owner: func(st *unix.Stat_t) uint32 { return st.Uid }}
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

// detach closes a file and keeps its log for the file that succeeds it.
func (f *tailer) detach(file *file) {
	unix.Close(file.fd)
	delete(f.files, file.id)
}

// add starts to read a file whose first old bytes are not new. It returns nil if the file was replaced since it was
// listed.
func (f *tailer) add(c *candidate, job string, old int64) (*file, error) {
	for _, other := range f.files {
		if other.log.name == job && !other.chosen {
			f.finish(other) // the log was rotated
		}
	}
	fd, _, err := c.glob.openFile(c.path, c.id)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, sysfs.Fail(c.path, err)
	}
	added := &file{id: c.id, glob: c.glob, path: c.path, fd: fd, log: f.jobs.open(job), uid: c.owner, old: old}
	f.files[c.id] = added
	return added, nil
}

// finish reads the rest of a file that will be closed. Errors are ignored.
func (f *tailer) finish(file *file) {
	budget := f.limits.tail
	_ = f.read(file, &budget)
}

// pass reads a limited amount of appended lines, and reports whether there is more. Owners have equal shares; what
// one owner does not use is left to others, so that nobody delays others' logs. Files that fail are closed.
func (f *tailer) pass() (more bool, err error) {
	waiting := map[uint32][]*file{}
	for _, file := range f.files {
		waiting[file.uid] = append(waiting[file.uid], file)
	}
	maps.DeleteFunc(f.turn, func(owner uint32, _ int) bool { return waiting[owner] == nil })
	for _, list := range waiting {
		slices.SortFunc(list, func(a, b *file) int { return strings.Compare(a.path, b.path) })
	}
	budget := f.limits.pass
	var faults []error
	for budget > 0 && len(waiting) > 0 {
		share := max(budget/int64(len(waiting)), 1)
		for _, owner := range slices.Sorted(maps.Keys(waiting)) {
			left := share
			done, errs := f.passOwner(owner, waiting[owner], &left)
			budget -= share - left
			faults = append(faults, errs...)
			if done {
				delete(waiting, owner)
			}
		}
	}
	return len(waiting) > 0, errors.Join(faults...)
}

// passOwner reads the files of one owner, and reports whether it reached the end of all of them.
func (f *tailer) passOwner(owner uint32, list []*file, budget *int64) (done bool, faults []error) {
	done = true
	for i := range list {
		at := (f.turn[owner] + i) % len(list)
		if *budget <= 0 {
			f.turn[owner] = at
			return false, faults
		}
		file := list[at]
		if f.files[file.id] != file {
			continue // closed earlier in this pass
		}
		if err := f.read(file, budget); err != nil {
			f.before[file.id] = max(file.off, file.old)
			f.drop(file)
			faults = append(faults, collector.NewFault("", err))
			continue
		}
		done = done && file.done
	}
	return done, faults
}

func (f *tailer) read(file *file, budget *int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(file.fd, &st); err != nil {
		return sysfs.Fail(file.path, err)
	}
	if file.done && st.Size == file.size && st.Mtim == file.mtime {
		return nil
	}
	// A rewritten file can be longer than before, but its first line, which has a time or a process ID, differs.
	head := make([]byte, min(st.Size, headSize))
	n, err := unix.Pread(file.fd, head, 0)
	if err != nil {
		return sysfs.Fail(file.path, err)
	}
	head = head[:n]
	if st.Size < file.off || !bytes.HasPrefix(head, file.head) {
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
		file.done = f.lines(file, f.buf[:n]) == 0 // the end, or an incomplete line
	}
	return nil
}

// skipBacklog skips the middle of a large file that existed before, and the backlog of one that grows too fast. The
// beginning of each file is read: it shows how the job runs.
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

// lines passes on the complete lines in data, which begins at file.off, and returns the number of bytes that are
// done.
func (f *tailer) lines(file *file, data []byte) (done int) {
	for {
		for !file.rest && done < len(data) && data[done] == 0 {
			done++ // if its log is truncated, a job without O_APPEND leaves a hole of zero bytes
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

// line passes on the line at offset at, or the beginning of a long one.
func (f *tailer) line(file *file, line []byte, at int64) {
	if len(line) > f.limits.line {
		file.log.apply(event{kind: cut}, true)
		line = line[:f.limits.line]
		line[len(line)-1] = 0xff // invalidates a name that is cut off
	}
	file.log.line(line, at >= file.old)
}

type glob struct {
	fixed   string // directory part without wildcards
	dir     string
	pattern string // pattern of the file's name
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

// job returns the label job of a file: its path below the fixed part, without an extension that all files have
// (.log, or the glob's). Other extensions distinguish logs: host or process of NCCL_DEBUG_FILE=….%h.%p, .err and
// .out.
func (g *glob) job(path string) string {
	name := g.relative(path)
	ext := filepath.Ext(name)
	if (ext == ".log" || ext == filepath.Ext(g.pattern)) && strings.Trim(ext, ".0123456789") != "" &&
		ext != filepath.Base(name) {
		name = strings.TrimSuffix(name, ext)
	}
	if half := text.MaxLabel / 2; len(name) > 2*half {
		// Logs of one directory, named after pod, container and rank, differ at the end.
		name = name[:half-2] + ".." + name[len(name)-half:]
	}
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = text.Label(part)
	}
	return strings.Join(parts, "/")
}

// open opens a path below the fixed part without blocking or following links, because jobs can write there. err is
// an errno.
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

// openFile opens a regular file that was listed. It returns ENOENT if the path leads to another file now.
func (g *glob) openFile(path string, id fileID) (fd int, st unix.Stat_t, err error) {
	fd, err = g.open(path, unix.O_RDONLY)
	if err != nil {
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
