package pcie

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/collectortest"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/internal/sysfstest"
)

// pcieTree has a rail with two names on one function (a two-port device), a GPU, and another function. It is based
// on drivers/pci/pci-sysfs.c.
const pcieTree = `
-- sys/bus/pci/devices/0000:1a:00.0/vendor --
0x15b3
-- sys/bus/pci/devices/0000:1a:00.0/class --
0x020000
-- sys/bus/pci/devices/0000:1a:00.0/current_link_speed --
16.0 GT/s PCIe
-- sys/bus/pci/devices/0000:1a:00.0/current_link_width --
8
-- sys/bus/pci/devices/0000:1a:00.0/max_link_speed --
32.0 GT/s PCIe
-- sys/bus/pci/devices/0000:1a:00.0/max_link_width --
16
-- sys/bus/pci/devices/0000:1a:00.0/numa_node --
1
-- sys/bus/pci/devices/0000:1a:00.0/aer_dev_fatal --
Undefined 0
DLP 4
TOTAL_ERR_FATAL 4
-- sys/bus/pci/devices/0000:18:00.0/vendor --
0x10de
-- sys/bus/pci/devices/0000:18:00.0/class --
0x030200
-- sys/bus/pci/devices/0000:18:00.0/current_link_speed --
Unknown
-- sys/bus/pci/devices/0000:18:00.0/current_link_width --
0
-- sys/bus/pci/devices/0000:18:00.0/numa_node --
-1
-- sys/bus/pci/devices/0000:00:1f.0/vendor --
0x8086
-- sys/bus/pci/devices/0000:00:1f.0/class --
0x030000
`

func newPCIeTree(t *testing.T) (root sysfstest.Root, read func() (values map[string]float64, faults []string)) {
	t.Helper()
	root = sysfstest.Write(t, t.TempDir(), []byte(pcieTree))
	rails := []rail.Rail{{Name: "0", Device: "mlx4_0", Port: 1, PCIAddress: "0000:1a:00.0"},
		{Name: "1", Device: "mlx4_0", Port: 2, PCIAddress: "0000:1a:00.0"},
		{Name: "soft", Device: "rxe0", Port: 1}}
	gpus := rail.NewFinder(root.Sys(), rail.Options{}, nil, time.Second).Snapshot().GPUs
	source := New(root.Sys(), func() rail.Snapshot { return rail.Snapshot{Rails: rails, GPUs: gpus} }, time.Second)
	return root, func() (map[string]float64, []string) {
		values, faults := map[string]float64{}, []string(nil)
		err := source.Read(func(s collector.Sample) {
			values[strings.TrimPrefix(s.Metric.Name, "pcie_")+" "+strings.Join(s.Labels, " ")] = s.Value
		})
		for _, f := range collector.Faults(err) {
			faults = append(faults, f.Device+" "+f.Reason)
		}
		return values, faults
	}
}

func pcieWant() map[string]float64 {
	want := map[string]float64{}
	for _, r := range []string{"0", "1"} {
		maps.Copy(want, map[string]float64{
			"link_transfers_per_second " + r + " 0000:1a:00.0 nic": 16e9,
			"link_width_lanes " + r + " 0000:1a:00.0 nic":          8,
			"link_bytes_per_second " + r +
				" 0000:1a:00.0 nic": 15753846153.846155, // 126 Gb/s: 16 GT/s × 8 × 128/130
			"link_max_transfers_per_second " + r + " 0000:1a:00.0 nic": 32e9,
			"link_max_width_lanes " + r + " 0000:1a:00.0 nic":          16,
			"numa_node " + r + " 0000:1a:00.0 nic":                     1,
			"aer_errors_total " + r + " 0000:1a:00.0 nic fatal":        4,
		})
	}
	return want
}

// TestPCIe: a rail's link has a series for each of its names. A GPU without a link of its own, a software rail and
// a display adapter have no series.
func TestPCIe(t *testing.T) {
	_, read := newPCIeTree(t)
	got, faults := read()
	if diff := cmp.Diff(pcieWant(), got); diff != "" || len(faults) > 0 {
		t.Errorf("%v (-want +got):\n%s", faults, diff)
	}
}

