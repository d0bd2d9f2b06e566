package collector

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/railscope/railscope/internal/sysfs"
)

// meminfo is the memory of the machine, in bytes.
type meminfo struct {
	total     uint64 // MemTotal
	available uint64 // MemAvailable: what can be had without swapping, an estimate of the kernel's
}

// readMeminfo reads <procfs>/meminfo. Errors are [*sysfs.Error].
func readMeminfo(procfs string) (meminfo, error) {
	path := filepath.Join(procfs, "meminfo")
	f := sysfs.File{Path: path}
	defer f.Close()
	var buf [sysfs.MaxFile + 1]byte
	b, err := f.Read(buf[:])
	if err != nil {
		return meminfo{}, err
	}
	m, err := parseMeminfo(b)
	if e := (*sysfs.Error)(nil); errors.As(err, &e) {
		e.Path = path
	}
	return m, err
}

// parseMeminfo parses proc_meminfo(5). Errors are [*sysfs.Error].
func parseMeminfo(b []byte) (meminfo, error) {
	total, err := meminfoLine(b, "MemTotal:")
	if err != nil {
		return meminfo{}, err
	}
	available, err := meminfoLine(b, "MemAvailable:")
	if err != nil {
		return meminfo{}, err
	}
	if total == 0 || available > total {
		return meminfo{}, &sysfs.Error{Reason: sysfs.ReasonInvalid,
			Err: fmt.Errorf("MemAvailable is %d of MemTotal %d bytes", available, total)}
	}
	return meminfo{total: total, available: available}, nil
}

// meminfoLine returns the value of the first line with the name, in bytes. The
// kernel writes kB and means 1024 bytes.
func meminfoLine(b []byte, name string) (uint64, error) {
	for line := range bytes.Lines(b) {
		rest, ok := bytes.CutPrefix(line, []byte(name))
		if !ok {
			continue
		}
		number, ok := bytes.CutSuffix(bytes.TrimSpace(rest), []byte(" kB"))
		if !ok {
			return 0, &sysfs.Error{Reason: sysfs.ReasonInvalid, Err: fmt.Errorf("%s is not in kB", name)}
		}
		v, err := sysfs.ParseUint(number)
		if err != nil {
			return 0, err
		}
		if v > 1<<64/1024-1 {
			return 0, &sysfs.Error{Reason: sysfs.ReasonRange, Err: fmt.Errorf("%s does not fit in 64 bits", name)}
		}
		return v * 1024, nil
	}
	return 0, &sysfs.Error{Reason: sysfs.ReasonInvalid, Err: fmt.Errorf("%s is missing", name)}
}
