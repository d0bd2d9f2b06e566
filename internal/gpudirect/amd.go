package gpudirect

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
)

// Reasons of modes for AMD's GPUs, beside [OldKernel]. This list is complete.
const (
	PeerClient   = "amdkfd is a peer memory client"
	AMDDMABuf    = "kernel can do dma-buf with peer-to-peer"
	NoExport     = "no peer memory client, and amdgpu older than Linux 6.4"
	NoP2PDMA     = "no peer memory client, and kernel without CONFIG_PCI_P2PDMA"
	NoMoveNotify = "no peer memory client, and kernel without CONFIG_DMABUF_MOVE_NOTIFY"
	SmallBAR     = "BAR of a GPU is smaller than its memory"
)

// AMD holds the properties that determine the mode for AMD's GPUs.
type AMD struct {
	GPUs      int
	GPUsKnown bool    // all GPUs were read
	SmallBAR  bool    // memory of one of them is not all visible on PCIe
	Client    *bool   // amdkfd is a peer memory client that an adapter here can use; nil: unknown
	Kernel    *Kernel // nil: unknown
	OwnDriver bool    // AMD's driver for ROCm instead of the kernel's: it exports memory on older kernels, too
	Config
}

// Config has the options of the kernel's build without which amdgpu moves memory to the host when an adapter registers
// it (amdgpu_dma_buf_attach and amdgpu_dma_buf_pin in drivers/gpu/drm/amd/amdgpu/amdgpu_dma_buf.c); nil: unknown.
type Config struct{ P2PDMA, MoveNotify *bool }

func off(option *bool) bool { return option != nil && !*option }

// Possible reports whether kernel and driver can do dma-buf. ok reports whether that can be decided.
func (a AMD) Possible() (possible bool, why string, ok bool) {
	switch {
	case a.Kernel != nil && a.Kernel.before(kernelMajor, kernelMinor):
		return false, OldKernel, !a.Kernel.Backports
	case a.Kernel != nil && !a.OwnDriver && a.Kernel.before(6, 4): // AMDKFD_IOC_EXPORT_DMABUF, commit fd234e758116
		return false, NoExport, !a.Kernel.Backports
	case off(a.P2PDMA):
		return false, NoP2PDMA, true
	case off(a.MoveNotify):
		return false, NoMoveNotify, true
	}
	return true, AMDDMABuf, a.Kernel != nil && a.P2PDMA != nil && a.MoveNotify != nil
}

// Mode returns how adapters access GPU memory, and why: peermem, dmabuf or none; empty if unknown.
func (a AMD) Mode() (mode, reason string) {
	possible, why, known := a.Possible()
	switch {
	case a.SmallBAR:
		return "none", SmallBAR
	case !a.GPUsKnown:
		return "", ""
	case a.Client != nil && *a.Client:
		return "peermem", PeerClient
	case known && possible:
		return "dmabuf", why
	case a.Client == nil || !known:
		return "", ""
	}
	return "none", why
}

// Bounds of the files of a kernel: a configuration has 300 KB, a list of symbols some 15 MB.
const (
	maxConfig  = 4 << 20
	maxSymbols = 128 << 20
)

// lines calls each with every line, and returns an error if there is none or if they are longer than most.
func lines(r io.Reader, most int64, each func([]byte)) error {
	limited := &io.LimitedReader{R: r, N: most}
	n, s := 0, bufio.NewScanner(limited)
	for ; s.Scan(); n++ {
		each(s.Bytes())
	}
	switch {
	case s.Err() != nil:
		return s.Err()
	case n == 0:
		return errors.New("empty")
	case limited.N == 0:
		return errors.New("too long")
	}
	return nil
}

// ParseConfig parses the configuration of a kernel. Linux has no option DMABUF_MOVE_NOTIFY since commit 609fc8766d68
// (2026-01), and behaves as with it.
func ParseConfig(r io.Reader) (Config, error) {
	options := map[string]bool{"CONFIG_PCI_P2PDMA": false}
	err := lines(r, maxConfig, func(line []byte) {
		name, value, set := strings.Cut(string(line), "=")
		if !set {
			name, set = strings.CutSuffix(strings.TrimPrefix(string(line), "# "), " is not set")
		}
		switch name {
		case "CONFIG_PCI", "CONFIG_PCI_P2PDMA", "CONFIG_DMABUF_MOVE_NOTIFY", "CONFIG_DMA_SHARED_BUFFER":
			if set {
				options[name] = value == "y"
			}
		}
	})
	if _, isConfig := options["CONFIG_PCI"]; err == nil && !isConfig {
		err = errors.New("not the configuration of a kernel")
	}
	if err != nil {
		return Config{}, err
	}
	notify, known := options["CONFIG_DMABUF_MOVE_NOTIFY"]
	if !known {
		notify = options["CONFIG_DMA_SHARED_BUFFER"]
	}
	return Config{new(options["CONFIG_PCI_P2PDMA"]), &notify}, nil
}

// Symbols are symbols of the kernel and its modules.
type Symbols struct {
	P2PDMA bool // CONFIG_PCI_P2PDMA; DMABUF_MOVE_NOTIFY has no symbol of its own
	Peers  bool // peer memory, without which there are no clients: ib_core of NVIDIA's drivers, or of Ubuntu
}

// ParseSymbols parses /proc/kallsyms.
func ParseSymbols(r io.Reader) (s Symbols, err error) {
	err = lines(r, maxSymbols, func(line []byte) {
		_, name, _ := bytes.Cut(line, []byte(" ")) // "0000000000000000 T name" and, for one of a module, "\t[module]"
		switch {
		case len(name) < 3:
		case bytes.HasPrefix(name[2:], []byte("pci_p2pdma_")):
			s.P2PDMA = true
		case bytes.HasPrefix(name[2:], []byte("ib_register_peer_memory_client")):
			s.Peers = true
		}
	})
	return s, err
}

// Worst returns the mode of a node with GPUs of two vendors, and its reason.
func Worst(modeA, reasonA, modeB, reasonB string) (mode, reason string) {
	for _, worst := range []string{"none", "unsupported", "", "dmabuf", "peermem"} {
		switch worst {
		case modeA:
			return modeA, reasonA
		case modeB:
			return modeB, reasonB
		}
	}
	return "", ""
}
