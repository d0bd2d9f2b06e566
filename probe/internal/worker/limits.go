package worker

import "golang.org/x/sys/unix"

// raiseMemlock raises the soft RLIMIT_MEMLOCK, which limits ibv_reg_mr, to the hard one. Registering fails with a
// reason where that is not enough.
func raiseMemlock() {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l) == nil && l.Cur < l.Max {
		l.Cur = l.Max
		_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &l)
	}
}

// hugePages allows or forbids huge pages in this process. Where the kernel gives them to all memory, each thread's
// stack and each part of the heap holds 2 MiB; only the buffers of bursts need them.
func hugePages(on bool) {
	off := uintptr(1)
	if on {
		off = 0
	}
	_ = unix.Prctl(unix.PR_SET_THP_DISABLE, off, 0, 0, 0) // fails on a kernel without huge pages
}

// dropPrivileges drops all capabilities of the calling thread, and of what it starts, but CAP_IPC_LOCK (to lock memory
// beyond the limit): the worker runs foreign libraries, and must not read other users' files and processes.
// NO_NEW_PRIVS keeps capabilities of the file, and of root, from coming back.
//
// Capabilities belong to a thread and do not come back to it: the goroutine must stay locked to the thread, which then
// ends with it. Errors are ignored: the probe works either way.
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
