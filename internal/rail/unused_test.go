package rail

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// TestUse: a port that is down was up if its interface, or on InfiniBand its counters, show it. Its use is unknown in
// any other state, or if nothing counts.
func TestUse(t *testing.T) {
	const none = -1
	for _, tc := range []struct {
		why               string
		linkLayer, netdev string
		state             int
		links, packets    int // carrier_up_count and port_rcv_packets; none: no such file
		want              string
	}{
		{"active", "Ethernet", "eth0", StateActive, 0, 0, "active known up"},
		{"never up", "Ethernet", "eth0", stateDown, 0, 5, "known"},
		{"once up", "Ethernet", "eth0", stateDown, 1, 0, "known up"},
		{"coming up", "Ethernet", "eth0", 2, 0, 0, ""},
		{"not counted", "Ethernet", "eth0", stateDown, none, 5, ""},
		{"InfiniBand, never up", infiniBand, "ib0", stateDown, none, 0, "known"},
		{"InfiniBand, once up", infiniBand, "ib0", stateDown, none, 1, "known up"},
		{"InfiniBand with a carrier", infiniBand, "ib0", stateDown, 1, 0, "known up"},
		{"no interface, never up", "Ethernet", "", stateDown, 1, 0, "known"},
		{"no interface, once up", "Ethernet", "", stateDown, none, 1, "known up"},
		{"no interface, not counted", "Ethernet", "", stateDown, 1, none, ""},
	} {
		root := t.TempDir()
		if tc.links != none {
			writeFile(t, strconv.Itoa(tc.links), root, "class/net/eth0/carrier_up_count")
			writeFile(t, strconv.Itoa(tc.links), root, "class/net/ib0/carrier_up_count")
		}
		if tc.packets != none {
			writeFile(t, strconv.Itoa(tc.packets), root, "mlx5_0/ports/1/counters/port_rcv_packets")
		}
		p := NewPort(root, Rail{Dir: root + "/mlx5_0", Port: 1, Netdev: tc.netdev, LinkLayer: tc.linkLayer}, nil)
		u := p.Use(tc.state)
		p.Close()
		var facts []string
		for i, holds := range []bool{u.Active, u.Known, u.WasUp} {
			if holds {
				facts = append(facts, []string{"active", "known", "up"}[i])
			}
		}
		if got := strings.Join(facts, " "); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.why, got, tc.want)
		}
	}
}

// TestUnused: ports that were never up are unused, unless most of their equals are up, another function of the physical
// port is, or too few would be left. A field is a port: the model, u up, d down since it was made, o once up, x
// expected, n not known, and its physical port.
func TestUnused(t *testing.T) {
	for _, tc := range []struct {
		why     string
		ports   string
		atLeast int
		want    string // fields that are unused, by index
	}{
		{"one of two", "Au Ad", 0, "[1]"},
		{"once up", "Au Ao", 0, "[]"},
		{"expected", "Au Ax", 0, "[]"},
		{"not known", "Au An", 0, "[]"},
		{"one of three, two are up", "Au Au Ad", 0, "[]"},
		{"two of three", "Au Ad Ad", 0, "[1 2]"},
		{"half of four", "Au Au Ad Ad", 0, "[2 3]"},
		{"another model", "Au Au Au Bd", 0, "[3]"},
		{"another function of its port is up", "Au1 Bd1", 0, "[]"},
		{"another port is up", "Au1 Bd2", 0, "[1]"},
		{"as many are expected as are up", "Au Ad", 1, "[1]"},
		{"more are expected", "Au Ad", 2, "[]"},
	} {
		var ports []Use
		for f := range strings.FieldsSeq(tc.ports) {
			ports = append(ports, Use{Rail: Rail{HCAType: f[:1], Port: 1}, Active: f[1] == 'u', Known: f[1] != 'n',
				WasUp: f[1] == 'o' || f[1] == 'u', Expected: f[1] == 'x', PortKey: f[2:]})
		}
		unused := []int{}
		for i, is := range Unused(ports, tc.atLeast) {
			if is {
				unused = append(unused, i)
			}
		}
		if got := fmt.Sprint(unused); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.why, got, tc.want)
		}
	}
}
