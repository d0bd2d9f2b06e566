// Package verbsabitest makes libraries of providers of libibverbs, of which only the supported versions are there.
package verbsabitest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// Library returns a provider's library with the sections of libbnxt_re-rdmav34.so (rdma-core 44), another pointer to
// its name, and the struct verbs_device_ops (libibverbs/driver.h). With packed, pointers are in the data, as with
// DT_RELR; else .rela.dyn has them.
func Library(machine elf.Machine, name string, lowest, highest uint32, packed bool) []byte {
	const (
		texts, ops = 0x6000, 0x79a0 // addresses of sections
		at         = 24             // offset of the struct in its section
	)
	text := []byte("other\x00" + name + "\x00")
	data := make([]byte, 64)
	binary.LittleEndian.PutUint32(data[at+8:], lowest)
	binary.LittleEndian.PutUint32(data[at+12:], highest)
	relative := uint32(elf.R_X86_64_RELATIVE)
	if machine == elf.EM_AARCH64 {
		relative = uint32(elf.R_AARCH64_RELATIVE)
	}
	var rela bytes.Buffer
	for from, address := range map[int]uint64{0: texts + 6, at: texts + 6, at + 16: texts + 6} {
		if packed {
			binary.LittleEndian.PutUint64(data[from:], address)
			continue
		}
		_ = binary.Write(&rela, binary.LittleEndian, elf.Rela64{Off: ops + uint64(from),
			Info: elf.R_INFO(0, relative), Addend: int64(address)}) // a Buffer never fails
	}
	names := []byte("\x00.rodata\x00.data.rel.ro\x00.rela.dyn\x00.shstrtab\x00")
	var body bytes.Buffer
	var headers []elf.Section64
	add := func(name string, kind elf.SectionType, address uint64, content []byte) {
		headers = append(headers, elf.Section64{Name: uint32(bytes.Index(names, []byte(name+"\x00"))),
			Type: uint32(kind), Addr: address, Off: 64 + uint64(body.Len()), Size: uint64(len(content))})
		body.Write(content)
	}
	headers = append(headers, elf.Section64{})
	add(".rodata", elf.SHT_PROGBITS, texts, text)
	add(".data.rel.ro", elf.SHT_PROGBITS, ops, data)
	add(".rela.dyn", elf.SHT_RELA, 0xbd8, rela.Bytes())
	add(".shstrtab", elf.SHT_STRTAB, 0, names)
	header := elf.Header64{Ident: [16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, Type: uint16(elf.ET_DYN),
		Machine: uint16(machine),
		Version: 1, Ehsize: 64, Shentsize: 64, Shoff: 64 + uint64(body.Len()), Shnum: uint16(len(headers)),
		Shstrndx: uint16(len(headers) - 1)}
	var out bytes.Buffer
	_ = binary.Write(&out, binary.LittleEndian, header)
	out.Write(body.Bytes())
	_ = binary.Write(&out, binary.LittleEndian, headers)
	return out.Bytes()
}
