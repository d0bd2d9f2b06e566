package verbs

import "unsafe"

// Area is memory as a device sees it: on this host, or on a GPU.
type Area struct {
	Addr   uintptr // where work requests find it
	Size   int64   // bytes
	DMABuf int     // descriptor that exports it from its start; -1: none
	Device bool    // the CPU must not touch it: it is on a GPU

	// Stage is the struct rs_stage that copies to it what is on a GPU; nil: nothing is.
	Stage unsafe.Pointer
}

// AreaOf returns memory of a [Buffer] as an area.
func AreaOf(memory []byte) Area {
	return Area{Addr: uintptr(unsafe.Pointer(unsafe.SliceData(memory))), Size: int64(len(memory)), DMABuf: -1}
}
