package ethtool

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Socket sends ethtool requests to the kernel: any socket, for the interfaces of the network namespace that it was
// opened in. Safe for concurrent use.
type Socket struct{ fd int }

// Open opens a socket.
func Open() (*Socket, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == unix.EAFNOSUPPORT {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC)
	}
	if err != nil {
		return nil, fmt.Errorf("open a socket for ethtool: %w", err)
	}
	return &Socket{fd: fd}, nil
}

// Close closes the socket.
func (s *Socket) Close() error { return unix.Close(s.fd) }

// ifreq is struct ifreq of include/uapi/linux/if.h, with the member of its union that SIOCETHTOOL uses.
type ifreq struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [24 - unsafe.Sizeof(unsafe.Pointer(nil))]byte
}

// Ioctl is the kernel's [Ioctl].
func (s *Socket) Ioctl(name string, request []byte) error {
	var req ifreq
	if len(name) >= len(req.name) {
		return unix.ENODEV
	}
	copy(req.name[:], name)
	req.data = unsafe.Pointer(unsafe.SliceData(request))
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s.fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
		switch errno {
		case unix.EINTR:
		case 0:
			return nil
		default:
			return errno
		}
	}
}
