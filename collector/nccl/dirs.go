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

// dirFound is a directory that a glob means.
type dirFound struct {
	path  string
	owner uint32
	mtime int64
}

// directories returns the directories that a glob means, level by level. A link
// to a directory is not followed below the fixed part, and counted.
func (f *follower) directories(g *glob, now time.Time, c *census) []string {
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
		dirs = f.fewDirectories(next, g, c)
	}
	paths := make([]string, len(dirs))
	for i, dir := range dirs {
		paths[i] = dir.path
	}
	slices.Sort(paths)
	return paths
}

// subdirectories adds the directories in dir whose names match.
func (f *follower) subdirectories(found []dirFound, g *glob, dir, pattern string, now time.Time, c *census) []dirFound {
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

// fewDirectories leaves as many as may be, the newest, of each owner as many.
func (f *follower) fewDirectories(dirs []dirFound, g *glob, c *census) []dirFound {
	if len(dirs) <= maxDirs {
		return dirs
	}
	c.fault(&sysfs.Error{Path: g.dir, Reason: sysfs.ReasonTooLarge, Err: fmt.Errorf("%d directories: only %d were looked at; give a narrower --nccl.log", len(dirs), maxDirs)})
	f.partial = true
	slices.SortFunc(dirs, func(a, b dirFound) int {
		return cmp.Or(cmp.Compare(b.mtime, a.mtime), cmp.Compare(a.path, b.path))
	})
	return fair(dirs, func(d *dirFound) (uint32, bool) { return d.owner, true })[:maxDirs]
}

// fair puts what is in order in another one, of which any beginning has of each
// owner as many, as far as there are (max-min fair), the first of each first.
// What does not count comes last.
func fair[T any](list []T, of func(*T) (owner uint32, counts bool)) []T {
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

// entries calls each for what is in a directory and matches, without following
// it. It ends when there is more than may be looked at, or time is over.
func (f *follower) entries(g *glob, dir, pattern string, c *census, each func(name string, st *unix.Stat_t)) {
	fd, err := f.below.openPath(g, dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		// Gone again, or a link by now: the next listing counts it.
		if dir != g.fixed && (errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR)) || errors.Is(err, unix.ENOENT) {
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
			c.fault(&sysfs.Error{Path: dir, Reason: sysfs.ReasonTooLarge, Err: fmt.Errorf("more than %d files: only these were looked at; give a narrower --nccl.log, or remove old logs", min(f.limits.names, f.seen))})
			return
		case !f.deadline.IsZero() && time.Now().After(f.deadline):
			f.partial = true
			c.fault(&sysfs.Error{Path: dir, Reason: sysfs.ReasonTimeout, Err: fmt.Errorf("the listing took more than %v and was ended; give a narrower --nccl.log, or remove old logs", f.limits.scan)})
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
