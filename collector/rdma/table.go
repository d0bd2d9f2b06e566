package rdma

import "github.com/railscope/railscope/collector"

// Documentation of the counters.
const (
	refABI      = "Documentation/ABI/stable/sysfs-class-infiniband; IBTA spec vol. 1, 16.1.3.5 PortCounters"
	refLifespan = "Documentation/ABI/stable/sysfs-class-infiniband"
	refMlx5     = "drivers/infiniband/hw/mlx5/counters.c; mlx5 counters.rst"
	refBnxt     = "drivers/infiniband/hw/bnxt_re/hw_counters.c"
	refIrdma    = "drivers/infiniband/hw/irdma/verbs.c"
	refEFA      = "drivers/infiniband/hw/efa/efa_verbs.c"
	refRXE      = "drivers/infiniband/sw/rxe/rxe_hw_counters.c"
	refGID      = "drivers/infiniband/core/roce_gid_mgmt.c"
)

// netdevBytes is the origin of a software device's byte counters.
const netdevBytes = "statistics/{rx,tx}_bytes of the netdev"

// Origins of ionic's byte counters.
const (
	ionicReceiveBytes  = "rx_rdma_ucast_bytes + rx_rdma_mcast_bytes"
	ionicTransmitBytes = "tx_rdma_ucast_bytes + tx_rdma_mcast_bytes"
)

type table struct {
	collector.Table
	info, leaf, excluded, leftOut, missing        *collector.Metric
	unused, bytesCounted                          *collector.Metric
	up, state, physState, rate, capacity, mtu     *collector.Metric
	expected, expectedInfo                        *collector.Metric
	receiveBytes, transmitBytes, ipv4ReceiveBytes *collector.Metric
	lifespan, saturated                           *collector.Metric
	gid, misbound, gidChanges                     *collector.Metric

	// rows of virtual functions; the first of their files that exists is read
	virtual                         []*collector.Metric
	virtualReceive, virtualTransmit *collector.Metric

	ports      *index // counters/ and hw_counters/
	deviceWide *index // <device>/hw_counters/
}

func newTable() *table {
	t := &table{Table: collector.Table{Source: "rdma"}, ports: newIndex(), deviceWide: newIndex()}
	port := t.Group(refABI, "rail", "device", "port")
	t.addState(port)
	t.addExpected(port)
	t.addCounters(port)
	t.ports.native = port.With("counter").Row(collector.Untyped, "port_native_value",
		"A counter without its own metric, under the driver's name and in the driver's unit.",
		"any other file of counters/ and hw_counters/ but watermark_* of bnxt_re")
	t.addFacts(port)
	t.addDeviceCounters()
	t.addVirtual()
	return t
}

