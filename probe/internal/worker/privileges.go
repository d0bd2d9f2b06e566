package worker

import "golang.org/x/sys/unix"

// dropPrivileges takes from the calling thread, and from what it starts, every
// capability but CAP_IPC_LOCK, which the kernel asks for where memory is locked
// beyond the limit. The worker runs foreign libraries: it must not have what the
// exporter was given to read other users' files and processes. NO_NEW_PRIVS keeps
// capabilities of the file, and of root, from coming back.
//
// Capabilities belong to a thread and do not come back to it: the goroutine must
// be locked to the thread until it ends, so that the thread ends with it. Errors
// leave what the exporter has: the probe works either way.
func dropPrivileges() {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if unix.Capget(&header, &sets[0]) != nil {
		return
	}
	keep := sets[0].Permitted & (1 << unix.CAP_IPC_LOCK)
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	sets = [2]unix.CapUserData{{Effective: keep, Permitted: keep, Inheritable: keep}}
	_ = unix.Capset(&header, &sets[0])
	if keep != 0 {
		_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_IPC_LOCK, 0, 0)
	}
	_ = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}
