// Package outfile writes the output files that a user names. A regular file is replaced, so that readers always see
// a complete file. A device, a pipe, or a link to one is written in place.
package outfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Mode is the mode of a new file. A replaced file keeps its mode.
const Mode fs.FileMode = 0o644

// Write writes text to path. A link is kept, and its target is written. If the directory does not allow a new file,
// as around a file mounted into a container, the file is written in place.
func Write(path string, text []byte) error {
	if err := write(path, text); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Check returns the error that Write would return, as far as it can be known in advance. It changes no file, and
// opens no pipe.
func Check(path string) error {
	if err := check(path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// target is the file that a path leads to.
type target struct {
	file string      // file to replace; empty: the path is written in place
	mode fs.FileMode // mode of the file
	old  fs.FileInfo // nil: the file does not exist yet
}

func resolve(path string) (target, error) {
	old, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(path); err == nil {
			return target{}, errors.New("a link to a file that does not exist: name the file itself")
		}
		dir := filepath.Dir(path)
		if _, err := os.Stat(dir); err != nil {
			return target{}, fmt.Errorf("directory %s does not exist: create it", dir)
		}
		return target{file: path, mode: Mode}, nil
	case err != nil:
		return target{}, cause(err)
	case old.IsDir():
		return target{}, errors.New("it is a directory: name a file")
	}
	t := target{mode: old.Mode().Perm(), old: old}
	if old.Mode().IsRegular() && open(old) == nil {
		// A file that was removed while a process has it open has no name: it is written in place.
		if file, err := filepath.EvalSymlinks(path); err == nil {
			t.file = file
		}
	}
	return t, nil
}

// open returns standard output or error if file is the same one, for example as /dev/stdout, so that the text
// follows what was printed.
func open(file fs.FileInfo) *os.File {
	for _, f := range []*os.File{os.Stdout, os.Stderr} {
		if info, err := f.Stat(); err == nil && os.SameFile(info, file) {
			return f
		}
	}
	return nil
}

func write(path string, text []byte) error {
	t, err := resolve(path)
	if err != nil {
		return err
	}
	if t.file != "" {
		err := replace(t, text)
		if t.old == nil || !inPlace(err) {
			return err
		}
	}
	f := (*os.File)(nil)
	if t.old != nil {
		f = open(t.old)
	}
	if f != nil {
		_, err := f.Write(text)
		return cause(err)
	}
	f, err = os.OpenFile(path, os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return cause(err)
	}
	if t.old.Mode().IsRegular() {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.Write(text)
	}
	return cause(errors.Join(err, f.Close()))
}

// inPlace reports whether a file that cannot be replaced because of err may be written in place: its directory
// belongs to another user, or it is a mount.
func inPlace(err error) bool {
	for _, reason := range []error{fs.ErrPermission, syscall.EROFS, syscall.EBUSY} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

// replace replaces a file by rename: a reader sees the old or the new content.
func replace(t target, text []byte) (err error) {
	f, err := create(t.file)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(cause(err), os.Remove(f.Name()))
		}
	}()
	if t.old != nil {
		if was, ok := t.old.Sys().(*syscall.Stat_t); ok {
			_ = f.Chown(int(was.Uid), int(was.Gid)) // only root can keep another user's
		}
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(t.mode), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), t.file)
}

// create creates a new file beside file. Its name does not match *.prom, which node_exporter's textfile collector
// reads.
func create(file string) (*os.File, error) {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".")
	return f, cause(err)
}

func check(path string) error {
	t, err := resolve(path)
	if err != nil {
		return err
	}
	if t.file != "" {
		f, err := create(t.file)
		if err == nil {
			return errors.Join(f.Close(), os.Remove(f.Name()))
		}
		if t.old == nil || !inPlace(err) {
			return err
		}
	}
	return unix.Access(path, unix.W_OK)
}

// cause removes the path, which the message has.
func cause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
