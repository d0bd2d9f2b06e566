package nccl

import (
	"bytes"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/sysfs"
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

// reader receives a log from its beginning on. It is called by one goroutine.
type reader interface {
	line(text []byte, isNew bool) // a whole line; it may change text, and not keep it
	gap(skipped int64)            // part of the log was left out
	cut()                         // the rest of the last line was left out
	restart()                     // the file was rewritten
	end()                         // nothing more will come
}

// tailer reads what is appended to files by polling them. It is not safe for
// concurrent use. Nothing in it waits for a file: a pipe is not opened, and only
// regular files are read.
type tailer struct {
	limits limits
	globs  []glob
	open   func(job string) reader
	files  map[fileID]*file
	before map[fileID]int64 // of files not followed: how much of them is not new
	listed bool             // once at least
	turn   int              // index of the file that is read first
	opener opener
	owner  func(*unix.Stat_t) uint32

	// Of the listing that is going on.
	seen     int  // entries of directories
	partial  bool // not everything was listed
	deadline time.Time

	order []*file
	buf   []byte
}

// fileID is a file, whatever it is called.
type fileID struct{ dev, ino uint64 }

// file is one that is followed.
type file struct {
	id     fileID
	path   string
	job    string
	fd     int
	log    reader
	off    int64  // up to here it has been read
	old    int64  // up to here it was there before we were: not new
	rest   bool   // off is inside a line of which the rest is left out
	head   []byte // its first bytes: when they change, it is another file in the same place
	size   int64  // at the last read
	mtime  unix.Timespec
	done   bool // all that was there then has been read
	chosen bool // by the last listing
}

const (
	bufferSize = 64 << 10
	headSize   = 128
)

func newTailer(globs []glob, l limits, open func(job string) reader) *tailer {
	return &tailer{limits: l, globs: globs, open: open, files: map[fileID]*file{}, before: map[fileID]int64{},
		buf:    make([]byte, bufferSize),
		opener: opener{openat2: unix.Openat2}, owner: func(st *unix.Stat_t) uint32 { return st.Uid }}
}

// close closes all files.
func (f *tailer) close() {
	for _, file := range f.files {
		f.drop(file)
	}
}

// drop closes a file and ends its log.
func (f *tailer) drop(file *file) {
	f.detach(file)
	file.log.end()
}

// detach closes a file and keeps its log for its successor.
func (f *tailer) detach(file *file) {
	unix.Close(file.fd)
	delete(f.files, file.id)
}

// add begins to read a file, of which the first old bytes are not new.
func (f *tailer) add(path, job string, id fileID, old int64) error {
	fd, err := f.openFile(path)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil // it has gone since it was listed
	case err != nil:
		return failed(path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return sysfs.Fail(path, err)
	}
	if got := statID(&st); got != id || st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return nil // it has been replaced since it was listed: the next listing sees it
	}
	f.files[id] = &file{id: id, path: path, job: job, fd: fd, log: f.open(job), old: old}
	return nil
}

//nolint:unconvert // 32 bits on some architectures
func statID(st *unix.Stat_t) fileID { return fileID{uint64(st.Dev), st.Ino} }

// pass reads what has been appended, a bounded amount, and reports whether
// there was more. A file that cannot be read is closed, and in the error.
func (f *tailer) pass() (more bool, err error) {
	f.order = f.order[:0]
	for _, file := range f.files {
		f.order = append(f.order, file)
	}
	sortByPath(f.order)
	budget := f.limits.pass
	var faults []error
	for i := range f.order {
		file := f.order[(f.turn+i)%len(f.order)]
		if budget <= 0 {
			f.turn = (f.turn + i) % len(f.order)
			return true, errors.Join(faults...)
		}
		if err := f.read(file, &budget); err != nil {
			f.before[file.id] = max(file.off, file.old)
			f.drop(file)
			faults = append(faults, collector.NewFault("", err))
		}
		more = more || !file.done
	}
	return more, errors.Join(faults...)
}

// read reads what has been appended to one file.
func (f *tailer) read(file *file, budget *int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(file.fd, &st); err != nil {
		return sysfs.Fail(file.path, err)
	}
	if file.done && st.Size == file.size && st.Mtim == file.mtime {
		return nil
	}
	same, err := file.sameHead(st.Size)
	if err != nil {
		return err
	}
	if st.Size < file.off || !same {
		file.off, file.old, file.rest, file.head = 0, 0, false, nil
		file.log.restart()
		if _, err := file.sameHead(st.Size); err != nil {
			return err
		}
	}
	file.size, file.mtime, file.done = st.Size, st.Mtim, false
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

// skipBacklog skips the middle of a large file that existed before, and the
// backlog of one that grows too fast. The beginning of every file is read: there
// a job reports how it runs.
func (f *tailer) skipBacklog(file *file, size int64) {
	to := size - f.limits.tail
	if file.off < f.limits.head || to <= file.off {
		return
	}
	if file.off < file.old || size-file.off > f.limits.lag {
		file.log.gap(to - file.off)
		file.off, file.rest = to, true
	}
}

// lines emits the whole lines in data, which begins at file.off, and returns how
// many bytes are done.
func (f *tailer) lines(file *file, data []byte) (done int) {
	for {
		for !file.rest && done < len(data) && data[done] == 0 {
			done++ // the hole that a job leaves which does not append, when its log is truncated
		}
		i := bytes.IndexByte(data[done:], '\n')
		if i < 0 {
			break
		}
		line := data[done : done+i]
		if !file.rest {
			f.emitLine(file, line, file.off+int64(done))
		}
		file.rest = false
		done += i + 1
	}
	if left := len(data) - done; file.rest || left == len(f.buf) {
		if !file.rest {
			f.emitLine(file, data[done:], file.off+int64(done))
		}
		file.rest = true
		done = len(data)
	}
	file.off += int64(done)
	return done
}

// emitLine emits a line that begins at offset at, or the beginning of a long one.
func (f *tailer) emitLine(file *file, line []byte, at int64) {
	if len(line) > f.limits.line {
		file.log.cut()
		line = line[:f.limits.line]
		line[len(line)-1] = 0xff // a name that is cut off is none
	}
	file.log.line(line, at >= file.old)
}

// sameHead reports whether the file still begins as before. One that was truncated
// and rewritten between two passes can be longer than before; its first line, with
// a time or a process ID, differs.
func (file *file) sameHead(size int64) (bool, error) {
	want := int(min(size, headSize))
	got := make([]byte, want)
	n, err := unix.Pread(file.fd, got, 0)
	if err != nil {
		return false, sysfs.Fail(file.path, err)
	}
	got = got[:n]
	same := bytes.HasPrefix(got, file.head)
	if same {
		file.head = got
	}
	return same, nil
}
