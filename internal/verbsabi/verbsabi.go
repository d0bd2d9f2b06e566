// Package verbsabi reads which versions of the kernel's interface a provider of libibverbs supports, from its library,
// without loading the library.
package verbsabi

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
)

// Range holds the supported versions. libibverbs compares them with abi_version of a device, and skips a device with
// another version with a warning (match_device in libibverbs/init.c).
type Range struct {
	Min uint32 `json:"min"`
	Max uint32 `json:"max"`
}

// maxLibrary bounds the size of a library that is read: rdma-core's largest has less than 1 MiB.
const maxLibrary = 64 << 20

// Offsets in struct verbs_device_ops (libibverbs/driver.h), on machines with pointers of 8 bytes: name, the smallest
// and the largest version, match table.
const (
	opsMin   = 8
	opsMax   = 12
	opsTable = 16
	opsSize  = 24
)

// Read finds the range of the provider in its library; nil if there is none: the library may have another format.
func Read(path, name string) *Range {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxLibrary {
		return nil
	}
	f, err := elf.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	if f.Class != elf.ELFCLASS64 {
		return nil
	}
	return find(f, name)
}

// find finds the struct verbs_device_ops of the provider.
func find(f *elf.File, name string) *Range {
	ops := f.Section(".data.rel.ro")
	if ops == nil || ops.Size > maxLibrary {
		return nil
	}
	data, err := ops.Data()
	if err != nil {
		return nil
	}
	relocate(f, ops.Addr, data)
	for at := 0; at+opsSize <= len(data); at += 8 {
		pointer, table := f.ByteOrder.Uint64(data[at:]), f.ByteOrder.Uint64(data[at+opsTable:])
		r := Range{f.ByteOrder.Uint32(data[at+opsMin:]), f.ByteOrder.Uint32(data[at+opsMax:])}
		if table != 0 && r.Min <= r.Max && hasString(f, pointer, name) {
			return &r
		}
	}
	return nil
}

// relocate writes the pointers of relative relocations into the data of the section at this address. Those of
// DT_RELR are in the data already.
func relocate(f *elf.File, address uint64, data []byte) {
	section := f.Section(".rela.dyn")
	relative := map[elf.Machine]uint32{elf.EM_X86_64: uint32(elf.R_X86_64_RELATIVE),
		elf.EM_AARCH64: uint32(elf.R_AARCH64_RELATIVE)}[f.Machine]
	if section == nil || relative == 0 || section.Size > maxLibrary {
		return
	}
	table, err := section.Data()
	if err != nil {
		return
	}
	var entry elf.Rela64
	for r := bytes.NewReader(table); binary.Read(r, f.ByteOrder, &entry) == nil; {
		at := entry.Off - address // wraps for relocations before the section
		if elf.R_TYPE64(entry.Info) == relative && at < uint64(len(data)) && uint64(len(data))-at >= 8 {
			f.ByteOrder.PutUint64(data[at:], uint64(entry.Addend))
		}
	}
}

// hasString reports whether the C string at this address is text.
func hasString(f *elf.File, address uint64, text string) bool {
	for _, s := range f.Sections {
		at := address - s.Addr
		if s.Type != elf.SHT_PROGBITS || s.Addr == 0 || address < s.Addr || at >= s.Size {
			continue
		}
		found := make([]byte, len(text)+1)
		n, _ := s.ReadAt(found, int64(at)) // less at the end of the section
		return string(found[:n]) == text+"\x00"
	}
	return false
}
