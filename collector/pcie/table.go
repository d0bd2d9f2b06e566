package pcie

import "github.com/railscope/railscope/collector"

type table struct {
	collector.Table
	speed, maxSpeed, width, maxWidth, bandwidth, numa, aer *collector.Metric
	adapter, module, excess                                *collector.Metric
}

func newTable() *table {
	t := &table{Table: collector.Table{Source: "pcie"}}
	g := t.Group("drivers/pci/pci-sysfs.c; Documentation/ABI/testing/sysfs-bus-pci", "rail", "pci_address", "kind")
	t.speed = g.Scaled(1e9, "current_link_speed").Gauge("pcie_link_transfers_per_second",
		"Current transfers per second and lane of the link of a rail (kind=nic) or GPU (kind=gpu). An idle GPU may "+
			"lower it.")
	t.maxSpeed = g.Scaled(1e9, "max_link_speed").Gauge("pcie_link_max_transfers_per_second",
		"Transfers per second and lane that the device supports.")
	t.width = g.Gauge("pcie_link_width_lanes", "Current lanes of the link.", "current_link_width")
	t.maxWidth = g.Gauge("pcie_link_max_width_lanes", "Lanes that the device supports.", "max_link_width")
	t.bandwidth = g.Ref("PCI Express Base Specification 6.0, 4.2").Gauge("pcie_link_bytes_per_second",
		"Bandwidth of the link in one direction: speed times width minus line coding, packet headers included. "+
			"Functions of one slot share it.", "current_link_speed", "current_link_width")
	t.numa = g.Gauge("pcie_numa_node", "NUMA node of the device, absent where it is unknown.", "numa_node")
	t.aer = g.Ref("Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats").With("severity").Counter(
		"pcie_aer_errors_total", "Errors on the link that the device reported (Advanced Error Reporting), all types "+
			"together.", "aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal")
	h := t.Group("Documentation/hwmon/sysfs-interface.rst; mlx5/core/hwmon.c, bnxt_hwmon.c, ice_hwmon.c", "rail",
		"pci_address", "sensor").Scaled(1e-3, "hwmon/hwmonN/tempN_input")
	t.adapter = h.Gauge("rail_adapter_temperature_celsius", "Temperature of the adapter, read every 30 s; absent "+
		"where its driver does not report it. Functions of one adapter may share a sensor.")
	t.module = h.Gauge("rail_module_temperature_celsius", "Temperature of the transceiver or cable, read every 30 s; "+
		"absent where it does not measure, as copper cables.")
	t.excess = h.Gauge("rail_temperature_excess_celsius", "How far the adapter or module is above its critical "+
		"temperature, at which it throttles or shuts down; no series below it.", "hwmon/hwmonN/tempN_crit",
		"hwmon/hwmonN/tempN_max")
	return t
}
