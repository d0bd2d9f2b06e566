package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const backupSuffix = ".bak"

// unusable is why the content of a file that was read is not used.
type unusable struct{ error }

// readFile reads the sections. The error is an [unusable] if this version did not write the file.
func readFile(path string) (sections map[string]json.RawMessage, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, unusable{errors.New("symbolic link")}
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, unusable{errors.New("not a regular file")}
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, err
	}
	return parse(data)
}

func parse(data []byte) (sections map[string]json.RawMessage, err error) {
	if len(data) > maxSize {
		return nil, unusable{fmt.Errorf("more than %d bytes", maxSize)}
	}
	if err := json.Unmarshal(data, &sections); err != nil {
		return nil, unusable{err}
	}
	var v int
	if err := json.Unmarshal(sections["version"], &v); err != nil || v < 1 {
		return nil, unusable{errors.New("no version")}
	}
	if v > version {
		return nil, unusable{fmt.Errorf("version %d; this railscope supports version %d", v, version)}
	}
	delete(sections, "version")
	return sections, nil
}

// backUp keeps the file as its backup, by os.Rename or os.Link, and adds where to why its content is not used.
func backUp(path string, keep func(path, backup string) error, why error) (_ error, kept bool) {
	_ = os.Remove(path + backupSuffix) // os.Link replaces none
	if err := keep(path, path+backupSuffix); err != nil {
		return errors.Join(why, err), false
	}
	return fmt.Errorf("%w; kept as %s", why, filepath.Base(path)+backupSuffix), true
}

// writeFile replaces the file atomically. It adds the version to the sections.
func writeFile(dir string, sections map[string]json.RawMessage) error {
	sections["version"] = json.RawMessage(fmt.Sprint(version))
	data, err := json.MarshalIndent(sections, "", "  ")
	if err != nil {
		return err
	}
	data = append(data, '\n')
	if len(data) > maxSize {
		return fmt.Errorf("the state has %d bytes, at most %d are saved", len(data), maxSize)
	}
	path := filepath.Join(dir, fileName)
	if err := os.Remove(path + ".new"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := create(path+".new", os.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(0o600), f.Sync(), f.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// create creates a file. Root gives it to the owner of the directory, who must be able to read it.
func create(path string, access int) (*os.File, error) {
	f, err := os.OpenFile(path, access|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil || os.Geteuid() != 0 {
		return f, err
	}
	var dir unix.Stat_t
	if unix.Stat(filepath.Dir(path), &dir) == nil && dir.Uid != 0 {
		_ = f.Chown(int(dir.Uid), int(dir.Gid))
	}
	return f, nil
}

// openLock opens the lock file, which it creates if it is missing, and locks it.
func openLock(path string) (*os.File, error) {
	f, err := create(path, os.O_RDWR)
	if errors.Is(err, os.ErrExist) {
		f, err = os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, ErrLocked
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}
