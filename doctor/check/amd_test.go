package check

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/hungfs"
)

// amdGPUs returns GPUs from one text for each: model, hive and links, such as "0x74a1 7 0111", and partitions.
func amdGPUs(partitions string, texts ...string) (gpus []facts.GPU) {
	for i, text := range texts {
		words := strings.Fields(text)
		amd := &facts.AMD{Model: strings.Trim(words[0], "?"), Hive: strings.Trim(words[1], "?"), Partitions: partitions}
		for _, n := range words[2] {
			if n != '-' {
				amd.Links = append(amd.Links, int(n-'0'))
			}
		}
		gpus = append(gpus, facts.GPU{Address: fmt.Sprintf("0000:0%d:00.0", i), AMD: amd})
	}
	return gpus
}

// TestXGMI: only a GPU that is the exception among GPUs of one model in one hive is reported.
func TestXGMI(t *testing.T) {
	for name, tt := range map[string]struct {
		gpus []string
		want string // GPUs with findings
	}{
		"four, one without a hive":     {[]string{"m 7 0111", "m 7 1011", "m none -", "m 7 1110"}, "2"},
		"four, one unknown":            {[]string{"m 7 0111", "m 7 1011", "m ? -", "m 7 1110"}, ""},
		"models are unknown":           {[]string{"? 7 0111", "? 7 1011", "? none -", "? 7 1110"}, ""},
		"of another model":             {[]string{"m 7 0111", "m 7 1011", "n none -", "m 7 1110"}, ""},
		"a lost link, seen at its end": {[]string{"m 7 0111", "m 7 1011", "m 7 1101", "m 7 1110", "m 7 0001"}, "4"},
		// Both ends of a link between two of eight GPUs.
		"a lost link of eight": {[]string{"m 7 00111111", "m 7 00111111", "m 7 11011111", "m 7 11101111",
			"m 7 11110111", "m 7 11111011", "m 7 11111101", "m 7 11111110"}, "0 1"},
		"two links between each of four": {[]string{"m 7 0222", "m 7 2022", "m 7 2201", "m 7 2220"}, "2"},
		// The links of an MI250X differ by design, here as on a node with four of them.
		"MI250X": {[]string{"m 7 04102000", "m 7 40011000", "m 7 10040001", "m 7 01400010", "m 7 21000410",
			"m 7 00014001", "m 7 00011004", "m 7 00100140"}, ""},
		"two pairs with a bridge": {[]string{"m 7 01", "m 7 10", "m 8 01", "m 8 10"}, ""},
		"a pair and one alone":    {[]string{"m 7 01", "m 7 10", "m none -"}, ""},
		"no xGMI":                 {[]string{"m none -", "m none -", "m none -", "m none -"}, ""},
		"no numbers of links":     {[]string{"m 7 -", "m 7 -", "m 7 -"}, ""},
	} {
		var got []string
		f := &facts.Facts{Network: facts.Network{GPUs: amdGPUs("SPX NPS1", tt.gpus...)}}
		for _, one := range Checks()[indexOf("gpu_xgmi_lost")].Find(f) {
			got = append(got, strings.TrimSuffix(strings.TrimPrefix(one.Subject, "gpu 0000:0"), ":00.0"))
		}
		if text := strings.Join(got, " "); text != tt.want {
			t.Errorf("%s: findings about %q, want %q", name, text, tt.want)
		}
	}
}

// TestPartitions: a mode that most GPUs of a model have makes the others exceptions.
func TestPartitions(t *testing.T) {
	for _, tt := range []struct {
		modes []string
		want  int
	}{
		{[]string{"SPX NPS1", "SPX NPS1", "CPX NPS1"}, 1},
		{[]string{"SPX NPS1", "SPX NPS1", "CPX NPS1", "DPX NPS1", "SPX NPS1"}, 2},
		{[]string{"SPX NPS1", "SPX NPS1", "CPX NPS1", "CPX NPS1"}, 0}, // divided on purpose
		{[]string{"SPX NPS1", "CPX NPS1"}, 0},
		{[]string{"SPX NPS1", "SPX NPS1", ""}, 0},
		{[]string{"", "", "CPX NPS1"}, 0},
	} {
		f := &facts.Facts{}
		for _, modes := range tt.modes {
			f.GPUs = append(f.GPUs, amdGPUs(modes, "m 7 -")...)
		}
		if list := Checks()[indexOf("gpu_partition_unlike")].Find(f); len(list) != tt.want {
			t.Errorf("%q: %d findings, want %d:\n%s", tt.modes, len(list), tt.want, findingsText(list))
		}
	}
}

// TestIOMMU: in a virtual machine, and without rails, the IOMMU is not judged.
func TestIOMMU(t *testing.T) {
	for _, tt := range []struct {
		kind           string
		rails, virtual bool
		want           int
	}{{"DMA", true, false, 1}, {"DMA-FQ", true, false, 1}, {"identity", true, false, 0}, {"unmanaged", true, false, 0},
		{"DMA", false, false, 0}, {"DMA", true, true, 0}} {
		f := &facts.Facts{}
		f.PCI = facts.PCI{Virtual: tt.virtual, Domains: []facts.Domain{{Address: "0000:01:00.0", Type: tt.kind}}}
		if tt.rails {
			f.Rails = []facts.Rail{{Name: "0"}}
		}
		if list := Checks()[indexOf("iommu_translates")].Find(f); len(list) != tt.want {
			t.Errorf("%+v: %d findings", tt, len(list))
		}
	}
}

// TestAMDHangs: a GPU whose driver does not answer costs its own facts, and is not judged.
func TestAMDHangs(t *testing.T) {
	o := doctortest.System(t, amdNode)
	o.Budget = 2 * time.Second // enough for the other GPUs on a busy machine
	path := filepath.Join(filepath.Dir(o.Sysfs), amdGPU, "current_compute_partition")
	mount := t.TempDir()
	hung := hungfs.Mount(t, mount, map[string]string{"file": "CPX\n"})
	defer hung.Release()
	if err := errors.Join(os.Remove(path), os.Symlink(filepath.Join(mount, "file"), path)); err != nil {
		t.Fatal(err)
	}
	f := facts.New(o).Gather(t.Context(), facts.All)
	if len(f.Unread) != 1 || !strings.Contains(f.Unread[0], "GPU 0000:19:00.0") {
		t.Errorf("not read: %q", f.Unread)
	}
	var known []string
	for _, g := range f.GPUs {
		if g.AMD != nil && g.AMD.Partitions == "SPX NPS1" && len(g.AMD.Links) == 4 {
			known = append(known, g.Address)
		}
	}
	if len(f.GPUs) != 4 || len(known) != 3 || len(f.PCI.Domains) != 5 {
		t.Errorf("%d GPUs, %q are known; %d IOMMU domains", len(f.GPUs), known, len(f.PCI.Domains))
	}
	if list := runSystem(f); len(list) > 0 {
		t.Error(findingsText(list))
	}
}
