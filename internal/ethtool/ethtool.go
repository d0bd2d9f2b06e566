// Package ethtool reads the driver statistics of a network interface ("ethtool -S") and its forward error
// correction. Statistics are cheap enough for every scrape: the names, thousands of strings that rarely change, are
// read once and later only checked, so that a read is one ioctl. docs/adr/0003-own-ethtool-statistics.md explains
// why no library is used.
package ethtool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// MaxStatistics limits the statistics of one interface. An mlx5 port with 128 channels has about 5000.
	MaxStatistics = 16384
	// MaxAge is the time after which names are read again even if their count did not change.
	MaxAge = time.Minute
)

// Layout of include/uapi/linux/ethtool.h.
const (
	statsSet  = 1  // ETH_SS_STATS
	nameSize  = 32 // ETH_GSTRING_LEN
	statsHead = 8  // struct ethtool_stats: cmd, n_stats, then u64 each
	namesHead = 12 // struct ethtool_gstrings: cmd, string_set, len, then 32 bytes each
	countSize = 20 // struct ethtool_sset_info: cmd, reserved, u64 sset_mask, u32 count
)

// ErrChanged is returned if the driver changed its statistics faster than they could be read.
var ErrChanged = errors.New("the driver's statistics changed while they were read")

// Ioctl executes one SIOCETHTOOL request on the interface called name. The request is a struct of ethtool.h that
// begins with its command, and is overwritten by the response. Errors hold a unix.Errno.
type Ioctl func(name string, request []byte) error

// Device reads the statistics of one interface. Not safe for concurrent use.
type Device struct {
	name  string
	ioctl Ioctl
	now   func() time.Time

	buf    []byte // buffer for requests; see newBuffer
	count  int    // number of names; 0 before they are read
	table  uint64 // hash of the names
	loaded time.Time
	known  bool // learn was called with the names whose hash is table
	seed   maphash.Seed
}

// NewDevice returns a reader for the interface called name, which need not exist yet. It holds memory until Close.
func NewDevice(name string, ioctl Ioctl) (*Device, error) {
	buf, err := newBuffer()
	if err != nil {
		return nil, fmt.Errorf("allocate memory for the statistics of %s: %w", name, err)
	}
	return &Device{name: name, ioctl: ioctl, now: time.Now, buf: buf, seed: maphash.MakeSeed()}, nil
}

