package amdgpu

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/sysfs"
)

// Patterns of the files that describe a GPU, relative to its directory. xgmi_error is missing because a read clears
// the error, and unique_id, serial_number and fru_id identify the board.
func stillFiles() []string {
	return []string{"vendor", "device", "class", "numa_node", "power/runtime_status", "mem_info_*", "product_name",
		"iommu_group/type", "xgmi_hive_info/xgmi_hive_id", "xgmi_num_*", "xgmi_physical_id"}
}

// activeFiles are those that the driver reads from the hardware, which wakes a GPU.
func activeFiles() []string {
	return []string{"gpu_busy_percent", "mem_busy_percent", "pcie_replay_count", "current_*_partition",
		"available_compute_partition", "ras/*_err_count", "ras/aca_*", "hwmon/hwmon*/temp[0-9]*_input",
		"hwmon/hwmon*/temp[0-9]*_label", "hwmon/hwmon*/power[0-9]*_input", "hwmon/hwmon*/power[0-9]*_average",
		"hwmon/hwmon*/freq[0-9]*_input", "hwmon/hwmon*/freq[0-9]*_label"}
}

// Dump writes the files that describe the GPU as a txtar archive, from which a test can build the GPU again. The error
// joins the failed reads.
func (g GPU) Dump(w io.Writer) error {
	patterns := stillFiles()
	if !g.Suspended() {
		patterns = append(patterns, activeFiles()...)
	}
	function := filepath.Join("sys/bus/pci/devices", g.PCIAddress)
	_, err := fmt.Fprintf(w, "-- sys/bus/pci/drivers/amdgpu/%s --\n-> ../../devices/%[1]s\n", g.PCIAddress)
	for _, pattern := range patterns {
		paths, _ := filepath.Glob(filepath.Join(g.dir, pattern)) // the patterns are valid
		for _, path := range paths {
			name, relErr := filepath.Rel(g.dir, path)
			err = errors.Join(err, relErr, dumpFile(w, filepath.Join(function, name), path, nil))
		}
	}
	return err
}

// DumpNodes writes the nodes of amdkfd in the same form.
func (f *Finder) DumpNodes(w io.Writer) error {
	dir := filepath.Join(f.sysfs, kfdNodes)
	entries, err := sysfs.List(dir)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	for _, e := range entries {
		if _, parseErr := strconv.ParseUint(e.Name, 10, 32); parseErr != nil {
			continue
		}
		for _, name := range []string{"gpu_id", "properties"} {
			err = errors.Join(err, dumpFile(w, filepath.Join("sys", kfdNodes, e.Name, name),
				filepath.Join(dir, e.Name, name), withoutID))
		}
	}
	return err
}

// withoutID removes the line of a node that identifies the board.
func withoutID(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "unique_id ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func dumpFile(w io.Writer, name, path string, edit func(string) string) error {
	text, err := sysfs.ReadString(path)
	if errors.Is(err, unix.ENOENT) {
		return nil // the driver is being unloaded
	}
	if err != nil && sysfs.Reason(err) != sysfs.ReasonEmpty {
		return err
	}
	if edit != nil {
		text = edit(text)
	}
	_, err = fmt.Fprintf(w, "-- %s --\n%s\n", name, strings.TrimRight(text, "\n"))
	return err
}
