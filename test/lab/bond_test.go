//go:build lab

package lab

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// TestBondMemberFails pulls the cable of one member, at both ends, and plugs it in again.
func TestBondMemberFails(t *testing.T) {
	for _, c := range []struct {
		mode          string
		options       []string
		whole, failed want // in addition to what all modes have in common
	}{
		{"balance-xor", []string{"xmit_hash_policy", "layer3+4"},
			want{`bond_info{bond="bond0",mode="balance-xor",xmit_hash_policy="layer3+4"}`: 1,
				`bond_active_member_info{bond="bond0"}`: gone},
			want{`bond_active_member_info{bond="bond0"}`: gone}},
		{"active-backup", nil,
			want{`bond_info{bond="bond0",mode="active-backup"}`: 1,
				`bond_active_member_info{bond="bond0",member="eth0"}`: 1, `bond_active_member_info{bond="bond0"}`: 1},
			want{`bond_active_member_info{bond="bond0",member="eth1"}`: 1, `bond_active_member_info{bond="bond0"}`: 1}},
		{"802.3ad", []string{"lacp_rate", "fast", "xmit_hash_policy", "layer3+4"},
			want{`bond_info{bond="bond0",mode="802.3ad"}`: 1, `bond_aggregator_ports{bond="bond0"}`: 2,
				`bond_partner_present{bond="bond0"}`: 1},
			want{`bond_aggregator_ports{bond="bond0"}`: 1, `bond_partner_present{bond="bond0"}`: 1}},
	} {
		t.Run(c.mode, func(t *testing.T) {
			freshRails(t, 2)
			for _, n := range []node{1, 2} {
				bond(t, n, c.mode, c.options...)
			}
			e := serve(t, 1, "--source.kmsg")
			whole := want{
				`bond_up{bond="bond0"}`: 1, `bond_members{bond="bond0"}`: 2, `bond_members_up{bond="bond0"}`: 2,
				`bond_member_up{bond="bond0",member="eth0"}`: 1, `bond_member_up{bond="bond0",member="eth1"}`: 1,
			}
			maps.Copy(whole, c.whole)
			m := e.shows(t, whole)
			if c.mode == "802.3ad" {
				checkLACP(t, m)
			}
			ping(t)
			failures := `bond_member_link_failures_total{bond="bond0",member="eth0"}`
			before := m.must(t, failures)

			for _, n := range []node{1, 2} {
				n.Cable(t, 0, false)
			}
			failed := want{
				`bond_up{bond="bond0"}`: 1, `bond_members{bond="bond0"}`: 2, `bond_members_up{bond="bond0"}`: 1,
				`bond_member_up{bond="bond0",member="eth0"}`: 0, `bond_member_up{bond="bond0",member="eth1"}`: 1,
				failures: before + 1,
				`kernel_events_total{event="bond_member_down",subject="rail 0"}`: 1,
				`bond_member_link_failures_total{bond="bond0",member="eth1"}`: m.must(t,
					`bond_member_link_failures_total{bond="bond0",member="eth1"}`),
			}
			maps.Copy(failed, c.failed)
			e.shows(t, failed)
			ping(t)

			for _, n := range []node{1, 2} {
				n.Cable(t, 0, true)
			}
			e.shows(t, want{`bond_members_up{bond="bond0"}`: 2, `bond_member_up{bond="bond0",member="eth0"}`: 1,
				failures: before + 1})
		})
	}
}

// ping waits until the bond carries traffic.
func ping(t *testing.T) {
	t.Helper()
	eventually(t, linkTime, func() error {
		_, err := node(1).Try("ping", "-q", "-c", "1", "-W", "1", node(2).address(0))
		return err
	})
}

// checkLACP compares exported LACP values with what the two kernels report.
func checkLACP(t *testing.T, m metrics) {
	t.Helper()
	partner := strings.TrimSpace(node(2).Run(t, "cat", "/sys/class/net/bond0/address"))
	w := want{fmt.Sprintf(`bond_partner_info{bond="bond0",partner_mac="%s"}`, partner): 1}
	aggregator := m.must(t, `bond_aggregator_id{bond="bond0"}`)
	for _, member := range []string{"eth0", "eth1"} {
		w[fmt.Sprintf(`bond_member_aggregator_id{bond="bond0",member="%s"}`, member)] = aggregator
		for _, side := range []string{"actor", "partner"} {
			w[fmt.Sprintf(`bond_member_churned_total{bond="bond0",member="%s",side="%s"}`, member, side)] = 0
		}
	}
	if err := w.check(m); err != nil {
		t.Error(err)
	}
}

// TestGIDTrap adds two rails to a bond. A port stays ACTIVE whatever happens to its GIDs, so that only gid_misbound
// shows the fault.
func TestGIDTrap(t *testing.T) {
	freshRails(t, 2)
	e := serve(t, 1)
	e.shows(t, want{`gid_misbound{rail="0"}`: 0, `gid_misbound{rail="1"}`: 0})

	// eth0 keeps its address in addition to the bond's; eth1 does not.
	node(1).Shell(t, `
ip link add bond0 type bond mode balance-xor miimon 100
ip -batch - <<-end
	link set eth0 down
	link set eth1 down
	link set eth0 master bond0
	link set eth1 master bond0
	link set bond0 mtu 4200 up
	address flush dev eth1
	address add 192.168.100.11/24 dev bond0
end`)
	e = e.restart(t)
	e.shows(t, want{`gid_misbound{rail="0"}`: 0, `gid_misbound{rail="1"}`: 1, `port_up{rail="0"}`: 1,
		`port_up{rail="1"}`: 1})

	// Now neither has an address: both rails use the bond's.
	node(1).Run(t, "ip", "addr", "del", node(1).address(0)+"/24", "dev", "eth0")
	e = e.restart(t)
	m := e.shows(t, want{`gid_misbound{rail="0"}`: 1, `gid_misbound{rail="1"}`: 1, `port_up{rail="0"}`: 1,
		`port_up{rail="1"}`: 1})
	for rail := range 2 {
		if labels, ok := exportedGID(m, rail, "192.168.100.11"); !ok || labels["netdev"] != "bond0" {
			t.Errorf("rail %d: gid_info of the bond's address: %v", rail, labels)
		}
	}

	// A rail that left the bond and has its own address is healthy again.
	node(1).Shell(t, `
ip link delete bond0
for i in 0 1; do
	ip link set "eth$i" up
	ip addr add "192.168.10$i.1/24" dev "eth$i"
done`)
	e = e.restart(t)
	e.shows(t, want{`gid_misbound{rail="0"}`: 0, `gid_misbound{rail="1"}`: 0, `bond_info{bond="bond0"}`: gone})
}
