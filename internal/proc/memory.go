package proc

import (
	"fmt"
	"path/filepath"

	"github.com/prometheus/procfs"

	"github.com/railscope/railscope/internal/sysfs"
)

// Memory is the memory of the machine, in bytes.
type Memory struct {
	Total     uint64 // MemTotal
	Available uint64 // MemAvailable: what can be had without swapping, an estimate of the kernel's
}

// ReadMemory reads meminfo (proc_meminfo(5)). Errors are [*sysfs.Error].
func ReadMemory(root string) (Memory, error) {
	path := filepath.Join(root, "meminfo")
	info, err := call(root, path, procfs.FS.Meminfo)
	switch {
	case err != nil:
		return Memory{}, err
	case info.MemTotal == nil || info.MemAvailable == nil:
		return Memory{}, invalid(path, "MemTotal or MemAvailable is missing")
	case max(*info.MemTotal, *info.MemAvailable) > 1<<64/1024-1: // in kB; the library's bytes have wrapped
		return Memory{}, &sysfs.Error{Path: path, Reason: sysfs.ReasonRange,
			Err: fmt.Errorf("%d kB do not fit in 64 bits", *info.MemTotal)}
	}
	m := Memory{*info.MemTotalBytes, *info.MemAvailableBytes}
	if m.Total == 0 || m.Available > m.Total {
		return Memory{}, invalid(path, fmt.Sprintf("MemAvailable is %d of MemTotal %d bytes", m.Available, m.Total))
	}
	return m, nil
}
