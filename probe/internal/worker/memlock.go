package worker

import "golang.org/x/sys/unix"

// raiseMemlock lets the process lock as much memory as it is allowed to ask
// for: ibv_reg_mr counts against RLIMIT_MEMLOCK, whose soft limit is often the
// smaller one. Where that is not enough, registering will say so.
func raiseMemlock() {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l) == nil && l.Cur < l.Max {
		l.Cur = l.Max
		_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &l)
	}
}
