// Package privilege takes privileges from threads that start a child.
//
// Capabilities and filters belong to a thread, are inherited by its children, and are not restored: a goroutine that
// calls a function of this package must be locked to its thread for good, so that the thread ends with it.
package privilege

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Drop drops all capabilities of the calling thread except those in keep that it has. NO_NEW_PRIVS prevents file
// capabilities and root from restoring them in a child. Where a filter of system calls forbids capset, as that of the
// systemd unit does, it returns an error, but a child of a user other than root still has none but those in keep.
func Drop(keep ...int) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData // capabilities 0 to 31, and the rest
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	var kept [2]unix.CapUserData
	for _, c := range keep {
		kept[c/32].Permitted |= sets[c/32].Permitted & (1 << (c % 32))
	}
	for i := range kept {
		kept[i].Effective, kept[i].Inheritable = kept[i].Permitted, kept[i].Permitted
	}
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) // none before Linux 4.3
	err := os.NewSyscallError("capset", unix.Capset(&header, &kept[0]))
	for _, c := range keep {
		if kept[c/32].Permitted&(1<<(c%32)) != 0 {
			_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(c), 0, 0)
		}
	}
	return errors.Join(err, os.NewSyscallError("prctl PR_SET_NO_NEW_PRIVS",
		unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)))
}

// Has reports whether the calling thread has a capability.
func Has() (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return false, os.NewSyscallError("capget", err)
	}
	return sets[0].Permitted|sets[1].Permitted != 0, nil
}

// architectures are the AUDIT_ARCH constants by GOARCH.
func architectures() map[string]uint32 {
	return map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}
}

// compatible is set in the numbers of system calls of the x32 ABI (__X32_SYSCALL_BIT).
const compatible = 0x40000000

// ForbidSending makes the sending calls of sockets, and io_uring, which could replace them, fail with EPERM. bind also
// fails: with it, write could send. [Drop] must have been called.
func ForbidSending() error {
	arch, known := architectures()[runtime.GOARCH]
	if !known {
		return fmt.Errorf("no filter of system calls for %s", runtime.GOARCH)
	}
	calls := []uint32{unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_SENDMMSG, unix.SYS_BIND, unix.SYS_IO_URING_SETUP}
	const number, architecture = 0, 4 // offsets in struct seccomp_data
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: architecture, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: arch, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS},
		bpf.LoadAbsolute{Off: number, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: compatible, SkipTrue: uint8(len(calls) + 1)},
	}
	for i, call := range calls {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: call, SkipTrue: uint8(len(calls) - i)})
	}
	program = append(program, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)})
	raw, err := bpf.Assemble(program)
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, 0, len(raw))
	for _, one := range raw {
		filter = append(filter, unix.SockFilter{Code: one.Op, Jt: one.Jt, Jf: one.Jf, K: one.K})
	}
	list := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&list)), 0, 0)
	if err != nil {
		return fmt.Errorf("set a filter of system calls: %w", err)
	}
	return nil
}
