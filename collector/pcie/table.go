package pcie

import "github.com/railscope/railscope/collector"

type table struct {
	collector.Table
	speed, maxSpeed, width, maxWidth, bandwidth, numa, aer *collector.Metric
}

func newTable() *table {
	t := &table{Table: collector.Table{Source: "pcie"}}
	g := t.Group("drivers/pci/pci-sysfs.c; Documentation/ABI/testing/sysfs-bus-pci", "rail", "pci_address", "kind")
	t.speed = g.Scaled(1e9, "current_link_speed").Gauge("pcie_link_transfers_per_second", "Current transfers per second "+
		"and lane of the link of a rail (kind=nic) or GPU (kind=gpu). An idle GPU may lower it.")
	t.maxSpeed = g.Scaled(1e9, "max_link_speed").Gauge("pcie_link_max_transfers_per_second", "Transfers per second and "+
		"lane that the device supports.")
	t.width = g.Gauge("pcie_link_width_lanes", "Current lanes of the link.", "current_link_width")
	t.maxWidth = g.Gauge("pcie_link_max_width_lanes", "Lanes that the device supports.", "max_link_width")
	t.bandwidth = g.Ref("PCI Express Base Specification 6.0, 4.2").Gauge("pcie_link_bytes_per_second",
		"Bandwidth of the link in one direction: speed times width minus line coding, packet headers included. "+
			"Functions of one slot share it.", "current_link_speed", "current_link_width")
	t.numa = g.Gauge("pcie_numa_node", "NUMA node of the device, absent where it is unknown.", "numa_node")
	t.aer = g.Ref("Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats").With("severity").Counter(
		"pcie_aer_errors_total", "Errors on the link that the device reported (Advanced Error Reporting), all types "+
			"together.", "aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal")
	return t
}
