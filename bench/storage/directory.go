package storage

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// alignment satisfies O_DIRECT on every common file system.
const alignment = 4096

// aligned returns n bytes at an aligned address, with capacity for a full last block.
func aligned(n int64) []byte {
	b := make([]byte, n+2*alignment)
	skip := int64(-uintptr(unsafe.Pointer(&b[0])) % alignment) //nolint:gosec // only uses the address
	return b[skip : skip+n : skip+(n+alignment-1)/alignment*alignment]
}

// Directory is a target in a file system: one file per part in a new subdirectory.
type Directory struct {
	path, below string // below is empty until it is created
	memory      bool
	advised     atomic.Bool
	statfs      func(string, *unix.Statfs_t) error
}

// NewDirectory returns a target below an existing directory.
func NewDirectory(path string) *Directory { return &Directory{path: path, statfs: unix.Statfs} }

// newName returns a random name for the files or object of a run.
func newName() string {
	var b [4]byte
	rand.Read(b[:]) //nolint:errcheck // never fails
	return "railscope-" + hex.EncodeToString(b[:])
}

// Create makes the subdirectory if 20 % of the file system remains free.
func (d *Directory) Create(_ context.Context, size, _ int64) error {
	var st unix.Statfs_t
	if err := d.statfs(d.path, &st); err != nil {
		return fmt.Errorf("statfs %s: %w", d.path, err)
	}
	d.memory = st.Type == unix.TMPFS_MAGIC
	free, total := float64(st.Bavail)*float64(st.Bsize), float64(st.Blocks)*float64(st.Bsize)
	if free-float64(size) < total/5 {
		return fmt.Errorf("%s: %d bytes would leave less than 20 %% of the file system free: use a smaller --size",
			d.path, size)
	}
	below := filepath.Join(d.path, newName())
	if err := os.Mkdir(below, 0o700); err != nil {
		return err
	}
	d.below = below
	return nil
}

func (d *Directory) part(i int) string { return filepath.Join(d.below, fmt.Sprintf("part-%06d", i)) }

// WritePart writes and syncs one file.
func (d *Directory) WritePart(_ context.Context, i int, data []byte) (err error) {
	f, err := os.OpenFile(d.part(i), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Sync()
}

// Finish syncs the directory.
func (d *Directory) Finish(context.Context) error {
	f, err := os.Open(d.below)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// ReadPart bypasses the page cache: with O_DIRECT, or else by advising the kernel to drop the file's pages first.
func (d *Directory) ReadPart(_ context.Context, i int, _ int64, data []byte) error {
	err := readFile(d.part(i), data, unix.O_DIRECT)
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	d.advised.Store(true)
	return readFile(d.part(i), data, 0)
}

func readFile(name string, data []byte, flag int) (err error) {
	f, err := os.OpenFile(name, os.O_RDONLY|flag, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	into := data
	if flag == 0 {
		if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			return fmt.Errorf("fadvise %s: %w", name, err)
		}
	} else {
		into = data[:min((len(data)+alignment-1)/alignment*alignment, cap(data))]
	}
	for read := 0; read < len(data); {
		n, err := f.Read(into[read:])
		read += n
		if err == io.EOF && read < len(data) {
			return io.ErrUnexpectedEOF
		} else if err != nil && err != io.EOF {
			return err
		}
	}
	return nil
}

// Remove removes the subdirectory.
func (d *Directory) Remove(context.Context) error {
	if d.below == "" {
		return nil
	}
	return os.RemoveAll(d.below)
}

// Describe sets how the page cache was bypassed, and whether the file system is in memory.
func (d *Directory) Describe(r *Result) {
	r.Memory, r.Cache = d.memory, "direct"
	if d.advised.Load() {
		r.Cache = "advised"
	}
}
