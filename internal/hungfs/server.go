package hungfs

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// server implements the file system in its own process.
type server struct {
	fd    int
	names []string // node ID i+2 is names[i]
	files map[string]string

	mu       sync.Mutex // protects all following fields
	released bool
	waiting  []uint64 // IDs of unanswered reads
	contents []string // their answers
}

// serve mounts, reports that on out, and executes the commands on in until it ends.
func serve(r request, in io.Reader, out io.Writer) error {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/fuse: %w", err)
	}
	data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d,allow_other", fd, os.Getuid(), os.Getgid())
	if err := unix.Mount("hungfs", r.Dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		return fmt.Errorf("mount FUSE: %w", err)
	}
	s := &server{fd: fd, names: slices.Sorted(maps.Keys(r.Files)), files: r.Files}
	go s.loop()
	fmt.Fprintln(out, "mounted")
	for commands := bufio.NewScanner(in); commands.Scan(); {
		s.mu.Lock()
		if commands.Text() == "release" {
			s.releaseLocked()
		}
		fmt.Fprintln(out, len(s.waiting))
		s.mu.Unlock()
	}
	return nil
}

func (f *server) releaseLocked() {
	f.released = true
	for i, id := range f.waiting {
		f.reply(id, 0, []byte(f.contents[i]))
	}
	f.waiting, f.contents = nil, nil
}

// Opcodes, from include/uapi/linux/fuse.h.
const (
	opLookup, opForget, opGetattr            = 1, 2, 3
	opOpen, opRead, opStatfs, opRelease      = 14, 15, 17, 18
	opFlush, opInit, opOpendir, opReleasedir = 25, 26, 27, 29
	opReaddir, opAccess, opInterrupt         = 28, 34, 36
	opBatchForget                            = 42
)

const (
	rootNode        = 1
	directIO uint32 = 1 // FOPEN_DIRECT_IO: no page cache, so every read is a request
)

// loop answers requests until the file system is unmounted.
func (f *server) loop() {
	buf := make([]byte, 1<<17)
	for {
		n, err := unix.Read(f.fd, buf)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOENT):
			continue
		case err != nil || n < 40:
			return
		}
		f.answer(binary.NativeEndian.Uint32(buf[4:]), binary.NativeEndian.Uint64(buf[8:]),
			binary.NativeEndian.Uint64(buf[16:]), buf[40:n])
	}
}

// answer answers one request (struct fuse_in_header).
func (f *server) answer(op uint32, id, node uint64, body []byte) {
	switch op {
	case opForget, opBatchForget, opInterrupt: // these requests have no answer
	case opInit:
		f.reply(id, 0, pack(uint32(7), uint32(31), uint32(0), uint32(0), uint16(8), uint16(6), uint32(4096), uint32(1),
			uint16(1), uint16(0), [8]uint32{}))
	case opLookup:
		i := slices.Index(f.names, string(bytes.TrimRight(body, "\x00")))
		if i < 0 {
			f.reply(id, unix.ENOENT, nil)
			return
		}
		f.reply(id, 0, pack(uint64(i+2), uint64(1), uint64(60), uint64(60), uint32(0), uint32(0), f.attr(uint64(i+2))))
	case opGetattr:
		f.reply(id, 0, pack(uint64(60), uint32(0), uint32(0), f.attr(node)))
	case opOpen, opOpendir:
		f.reply(id, 0, pack(uint64(0), directIO, uint32(0)))
	case opReaddir:
		f.reply(id, 0, f.entries(binary.NativeEndian.Uint64(body[8:])))
	case opRead:
		f.read(id, f.files[f.names[node-2]], binary.NativeEndian.Uint64(body[8:]))
	case opRelease, opReleasedir, opFlush, opAccess:
		f.reply(id, 0, nil)
	default:
		f.reply(id, unix.ENOSYS, nil)
	}
}

func (f *server) read(id uint64, content string, offset uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	content = content[min(offset, uint64(len(content))):]
	if f.released {
		f.reply(id, 0, []byte(content))
		return
	}
	f.waiting, f.contents = append(f.waiting, id), append(f.contents, content)
}

// attr returns the struct fuse_attr of a node.
func (f *server) attr(node uint64) []byte {
	mode, size := uint32(unix.S_IFDIR|0o755), 0
	if node != rootNode {
		mode, size = unix.S_IFREG|0o444, len(f.files[f.names[node-2]])
	}
	return pack(node, uint64(size), [4]uint64{}, [3]uint32{}, mode, uint32(1), [3]uint32{}, uint32(4096), uint32(0))
}

// entries returns the listing from an offset (struct fuse_dirent).
func (f *server) entries(offset uint64) (list []byte) {
	for i := int(offset); i < len(f.names); i++ {
		name := f.names[i]
		list = append(list, pack(uint64(i+2), uint64(i+1), uint32(len(name)), uint32(unix.DT_REG))...)
		list = append(list, name...)
		list = append(list, make([]byte, (8-len(name)%8)%8)...)
	}
	return list
}

// reply sends an answer (struct fuse_out_header). The requester may be gone.
func (f *server) reply(id uint64, errno unix.Errno, body []byte) {
	head := pack(uint32(16+len(body)), -int32(errno), id)
	_, _ = unix.Write(f.fd, append(head, body...))
}

func pack(fields ...any) []byte {
	var b bytes.Buffer
	for _, v := range fields {
		_ = binary.Write(&b, binary.NativeEndian, v) // cannot fail: fixed size, written to memory
	}
	return b.Bytes()
}
