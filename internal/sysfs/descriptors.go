package sysfs

import "golang.org/x/sys/unix"

// Reserve returns how many file descriptors of this process's limit are not used to keep files of devices open, but
// left to everything else: connections of the web port (512 unless changed) and the probe port (64), the worker,
// netlink sockets, logs. Of 1,024, the usual limit, it is 640.
func Reserve() int { return reserve(limit()) }

func reserve(limit uint64) int { return int(limit / 8 * 5) }

// limit is the soft limit on descriptors, which Go raises to the hard limit at start.
func limit() uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return 1024 // it cannot fail; this is the kernel's default
	}
	return min(l.Cur, 1<<30)
}

// keptBelow is the lowest descriptor with which a file is not kept open. The kernel assigns the lowest free one, so its
// number shows how many are in use, by whatever part of the process.
func keptBelow() int {
	l := limit()
	return int(l) - reserve(l)
}

// FewDescriptors reports whether files are closed after each read because the limit is near.
func FewDescriptors() (few bool, most uint64) {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return true, limit()
	}
	unix.Close(fd)
	return fd >= keptBelow(), limit()
}
