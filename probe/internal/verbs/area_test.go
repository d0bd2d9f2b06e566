//go:build cgo

package verbs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/pattern"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// nowhere is an address that is not mapped for the CPU, like memory that only a device sees.
const nowhere = 0x10000000000

// exported returns memory that a device sees at nowhere, through a descriptor, and a view of it.
func exported(t *testing.T, size int) (Area, []byte) {
	t.Helper()
	fd := must(unix.MemfdCreate("dma-buf", unix.MFD_CLOEXEC))
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		t.Fatal(err)
	}
	view := must(unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))
	t.Cleanup(func() { _ = unix.Munmap(view) })
	return Area{Addr: nowhere, Size: int64(size), DMABuf: fd, Device: true}, view
}

// TestDMABuf: bytes move between areas that only devices see, in both directions, even those small enough to be inline.
func TestDMABuf(t *testing.T) {
	for _, op := range []transfer.Op{transfer.Write, transfer.Read} {
		t.Run(string(op), func(t *testing.T) {
			e := connected(t, 4096, 1, 8, fakeverbs.Knobs{})
			open := func(node string, target bool, area Area) *Rail {
				e.fabric.Use(t, node)
				spec := e.rails[0].spec
				spec.Op, spec.Target, spec.Depth = op, target, 8
				r := must(e.lib.OpenRail(spec))
				t.Cleanup(func() { r.Close() })
				if err := errors.Join(r.Register(area), r.Expect()); err != nil {
					t.Fatal(err)
				}
				return r
			}
			const ring, chunk = 8 * 65536, 65536
			area, source := exported(t, transfer.SourceLen)
			pattern.Fill(source, seed, 0)
			into, rings := exported(t, ring)
			ours, theirs := area, into
			if op == transfer.Read {
				ours, theirs = into, area
			}
			asker, target := open("A", false, ours), open("B", true, theirs)
			connect(t, target, asker)
			connect(t, asker, target)
			loads := e.loads(chunk, 8)
			done, err := e.run.Burst([]*Rail{asker}, transfer.BurstArgs{Loads: loads, Slow: time.Second,
				Deadline: time.Second, Pass: 5})
			if err != nil || done.Rails[0].Writes[0] != 8 {
				t.Fatalf("%+v, %v", done, err)
			}
			for i := range int64(8) {
				at, from := transfer.Place(i, ring, chunk, 5)
				if !bytes.Equal(rings[at:at+chunk], source[from:from+chunk]) {
					t.Errorf("chunk %d is wrong", i)
				}
			}
			if _, _, err := e.run.Latency(asker, 8, 4, time.Second); err != nil {
				t.Errorf("8 bytes: %v", err)
			}
		})
	}
}

// TestRegisterFails: the reason depends on the kind of memory.
func TestRegisterFails(t *testing.T) {
	area, _ := exported(t, transfer.Page)
	b := buffer(t, transfer.Page)
	defer b.Close()
	host := AreaOf(b.Bytes())
	gpu := host
	gpu.Device = true
	with := func(a Area, change func(*Area)) Area { change(&a); return a }
	reg := func(e syscall.Errno) fakeverbs.Knobs { return fakeverbs.Knobs{RegMRErrno: uint64(e)} }
	dmabuf := func(e syscall.Errno) fakeverbs.Knobs { return fakeverbs.Knobs{DMABufErrno: uint64(e)} }
	for _, tc := range []struct {
		name  string
		knobs fakeverbs.Knobs
		area  Area
		want  failure.Reason
	}{
		{"host memory", fakeverbs.Knobs{}, host, ""},
		{"GPU memory", fakeverbs.Knobs{}, gpu, ""},
		{"dma-buf", fakeverbs.Knobs{}, area, ""},
		{"dma-buf where memory is refused", reg(syscall.ENOMEM), area, ""},
		{"host memory where dma-bufs are refused", dmabuf(syscall.EOPNOTSUPP), host, ""},
		{"driver without dma-buf", dmabuf(syscall.EOPNOTSUPP), area, failure.NoDMABuf},
		{"kernel without dma-buf", dmabuf(syscall.ENOSYS), area, failure.NoDMABuf},
		{"no dma-buf", fakeverbs.Knobs{}, with(area, func(a *Area) { a.Size *= 2 }), failure.NoDMABuf},
		{"device gone", dmabuf(syscall.EIO), area, failure.DeviceFatal},
		{"GPU memory that nobody resolves", fakeverbs.Knobs{}, with(gpu, func(a *Area) { a.Addr = nowhere }),
			failure.NoPeermem},
		{"GPU memory, refused", reg(syscall.EINVAL), gpu, failure.NoPeermem},
		{"host memory that is not there", fakeverbs.Knobs{}, with(host, func(a *Area) { a.Addr = nowhere }), failure.Other},
		{"locked memory", reg(syscall.ENOMEM), host, failure.Memlock},
		{"nothing", fakeverbs.Knobs{}, AreaOf(nil), failure.Other},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.area.Addr == nowhere && !seesMemory() {
				t.Skip("qemu-user has no process_vm_readv: the fake cannot tell that nothing is there")
			}
			f := fakeverbs.New(t)
			f.Add("A", fakeverbs.Device{Name: "mlx5_0", GIDs: fakeverbs.RoCE("192.0.2.1"), Knobs: tc.knobs})
			f.Use(t, "A")
			for _, target := range []bool{false, true} {
				r := must(fake(t).OpenRail(Spec{Device: "mlx5_0", Port: 1, GIDIndex: 3, QueuePairs: 1, Depth: 1, Target: target}))
				if err := r.Register(tc.area); reason(err) != tc.want {
					t.Errorf("%v, want %q", err, tc.want)
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}
			if left := f.Left(); left != nil {
				t.Error("left open:", fmt.Sprint(left))
			}
		})
	}
}

// seesMemory reports whether the fake libibverbs can determine what is mapped.
func seesMemory() bool {
	from, to := make([]byte, 1), make([]byte, 1)
	_, err := unix.ProcessVMReadv(os.Getpid(), []unix.Iovec{{Base: &to[0], Len: 1}},
		[]unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&from[0])), Len: 1}}, 0)
	return err == nil
}
