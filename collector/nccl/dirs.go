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

	"github.com/railscope/railscope/internal/sysfs"
)

// dirFound is a directory that matches a glob.
type dirFound struct {
	path  string
	owner uint32
	mtime int64
}

// directories returns the directories that match a glob, level by level. A link
// to a directory is not followed below the fixed part, and counted.
func (f *tailer) directories(g *glob, now time.Time, c *listing) []string {
	dirs := []dirFound{{path: g.fixed}}
	rest := strings.Trim(strings.TrimPrefix(g.dir, g.fixed), "/")
	if rest == "" {
		return []string{g.fixed}
	}
	for pattern := range strings.SplitSeq(rest, "/") {
		var next []dirFound
		for _, dir := range dirs {
			next = f.subdirectories(next, g, dir.path, pattern, now, c)
		}
		dirs = f.limitDirectories(next, g, c)
	}
	paths := make([]string, len(dirs))
	for i, dir := range dirs {
		paths[i] = dir.path
	}
	slices.Sort(paths)
	return paths
}

// subdirectories adds the directories in dir whose names match.
func (f *tailer) subdirectories(found []dirFound, g *glob, dir, pattern string, now time.Time, c *listing) []dirFound {
	f.entries(g, dir, pattern, c, func(name string, st *unix.Stat_t) {
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			found = append(found, dirFound{filepath.Join(dir, name), f.owner(st), min(st.Mtim.Nano(), now.UnixNano())})
		case unix.S_IFLNK:
			c.special++
		}
	})
	return found
}

// limitDirectories keeps the newest maxDirs, of each owner as many.
func (f *tailer) limitDirectories(dirs []dirFound, g *glob, c *listing) []dirFound {
	if len(dirs) <= maxDirs {
		return dirs
	}
	c.fault(&sysfs.Error{Path: g.dir, Reason: sysfs.ReasonTooLarge, Err: fmt.Errorf("%d directories: only %d were "+
		"listed; narrow --nccl.log", len(dirs), maxDirs)})
	f.partial = true
	slices.SortFunc(dirs, func(a, b dirFound) int {
		return cmp.Or(cmp.Compare(b.mtime, a.mtime), cmp.Compare(a.path, b.path))
	})
	return interleave(dirs, func(d *dirFound) (uint32, bool) { return d.owner, true })[:maxDirs]
}

// interleave orders a list so that any beginning of it has equally many of each
// owner, as far as there are (max-min fair), each owner's in their order. What
// does not count comes last.
func interleave[T any](list []T, of func(*T) (owner uint32, counts bool)) []T {
	type placed struct {
		at   int // among its owner's
		what T
	}
	seen := map[uint32]int{}
	order := make([]placed, len(list))
	for i := range list {
		order[i] = placed{len(list), list[i]}
		if owner, counts := of(&list[i]); counts {
			order[i].at = seen[owner]
			seen[owner]++
		}
	}
	slices.SortStableFunc(order, func(a, b placed) int { return a.at - b.at })
	out := make([]T, len(list))
	for i := range order {
		out[i] = order[i].what
	}
	return out
}

// entries calls each for the matching names of a directory, without following
// links, until the limits or the deadline are reached.
func (f *tailer) entries(g *glob, dir, pattern string, c *listing, each func(name string, st *unix.Stat_t)) {
	fd, err := f.opener.openPath(g, dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		// Gone again, or a link by now: the next listing counts it.
		if dir != g.fixed && (errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR)) || errors.Is(err,
			unix.ENOENT) {
			return
		}
		c.fault(failed(dir, err))
		return
	}
	d := os.NewFile(uintptr(fd), dir)
	defer d.Close()
	for seen := 0; ; {
		names, err := d.Readdirnames(512)
		for _, name := range names {
			if ok, _ := filepath.Match(pattern, name); !ok {
				continue // and no bad pattern: newGlob has tried it
			}
			var st unix.Stat_t
			if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil { // else it is gone again
				each(name, &st)
			}
		}
		seen += len(names)
		f.seen += len(names)
		switch {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			c.fault(err)
			f.partial = true
			return
		case seen >= f.limits.names || f.seen >= f.limits.total:
			f.partial = true
			c.fault(&sysfs.Error{Path: dir, Reason: sysfs.ReasonTooLarge,
				Err: fmt.Errorf("more than %d files: only these "+
					"were listed; narrow --nccl.log, or remove old logs", min(f.limits.names, f.seen))})
			return
		case !f.deadline.IsZero() && time.Now().After(f.deadline):
			f.partial = true
			c.fault(&sysfs.Error{Path: dir, Reason: sysfs.ReasonTimeout,
				Err: fmt.Errorf("listing took more than %v and was "+
					"stopped; narrow --nccl.log, or remove old logs", f.limits.scan)})
			return
		}
	}
}

// failed is a system call that failed, with its path.
func failed(path string, err error) error {
	if _, ok := errors.AsType[*sysfs.Error](err); ok {
		return err
	}
	return sysfs.Fail(path, err)
}
