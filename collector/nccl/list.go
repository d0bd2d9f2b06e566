package nccl

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/internal/text"
)

// glob is one --nccl.log: names in directories.
type glob struct {
	fixed   string // the part of the directory without wildcards
	dir     string
	pattern string // of the name
}

// maxDirs bounds the directories that one glob may mean.
const maxDirs = 256

// newGlob says what is wrong with a pattern that cannot be followed.
func newGlob(pattern string) (glob, error) {
	var g glob
	if _, err := filepath.Match(pattern, ""); err != nil {
		return g, fmt.Errorf("%q: a [ is not closed, or a \\ ends it (syntax: https://pkg.go.dev/path/filepath#Match)", pattern)
	}
	switch clean := filepath.Clean(pattern); {
	case !filepath.IsAbs(pattern):
		return g, fmt.Errorf("%q must be an absolute path, such as /var/log/nccl/*.log", pattern)
	case strings.HasSuffix(pattern, "/"):
		return g, fmt.Errorf("%q is a directory: say which files, such as %s", pattern, filepath.Join(clean, "*.log"))
	case strings.Contains(pattern, "**"):
		return g, fmt.Errorf("%q: ** is not known; write one * for each directory, such as /var/log/nccl/*/*.log", pattern)
	default:
		g.dir, g.pattern = filepath.Split(clean)
		g.dir = filepath.Clean(g.dir)
	}
	g.fixed = g.dir
	for strings.ContainsAny(g.fixed, `*?[\`) {
		g.fixed = filepath.Dir(g.fixed)
	}
	return g, nil
}

// directories returns the directories that a glob means.
func (g glob) directories() ([]string, error) {
	if g.dir == g.fixed {
		return []string{g.dir}, nil
	}
	dirs, err := filepath.Glob(g.dir)
	if err == nil && len(dirs) == 0 { // it passes over what may not be read
		var fd int
		if fd, err = openDir(g.fixed); fd >= 0 {
			unix.Close(fd)
		}
	}
	if err != nil {
		return nil, err
	}
	if len(dirs) > maxDirs {
		return dirs[:maxDirs], &sysfs.Error{Path: g.dir, Reason: sysfs.ReasonTooLarge, Err: fmt.Errorf("%d directories: only %d were looked at; give a narrower --nccl.log", len(dirs), maxDirs)}
	}
	return dirs, nil
}

// job is what a file's log is called: its path below the fixed part of its
// glob, without the extension that says nothing: .log, or the one that all names
// of the glob have. Any other tells a log from the others: the host or process
// of NCCL_DEBUG_FILE=….%h.%p, the .err beside an .out. Each part of the path is
// made fit for a label.
func (g glob) job(path string) string {
	name := strings.TrimPrefix(strings.TrimPrefix(path, g.fixed), "/")
	ext := filepath.Ext(name)
	if (ext == ".log" || ext == filepath.Ext(g.pattern)) && strings.Trim(ext, ".0123456789") != "" && ext != filepath.Base(name) {
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

// census is what a listing came to.
type census struct {
	followed   int
	waiting    int // there are newer ones, as many as can be followed
	idle       int // too long without a new line
	special    int // no ordinary file: a directory, a link, a pipe
	unreadable int
	same       int // called like another, newer one
	faults     []error
}

// matched is how many files the globs mean.
func (c census) matched() int {
	return c.followed + c.waiting + c.idle + c.special + c.unreadable + c.same
}

// fault keeps the first faults of a listing: more would say no more. None has a
// device: source_errors_total would keep the name of every log there ever was.
func (c *census) fault(err error) {
	if err != nil && len(c.faults) < 8 {
		c.faults = append(c.faults, collector.NewFault("", err))
	}
}

// candidate is a file that could be followed.
type candidate struct {
	glob  *glob
	dir   string
	name  string
	id    fileID
	size  int64
	mtime int64 // nanoseconds since 1970, wall clock
	idle  bool
}

// list looks which files there are, and follows the newest.
func (f *follower) list(now time.Time) census {
	var c census
	var found []candidate
	for i := range f.globs {
		dirs, err := f.globs[i].directories()
		c.fault(err)
		for _, dir := range dirs {
			found = f.scan(found, &f.globs[i], dir, now, &c)
		}
	}
	// What is followed stays so, unless others are newer by more than a while.
	const stay = 5 * time.Minute
	rank := func(c *candidate) int64 {
		if f.files[c.id] != nil {
			return c.mtime + int64(stay)
		}
		return c.mtime
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(rank(&b), rank(&a)), cmp.Compare(a.dir, b.dir), cmp.Compare(a.name, b.name))
	})
	f.choose(found, &c)
	c.followed = len(f.files)
	f.listed = true
	return c
}

// openDir opens a directory; one that is not there is -1.
func openDir(path string) (fd int, err error) {
	fd, err = unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return -1, nil
	case err != nil:
		return -1, sysfs.Fail(path, err)
	}
	return fd, nil
}

// scan adds what is in a directory.
func (f *follower) scan(found []candidate, g *glob, dir string, now time.Time, c *census) []candidate {
	fd, err := openDir(dir)
	if err != nil || fd < 0 {
		c.fault(err)
		return found
	}
	d := os.NewFile(uintptr(fd), dir)
	defer d.Close()
	for seen := 0; ; {
		names, err := d.Readdirnames(512)
		for _, name := range names {
			if ok, _ := filepath.Match(g.pattern, name); !ok {
				continue // and no bad pattern: newGlob has tried it
			}
			var st unix.Stat_t
			if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue // gone again
			}
			if st.Mode&unix.S_IFMT != unix.S_IFREG {
				c.special++
				continue
			}
			mtime := st.Mtim.Nano()
			found = append(found, candidate{g, dir, name, statID(&st), st.Size, mtime, now.UnixNano()-mtime > int64(f.limits.idle)})
		}
		switch seen += len(names); {
		case errors.Is(err, io.EOF):
			return found
		case err != nil:
			c.fault(err)
			return found
		case seen >= f.limits.names:
			c.fault(&sysfs.Error{Path: dir, Reason: sysfs.ReasonTooLarge, Err: fmt.Errorf("more than %d files: only these were looked at; give a narrower --nccl.log, or remove old logs", f.limits.names)})
			return found
		}
	}
}

// choose follows the first of found, as many as may be, and lets go all others.
func (f *follower) choose(found []candidate, c *census) {
	for _, file := range f.files {
		file.chosen = false
	}
	before := make(map[fileID]int64, len(found))
	jobs := make(map[string]bool, f.limits.files)
	slots, tries := f.limits.files, 2*f.limits.files
	var renamed []reader
	for i := range found {
		one := &found[i]
		path := filepath.Join(one.dir, one.name)
		file := f.files[one.id]
		if _, twice := before[one.id]; twice || file != nil && file.chosen {
			continue // by another glob, or another name of the same file
		}
		if file != nil && file.path != path { // renamed: a log of another name, in which nothing is new
			before[one.id] = max(file.off, file.old)
			f.detach(file)
			renamed = append(renamed, file.log) // the one that has its name now goes on with it
			file = nil
		}
		old, known := before[one.id]
		if !known {
			old = f.notNew(one)
			before[one.id] = old
		}
		job := ""
		if slots > 0 && tries > 0 && !one.idle {
			job = one.glob.job(path)
		}
		switch {
		case one.idle:
			c.idle++
			continue
		case job == "":
			c.waiting++
			continue
		case jobs[job]:
			c.same++
			continue
		case file == nil:
			tries--
			f.finish(job)
			if err := f.follow(path, job, one.id, old); err != nil {
				c.unreadable++
				c.fault(err)
				continue
			}
		}
		if file = f.files[one.id]; file != nil { // else it is something else by now
			jobs[job] = true
			slots--
			delete(before, one.id)
			file.chosen = true
		}
	}
	f.release(before)
	for _, log := range renamed {
		log.end()
	}
	f.before = before
}

// finish reads the rest of a job's log that has been rotated, so that the next
// one goes on where it ends.
func (f *follower) finish(job string) {
	for _, file := range f.files {
		if file.job == job && !file.chosen {
			budget := f.limits.tail
			_ = f.read(file, &budget) // it is let go anyway
		}
	}
}

// notNew returns how much of a file is not new: all of it when we begin,
// nothing of one that appeared since.
func (f *follower) notNew(one *candidate) int64 {
	if old, ok := f.before[one.id]; ok {
		return min(old, one.size)
	}
	if !f.listed {
		return one.size
	}
	return 0
}

// release lets go what was not chosen, after one more look: a log that was
// renamed or removed may have got lines since the last.
func (f *follower) release(before map[fileID]int64) {
	for _, file := range f.files {
		if file.chosen {
			continue
		}
		budget := f.limits.tail
		_ = f.read(file, &budget) // it is given up anyway
		if _, there := before[file.id]; there {
			before[file.id] = max(file.off, file.old)
		}
		f.drop(file)
	}
}

// sortByPath gives every file its turn in an order that does not change.
func sortByPath(files []*file) {
	slices.SortFunc(files, func(a, b *file) int { return strings.Compare(a.path, b.path) })
}
