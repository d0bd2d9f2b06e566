package collector

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// The rows of bondTable.
const (
	bondInfo = iota
	bondUp
	bondMembers
	bondMembersUp
	bondMembersMissing
	bondMemberUp
	bondMemberCarrier
	bondMemberFailures
	bondMemberActive
	bondActiveMember
	bondAggregator
	bondAggregatorPorts
	bondActorKey
	bondPartnerKey
	bondPartnerPresent
	bondPartner
	bondMemberAggregator
	bondMemberChurned
	bondMemberPortState
	bondRDMA
	bondRowCount
)

func bondTable() []Metric {
	const (
		master = "drivers/net/bonding/bond_sysfs.c"
		member = "drivers/net/bonding/bond_sysfs_slave.c"
		ad     = "drivers/net/bonding/bond_3ad.c, IEEE 802.1AX"
	)
	bond, perMember := []string{"bond"}, []string{"bond", "member"}
	from := func(names ...string) (list []Origin) {
		for _, n := range names {
			list = append(list, Origin{Name: n})
		}
		return list
	}
	return []Metric{
		bondInfo: {Name: "bond_info", Kind: Gauge, Labels: []string{"bond", "mode", "xmit_hash_policy", "miimon", "lacp_rate"}, Ref: master, From: from("bonding/mode", "bonding/xmit_hash_policy", "bonding/miimon", "bonding/lacp_rate"),
			Help: "How the bond is configured, always 1; with miimon 0 the kernel does not watch the links, and xmit_hash_policy and lacp_rate are empty where the mode does not use them."},
		bondUp: {Name: "bond_up", Kind: Gauge, Labels: bond, Ref: master, From: from("bonding/mii_status"),
			Help: "1 while the bond has carrier, 0 when no member can carry its traffic."},
		bondMembers: {Name: "bond_members", Kind: Gauge, Labels: bond, Ref: master, From: from("bonding/slaves"),
			Help: "Interfaces enslaved to the bond now."},
		bondMembersUp: {Name: "bond_members_up", Kind: Gauge, Labels: bond, Ref: member, From: from("bonding_slave/mii_status"),
			Help: "Members whose link is up; below bond_members the bond carries its traffic on fewer links than it has. Absent when a member's link could not be read."},
		bondMembersMissing: {Name: "bond_members_missing", Kind: Gauge, Labels: bond, Ref: "railscope", From: from("bonding/slaves"),
			Help: "Interfaces that were members of this bond at an earlier read and are no longer; starts from nothing when railscope starts and when the bond is made anew."},
		bondMemberUp: {Name: "bond_member_up", Kind: Gauge, Labels: perMember, Ref: member, From: from("bonding_slave/mii_status"),
			Help: "1 while the bond's link monitor holds the member to be up, 0 when it is down or on its way up or down."},
		bondMemberCarrier: {Name: "bond_member_carrier", Kind: Gauge, Labels: perMember, Ref: "net/core/net-sysfs.c", From: from("carrier"),
			Help: "1 while the member itself has carrier, which the bond's monitor may not have seen yet; absent while the member is administratively down."},
		bondMemberFailures: {Name: "bond_member_link_failures_total", Kind: Counter, Labels: perMember, Ref: member, From: []Origin{{Name: "bonding_slave/link_failure_count", Bits: 32}},
			Help: "Times the member's link went down since it joined the bond; a rising value is a flapping link. 32 bits wide: it wraps to 0."},
		bondMemberActive: {Name: "bond_member_active", Kind: Gauge, Labels: perMember, Ref: member, From: from("bonding_slave/state"),
			Help: "1 while the bond may send through the member, 0 while the member stands by or is left out of the aggregator."},
		bondActiveMember: {Name: "bond_active_member_info", Kind: Gauge, Labels: perMember, Ref: master, From: from("bonding/active_slave"),
			Help: "The one member that carries the traffic of an active-backup, balance-tlb or balance-alb bond, always 1; absent in other modes and when no member is up."},
		bondAggregator: {Name: "bond_aggregator_id", Kind: Gauge, Labels: bond, Ref: ad, From: from("bonding/ad_aggregator"),
			Help: "Active LACP aggregator of an 802.3ad bond; absent when it has none."},
		bondAggregatorPorts: {Name: "bond_aggregator_ports", Kind: Gauge, Labels: bond, Ref: ad, From: from("bonding/ad_num_ports"),
			Help: "Members in the active LACP aggregator; below bond_members_up some links are up but carry nothing."},
		bondActorKey: {Name: "bond_actor_key", Kind: Gauge, Labels: bond, Ref: ad, From: from("bonding/ad_actor_key"),
			Help: "Our LACP key of the active aggregator; absent without CAP_NET_ADMIN, from which alone the kernel does not hide it, and without an active aggregator."},
		bondPartnerKey: {Name: "bond_partner_key", Kind: Gauge, Labels: bond, Ref: ad, From: from("bonding/ad_partner_key"),
			Help: "The partner's LACP key of the active aggregator; absent where bond_actor_key is."},
		bondPartnerPresent: {Name: "bond_partner_present", Kind: Gauge, Labels: bond, Ref: ad, From: from("bonding/ad_partner_mac"),
			Help: "1 while the active aggregator has a LACP partner, 0 when nobody answers LACP or no aggregator is active; absent without CAP_NET_ADMIN while one is active."},
		bondPartner: {Name: "bond_partner_info", Kind: Gauge, Labels: []string{"bond", "partner_mac"}, Ref: ad, From: from("bonding/ad_partner_mac"),
			Help: "System address of the LACP partner of the active aggregator, always 1; absent where bond_partner_present is not 1."},
		bondMemberAggregator: {Name: "bond_member_aggregator_id", Kind: Gauge, Labels: perMember, Ref: ad, From: from("bonding_slave/ad_aggregator_id"),
			Help: "LACP aggregator that the member belongs to; one other than bond_aggregator_id means that the member carries nothing."},
		bondMemberChurned: {Name: "bond_member_churned_total", Kind: Counter, Labels: []string{"bond", "member", "side"}, Ref: "drivers/net/bonding/bond_procfs.c, IEEE 802.1AX churn detection", From: []Origin{{Name: "Actor Churned Count", Bits: 32}, {Name: "Partner Churned Count", Bits: 32}},
			Help: "Times the side of the LACP link did not come into step within a minute; a rising value means that the two ends disagree on the aggregate. 32 bits wide: it wraps to 0."},
		bondMemberPortState: {Name: "bond_member_port_state", Kind: Gauge, Labels: []string{"bond", "member", "side", "state"}, Ref: ad, From: from("bonding_slave/ad_actor_oper_port_state", "bonding_slave/ad_partner_oper_port_state", "port state"),
			Help: "LACP state bits of each side, 1 where set; traffic flows only while collecting and distributing are 1 on both sides, and defaulted on our side means that the partner is not heard."},
		bondRDMA: {Name: "bond_rdma_info", Kind: Gauge, Labels: []string{"bond", "rail", "device", "port", "member"}, Ref: "railscope", From: from("bonding/slaves"),
			Help: "An RDMA port on the bond, always 1: on the bond itself, with an empty member, where the driver made one device of the bond, otherwise on the named member."},
	}
}

