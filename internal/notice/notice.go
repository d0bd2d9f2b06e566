// Package notice receives what the kernel announces to everybody who listens: changes of interfaces and addresses, of
// RDMA devices, and of devices in general. Listening needs no privilege and costs nothing while nothing changes.
//
// Source: net/netlink/af_netlink.c.
package notice

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Group is a set of multicast groups of one netlink protocol.
type Group struct {
	name     string
	protocol int
	groups   uint32
	framed   bool // messages begin with a netlink header
}

// Routes is the group of interfaces and their addresses (route netlink).
func Routes() Group {
	const groups = unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR
	return Group{"route", unix.NETLINK_ROUTE, groups, true}
}

// RDMA is the group of RDMA devices (RDMA_NL_GROUP_NOTIFY). Kernels before 6.12 announce nothing in it.
func RDMA() Group {
	const notify = 4 // enum of include/uapi/rdma/rdma_netlink.h
	return Group{"RDMA", unix.NETLINK_RDMA, 1 << (notify - 1), true}
}

// Devices is the group of device events of the kernel itself, as udev receives them (lib/kobject_uevent.c).
func Devices() Group { return Group{"uevent", unix.NETLINK_KOBJECT_UEVENT, 1, false} }

// Message is one announcement.
type Message struct {
	Type uint16 // type in the netlink header; 0 in the group [Devices]
	Data []byte // the payload; valid only during the call
	// Lost means that the socket's buffer was full: an unknown number of messages was lost, and Data is empty.
	Lost bool
}

// Pace of a storm. A batch of messages is received at once, up to burst batches in a row; after that there is a batch
// every pause. In between the kernel keeps what the socket's buffer holds, about 100 messages.
const (
	burst    = 20
	pause    = 50 * time.Millisecond
	maxBatch = 256
)

// Listen is [Open] and [Listener.Receive].
func Listen(ctx context.Context, g Group, on func(Message)) error {
	l, err := Open(g)
	if err != nil {
		return err
	}
	return l.Receive(ctx, on)
}

// Listener is a socket of a group.
type Listener struct {
	group Group
	file  *os.File
}

// Open returns a listener, which has all messages from now on. It fails if the kernel has no such group or refuses the
// socket.
func Open(g Group) (*Listener, error) {
	file, err := open(g)
	if err != nil {
		return nil, fmt.Errorf("netlink group %s: %w", g.name, err)
	}
	return &Listener{g, file}, nil
}

// Receive calls on for each message until ctx is done, and closes the listener.
func (l *Listener) Receive(ctx context.Context, on func(Message)) error {
	defer l.file.Close()
	defer context.AfterFunc(ctx, func() { _ = l.file.SetReadDeadline(time.Now()) })()
	socket, err := l.file.SyscallConn()
	var failed error
	buffer := make([]byte, 32<<10)
	left, filled := burst, time.Now()
	for ctx.Err() == nil && err == nil && failed == nil {
		err = socket.Read(func(fd uintptr) (done bool) {
			done, failed = receive(int(fd), l.group, buffer, on)
			return done || failed != nil
		})
		gained := time.Since(filled) / pause
		left, filled = max(min(left+int(gained), burst)-1, 0), filled.Add(gained*pause)
		if left == 0 {
			wait(ctx, pause)
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return cmp.Or(failed, err)
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// open returns a socket of the group. The runtime polls it.
func open(g Group) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, g.protocol)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: g.groups}); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("bind", err)
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

// receive receives the messages that wait, up to a batch. any is false if there was none.
func receive(fd int, g Group, buffer []byte, on func(Message)) (any bool, err error) {
	for range maxBatch {
		n, from, err := unix.Recvfrom(fd, buffer, 0)
		switch sender, _ := from.(*unix.SockaddrNetlink); {
		case err == unix.EINTR: //nolint:errorlint // an errno
			continue
		case err == unix.EAGAIN: //nolint:errorlint // an errno
			return any, nil
		case err == unix.ENOBUFS: //nolint:errorlint // an errno
			on(Message{Lost: true})
		case err != nil:
			return any, os.NewSyscallError("recvfrom", err)
		case sender == nil || sender.Pid != 0:
			continue // another process, not the kernel
		case g.framed:
			split(buffer[:n], on)
		default:
			on(Message{Data: buffer[:n]})
		}
		any = true
	}
	return any, nil
}

// split calls on for each message of a datagram (struct nlmsghdr). What follows a malformed one is lost.
func split(b []byte, on func(Message)) {
	for len(b) > 0 {
		length := 0
		if len(b) >= unix.SizeofNlMsghdr {
			length = int(binary.NativeEndian.Uint32(b))
		}
		if length < unix.SizeofNlMsghdr || length > len(b) {
			on(Message{Lost: true})
			return
		}
		on(Message{Type: binary.NativeEndian.Uint16(b[4:]), Data: b[unix.SizeofNlMsghdr:length]})
		b = b[min(len(b), (length+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1)):]
	}
}
