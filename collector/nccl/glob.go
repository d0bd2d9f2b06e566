package nccl

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/text"
)

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
