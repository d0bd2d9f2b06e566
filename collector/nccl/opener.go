package nccl

import (
	"errors"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/sysfs"
)

// opener opens files below configured directories without following links: jobs
// write there, and could point a name anywhere.
type opener struct {
	openat2 func(dir int, path string, how *unix.OpenHow) (int, error) // the system call; tests refuse it
}

// openTries is how often openat2 is retried when a path component was renamed
// meanwhile.
const openTries = 4

// open opens rel below root, an open directory, without blocking.
func (o opener) open(root int, rel string, flags int) (fd int, err error) {
	flags |= unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_NOFOLLOW
	how := unix.OpenHow{Flags: uint64(flags),
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_BENEATH}
	for range openTries {
		if fd, err = o.openat2(root, rel, &how); !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	switch {
	case err == nil:
		return fd, nil
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM), errors.Is(err, unix.EAGAIN):
		// A kernel before 5.6, a container whose seccomp filter does not know the call.
		return walk(root, rel, flags)
	}
	return -1, err
}

// walk is open for kernels without openat2: one component after the other.
func walk(root int, rel string, flags int) (fd int, err error) {
	dir, name := path.Split(rel)
	at := root
	defer func() {
		if at != root {
			unix.Close(at)
		}
	}()
	for part := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
		if part == "" {
			continue
		}
		if part == ".." {
			return -1, unix.EXDEV
		}
		next, err := openat(at, part, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC)
		if err != nil {
			return -1, err
		}
		if at != root {
			unix.Close(at)
		}
		at = next
	}
	if name == ".." {
		return -1, unix.EXDEV
	}
	return openat(at, name, flags)
}

func openat(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// root opens the fixed part of a glob, in which links are followed as configured;
// -1 if it does not exist.
func root(dir string) (fd int, err error) {
	fd, err = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return -1, nil
	case err != nil:
		return -1, sysfs.Fail(dir, err)
	}
	return fd, nil
}

// openPath opens a path of a glob; the error is the system call's.
func (o opener) openPath(g *glob, file string, flags int) (fd int, err error) {
	dir, err := root(g.fixed)
	if err != nil || dir < 0 {
		if err == nil {
			err = unix.ENOENT
		}
		return -1, err
	}
	defer unix.Close(dir)
	rel := strings.TrimPrefix(strings.TrimPrefix(file, g.fixed), "/")
	if rel == "" {
		rel = "."
	}
	return o.open(dir, rel, flags)
}

// openFile opens a file that matches one of the globs; any other in its own
// directory.
func (f *tailer) openFile(file string) (fd int, err error) {
	fd, err = -1, unix.ENOENT
	matched := false
	for i := range f.globs {
		g := &f.globs[i]
		if ok, _ := filepath.Match(filepath.Join(g.dir, g.pattern), file); !ok {
			continue
		}
		matched = true
		if fd, err = f.opener.openPath(g, file, unix.O_RDONLY); err == nil {
			return fd, nil
		}
	}
	if !matched {
		return f.opener.openPath(&glob{fixed: filepath.Dir(file)}, file, unix.O_RDONLY)
	}
	return fd, err
}
