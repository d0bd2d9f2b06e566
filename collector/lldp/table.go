package lldp

import "github.com/railscope/railscope/collector"

type table struct {
	collector.Table
	neighbor *collector.Metric
}

func newTable() *table {
	t := &table{Table: collector.Table{Source: "lldp"}}
	t.neighbor = t.Group("IEEE 802.1AB-2016").With("rail", "netdev", "neighbor", "neighbor_port").
		Gauge("rail_neighbor_info", "What the interface is plugged into, as it announces itself by LLDP, always 1: "+
			"name of the system, or its chassis ID, and of the port. Several series if the interface hears several "+
			"systems. Absent if nothing was heard, for example because the adapter's firmware keeps the frames.",
			"AF_PACKET")
	return t
}
