package sysfs

import "golang.org/x/sys/unix"

// Dir watches a directory whose files are kept open: it tells when they must be
// opened anew. The zero value with a Path is ready. Not safe for concurrent use.
//
// On a real sysfs only a new inode says that a device was replaced by another
// of the same name. On a captured tree, where files are replaced one by one,
// the times say it; there the directory is kept open too, because a look by
// descriptor costs a tenth of one by path.
type Dir struct {
	Path  string
	fd    int // file descriptor + 1; 0 where every look is by path
	stamp dirStamp
}

type dirStamp struct {
	dev, ino     uint64
	mtime, ctime unix.Timespec
}

// Look reports whether the directory is another one than at the last look, or
// was never looked at, and whether it has changed: names came or went. Errors
// are [*Error]; after one the next look is a first.
func (d *Dir) Look() (replaced, changed bool, err error) {
	st, err := d.stat()
	if err != nil {
		d.Close()
		return false, false, Fail(d.Path, err)
	}
	stamp := dirStamp{st.Dev, st.Ino, st.Mtim, st.Ctim}
	if stamp == d.stamp {
		return false, false, nil
	}
	replaced = stamp.dev != d.stamp.dev || stamp.ino != d.stamp.ino
	d.stamp = stamp
	return replaced, true, nil
}

// stat looks by descriptor while the directory is where it was.
func (d *Dir) stat() (st unix.Stat_t, err error) {
	if d.fd != 0 {
		err := unix.Fstat(d.fd-1, &st)
		if err == nil && st.Nlink > 0 &&
			st.Ctim == d.stamp.ctime { // a directory that was moved or removed has a new ctime
			return st, nil
		}
		unix.Close(d.fd - 1)
		d.fd = 0
	}
	fd, err := unix.Open(d.Path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return st, err
	}
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return st, err
	}
	var fs unix.Statfs_t
	if unix.Fstatfs(fd, &fs) == nil && fs.Type != unix.SYSFS_MAGIC {
		d.fd = fd + 1
		return st, nil
	}
	unix.Close(fd)
	return st, nil
}

// Close forgets the directory: the next look is a first.
func (d *Dir) Close() {
	if d.fd != 0 {
		unix.Close(d.fd - 1)
	}
	d.fd, d.stamp = 0, dirStamp{}
}
