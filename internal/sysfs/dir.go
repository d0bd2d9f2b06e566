package sysfs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Entry is a name in a directory. Ino changes when the thing behind the name is recreated.
type Entry struct {
	Name string
	Ino  uint64
}

// MaxEntries bounds a listing; sysfs directories hold hundreds of names at most.
const MaxEntries = 1 << 16

// List returns the names in a directory except "." and "..", in the kernel's order. It never touches the entries
// themselves, so one that hangs does not hang the listing. Errors are [*Error].
func List(path string) ([]Entry, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, Fail(path, err)
	}
	defer unix.Close(fd)
	var list []Entry
	buf := make([]byte, 8192)
	for len(list) <= MaxEntries {
		n, err := unix.Getdents(fd, buf)
		if err != nil {
			return nil, Fail(path, err)
		}
		if n == 0 {
			return list, nil
		}
		list = appendEntries(list, buf[:n])
	}
	return nil, &Error{path, ReasonTooLarge, fmt.Errorf("more than %d entries", MaxEntries)}
}

// appendEntries decodes struct linux_dirent64: inode u64, offset s64, record length u16, type u8, name.
func appendEntries(list []Entry, b []byte) []Entry {
	const head = int(unsafe.Offsetof(unix.Dirent{}.Name))
	for len(b) >= head {
		size := int(binary.NativeEndian.Uint16(b[16:]))
		if size < head || size > len(b) {
			return list
		}
		name, _, _ := bytes.Cut(b[head:size], []byte{0})
		if s := string(name); s != "." && s != ".." {
			list = append(list, Entry{Name: s, Ino: binary.NativeEndian.Uint64(b)})
		}
		b = b[size:]
	}
	return list
}
