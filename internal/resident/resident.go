// Package resident reduces the resident memory of this process.
package resident

import (
	"debug/elf"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// DropStartup drops the pages of the program's code and constants. The start of a program touches most of them once;
// those needed again are mapped from the page cache, in microseconds. It does nothing for a program that the loader
// places at an address of its choice (PIE).
//
// Only segments without write permission are dropped (madvise(2), MADV_DONTNEED of a private file mapping): relocated
// data is in another one.
func DropStartup() error {
	program, err := elf.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("read the program's segments: %w", err)
	}
	defer func() { _ = program.Close() }() // it was only read
	if program.Type != elf.ET_EXEC {
		return nil
	}
	page := uint64(os.Getpagesize())
	for _, s := range program.Progs {
		if s.Type != elf.PT_LOAD || s.Flags&elf.PF_W != 0 {
			continue
		}
		from, to := (s.Vaddr+page-1)&^(page-1), (s.Vaddr+s.Filesz)&^(page-1)
		if from >= to {
			continue
		}
		_, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(from), uintptr(to-from), unix.MADV_DONTNEED)
		if errno != 0 {
			return fmt.Errorf("drop the pages of segment %#x: %w", s.Vaddr, errno)
		}
	}
	return nil
}
