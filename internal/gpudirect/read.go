package gpudirect

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/amdgpu"
	"github.com/railscope/railscope/internal/sysfs"
)

// symbolsEvery is the time after which the kernel's symbols are read again: a driver may have been loaded.
const symbolsEvery = 10 * time.Minute

// Reader reads what determines the mode for AMD's GPUs. Safe for concurrent use.
type Reader struct {
	sysfs, procfs, root string

	mu       sync.Mutex // protects all following fields
	release  string     // release of the kernel with this configuration
	config   Config
	symbols  *Symbols // nil: could not be read
	symbolAt time.Time
}

// NewReader returns a reader for the mount points of sysfs and proc. root is the directory of boot and lib.
func NewReader(sysfs, procfs, root string) *Reader {
	return &Reader{sysfs: sysfs, procfs: procfs, root: root}
}

// Read reads all but the GPUs. An error means that the rest is unknown.
func (r *Reader) Read(now time.Time) (a AMD, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	release, err := sysfs.ReadString(r.procfs, "sys/kernel/osrelease")
	if err == nil {
		if k, parseErr := ParseKernel(release); parseErr == nil {
			a.Kernel = &k
		} else {
			err = sysfs.Invalid(filepath.Join(r.procfs, "sys/kernel/osrelease"), []byte(release), parseErr.Error())
		}
	}
	a.OwnDriver = sysfs.Exists(filepath.Join(r.sysfs, "module/amdgpu/version")) == nil // [amdgpu.Finder.Driver]
	a.Client = r.client()
	if r.onlyDMABuf() {
		a.Client = new(false)
	}
	if a.Kernel != nil && r.release != release {
		r.config, r.release = readConfig(r.procfs, r.root, release), release
	}
	a.Config = r.config
	if possible, _, known := a.Possible(); known && (possible || a.Client != nil) || a.Client != nil && *a.Client {
		return a, err
	}
	if r.symbolAt.IsZero() || now.Sub(r.symbolAt) >= symbolsEvery {
		r.symbols, r.symbolAt = readSymbols(r.procfs), now
	}
	if r.symbols != nil {
		if a.P2PDMA == nil {
			a.P2PDMA = &r.symbols.P2PDMA
		}
		if a.Client == nil && !r.symbols.Peers {
			a.Client = new(false)
		}
	}
	return a, err
}

// client reports whether amdkfd is a peer memory client. The place depends on the RDMA drivers, as in RCCL's
// src/transport/net_ib.cc; those of some kernels show no clients (ROCm/rccl#1328): nil, unknown.
func (r *Reader) client() (known *bool) {
	for _, dir := range []string{"kernel/mm/memory_peers", "kernel/memory_peers", "memory_peers"} {
		switch {
		case sysfs.Exists(filepath.Join(r.sysfs, dir, "amdkfd/version")) == nil:
			return new(true)
		case sysfs.Exists(filepath.Join(r.sysfs, dir)) == nil:
			known = new(false)
		}
	}
	return known
}

// onlyDMABuf reports whether no adapter here registers memory of a peer memory client: ionic answers EINVAL
// (ROCm/mori#509).
func (r *Reader) onlyDMABuf() bool {
	dir := filepath.Join(r.sysfs, "class/infiniband")
	devices, err := sysfs.List(dir)
	return err == nil && len(devices) > 0 && !slices.ContainsFunc(devices, func(e sysfs.Entry) bool {
		driver, _ := os.Readlink(filepath.Join(dir, e.Name, "device/driver"))
		return filepath.Base(driver) != "ionic"
	})
}

// readConfig reads the configuration of the running kernel where distributions have it.
func readConfig(procfs, root, release string) Config {
	if strings.Contains(release, "/") {
		return Config{}
	}
	for _, path := range []string{filepath.Join(procfs, "config.gz"), filepath.Join(root, "boot/config-"+release),
		filepath.Join(root, "lib/modules", release, "config")} {
		var c Config
		err := withFile(path, func(r io.Reader) (err error) {
			if strings.HasSuffix(path, ".gz") {
				r, err = gzip.NewReader(r)
			}
			if err == nil {
				c, err = ParseConfig(r)
			}
			return err
		})
		if err == nil {
			return c
		}
	}
	return Config{}
}

func readSymbols(procfs string) *Symbols {
	var s Symbols
	if err := withFile(filepath.Join(procfs, "kallsyms"), func(r io.Reader) (err error) {
		s, err = ParseSymbols(r)
		return err
	}); err != nil {
		return nil
	}
	return &s
}

func withFile(path string, read func(io.Reader) error) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return read(f)
}

// IsSmallBAR reports whether the memory of a GPU is not all visible on PCIe (amdgpu_vram_mgr.c). The memory of a GPU
// whose driver does not show that counts as visible.
func IsSmallBAR(g amdgpu.GPU) (bool, error) {
	total, err := g.Number(amdgpu.VRAMTotal)
	visible := total
	if err == nil {
		visible, err = g.Number(amdgpu.VRAMVisible)
	}
	if errors.Is(err, sysfs.ErrNone) {
		return false, nil
	}
	return visible < total, err
}
