package examine

import (
	"bytes"
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Events returns a channel that reports changes of interfaces, addresses and devices by the kernel, until ctx is done.
// Where the kernel sends no events, as to a pod with its own network namespace, it reports nothing.
func Events(ctx context.Context) <-chan struct{} {
	events := make(chan struct{}, 1)
	listen(ctx, unix.NETLINK_ROUTE, unix.RTMGRP_LINK|unix.RTMGRP_IPV4_IFADDR|unix.RTMGRP_IPV6_IFADDR, events,
		func([]byte) bool { return true })
	listen(ctx, unix.NETLINK_KOBJECT_UEVENT, 1, events, ofDevice)
	return events
}

// ofDevice reports whether a kernel event is about an RDMA or PCI device; the other group reports interfaces
// (lib/kobject_uevent.c, Documentation/ABI/testing/sysfs-uevent).
func ofDevice(message []byte) bool {
	for _, subsystem := range []string{"infiniband", "pci"} {
		if bytes.Contains(message, []byte("\x00SUBSYSTEM="+subsystem+"\x00")) {
			return true
		}
	}
	return false
}

// listen reports the wanted messages of a netlink group.
func listen(ctx context.Context, protocol int, groups uint32, events chan<- struct{}, wanted func([]byte) bool) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		// Without permission, hard facts are still read by every examination and on request.
		return
	}
	// The runtime polls the file, so that Close ends Read.
	socket := os.NewFile(uintptr(fd), "netlink")
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		_ = socket.Close()
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
	go func() {
		defer stop()
		message := make([]byte, 8<<10)
		for ctx.Err() == nil {
			n, err := socket.Read(message)
			lost := errors.Is(err, unix.ENOBUFS) // the socket's buffer overflowed
			if err != nil && !lost {
				_ = socket.Close()
				return
			}
			if lost || wanted(message[:n]) {
				select {
				case events <- struct{}{}:
				default: // an event is already pending
				}
			}
		}
	}()
}