// Bond reads the kernel's bonding driver: sysfs, and /proc/net/bonding for what
// is nowhere else. Each bond has a lane of its own.
type Bond struct {
	sysfs, procfs string
	rails         func() ([]rail.Rail, error)
	budget        time.Duration
	rows          []Metric
	lanes         lane.Group[*laneRead]

	mu    sync.Mutex
	bonds map[string]*bondState // by name; the state belongs to the bond's lane
}

var _ Source = (*Bond)(nil)

// NewBond returns the source of the bonds below sysfs (/sys) and procfs
// (/proc). rails tells which RDMA ports there are; a read takes at most budget.
func NewBond(sysfs, procfs string, rails func() ([]rail.Rail, error), budget time.Duration) *Bond {
	return &Bond{sysfs: sysfs, procfs: procfs, rails: rails, budget: budget, rows: bondTable(), bonds: make(map[string]*bondState)}
}

// Name returns "bond".
func (b *Bond) Name() string { return "bond" }

// Metrics returns the rows.
func (b *Bond) Metrics() []*Metric { return rowPointers(b.rows) }

// rowPointers returns the rows of a table as [Source.Metrics] wants them.
func rowPointers(rows []Metric) []*Metric {
	list := make([]*Metric, len(rows))
	for i := range rows {
		list[i] = &rows[i]
	}
	return list
}

