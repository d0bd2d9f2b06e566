package amdgpu

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/proc"
	"github.com/railscope/railscope/internal/sysfs"
)

// Files of a function with one number each.
const (
	// Bytes, of all partitions together: amdgpu_mem_info_vram_total_show and _used_show in amdgpu_vram_mgr.c,
	// amdgpu_mem_info_gtt_used_show in amdgpu_gtt_mgr.c.
	VRAMTotal = "mem_info_vram_total"
	VRAMUsed  = "mem_info_vram_used"
	GTTUsed   = "mem_info_gtt_used"
	// Bytes that the CPU and adapters can access through the BAR: amdgpu_mem_info_vis_vram_total_show.
	VRAMVisible = "mem_info_vis_vram_total"
	// Percent: amdgpu_get_gpu_busy_percent and amdgpu_get_mem_busy_percent in pm/amdgpu_pm.c.
	Busy       = "gpu_busy_percent"
	MemoryBusy = "mem_busy_percent"
	// NAKs, the sum of two counters of 16 bits: amdgpu_device_get_pcie_replay_count in amdgpu_device.c,
	// nbio_v7_9_get_pcie_replay_count in nbio_v7_9.c.
	PCIeReplays = "pcie_replay_count"
)

// Files of the function's hwmon device: amdgpu_hwmon_show_* in pm/amdgpu_pm.c. An MI300X has no temp1_input and no
// power1_average (hwmon_attributes_visible; smu_v13_0_6_read_sensor in pm/swsmu/smu13/smu_v13_0_6_ppt.c).
const (
	TemperatureEdge     = "temp1_input" // thousandths of a degree Celsius
	TemperatureJunction = "temp2_input"
	PowerInput          = "power1_input" // microwatts, now
	PowerAverage        = "power1_average"
	ClockGraphics       = "freq1_input" // hertz
	ClockMemory         = "freq2_input"
)

// ErrReset is returned while the driver refuses a read because the GPU is in reset or suspended
// (amdgpu_hwmon_get_sensor_generic in pm/amdgpu_pm.c: EPERM).
var ErrReset = errors.New("the GPU is in reset or suspended")

// Number reads a file of the function. It returns [sysfs.ErrNone] if the driver does not have the file for this GPU,
// and [ErrReset], wrapped.
func (g GPU) Number(name string) (uint64, error) { return number(g.dir, name) }

func number(elem ...string) (uint64, error) {
	v, err := sysfs.ReadUint(elem...)
	return v, explain(err)
}

// explain returns the error of a read in the words of this package.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		return sysfs.ErrNone
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: %w", ErrReset, err)
	}
	return err
}

// Sensor reads the first of the files of the hwmon device that the driver has for this GPU. The number of the device
// may change when the driver is loaded again.
func (g GPU) Sensor(names ...string) (uint64, error) {
	devices, err := sysfs.List(filepath.Join(g.dir, "hwmon"))
	if err != nil || len(devices) == 0 { // a virtual function of several has none: amdgpu_pm_sysfs_init
		return 0, sysfs.ErrNone
	}
	for _, name := range names {
		v, err := number(g.dir, "hwmon", devices[0].Name, name)
		if !errors.Is(err, sysfs.ErrNone) {
			return v, err
		}
	}
	return 0, sysfs.ErrNone
}

// Suspended reports whether the GPU sleeps. Then it computes nothing, and with Linux 6.11 a read of a sensor would wake
// it (pm_runtime_get_sync in amdgpu_hwmon_get_sensor_generic).
func (g GPU) Suspended() bool {
	status, err := sysfs.ReadString(g.dir, "power/runtime_status") // drivers/base/power/sysfs.c
	return err == nil && status == "suspended"
}

// Memory is the memory that a GPU uses, in bytes.
type Memory struct {
	Total, Free, Used uint64
	// Shared means that the GPU allocates memory of the machine: an MI300A, or integrated graphics. Total and Free are
	// then those of the machine and of what is set aside for the GPU, and Used what the driver allocated for the GPU,
	// which lacks memory that a process allocated for itself.
	Shared bool
}

// Memory reads the memory. procfs is the mount point of proc.
func (g GPU) Memory(procfs string) (m Memory, err error) {
	m.Total, err = g.Number(VRAMTotal)
	if err != nil {
		return Memory{}, err
	}
	m.Used, err = g.Number(VRAMUsed)
	switch {
	case err != nil:
		return Memory{}, err
	case m.Used > m.Total:
		return Memory{}, sysfs.Invalid(filepath.Join(g.dir, VRAMUsed), fmt.Append(nil, m.Used), "more than the total")
	}
	m.Free = m.Total - m.Used
	m.Shared = g.Integrated || m.Total == 0 // gmc_v9_0_mc_init in amdgpu/gmc_v9_0.c sets 0 for an MI300A
	if !m.Shared {
		return m, nil
	}
	gtt, err := g.Number(GTTUsed)
	if err != nil {
		return Memory{}, err
	}
	machine, err := proc.ReadMemory(procfs)
	if err != nil {
		return Memory{}, err
	}
	return Memory{m.Total + machine.Total, m.Free + machine.Available, m.Used + gtt, true}, nil
}

// Errors counts memory errors since the driver was loaded.
type Errors struct {
	Uncorrected, Corrected uint64
	Deferred               uint64 // uncorrectable, in data that nothing has used
	HasDeferred            bool   // false: the driver does not count them
}

