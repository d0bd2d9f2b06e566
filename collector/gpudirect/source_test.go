package gpudirect

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/collectortest"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/internal/sysfstest"
)

const (
	hgx, spark  = "testdata/hgx-h200.txtar", "testdata/dgx-spark.txtar"
	version     = "proc/driver/nvidia/version"
	osrelease   = "proc/sys/kernel/osrelease"
	firstGPU    = "proc/driver/nvidia/gpus/0000:18:00.0/information"
	peermem     = "sys/module/nvidia_peermem"
	proprietary = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
	oldOpen     = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  510.47.03  Release Build  (x)\n"
)

func TestGPUDirect(t *testing.T) {
	for _, tt := range []struct {
		name, fixture string
		change        map[string]string // file → content; "" removes the file
		peermem       string            // value; "" if absent
		dmabuf        string
		supported     string
		mode, reason  string
		faults        []string
	}{
		{name: "HGX H200", fixture: hgx, peermem: "1", dmabuf: "1", supported: "1", mode: "peermem",
			reason: "peer memory module is loaded"},
		{name: "DGX Spark", fixture: spark, peermem: "0", dmabuf: "0", supported: "0", mode: "unsupported",
			reason: "GB10 memory is not coherent for PCIe devices"},
		{name: "no peermem", fixture: hgx, change: map[string]string{peermem: ""}, peermem: "0", dmabuf: "1",
			supported: "1", mode: "dmabuf", reason: "kernel and open driver can do dma-buf"},
		{name: "older peermem", fixture: hgx,
			change: map[string]string{peermem: "", "sys/module/nv_peer_mem/version": "1.3-0\n"}, peermem: "1",
			dmabuf: "1", supported: "1", mode: "peermem", reason: "peer memory module is loaded"},
		{name: "kernel 5.11", fixture: hgx, change: map[string]string{peermem: "", osrelease: "5.11.22\n"},
			peermem: "0", dmabuf: "0", supported: "1", mode: "none",
			reason: "no peer memory module, and kernel older than 5.12"},
		{name: "kernel 4.18", fixture: hgx,
			change: map[string]string{peermem: "", osrelease: "4.18.0-553.el8_10.x86_64\n"}, peermem: "0", dmabuf: "0",
			supported: "1", mode: "none", reason: "no peer memory module, and kernel older than 5.12"},
		{name: "kernel 5.12-rc1", fixture: hgx, change: map[string]string{peermem: "", osrelease: "5.12-rc1\n"},
			peermem: "0", dmabuf: "1", supported: "1", mode: "dmabuf", reason: "kernel and open driver can do dma-buf"},
		{name: "proprietary driver", fixture: hgx, change: map[string]string{peermem: "", version: proprietary},
			peermem: "0", dmabuf: "0", supported: "1", mode: "none",
			reason: "no peer memory module, and driver is not the open one"},
		{name: "old open driver", fixture: hgx, change: map[string]string{peermem: "", version: oldOpen}, peermem: "0",
			dmabuf: "0", supported: "1", mode: "none", reason: "no peer memory module, and driver older than 515"},
		{name: "proprietary driver with peermem", fixture: hgx, change: map[string]string{version: proprietary},
			peermem: "1", dmabuf: "0", supported: "1", mode: "peermem", reason: "peer memory module is loaded"},

		{name: "version unknown", fixture: hgx, change: map[string]string{version: "\x7fELF\n"}, peermem: "1",
			supported: "1", mode: "peermem", reason: "peer memory module is loaded",
			faults: []string{": " + sysfs.ReasonInvalid}},
		{name: "version unknown, no peermem", fixture: hgx, change: map[string]string{peermem: "", version: "\n"},
			peermem: "0", supported: "1", faults: []string{": " + sysfs.ReasonEmpty}},
		{name: "no version", fixture: hgx, change: map[string]string{version: ""}, peermem: "1", supported: "1",
			mode: "peermem", reason: "peer memory module is loaded", faults: []string{": " + sysfs.ReasonVanished}},
		{name: "kernel unknown", fixture: hgx, change: map[string]string{osrelease: "-1.x\n"}, peermem: "1",
			supported: "1", mode: "peermem", reason: "peer memory module is loaded",
			faults: []string{": " + sysfs.ReasonInvalid}},
		{name: "kernel unknown, driver too old anyway", fixture: hgx,
			change: map[string]string{peermem: "", osrelease: "", version: oldOpen}, peermem: "0", dmabuf: "0",
			supported: "1", mode: "none", reason: "no peer memory module, and driver older than 515",
			faults: []string{": " + sysfs.ReasonVanished}},
		{name: "one GPU says nothing", fixture: hgx, change: map[string]string{firstGPU: "\n"}, peermem: "1",
			dmabuf: "1", faults: []string{"0000:18:00.0: " + sysfs.ReasonEmpty}},
		{name: "one GPU says nothing, the other is a GB10", fixture: hgx,
			change: map[string]string{firstGPU: "N/A\n",
				strings.Replace(firstGPU, "18", "2a", 1): "Model: NVIDIA GB10\n"}, peermem: "1", dmabuf: "0",
			supported: "0", mode: "unsupported", reason: "GB10 memory is not coherent for PCIe devices",
			faults: []string{"0000:18:00.0: " + sysfs.ReasonInvalid}},
		{name: "no list of GPUs", fixture: hgx, change: map[string]string{"proc/driver/nvidia/gpus": ""}, peermem: "1",
			dmabuf: "1", faults: []string{": " + sysfs.ReasonVanished}},
		{name: "no sysfs", fixture: hgx, change: map[string]string{"sys": ""}, dmabuf: "1", supported: "1",
			faults: []string{": " + sysfs.ReasonVanished}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := sysfstest.Unpack(t, tt.fixture)
			collectortest.Edit(t, root.Dir, tt.change)
			lines, faults, _ := collectortest.ReadLines(t, New(root.Sys(), root.Proc(), root.Dir, collectortest.Budget))
			var want strings.Builder
			for _, v := range []struct{ name, value string }{{"gpudirect_peermem_loaded{} ", tt.peermem},
				{"gpudirect_dmabuf_possible{} ", tt.dmabuf}, {"gpudirect_supported{} ", tt.supported}} {
				if v.value != "" {
					want.WriteString(v.name + v.value + "\n")
				}
			}
			if tt.mode != "" {
				want.WriteString(`gpudirect_info{mode="` + tt.mode + `",reason="` + tt.reason + `"} 1`)
			}
			if diff := cmp.Diff(collectortest.TextLines(want.String()), lines); diff != "" {
				t.Errorf("samples (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.faults, faults); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGPUDirectAbsent(t *testing.T) {
	root := sysfstest.Write(t, t.TempDir(),
		[]byte("-- proc/sys/kernel/osrelease --\n6.1.0\n-- sys/module/ext4/version --\n1\n"))
	if err := New(root.Sys(), root.Proc(), root.Dir, collectortest.Budget).
		Read(func(collector.Sample) { t.Error("a sample") }); !errors.Is(err, collector.ErrAbsent) {
		t.Errorf("%v", err)
	}
}

// TestGPUDirectNoGPU has a driver without a GPU: an empty directory.
func TestGPUDirectNoGPU(t *testing.T) {
	root := sysfstest.Write(t, t.TempDir(),
		[]byte("-- sys/module/nvidia/version --\n1\n-- proc/driver/nvidia/gpus/ --\n-- "+osrelease+" --\n6.1.0\n-- "+
			version+" --\n"+proprietary))
	lines, faults, _ := collectortest.ReadLines(t, New(root.Sys(), root.Proc(), root.Dir, collectortest.Budget))
	want := collectortest.TextLines(`
		gpudirect_peermem_loaded{} 0
		gpudirect_dmabuf_possible{} 0
		gpudirect_info{mode="none",reason="driver has no GPU"} 1`)
	if diff := cmp.Diff(want, lines); diff != "" || len(faults) > 0 {
		t.Errorf("%v (-want +got):\n%s", faults, diff)
	}
}

func TestGPUDirectSpoilt(t *testing.T) {
	text := collectortest.WordReasons()
	all := []string{"gpudirect_supported", "gpudirect_info"}
	collectortest.TestSpoilt(t, []collectortest.Spoilt{
		{Path: firstGPU, Costs: all, Device: "0000:18:00.0", Reasons: text},
		{Path: osrelease, Costs: []string{"gpudirect_dmabuf_possible"}, Device: "", Reasons: text},
		{Path: version, Costs: []string{"gpudirect_dmabuf_possible"}, Device: "", Reasons: text},
	}, func(t *testing.T) (collector.Source, string) {
		root := sysfstest.Unpack(t, hgx)
		return New(root.Sys(), root.Proc(), root.Dir, collectortest.Budget), root.Dir
	})
}

// amdTree has an MI300X on Ubuntu 24.04.
const amdTree = `
-- sys/bus/pci/drivers/amdgpu/0000:05:00.0/x --
-- sys/bus/pci/devices/0000:05:00.0/vendor --
0x1002
-- sys/bus/pci/devices/0000:05:00.0/class --
0x120000
-- sys/bus/pci/devices/0000:05:00.0/mem_info_vram_total --
206141652992
-- sys/bus/pci/devices/0000:05:00.0/mem_info_vis_vram_total --
206141652992
-- sys/kernel/mm/memory_peers/nv_mem/version --
1.0
-- proc/sys/kernel/osrelease --
6.8.0-107-generic
-- boot/config-6.8.0-107-generic --
CONFIG_PCI=y
CONFIG_PCI_P2PDMA=y
CONFIG_DMABUF_MOVE_NOTIFY=y
`

func TestAMD(t *testing.T) {
	const function, options = "sys/bus/pci/devices/0000:05:00.0/", "boot/config-6.8.0-107-generic"
	const dmabuf = "gpudirect_peermem_loaded{} 0\ngpudirect_supported{} 1\ngpudirect_dmabuf_possible{} 1\n" +
		`gpudirect_info{mode="dmabuf",reason="kernel can do dma-buf with peer-to-peer"} 1`
	for _, tt := range []struct {
		name   string
		change map[string]string
		want   string
		faults []string
	}{
		{name: "dma-buf", want: dmabuf},
		{name: "peer memory", change: map[string]string{"sys/kernel/mm/memory_peers/amdkfd/version": "1.0\n"},
			want: strings.NewReplacer("loaded{} 0", "loaded{} 1", "dmabuf\"", "peermem\"",
				"kernel can do dma-buf with peer-to-peer", "amdkfd is a peer memory client").Replace(dmabuf)},
		{name: "small BAR", change: map[string]string{function + "mem_info_vis_vram_total": "268435456\n"},
			want: strings.NewReplacer("dmabuf\"", "none\"", "kernel can do dma-buf with peer-to-peer",
				"BAR of a GPU is smaller than its memory").Replace(dmabuf)},
		{name: "an older amdgpu", change: map[string]string{function + "mem_info_vis_vram_total": ""}, want: dmabuf},
		{name: "no option", change: map[string]string{options: "CONFIG_PCI=y\n"},
			want: "gpudirect_peermem_loaded{} 0\ngpudirect_supported{} 1\ngpudirect_dmabuf_possible{} 0\n" +
				`gpudirect_info{mode="none",reason="no peer memory client, and kernel without CONFIG_PCI_P2PDMA"} 1`},
		{name: "unknown", change: map[string]string{options: ""},
			want: "gpudirect_peermem_loaded{} 0\ngpudirect_supported{} 1"},
		{name: "no memory", change: map[string]string{function + "mem_info_vram_total": "x\n"},
			want:   "gpudirect_peermem_loaded{} 0\ngpudirect_supported{} 1\ngpudirect_dmabuf_possible{} 1",
			faults: []string{"0000:05:00.0: " + sysfs.ReasonInvalid}},
		{name: "both vendors, AMD without", change: map[string]string{"proc/driver/nvidia/version": proprietary,
			"proc/driver/nvidia/gpus/0000:18:00.0/information": "Model: NVIDIA H200\n", peermem + "/version": "1\n",
			options: "CONFIG_PCI=y\n"},
			want: "gpudirect_peermem_loaded{} 0\ngpudirect_supported{} 1\ngpudirect_dmabuf_possible{} 0\n" +
				`gpudirect_info{mode="none",reason="no peer memory client, and kernel without CONFIG_PCI_P2PDMA"} 1`},
		{name: "both vendors", change: map[string]string{"proc/driver/nvidia/version": proprietary,
			"proc/driver/nvidia/gpus/0000:18:00.0/information": "Model: NVIDIA H200\n",
			"sys/module/ext4/version":                          "1\n"},
			want: "gpudirect_peermem_loaded{} 0\ngpudirect_supported{} 1\ngpudirect_dmabuf_possible{} 0\n" +
				`gpudirect_info{mode="none",reason="no peer memory module, and driver is not the open one"} 1`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := sysfstest.Write(t, t.TempDir(), []byte(amdTree))
			collectortest.Edit(t, root.Dir, tt.change)
			lines, faults, _ := collectortest.ReadLines(t, New(root.Sys(), root.Proc(), root.Dir, collectortest.Budget))
			if diff := cmp.Diff(collectortest.TextLines(tt.want), lines); diff != "" {
				t.Errorf("samples (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.faults, faults); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

// TestGraphics: graphics of a processor are no GPU whose memory adapters reach.
func TestGraphics(t *testing.T) {
	const function = "sys/bus/pci/devices/0000:05:00.0/"
	root := sysfstest.Write(t, t.TempDir(), []byte(amdTree))
	collectortest.Edit(t, root.Dir, map[string]string{function + "class": "0x030000\n",
		function + "gpu_busy_percent": "3\n", "boot/config-6.8.0-107-generic": "CONFIG_PCI=y\n"})
	lines, _, err := collectortest.ReadLines(t, New(root.Sys(), root.Proc(), root.Dir, collectortest.Budget))
	if len(lines) > 0 || !errors.Is(err, collector.ErrAbsent) {
		t.Errorf("%q, %v", lines, err)
	}
}
