package lldp

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// MaxFrame is the maximum size of a frame without its Ethernet header, in bytes.
const MaxFrame = 1500

// A Socket receives frames of all interfaces of this network namespace that [Socket.Join] was called for.
type Socket struct{ fd int }

// Open opens the socket, which needs CAP_NET_RAW. Whoever gets its descriptor receives frames of LLDP and no others:
// its filter is locked (SO_LOCK_FILTER).
func Open() (*Socket, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(networkOrder(unix.ETH_P_LLDP)))
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	s := &Socket{fd}
	if err := s.filter(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func networkOrder(v uint16) uint16 { return v>>8 | v<<8 } // every system that railscope supports is little-endian

// filter drops all but LLDP, for the case that the socket is bound to another protocol.
func (s *Socket) filter() error {
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtProto},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_LLDP, SkipFalse: 1},
		bpf.RetConstant{Val: MaxFrame},
		bpf.RetConstant{},
	})
	if err != nil {
		return err
	}
	raw := make([]unix.SockFilter, 0, len(program))
	for _, one := range program {
		raw = append(raw, unix.SockFilter{Code: one.Op, Jt: one.Jt, Jf: one.Jf, K: one.K})
	}
	if err := unix.SetsockoptSockFprog(s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(raw)), Filter: &raw[0]}); err != nil {
		return fmt.Errorf("attach a filter to a packet socket: %w", err)
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_LOCK_FILTER, 1); err != nil {
		return fmt.Errorf("lock the filter of a packet socket: %w", err)
	}
	// The interface is the one on which the frame arrived, also where the kernel gives it to a bond.
	return os.NewSyscallError("setsockopt PACKET_ORIGDEV",
		unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_ORIGDEV, 1))
}

// FromFile returns the socket of a descriptor that a process got from its parent. The descriptor is the socket's.
func FromFile(fd int) *Socket { return &Socket{fd} }

// File returns the socket for a child.
func (s *Socket) File() *os.File { return os.NewFile(uintptr(s.fd), "lldp") }

// Close closes the socket.
func (s *Socket) Close() error { return unix.Close(s.fd) }

// groups are the addresses to which frames are sent, 7.1: nearest bridge, non-TPMR bridge, customer bridge.
func groups() [3]net.HardwareAddr {
	return [3]net.HardwareAddr{{1, 0x80, 0xc2, 0, 0, 0x0e}, {1, 0x80, 0xc2, 0, 0, 3}, {1, 0x80, 0xc2, 0, 0, 0}}
}

// Join makes the interface with this index accept frames, without promiscuous mode, until it is removed or the socket
// is closed. It needs no capability.
func (s *Socket) Join(index int) error {
	for _, address := range groups() {
		m := unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_MULTICAST, Alen: uint16(len(address))}
		copy(m.Address[:], address)
		if err := unix.SetsockoptPacketMreq(s.fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m); err != nil {
			return fmt.Errorf("receive multicast frames on interface %d: %w", index, err)
		}
	}
	return nil
}

// Receive waits for a frame, and returns what follows its Ethernet header, and the index of its interface. The bytes
// are valid until the next call.
func (s *Socket) Receive(buf *[MaxFrame]byte) (b []byte, index int, err error) {
	for {
		n, from, err := unix.Recvfrom(s.fd, buf[:], 0)
		switch ll, ok := from.(*unix.SockaddrLinklayer); {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENETDOWN): // an interface went down
		case err != nil:
			return nil, 0, fmt.Errorf("receive from a packet socket: %w", err)
		case ok && ll.Pkttype != unix.PACKET_OUTGOING: // sent by this machine
			return buf[:n], ll.Ifindex, nil
		}
	}
}
