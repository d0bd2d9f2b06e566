//go:build lab

package lab

import (
	"fmt"
	"testing"
)

func TestLinkDown(t *testing.T) {
	for _, c := range []struct {
		name      string
		physState float64
		down, up  func(t *testing.T)
	}{
		{"taken down", 3, // disabled
			func(t *testing.T) { node(1).Run(t, "ip", "link", "set", "eth1", "down") },
			func(t *testing.T) { node(1).Run(t, "ip", "link", "set", "eth1", "up") }},
		{"cable pulled", 2, // polling
			func(t *testing.T) { node(1).Cable(t, 1, false) },
			func(t *testing.T) { node(1).Cable(t, 1, true) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			freshRails(t, 2)
			e := serve(t, 1)
			e.shows(t, want{`port_up{rail="0"}`: 1, `port_up{rail="1"}`: 1})
			c.down(t)
			e.shows(t, want{
				`port_up{rail="0"}`:                    1,
				`port_up{rail="1"}`:                    0,
				`port_state_id{rail="1"}`:              1,
				`port_physical_state_id{rail="1"}`:     c.physState,
				`port_rate_bytes_per_second{rail="1"}`: gone, // the kernel still reports one
			})
			c.up(t)
			e.shows(t, want{`port_up{rail="0"}`: 1, `port_up{rail="1"}`: 1,
				`port_rate_bytes_per_second{rail="1"}`: 10e9 / 8})
		})
	}
}

func TestAddressRemoved(t *testing.T) {
	onlyLong(t) // GIDs are read every 30 s; TestGIDTrap changes them
	freshRails(t, 2)
	e := serve(t, 1)
	address := node(1).address(1)
	changes := func(m metrics, rail int) float64 {
		return m.must(t, fmt.Sprintf(`gid_changes_total{rail="%d"}`, rail))
	}
	has := func(there bool) func() error {
		return func() error {
			if labels, ok := exportedGID(e.scrape(t), 1, address); ok != there {
				return fmt.Errorf("gid_info of %s: %v, want it there: %v", address, labels, there)
			}
			return nil
		}
	}
	eventually(t, linkTime, has(true))
	before := e.scrape(t)
	node(1).Run(t, "ip", "addr", "del", address+"/24", "dev", "eth1")
	eventually(t, linkTime, has(false))
	removed := e.scrape(t)
	if changes(removed, 1) <= changes(before, 1) {
		t.Errorf("gid_changes_total is %v after a GID went, %v before", changes(removed, 1), changes(before, 1))
	}
	if changes(removed, 0) != changes(before, 0) {
		t.Errorf("gid_changes_total of rail 0 moved, but only rail 1 lost its address")
	}
	if err := (want{`port_up{rail="1"}`: 1, `gid_misbound{rail="1"}`: gone}).check(removed); err != nil {
		t.Error(err)
	}
	node(1).Run(t, "ip", "addr", "add", address+"/24", "dev", "eth1")
	eventually(t, linkTime, has(true))
	if back := e.scrape(t); changes(back, 1) <= changes(removed, 1) {
		t.Errorf("gid_changes_total is %v after the GID came back, %v before", changes(back, 1), changes(removed, 1))
	}
}

// TestDeviceReplaced deletes a device and recreates it under the same name: every file that was kept open is then
// invalid.
func TestDeviceReplaced(t *testing.T) {
	for rail := range 2 {
		t.Run(fmt.Sprintf("rxe%d", rail), func(t *testing.T) {
			if rail == 1 {
				onlyLong(t) // the last rail covers the same case, without a rail after it
			}
			freshRails(t, 2)
			meet(t, rail)
			e := serve(t, 1)
			series := func(name string, rail int) string { return fmt.Sprintf(`%s{rail="%d"}`, name, rail) }
			packets, other := series("port_transmit_packets_total", rail), 1-rail
			burst{rail: rail, messages: 20, size: 64 << 10}.send(t)
			if got := e.scrape(t).must(t, packets); got == 0 {
				t.Errorf("%s is 0 after traffic", packets)
			}

			node(1).Run(t, "rdma", "link", "delete", fmt.Sprintf("rxe%d", rail))
			e.shows(t, want{
				series("port_up", rail):    gone,
				series("rail_info", rail):  gone,
				series("gid_info", rail):   gone,
				packets:                    gone,
				series("port_up", other):   1, // under the same name: a rail that disappears does not rename the others
				series("rail_info", other): 1,
			})

			node(1).Run(t, "rdma", "link", "add", fmt.Sprintf("rxe%d", rail), "type", "rxe", "netdev",
				fmt.Sprintf("eth%d", rail))
			e.shows(t, want{series("port_up", rail): 1, packets: 0, series("port_up", other): 1})
			b := burst{rail: rail, messages: 20, size: 64 << 10}
			b.send(t)
			if got := e.scrape(t).must(t, packets); got < float64(b.packets()) {
				t.Errorf("%s is %v after the device came back and sent %d packets", packets, got, b.packets())
			}
		})
	}
}

func TestNetdevRenamed(t *testing.T) {
	freshRails(t, 2)
	meet(t, 1)
	e := serve(t, 1)
	e.shows(t, want{`rail_info{rail="1",netdev="eth1"}`: 1})
	node(1).Shell(t, "ip link set eth1 down; ip link set eth1 name east; ip link set east up")
	before := e.shows(t, want{
		`rail_info{rail="0",netdev="eth0"}`: 1,
		`rail_info{rail="1",netdev="east"}`: 1,
		`rail_info{rail="1",netdev="eth1"}`: gone,
		`port_up{rail="1"}`:                 1,
		`gid_misbound{rail="1"}`:            0,
	})
	meet(t, 1)
	b := burst{rail: 1, messages: 50, size: 64 << 10}
	b.send(t)
	bytes := `port_transmit_bytes_total{rail="1"}`
	if got := e.scrape(t).must(t, bytes) - before.must(t, bytes); got < float64(b.wireBytes()) {
		t.Errorf("%s rose by %.0f after the netdev was renamed, sent were %d", bytes, got, b.wireBytes())
	}
}