// newBuffer maps memory for the largest response, followed by a page without access. The kernel copies as many values
// as the driver has at that moment (ethtool_get_stats() in net/ethtool/ioctl.c; since 6.19 it compares the count
// first). If the driver gained statistics meanwhile, the copy fails there with EFAULT and overwrites nothing.
func newBuffer() ([]byte, error) {
	page := unix.Getpagesize()
	size := (namesHead + MaxStatistics*nameSize + page - 1) / page * page
	all, err := unix.Mmap(-1, 0, size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	if err := unix.Mprotect(all[size:], unix.PROT_NONE); err != nil {
		unix.Munmap(all)
		return nil, err
	}
	return all, nil
}

func (d *Device) request() []byte { return d.buf[:len(d.buf)-unix.Getpagesize()] }

// Close frees the memory. The device must not be used afterwards.
func (d *Device) Close() error {
	if d.buf == nil {
		return nil
	}
	err := unix.Munmap(d.buf)
	d.buf = nil
	return err
}

// Forget makes the next Read fetch the names again, after the interface was reconfigured.
func (d *Device) Forget() { d.loaded = time.Time{} }

// Read returns the values of all statistics in the driver's order, valid until the next request. If the names differ
// from those of the last call to learn, it calls learn with them first, in the same order. Errors hold a unix.Errno
// (EOPNOTSUPP: the driver has no statistics, ENODEV: no such interface), or are [ErrChanged].
func (d *Device) Read(learn func(names []string)) (values []uint64, err error) {
	for range 3 {
		if d.count == 0 || d.now().Sub(d.loaded) >= MaxAge {
			err = d.load(learn)
		}
		if err == nil {
			values, err = d.values()
		}
		if err == nil {
			return values, nil
		}
		d.count = 0
		if !errors.Is(err, ErrChanged) {
			return nil, err
		}
		err = nil
	}
	return nil, fmt.Errorf("%s: %w", d.name, ErrChanged)
}

// values reads the values. The error is ErrChanged if their number differs from that of the names.
func (d *Device) values() ([]uint64, error) {
	req := d.request()
	binary.NativeEndian.PutUint32(req, unix.ETHTOOL_GSTATS)
	binary.NativeEndian.PutUint32(req[4:], uint32(d.count)) // newer kernels reject any other number
	if err := d.do("values", req); err != nil {
		return nil, err
	}
	if int(binary.NativeEndian.Uint32(req[4:])) != d.count {
		return nil, ErrChanged
	}
	// aligned: req begins at a page boundary
	return unsafe.Slice((*uint64)(unsafe.Pointer(&req[statsHead])), d.count), nil
}

func (d *Device) load(learn func(names []string)) error {
	req := d.request()
	clear(req[:countSize])
	binary.NativeEndian.PutUint32(req, unix.ETHTOOL_GSSET_INFO)
	binary.NativeEndian.PutUint64(req[8:], 1<<statsSet)
	if err := d.do("count", req); err != nil {
		return err
	}
	count := int(binary.NativeEndian.Uint32(req[16:]))
	if binary.NativeEndian.Uint64(req[8:]) == 0 || count == 0 { // the kernel clears the bit of a missing set
		return fmt.Errorf("ethtool statistics of %s: %w", d.name, unix.EOPNOTSUPP)
	}
	if count > MaxStatistics {
		return fmt.Errorf("ethtool statistics of %s: %d are more than %d: %w", d.name, count, MaxStatistics, unix.E2BIG)
	}
	binary.NativeEndian.PutUint32(req, unix.ETHTOOL_GSTRINGS)
	binary.NativeEndian.PutUint32(req[4:], statsSet)
	binary.NativeEndian.PutUint32(req[8:], uint32(count))
	if err := d.do("names", req); err != nil {
		return err
	}
	if int(binary.NativeEndian.Uint32(req[8:])) != count {
		return ErrChanged
	}
	text := req[namesHead : namesHead+count*nameSize]
	if sum := maphash.Bytes(d.seed, text); !d.known || sum != d.table {
		names := make([]string, count)
		for i := range names {
			names[i] = unix.ByteSliceToString(text[i*nameSize : (i+1)*nameSize])
		}
		learn(names)
		d.table, d.known = sum, true
	}
	// The names took more memory than the values will: return it to the kernel.
	if err := unix.Madvise(req, unix.MADV_DONTNEED); err != nil {
		return fmt.Errorf("ethtool statistics of %s: free memory: %w", d.name, err)
	}
	d.count, d.loaded = count, d.now()
	return nil
}

// Driver returns the name of the interface's driver and the bus address of its device, a PCI address for a PCI device.
func (d *Device) Driver() (driver, bus string, err error) {
	req := d.request()
	info := (*unix.EthtoolDrvinfo)(unsafe.Pointer(&req[0])) // aligned: req begins at a page boundary
	*info = unix.EthtoolDrvinfo{Cmd: unix.ETHTOOL_GDRVINFO}
	err = d.do("driver", req)
	return unix.ByteSliceToString(info.Driver[:]), unix.ByteSliceToString(info.Bus_info[:]), err
}

func (d *Device) do(what string, req []byte) error {
	if err := d.ioctl(d.name, req); err != nil {
		return fmt.Errorf("ethtool %s of %s: %w", what, d.name, err)
	}
	return nil
}

// Socket sends ethtool requests in the network namespace in which it was opened. Safe for concurrent use.
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
