package worker

import "golang.org/x/sys/unix"

// hugePages says whether the kernel may give this process huge pages without
// being asked. Where it does, every stack of a thread holds 2 MiB, and so does
// each bit of the heap; only the buffers of bursts are worth it.
func hugePages(on bool) {
	off := uintptr(1)
	if on {
		off = 0
	}
	_ = unix.Prctl(unix.PR_SET_THP_DISABLE, off, 0, 0, 0) // a kernel without them needs no telling
}
