package gpudirect

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/sysfstest"
)

// Lines of configurations: Ubuntu 6.8.0 (config-6.8.0-107-generic), Talos before siderolabs/pkgs#1356, and a kernel
// with commit 609fc8766d68, which has no DMABUF_MOVE_NOTIFY.
const (
	ubuntu = "#\n# Automatically generated file; DO NOT EDIT.\n#\nCONFIG_PCI=y\nCONFIG_PCI_P2PDMA=y\n" +
		"CONFIG_DMA_SHARED_BUFFER=y\nCONFIG_DMABUF_MOVE_NOTIFY=y\n"
	talos   = "CONFIG_PCI=y\n# CONFIG_PCI_P2PDMA is not set\nCONFIG_DMA_SHARED_BUFFER=y\nCONFIG_DMABUF_MOVE_NOTIFY=y\n"
	pinned  = "CONFIG_PCI=y\nCONFIG_PCI_P2PDMA=y\nCONFIG_DMA_SHARED_BUFFER=y\n# CONFIG_DMABUF_MOVE_NOTIFY is not set\n"
	without = "CONFIG_PCI=y\nCONFIG_PCI_P2PDMA=y\nCONFIG_DMA_SHARED_BUFFER=y\n"
)

// Lines of /proc/kallsyms as a user without CAP_SYSLOG reads them.
const (
	symbols = "0000000000000000 A fixed_percpu_data\n0000000000000000 T pci_p2pdma_distance_many\n"
	peers   = "0000000000000000 t ib_register_peer_memory_client\t[ib_core]\n"
	noPeers = "0000000000000000 d pfn_ib_register_peer_memory_client\t[amdgpu]\n"
)

func TestParseConfig(t *testing.T) {
	for text, want := range map[string]Config{
		ubuntu: {new(true), new(true)}, talos: {new(false), new(true)}, pinned: {new(true), new(false)},
		without: {new(true), new(true)}, "CONFIG_PCI=y\n": {new(false), new(false)},
		"CONFIG_PCI=y\nCONFIG_PCI_P2PDMA=\n": {new(false), new(false)},
		"":                                   {}, "CONFIG_64BIT=y\n": {}, "\x00\x01": {},
		"CONFIG_PCI=y\n" + strings.Repeat("#\n", maxConfig): {},
		strings.Repeat("x", 1<<20):                          {},
	} {
		got, err := ParseConfig(strings.NewReader(text))
		if diff := cmp.Diff(want, got); diff != "" || (err != nil) != (want.P2PDMA == nil) {
			t.Errorf("%.60q: %v %s", text, err, diff)
		}
	}
}