// Read reads every bond; see [Source].
func (b *Bond) Read(emit func(Sample)) error {
	names, faults := b.masters()
	if len(names) == 0 {
		b.retire(nil)
		if faults == nil {
			return fmt.Errorf("no bond in %s: %w", b.sysfs, ErrAbsent)
		}
		return errors.Join(faults...)
	}
	rails, err := b.rails()
	if len(rails) == 0 && err != nil && !errors.Is(err, os.ErrNotExist) { // one that could not be examined is the rdma source's to report
		faults = append(faults, NewFault("", fmt.Errorf("find the rails on bonds: %w", err)))
	}
	b.retire(names)
	results := b.lanes.Run(b.budget, names, func(name string) *laneRead {
		return b.state(name).read(rails)
	})
	faults = append(faults, laneEmit(results, func(key string) string { return key }, emit)...)
	return errors.Join(faults...)
}

// masters returns the bonds of this network namespace. No file means that the
// driver is not loaded, an empty one that there is no bond.
func (b *Bond) masters() (names []string, faults []error) {
	path := filepath.Join(b.sysfs, "class/net/bonding_masters")
	text, err := sysfs.ReadString(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		return nil, []error{NewFault("", err)}
	}
	for name := range strings.FieldsSeq(text) {
		switch {
		case name == "++more++": // what the kernel writes when its page is full
			faults = append(faults, NewFault("", &sysfs.Error{Path: path, Reason: sysfs.ReasonTooLarge, Err: errors.New("more bonds than the kernel lists")}))
		case !validNetdev(name):
			faults = append(faults, NewFault("", &sysfs.Error{Path: path, Reason: sysfs.ReasonInvalid, Err: fmt.Errorf("%.40q is not the name of an interface", name)}))
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), faults
}

// state returns the state of a bond, made at its first read.
func (b *Bond) state(name string) *bondState {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.bonds[name]
	if s == nil {
		s = newBondState(b, name)
		b.bonds[name] = s
	}
	return s
}

// retire closes the files of bonds that are gone. It does so inside their
// lanes, because a read that hangs there still holds them; such a bond is tried
// again at the next read.
func (b *Bond) retire(present []string) {
	var gone []string
	b.mu.Lock()
	for name := range b.bonds {
		if !slices.Contains(present, name) {
			gone = append(gone, name)
		}
	}
	b.mu.Unlock()
	if len(gone) == 0 {
		return
	}
	b.lanes.Run(b.budget, gone, func(name string) *laneRead {
		b.mu.Lock()
		s := b.bonds[name]
		delete(b.bonds, name)
		b.mu.Unlock()
		s.close()
		return &s.out
	})
}

// rdma emits which of the rails are on the bond.
func (s *bondState) rdma(rails []rail.Rail) {
	for _, r := range rails {
		member := r.Netdev
		if r.Netdev == s.name {
			member = ""
		} else if r.Netdev == "" || !slices.ContainsFunc(s.members, func(m *bondMember) bool { return m.name == r.Netdev }) {
			continue
		}
		s.out.add(s.row(bondRDMA), []string{s.name, r.Name, r.Device, strconv.Itoa(r.Port), member}, 1)
	}
}
