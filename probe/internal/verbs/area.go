package verbs

import "unsafe"

// Area is memory as a device sees it, on this host or on a GPU.
type Area struct {
	Addr   uintptr // address for work requests
	Size   int64   // size in bytes
	DMABuf int     // descriptor of the dma-buf that exports it; -1 if there is none
	Offset uint64  // place of the memory in the dma-buf
	Device bool    // GPU memory, which the CPU must not access

	// Stage is the struct rs_stage that copies a GPU's memory to it; nil if there are no copies.
	Stage unsafe.Pointer
}

// AreaOf returns the area of a [Buffer]'s memory.
func AreaOf(memory []byte) Area {
	return Area{Addr: uintptr(unsafe.Pointer(unsafe.SliceData(memory))), Size: int64(len(memory)), DMABuf: -1}
}
