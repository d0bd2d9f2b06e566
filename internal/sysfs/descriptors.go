package sysfs

import "golang.org/x/sys/unix"

// Reserve returns how many descriptors of this process's limit are left to everything but files of devices: ports (512
// and 64 connections), the worker, sockets, logs. Of the usual 1,024 it is 640.
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

// keptBelow is the lowest descriptor that is not kept: the kernel assigns the lowest free one, so it shows the use.
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
