package sysfs

import "golang.org/x/sys/unix"

// Exists returns nil where path leads to something, and why not otherwise. Errors are [*Error].
func Exists(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Fail(path, err)
	}
	return nil
}