func (t *table) addState(port collector.Group) {
	t.info = port.Ref("docs/rails.md").With("netdev", "pci_address", "numa_node", "link_layer", "hca_type", "board_id",
		"firmware", "role", "gpu", "gpu_distance").Gauge("rail_info", "Identity and location of a rail, always 1. "+
		"numa_node is -1 where it is unknown. gpu is the PCI address of the nearest GPU, of equally near ones the "+
		"first, as in the label pci_address of gpu_info; gpu_distance is PIX, PXB, PHB, NODE or SYS, as nvidia-smi "+
		"topo -m names it. Both are empty without a GPU.")
	t.leaf = port.Ref("docs/fleet.md").With("leaf").Gauge("rail_leaf_info", "Switch that the rail is plugged into, as "+
		"rails.leaf says, else as it announces itself by LLDP (--source.lldp), always 1; absent if neither is known. "+
		"That of a bond to two switches has both names.")
	t.excluded = t.Group(refABI, "device").Gauge("rail_excluded_info", "A device whose ports are not rails because "+
		"rails.include or rails.exclude leaves it out, or that a hypervisor took away for now (accelerated "+
		"networking), always 1. Virtual functions are not reported.")
	t.leftOut = t.Group("docs/rails.md", "reason").Gauge("rails_excluded", "RDMA ports that are not rails, by reason: "+
		"virtual_function, subfunction, representor, plane_unused, smi, switch_management, software_of or excluded. "+
		"`railscope rails --all` lists them.")
	t.unused = port.Ref("docs/rails.md").Gauge("rail_unused", "1 for a port that was never up and is not expected to "+
		"be: no cable. No series otherwise.", "carrier_up_count")
	t.bytesCounted = port.Ref("docs/rails.md").Gauge("rail_bytes_counted", "1 when a counter has the bytes of the "+
		"rail, 0 when none has: the rail is not measured, which is not idle.")
	t.missing = t.Group("docs/rails.md", "rail", "device", "port", "pci_address").Gauge("rail_missing_info", "A rail "+
		"that is remembered, or named in rails.names, and is not there, always 1. device and pci_address are those "+
		"last seen. Not a function that a bond took, nor a device that the configuration leaves out or that does not "+
		"answer.")
	t.up = port.Gauge("port_up", "1 when the port is ACTIVE, 0 when it is in any other state.", "state")
	t.state = port.Gauge("port_state_id", "Logical state: 0 no change, 1 down, 2 init, 3 armed, 4 active, 5 active "+
		"defer.", "state")
	t.physState = port.Gauge("port_physical_state_id", "Physical state: 1 sleep, 2 polling, 3 disabled, 4 training, 5 "+
		"link up, 6 error recovery, 7 phy test.", "phys_state")
	t.rate = port.Scaled(125e6, "rate").Gauge("port_rate_bytes_per_second", "Signalling rate of the port, absent "+
		"unless the port is ACTIVE: a port that is down reports a meaningless rate. A software device (rxe) reports "+
		"its network interface's, or 2.5 Gb/s where that has none.")
	t.capacity = port.Ref("docs/adr/0004-capacity.md").Gauge("rail_capacity_bytes_per_second", "What the rail could "+
		"carry in one direction with all ACTIVE rails loaded: the least of port rate and PCIe link, each divided by "+
		"the rails that share it. Absent unless the port is ACTIVE.", "rate", "current_link_speed",
		"current_link_width")
	t.mtu = port.Ref("include/rdma/ib_addr.h iboe_get_mtu; ibv_query_port(3) max_mtu").With("kind").Gauge(
		"port_mtu_bytes", "kind=netdev: MTU of the rail's network interface. kind=active: the RoCE MTU that the "+
			"kernel derives from it. kind=max: the largest MTU of the port; only the probe can query it, so absent "+
			"until its first round.", "mtu")
}

func (t *table) addFacts(port collector.Group) {
	t.saturated = port.Ref("IBTA spec vol. 1, 16.1.3.5").With("counter").Gauge("port_saturated_info",
		"1 for a narrow counter at its maximum, where it stays until it is cleared; no series otherwise.")
	t.gid = port.With("index", "type", "gid", "netdev").Gauge("gid_info", "An entry of the port's GID table that a "+
		"connection could use, or would use by mistake: RoCE v2, its own and misbound ones, at most 16 a port, the "+
		"best first; the other entries if there are none. Always 1.", "gids", "gid_attrs/types", "gid_attrs/ndevs")
	t.misbound = port.Ref(refGID).Gauge("gid_misbound", "1 when the port's RoCE v2 IPv4 GIDs are all on another "+
		"interface than the rail's, as after enslaving it to a bond: connections then leave by another port. Absent "+
		"when it has no such GID.", "gid_attrs/ndevs")
	t.gidChanges = port.Ref(refGID).Counter("gid_changes_total", "Entries of the GID table that appeared, "+
		"disappeared or changed since railscope started. Applications that keep a GID index break when it changes.",
		"gids")
}

// counters adds rows that are found by the kernel's names.
type counters struct {
	collector.Group
	index *index
}

func (c counters) counter(name, help string, from ...string) *collector.Metric {
	return c.index.add(c.Counter(name, help, from...))
}

func (c counters) gauge(name, help string, from ...string) *collector.Metric {
	return c.index.add(c.Gauge(name, help, from...))
}

// The following methods add a counter whose first name has a property that the same counter of other drivers lacks.

// narrow adds an mlx5 queue counter: it is 32 bits wide and wraps.
func (c counters) narrow(name, help, mlx5 string, others ...string) {
	c.Group = c.From(collector.Origin{Name: mlx5, Bits: 32})
	c.counter(name, help+" 32 bits wide on mlx5: it wraps to 0, which rate() and increase() treat as a reset.",
		others...)
}

// saturating adds a counter of PortCounters, which stays at its maximum.
func (c counters) saturating(bits int, name, help, counter string, others ...string) {
	c.Group = c.From(collector.Origin{Name: counter, Bits: bits, Saturates: true})
	c.counter(name, help, others...)
}

func (c counters) words(name, help, counter string, others ...string) *collector.Metric {
	c.Group = c.Scaled(4, counter)
	return c.counter(name, help, others...)
}
