//go:build cgo

package verbs

// #cgo CFLAGS: -std=gnu11 -Wall -Wextra
// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"bytes"
	"fmt"
	"syscall"
	"unsafe"
)

// check converts an error of C into a failure; nil if there is none. text may explain it.
func check(e C.struct_rs_error, device string, text ...byte) error {
	if e.op == nil {
		return nil
	}
	if e.name != nil {
		text = fmt.Appendf(nil, "%s (CUDA error %d)", C.GoString(e.name), e.vendor)
	}
	return fault{op: C.GoString(e.op), device: device, errno: syscall.Errno(-e.err), status: int(e.status),
		vendor: uint32(e.vendor), text: cString(text)}.failure()
}

// cString returns the text that C wrote into a buffer, up to its 0.
func cString(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}

func chars(b []byte) *C.char { return (*C.char)(unsafe.Pointer(&b[0])) }

// Library is libibverbs. It stays loaded until the process ends. Its methods are safe for concurrent use.
type Library struct{ c C.struct_rs_lib }

// Open loads libibverbs; with an empty path the dynamic linker finds libibverbs.so.1. The error has reason NoLibrary
// and the linker's message.
func Open(path string) (*Library, error) {
	if path == "" {
		path = "libibverbs.so.1"
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	l, message := new(Library), make([]byte, 512)
	e := C.rs_load(&l.c, name, chars(message), C.uint32_t(len(message)))
	if err := check(e, "", message...); err != nil {
		return nil, err
	}
	return l, nil
}

// File returns the loaded file with symlinks resolved, or an empty string if it is unknown.
func (l *Library) File() string {
	path := make([]byte, 4096)
	C.rs_file(&l.c, chars(path), C.uint32_t(len(path)))
	return cString(path)
}

// Check lists the devices. It fails if that is impossible for all rails: NoUverbs, DevPerm.
func (l *Library) Check() error { return check(C.rs_check(&l.c), "") }

// Watch is a device that is open to receive its asynchronous events. It has no protection domain, queue pair or memory.
// Not safe for concurrent use.
type Watch struct{ c *C.struct_rs_watch }

// Watch opens a device. The caller closes the watch.
func (l *Library) Watch(device string) (*Watch, error) {
	name := C.CString(device)
	defer C.free(unsafe.Pointer(name))
	w := &Watch{(*C.struct_rs_watch)(C.calloc(1, C.sizeof_struct_rs_watch))}
	if err := check(C.rs_watch_open(l.c, name, w.c), device); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// FD returns the descriptor, which is readable while an event waits.
func (w *Watch) FD() int { return int(w.c.fd) }

// Character returns the name of the character device, such as uverbs0.
func (w *Watch) Character() string { return C.GoString(w.c.character) }

// Next returns the next event that waits, and the port, or 0 for one of the whole device. ok is false if none waits.
func (w *Watch) Next() (event Event, port int, ok bool) {
	var p C.int32_t
	kind := C.rs_watch_next(w.c, &p)
	return Event(kind), int(p), kind >= 0
}

// Close closes the device.
func (w *Watch) Close() {
	C.rs_watch_close(w.c)
	C.free(unsafe.Pointer(w.c))
}
