// Package ethtooltest fakes the kernel's side of ethtool: it answers the bytes of requests as net/ethtool/ioctl.c
// does.
package ethtooltest

import (
	"encoding/binary"
	"sync"

	"golang.org/x/sys/unix"
)

// Stat is one statistic of a driver.
type Stat struct {
	Name  string
	Value uint64
}

// Netdev is one interface.
type Netdev struct {
	Driver, Bus string
	Stats       []Stat
	FEC         uint32                 // active modes, ETHTOOL_FEC_*; 0: not supported
	Before      func(cmd uint32) error // optional; called before a request is answered; its error becomes the answer
}

// Kernel is a set of interfaces. Safe for concurrent use.
type Kernel struct {
	// Checks makes the kernel compare the count in a request with the driver's, as since Linux 6.19, instead of
	// copying all statistics of the driver.
	Checks  bool
	Netdevs map[string]*Netdev

	mu sync.Mutex
}

// Ioctl answers one request.
func (k *Kernel) Ioctl(name string, req []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.Netdevs[name]
	if n == nil {
		return unix.ENODEV
	}
	cmd := binary.NativeEndian.Uint32(req)
	if n.Before != nil {
		if err := n.Before(cmd); err != nil {
			return err
		}
	}
	switch cmd {
	case unix.ETHTOOL_GSSET_INFO:
		if len(n.Stats) == 0 || binary.NativeEndian.Uint64(req[8:]) != 1<<1 {
			binary.NativeEndian.PutUint64(req[8:], 0)
			return nil
		}
		binary.NativeEndian.PutUint32(req[16:], uint32(len(n.Stats)))
	case unix.ETHTOOL_GSTRINGS:
		if binary.NativeEndian.Uint32(req[4:]) != 1 {
			return unix.EINVAL
		}
		return k.answer(req, 8, 12, 32, n, func(to []byte, s Stat) { clear(to); copy(to, s.Name) })
	case unix.ETHTOOL_GSTATS:
		return k.answer(req, 4, 8, 8, n, func(to []byte, s Stat) { binary.NativeEndian.PutUint64(to, s.Value) })
	case unix.ETHTOOL_GDRVINFO:
		if n.Driver == "" {
			return unix.EOPNOTSUPP
		}
		copy(req[4:36], n.Driver+"\x00")
		copy(req[100:132], n.Bus+"\x00")
	case unix.ETHTOOL_GFECPARAM:
		if n.FEC == 0 {
			return unix.EOPNOTSUPP
		}
		binary.NativeEndian.PutUint32(req[4:], n.FEC)
	default:
		return unix.EOPNOTSUPP
	}
	return nil
}

// answer copies one item of size bytes per statistic behind the head of req. The count in req is at offset count.
func (k *Kernel) answer(req []byte, count, head, size int, n *Netdev, item func([]byte, Stat)) error {
	if asked := binary.NativeEndian.Uint32(req[count:]); k.Checks && asked != 0 && int(asked) != len(n.Stats) {
		binary.NativeEndian.PutUint32(req[count:], 0)
		return nil
	}
	binary.NativeEndian.PutUint32(req[count:], uint32(len(n.Stats)))
	for i, s := range n.Stats {
		at := head + i*size
		if at+size > len(req) { // the guard page
			return unix.EFAULT
		}
		item(req[at:at+size], s)
	}
	return nil
}
