package kernellog

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"

	"golang.org/x/sys/unix"
)

// Limits of one reading.
const (
	// MaxRecord is the size of a buffer that holds every record, in bytes; the kernel's own limit is 8 KiB.
	MaxRecord  = 16 << 10
	maxRecords = 50000 // limit of the records that are read
)

// Read reads the log at path, normally /dev/kmsg, from its oldest message to the end, without waiting. It returns
// the last messages of the kernel that keep selects, at most most of them. /dev/kmsg needs CAP_SYSLOG if
// kernel.dmesg_restrict is 1.
func Read(path string, most int, keep func(Record) bool) (list []Record, err error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	list, err = read(func(b []byte) (int, error) { return unix.Read(fd, b) }, most, keep)
	if err != nil {
		err = fmt.Errorf("read %s: %w", path, err)
	}
	return list, err
}

func read(next func([]byte) (int, error), most int, keep func(Record) bool) (list []Record, err error) {
	defer func() { list = list[max(len(list)-most, 0):] }()
	buf := make([]byte, MaxRecord)
	for range maxRecords {
		n, err := next(buf)
		switch {
		case errors.Is(err, unix.EAGAIN), err == nil && n == 0: // the end, also of a regular file in place of the log
			return list, nil
		// overwritten, or too large
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINVAL):
			continue
		case err != nil:
			return list, err
		}
		for record := range records(buf[:n]) {
			if r, ok := Parse(record); ok && r.Facility == Kernel && keep(r) {
				list = append(list, r)
			}
		}
		if len(list) > 2*most {
			list = append(list[:0], list[len(list)-most:]...)
		}
	}
	return list, nil
}

// records yields the records in b: one from the kernel, or several from a regular file. Lines that continue a
// record begin with a space.
func records(b []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			end := 0
			for end < len(b) {
				line := bytes.IndexByte(b[end:], '\n')
				if line < 0 {
					end = len(b)
					break
				}
				end += line + 1
				if end < len(b) && b[end] != ' ' {
					break
				}
			}
			if !yield(b[:end]) {
				return
			}
			b = b[end:]
		}
	}
}

// driverMessage matches the beginning of a message about an RDMA device, a bond, a GPU or PCIe. The name must be
// the first word: the kernel's command line and messages from user space may contain any text.
var driverMessage = regexp.MustCompile(`^(mlx[45]_(core|ib|en)|bnxt_(en|re)|irdma|ice|i40e|idpf|efa|mana|hns3?|` +
	`qed[er]?|cxgb4|iw_cxgb4|hfi1|infiniband|ib_[a-z]+|rdma_[a-z]+|iw_cm|siw|NVRM|nvidia(-[a-z]+)?|nvidia_peermem|` +
	`pcieport|AER|bond[A-Za-z0-9_.-]*|bonding|NETDEV WATCHDOG)[: ]`)

// Driver reports whether the message comes from a driver of RDMA devices, bonds, GPUs or PCIe.
func (r Record) Driver() bool { return driverMessage.MatchString(r.Text) }