func TestParseSymbols(t *testing.T) {
	for text, want := range map[string]Symbols{
		symbols + peers: {true, true}, symbols + noPeers: {P2PDMA: true}, peers: {Peers: true}, "x\n0 \n": {},
	} {
		if got, err := ParseSymbols(strings.NewReader(text)); got != want || err != nil {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	if _, err := ParseSymbols(strings.NewReader("")); err == nil {
		t.Error("no symbols are symbols")
	}
}

// TestAMD: the mode and whether dma-buf is possible, for each file that may be missing or say otherwise.
func TestAMD(t *testing.T) {
	const release = "6.8.0-107-generic"
	type tree map[string]string // "" removes a file
	base := tree{"proc/sys/kernel/osrelease": release + "\n", "boot/config-" + release: ubuntu,
		"proc/kallsyms": symbols + noPeers, "sys/module/amdgpu/initstate": "live\n"}
	for _, tt := range []struct {
		name         string
		change       tree
		mode, reason string
		dmabuf       string
	}{
		{"Ubuntu 24.04", nil, "dmabuf", AMDDMABuf, "true"},
		{"client", tree{"sys/kernel/mm/memory_peers/amdkfd/version": "1.0\n"}, "peermem", PeerClient, "true"},
		{"client beside ionic", tree{"sys/kernel/mm/memory_peers/amdkfd/version": "1.0\n",
			"sys/class/infiniband/ionic_0/device/driver": "-> ../../../../bus/pci/drivers/ionic"}, "dmabuf", AMDDMABuf,
			"true"},
		{"client beside ionic, without dma-buf", tree{"sys/kernel/mm/memory_peers/amdkfd/version": "1.0\n",
			"boot/config-" + release:                     talos,
			"sys/class/infiniband/ionic_0/device/driver": "-> ../../../../bus/pci/drivers/ionic"}, "none", NoP2PDMA,
			"false"},
		{"client beside ionic and mlx5", tree{"sys/kernel/mm/memory_peers/amdkfd/version": "1.0\n",
			"sys/class/infiniband/ionic_0/device/driver": "-> ../../../../bus/pci/drivers/ionic",
			"sys/class/infiniband/mlx5_0/device/driver":  "-> ../../../../bus/pci/drivers/mlx5_core"}, "peermem",
			PeerClient, "true"},
		{"client of bnxt", tree{"sys/kernel/memory_peers/amdkfd/version": "1.0\n"}, "peermem", PeerClient, "true"},
		{"client elsewhere", tree{"sys/memory_peers/amdkfd/version": "1.0\n", "boot/config-" + release: talos},
			"peermem", PeerClient, "false"},
		{"Talos", tree{"boot/config-" + release: talos}, "none", NoP2PDMA, "false"},
		{"no notification", tree{"boot/config-" + release: pinned}, "none", NoMoveNotify, "false"},
		{"peers without a list of clients", tree{"boot/config-" + release: pinned, "proc/kallsyms": symbols + peers},
			"", "", "false"},
		{"peers without this client", tree{"boot/config-" + release: pinned, "proc/kallsyms": symbols + peers,
			"sys/kernel/mm/memory_peers/nv_mem/version": "1.0\n"}, "none", NoMoveNotify, "false"},
		{"Fedora", tree{"boot/config-" + release: "", "lib/modules/" + release + "/config": ubuntu},
			"dmabuf", AMDDMABuf, "true"},
		{"no configuration", tree{"boot/config-" + release: ""}, "", "", "unknown"},
		{"no configuration, no symbol", tree{"boot/config-" + release: "", "proc/kallsyms": noPeers}, "none", NoP2PDMA,
			"false"},
		{"nothing", tree{"boot/config-" + release: "", "proc/kallsyms": ""}, "", "", "unknown"},
		{"no release", tree{"proc/sys/kernel/osrelease": ""}, "", "", "unknown"},
		{"a release that is a path", tree{"proc/sys/kernel/osrelease": "6.8.0/../x\n"}, "", "", "unknown"},
		{"old amdgpu", tree{"proc/sys/kernel/osrelease": "5.15.0-100-generic\n",
			"boot/config-5.15.0-100-generic": ubuntu},
			"none", NoExport, "false"},
		{"old amdgpu of RHEL", tree{"proc/sys/kernel/osrelease": "5.14.0-503.el9.x86_64\n",
			"boot/config-5.14.0-503.el9.x86_64": ubuntu},
			"", "", "unknown"},
		{"AMD's driver", tree{"proc/sys/kernel/osrelease": "5.15.0-100-generic\n",
			"boot/config-5.15.0-100-generic": ubuntu, "sys/module/amdgpu/version": "6.7.0\n"},
			"dmabuf", AMDDMABuf, "true"},
		{"old kernel", tree{"proc/sys/kernel/osrelease": "5.4.0\n", "sys/module/amdgpu/version": "5.13.20\n"}, "none",
			OldKernel, "false"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := sysfstest.Write(t, t.TempDir(), nil)
			for _, files := range []tree{base, tt.change} {
				for path, text := range files {
					path = filepath.Join(root.Dir, path)
					if text == "" {
						_ = os.Remove(path) // the test fails if it exists
						continue
					}
					if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
						t.Fatal(err)
					}
					if target, link := strings.CutPrefix(text, "-> "); link {
						if err := os.Symlink(target, path); err != nil {
							t.Fatal(err)
						}
						continue
					}
					if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			a, _ := NewReader(root.Sys(), root.Proc(), root.Dir).Read(time.Now())
			a.GPUs, a.GPUsKnown = 8, true
			mode, reason := a.Mode()
			dmabuf := "unknown"
			if possible, _, known := a.Possible(); known {
				dmabuf = map[bool]string{false: "false", true: "true"}[possible]
			}
			if mode != tt.mode || reason != tt.reason || dmabuf != tt.dmabuf {
				t.Errorf("%q, %q, dma-buf %s; want %q, %q, %s", mode, reason, dmabuf, tt.mode, tt.reason, tt.dmabuf)
			}
			a.SmallBAR = true
			if mode, reason := a.Mode(); mode != "none" || reason != SmallBAR {
				t.Errorf("small BAR: %q, %q", mode, reason)
			}
		})
	}
}

// TestReaderAgain: a driver that is loaded later is seen, and the compressed configuration is read.
func TestReaderAgain(t *testing.T) {
	root, now := sysfstest.Write(t, t.TempDir(), []byte("-- proc/sys/kernel/osrelease --\n6.12.0-talos\n"+
		"-- proc/kallsyms --\n"+symbols+noPeers)), time.Now()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write([]byte(pinned))
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		err = os.WriteFile(root.Proc("config.gz"), packed.Bytes(), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := NewReader(root.Sys(), root.Proc(), root.Dir)
	for _, tt := range []struct {
		after   time.Duration
		symbols string
		known   bool
	}{{0, symbols + noPeers, true}, {symbolsEvery - 1, symbols + peers, true}, {symbolsEvery, symbols + peers, false}} {
		if err := os.WriteFile(root.Proc("kallsyms"), []byte(tt.symbols), 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := r.Read(now.Add(tt.after))
		if err != nil || (a.Client != nil) != tt.known || a.MoveNotify == nil || *a.MoveNotify {
			t.Errorf("after %v: %+v, %v", tt.after, a, err)
		}
	}
}

func TestWorst(t *testing.T) {
	for _, tt := range [][3]string{{"peermem", "none", "none"}, {"", "dmabuf", ""}, {"dmabuf", "peermem", "dmabuf"},
		{"unsupported", "", "unsupported"}, {"peermem", "peermem", "peermem"}} {
		for _, swapped := range []bool{false, true} {
			a, b := tt[0], tt[1]
			if swapped {
				a, b = b, a
			}
			if mode, reason := Worst(a, "why "+a, b, "why "+b); mode != tt[2] || reason != "why "+tt[2] {
				t.Errorf("%q, %q: %q, %q", a, b, mode, reason)
			}
		}
	}
}