// Errors reads the errors of the memory controllers. It makes the driver add the hardware's counts to its own and clear
// them, so it should not be read often. It returns [sysfs.ErrNone] for a GPU without ECC.
func (g GPU) Errors() (Errors, error) {
	// amdgpu_ras_sysfs_read in amdgpu_ras.c; aca_sysfs_read in amdgpu_aca.c, which newer GPUs have instead.
	for _, name := range []string{"ras/umc_err_count", "ras/aca_umc"} {
		text, err := sysfs.ReadString(g.dir, name)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		var e Errors
		if err == nil {
			e, err = ParseErrors(text)
		}
		return e, sysfs.At(filepath.Join(g.dir, name), err)
	}
	return Errors{}, sysfs.ErrNone
}

// ParseErrors parses lines "ue: 0", "ce: 0" and, in newer versions, "de: 0". During a reset the driver writes a
// sentence instead, which is [sysfs.ReasonUnsupported].
func ParseErrors(text string) (e Errors, err error) {
	if strings.HasPrefix(text, "Query currently inaccessible") {
		return Errors{}, &sysfs.Error{Reason: sysfs.ReasonUnsupported, Err: errors.New("errors cannot be queried now")}
	}
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(strings.TrimSpace(line), ": ")
		n, parseErr := sysfs.ParseUint([]byte(value))
		if !found || parseErr != nil || seen[name] {
			return Errors{}, sysfs.Invalid("", []byte(text), "not a list of error counts")
		}
		seen[name] = true
		switch name {
		case "ue":
			e.Uncorrected = n
		case "ce":
			e.Corrected = n
		case "de":
			e.Deferred, e.HasDeferred = n, true
		}
	}
	if !seen["ue"] || !seen["ce"] {
		return Errors{}, sysfs.Invalid("", []byte(text), "not a list of error counts")
	}
	return e, nil
}

// Identity identifies a GPU. Values that the driver does not have are empty.
type Identity struct {
	UUID string // as rocminfo prints it and ROCR_VISIBLE_DEVICES takes it
	Name string // name in the board's EEPROM, which a virtual function cannot read; else the PCI device ID
}

// Identity reads the identity.
func (g GPU) Identity() (id Identity) {
	unique, err := sysfs.ReadString(g.dir, "unique_id") // %016llx, or nothing: amdgpu_get_unique_id in pm/amdgpu_pm.c
	if err == nil && unique != "" {
		id.UUID = "GPU-" + unique
	}
	id.Name, _ = sysfs.ReadString(g.dir, "product_name") // amdgpu_fru_product_name_show in amdgpu_fru_eeprom.c
	if id.Name == "" {
		device, _ := sysfs.ReadString(g.dir, "device")
		id.Name = strings.TrimSpace("AMD " + device)
	}
	return id
}

// Modes returns how the GPU is partitioned: SPX, DPX, TPX, QPX or CPX, and NPS1 to NPS8. A mode that the driver does
// not have is empty.
func (g GPU) Modes() (compute, memory string, err error) {
	// amdgpu_gfx_get_current_compute_partition in amdgpu_gfx.c, current_memory_partition_show in amdgpu_gmc.c
	compute, err = g.mode("current_compute_partition")
	memory, memoryErr := g.mode("current_memory_partition")
	return compute, memory, errors.Join(err, memoryErr)
}

func (g GPU) mode(name string) (string, error) {
	mode, err := sysfs.ReadString(g.dir, name)
	if err == nil && len(mode) > len("UNKNOWN") {
		return "", sysfs.Invalid(filepath.Join(g.dir, name), []byte(mode), "not a partition mode")
	}
	err = explain(err)
	if errors.Is(err, sysfs.ErrNone) {
		return "", nil
	}
	return mode, err
}

// XGMI is the place of a GPU among those that xGMI connects. The driver calls them a hive.
type XGMI struct {
	Hive  string // ID of the hive; empty: the GPU is in none
	Links []int  // number of links to each GPU of the hive, in the driver's order; nil if the driver does not report it
}

// maxHive is the largest number of GPUs in a hive (AMDGPU_XGMI_MAX_CONNECTED_NODES in amdgpu_psp.h).
const maxHive = 64

// XGMI reads the files that the driver makes when it adds the GPU to its hive (amdgpu_xgmi_sysfs_add_dev_info in
// amdgpu_xgmi.c): xgmi_hive_info/xgmi_hive_id, decimal, and xgmi_num_links, one byte in hexadecimal for each GPU.
func (g GPU) XGMI() (x XGMI, err error) {
	id, err := sysfs.ReadUint(g.dir, "xgmi_hive_info/xgmi_hive_id")
	if errors.Is(err, unix.ENOENT) {
		return XGMI{}, nil
	}
	if err != nil {
		return XGMI{}, explain(err)
	}
	x.Hive = strconv.FormatUint(id, 10)
	text, err := sysfs.ReadString(g.dir, "xgmi_num_links")
	if errors.Is(err, unix.ENOENT) {
		return x, nil
	}
	if err == nil {
		x.Links, err = parseLinks(text)
	}
	return x, sysfs.At(filepath.Join(g.dir, "xgmi_num_links"), explain(err))
}

func parseLinks(text string) (links []int, err error) {
	words := strings.Fields(text)
	if len(words) == 0 || len(words) > maxHive {
		return nil, sysfs.Invalid("", []byte(text), "not a list of numbers of links")
	}
	for _, word := range words {
		n, err := strconv.ParseUint(word, 16, 8)
		if err != nil {
			return nil, sysfs.Invalid("", []byte(text), "not a list of numbers of links")
		}
		links = append(links, int(n))
	}
	return links, nil
}
