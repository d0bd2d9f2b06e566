//go:build cgo && linux

package verbs

// #cgo CFLAGS: -std=gnu11 -Wall -Wextra
// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"bytes"
	"syscall"
	"unsafe"
)

// failed makes an error of what C returned; nil when nothing failed.
func failed(e C.struct_rs_error, device string) *Error {
	if e.op == C.RS_NONE {
		return nil
	}
	return newError(op(e.op), device, syscall.Errno(-e.err), int(e.status), uint32(e.vendor))
}

// misuse is an error of the caller's.
func misuse(device, text string) *Error {
	e := newError(opUse, device, syscall.EINVAL, 0, 0)
	e.Text = text
	return e
}

// text is what C wrote into a buffer, up to its 0.
func text(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}

func chars(b []byte) *C.char { return (*C.char)(unsafe.Pointer(&b[0])) }

// Library is libibverbs. It stays loaded until the process ends. Its methods
// are safe for concurrent use.
type Library struct{ c C.struct_rs_lib }

// Open loads libibverbs; path "" lets the dynamic linker look for
// libibverbs.so.1. The error is [failure.NoLibrary], with the linker's words.
func Open(path string) (*Library, error) {
	if path == "" {
		path = "libibverbs.so.1"
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	l, why := new(Library), make([]byte, 512)
	if err := failed(C.rs_load(&l.c, name, chars(why), C.uint32_t(len(why))), ""); err != nil {
		err.Text = text(why)
		return nil, err
	}
	return l, nil
}

// File returns the file that was loaded, symlinks resolved; its name ends in
// the version: libibverbs.so.1.14.44.0 is of rdma-core 44. Empty: not known.
func (l *Library) File() string {
	path := make([]byte, 4096)
	C.rs_file(&l.c, chars(path), C.uint32_t(len(path)))
	return text(path)
}

// Devices returns the names of all devices that the library can open.
func (l *Library) Devices() ([]string, error) {
	var count C.uint32_t
	buf := make([]byte, 1024*C.RS_NAME)
	if err := failed(C.rs_devices(&l.c, chars(buf), 1024, &count), ""); err != nil {
		return nil, err
	}
	names := make([]string, min(count, 1024))
	for i := range names {
		names[i] = text(buf[i*C.RS_NAME:])
	}
	return names, nil
}

// Buffer is memory for devices to read and write: C's, zeroed, on a page.
type Buffer struct {
	memory unsafe.Pointer
	size   int
}

// NewBuffer maps size bytes, all of which are there when it returns.
func NewBuffer(size int) (*Buffer, error) {
	if size <= 0 {
		return nil, misuse("", "a buffer has a size")
	}
	b := &Buffer{size: size}
	if err := failed(C.rs_map(C.uint64_t(size), &b.memory), ""); err != nil {
		return nil, err
	}
	return b, nil
}

// Bytes returns the memory itself; nil after Close, after which what was
// returned before must not be touched.
func (b *Buffer) Bytes() []byte {
	if b.memory == nil {
		return nil
	}
	return unsafe.Slice((*byte)(b.memory), b.size)
}

// Close unmaps the memory. Rails on which it is registered are closed before.
// Closing again does nothing.
func (b *Buffer) Close() error {
	if b.memory == nil {
		return nil
	}
	err := failed(C.rs_unmap(b.memory, C.uint64_t(b.size)), "")
	b.memory = nil
	if err != nil {
		return err
	}
	return nil
}
