package bond

import "github.com/railscope/railscope/collector"

type table struct {
	collector.Table
	info, up, members, membersUp, membersMissing                               *collector.Metric
	memberUp, memberCarrier, memberFailures, memberActive, activeMember        *collector.Metric
	aggregator, aggregatorPorts, actorKey, partnerKey, partnerPresent, partner *collector.Metric
	memberAggregator, memberChurned, memberPortState, onRail                   *collector.Metric
}

func newTable() *table {
	t := &table{Table: collector.Table{Source: "bond"}}
	bond := t.Group("drivers/net/bonding/bond_sysfs.c", "bond")
	member := bond.Ref("drivers/net/bonding/bond_sysfs_slave.c").With("member")
	ours := bond.Ref("railscope")
	t.info = bond.With("mode", "xmit_hash_policy", "miimon", "lacp_rate").Gauge("bond_info", "How the bond is "+
		"configured, always 1; with miimon 0 the kernel does not monitor the links, and xmit_hash_policy and "+
		"lacp_rate are empty where the mode does not use them.", "bonding/mode", "bonding/xmit_hash_policy",
		"bonding/miimon", "bonding/lacp_rate")
	t.up = bond.Gauge("bond_up", "1 while the bond has carrier, else 0.", "bonding/mii_status")
	t.members = bond.Gauge("bond_members", "Interfaces that are members of the bond.", "bonding/slaves")
	t.membersUp = bond.Ref("drivers/net/bonding/bond_sysfs_slave.c").
		Gauge("bond_members_up", "Members whose link is up; below bond_members the bond uses fewer links than it "+
			"has. Absent when a member could not be read.", "bonding_slave/mii_status")
	t.membersMissing = ours.Gauge("bond_members_missing", "Interfaces that were members of this bond at an earlier "+
		"read and are no longer; counted from zero when railscope starts and when the bond is recreated.",
		"bonding/slaves")
	t.memberUp = member.Gauge("bond_member_up", "1 while the bond's link monitor sees the member up, 0 while it is "+
		"down, going down or coming back.", "bonding_slave/mii_status")
	t.memberCarrier = member.Ref("net/core/net-sysfs.c").
		Gauge("bond_member_carrier", "1 while the member has carrier, which the bond's monitor may not have noticed "+
			"yet; absent while the member is administratively down.", "carrier")
	t.memberFailures = member.From(collector.Origin{Name: "bonding_slave/link_failure_count", Bits: 32}).
		Counter("bond_member_link_failures_total", "Times the member's link went down since it joined the bond; a "+
			"rising value is a flapping link. 32 bits wide: it wraps to 0.")
	t.memberActive = member.Gauge("bond_member_active", "1 while the bond may send through the member, 0 while the "+
		"member is a standby or not in the active aggregator.", "bonding_slave/state")
	t.activeMember = bond.With("member").Gauge("bond_active_member_info", "The one member that carries the traffic "+
		"of an active-backup, balance-tlb or balance-alb bond, always 1; absent in other modes and when no member is "+
		"up.", "bonding/active_slave")
	t.addLACP(bond.Ref("drivers/net/bonding/bond_3ad.c, IEEE 802.1AX"))
	t.onRail = ours.With("rail", "device", "port", "member").
		Gauge("bond_rdma_info", "An RDMA port on the bond, always 1: on the bond itself, with an empty member, where "+
			"the driver made one device of the bond, otherwise on the named member.", "bonding/slaves")
	return t
}

func (t *table) addLACP(bond collector.Group) {
	member := bond.With("member")
	t.aggregator = bond.Gauge("bond_aggregator_id", "Active LACP aggregator; absent without one.",
		"bonding/ad_aggregator")
	t.aggregatorPorts = bond.Gauge("bond_aggregator_ports", "Members in the active LACP aggregator; below "+
		"bond_members_up some links are up but carry nothing.", "bonding/ad_num_ports")
	t.actorKey = bond.Gauge("bond_actor_key", "LACP key of this host in the active aggregator; absent without an "+
		"active aggregator, and without CAP_NET_ADMIN, because the kernel then hides it.", "bonding/ad_actor_key")
	t.partnerKey = bond.Gauge("bond_partner_key", "LACP key of the partner in the active aggregator; absent with "+
		"bond_actor_key.", "bonding/ad_partner_key")
	t.partnerPresent = bond.Gauge("bond_partner_present", "1 while the active aggregator has a LACP partner, 0 when "+
		"there is no LACP partner or no aggregator is active; absent without CAP_NET_ADMIN while one is active.",
		"bonding/ad_partner_mac")
	t.partner = bond.With("partner_mac").Gauge("bond_partner_info", "System address of the LACP partner of the active "+
		"aggregator, always 1; absent where bond_partner_present is not 1.", "bonding/ad_partner_mac")
	t.memberAggregator = member.Gauge("bond_member_aggregator_id", "LACP aggregator that the member belongs to; one "+
		"other than bond_aggregator_id means that the member carries nothing.", "bonding_slave/ad_aggregator_id")
	churn := member.Ref("drivers/net/bonding/bond_procfs.c, IEEE 802.1AX churn detection").With("side").
		From(collector.Origin{Name: "Actor Churned Count", Bits: 32}, collector.Origin{Name: "Partner Churned Count",
			Bits: 32})
	t.memberChurned = churn.Counter("bond_member_churned_total", "Times that this side of the LACP link did not "+
		"synchronize within a minute; a rising value means that the two ends disagree on the aggregate. 32 bits "+
		"wide: it wraps to 0.")
	t.memberPortState = member.With("side", "state").Gauge("bond_member_port_state", "LACP state bits of each side, "+
		"1 where set; traffic flows only while collecting and distributing are 1 on both sides, and defaulted on the "+
		"actor's side means that nothing is received from the partner.", "bonding_slave/ad_actor_oper_port_state",
		"bonding_slave/ad_partner_oper_port_state")
}