// TestPCIeBadInput: an invalid file loses its own series only, and the fault names function and reason.
func TestPCIeBadInput(t *testing.T) {
	link := []string{"link_transfers_per_second", "link_width_lanes", "link_bytes_per_second"}
	for _, tc := range []struct {
		file, content, reason string
		gone                  []string
	}{
		{"current_link_speed", "fast", sysfs.ReasonInvalid, link},
		{"current_link_speed", "", sysfs.ReasonEmpty, link},
		{"current_link_speed", "-16.0 GT/s PCIe", sysfs.ReasonInvalid, link},
		{"current_link_speed", strings.Repeat("x", 5000), sysfs.ReasonTooLarge, link},
		{"current_link_width", "N/A", sysfs.ReasonInvalid, link},
		{"current_link_width", "255", sysfs.ReasonRange, link},
		{"max_link_width", "-1", sysfs.ReasonInvalid,
			[]string{"link_max_transfers_per_second", "link_max_width_lanes"}},
		{"numa_node", "one", sysfs.ReasonInvalid, []string{"numa_node"}},
		{"numa_node", "-2", sysfs.ReasonInvalid, []string{"numa_node"}},
		{"aer_dev_fatal", "DLP 4\n", sysfs.ReasonInvalid, []string{"aer_errors_total"}},
		{"aer_dev_fatal", "TOTAL_ERR_FATAL x\n", sysfs.ReasonInvalid, []string{"aer_errors_total"}},
		{"aer_dev_fatal", "TOTAL_ERR_FATAL 99999999999999999999\n", sysfs.ReasonRange, []string{"aer_errors_total"}},
	} {
		root, read := newPCIeTree(t)
		if err := os.WriteFile(root.Sys("bus/pci/devices/0000:1a:00.0", tc.file), []byte(tc.content),
			0o644); err != nil {
			t.Fatal(err)
		}
		want := pcieWant()
		maps.DeleteFunc(want, func(series string, _ float64) bool {
			for _, name := range tc.gone {
				if strings.HasPrefix(series, name+" ") {
					return true
				}
			}
			return false
		})
		got, faults := read()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s %.20q (-want +got):\n%s", tc.file, tc.content, diff)
		}
		if diff := cmp.Diff([]string{"0000:1a:00.0 " + tc.reason}, faults); diff != "" {
			t.Errorf("%s %.20q: faults (-want +got):\n%s", tc.file, tc.content, diff)
		}
	}
}

// TestPCIeAbsent: without a function to read, the hardware is absent.
func TestPCIeAbsent(t *testing.T) {
	source := New(filepath.Join(t.TempDir(), "sys"), collectortest.Snapshot(collectortest.NoRails), time.Second)
	if err := source.Read(func(s collector.Sample) { t.Errorf("%+v", s) }); !errors.Is(err, collector.ErrAbsent) {
		t.Error(err)
	}
}

// FuzzErrorTotal: for any file content, the parser returns a number that the file contains, or an error with a
// reason.
func FuzzErrorTotal(f *testing.F) {
	for _, seed := range []string{"RxErr 0\nBadTLP 2\nTOTAL_ERR_COR 3\n", "N/A (no PMA)\n", "", "TOTAL_ERR_COR -1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		total, err := parseErrorTotal([]byte(text), "TOTAL_ERR_COR")
		if err != nil && (total != 0 || sysfs.Reason(err) == sysfs.ReasonIO) || !strings.Contains(text,
			fmt.Sprint(total)) && total != 0 {
			t.Errorf("%q: %d, %v", text, total, err)
		}
	})
}

// TestPCIeBudget: a slow finder of rails takes no time from the functions' budgets.
func TestPCIeBudget(t *testing.T) {
	collectortest.TestBudget(t, func(t *testing.T, slow bool) collector.Source {
		root := sysfstest.Unpack(t, "../../internal/rail/testdata/hgx-h100.txtar")
		finder := rail.NewFinder(root.Sys(), rail.Options{}, nil, collectortest.Budget)
		return New(root.Sys(), collectortest.Snapshot(collectortest.SlowRails(slow, finder.Rails)),
			collectortest.Budget)
	})
}

func TestPCIeTable(t *testing.T) {
	collectortest.TestTable(t, New("", collectortest.Snapshot(collectortest.NoRails), 0))
}
