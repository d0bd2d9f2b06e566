//go:build lab

package lab

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"testing"
)

func TestRailsFound(t *testing.T) {
	for _, rails := range []int{2, 4} {
		t.Run(fmt.Sprintf("%d rails", rails), func(t *testing.T) {
			freshRails(t, rails)
			checkList(t, rails)
			e := serve(t, 1)
			w := want{}
			for rail := range rails {
				series := func(name, labels string) string {
					return fmt.Sprintf(`%s{rail="%d",device="rxe%d",port="1"%s}`, name, rail, rail, labels)
				}
				maps.Copy(w, want{
					series("rail_info", fmt.Sprintf(`,netdev="eth%d",link_layer="Ethernet"`, rail)): 1,
					series("port_up", ""):                      1,
					series("port_state_id", ""):                4,
					series("port_physical_state_id", ""):       5,
					series("port_rate_bytes_per_second", ""):   10e9 / 8, // values that the emulated NIC reports
					series("port_mtu_bytes", `,kind="active"`): 4096,
					series("port_mtu_bytes", `,kind="netdev"`): 4200,
					series("gid_misbound", ""):                 0,
				})
			}
			m := e.shows(t, w)
			if got := len(m.find("rail_info")); got != rails {
				t.Errorf("%d rails in rail_info, want %d", got, rails)
			}
			for rail := range rails {
				if got, ok := exportedGID(m, rail, node(1).address(rail)); !ok || got["netdev"] != fmt.Sprintf("eth%d",
					rail) || got["type"] != "RoCE v2" {
					t.Errorf("rail %d: gid_info of %s: %v", rail, node(1).address(rail), got)
				}
			}
		})
	}
}

// checkList compares `railscope rails --format=json` with the rails that freshRails made.
func checkList(t *testing.T, rails int) {
	t.Helper()
	var list struct {
		Rails []struct {
			Rail, Device, Netdev, State, GID, Reason string

			Port     int
			GIDIndex int    `json:"gid_index"`
			GIDType  string `json:"gid_type"`
		}
		LeftOut  []json.RawMessage `json:"left_out"`
		Problems []string
	}
	if err := json.Unmarshal([]byte(node(1).Run(t, railscope, "rails", "--format=json")), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Rails) != rails || len(list.LeftOut) != 0 {
		t.Fatalf("%d rails and %d left out, want %d and none: %+v", len(list.Rails), len(list.LeftOut), rails, list)
	}
	if len(list.Problems) != 0 {
		t.Errorf("problems: %q", list.Problems)
	}
	for i, r := range list.Rails {
		if r.Rail != fmt.Sprint(i) || r.Device != fmt.Sprintf("rxe%d",
			i) || r.Port != 1 || r.Netdev != fmt.Sprintf("eth%d", i) || r.State != "ACTIVE" {
			t.Errorf("rail %d is %+v", i, r)
		}
		kernel, _ := gidOf(gids(t, 1, r.Device), node(1).address(i))
		if !sameAddress(r.GID,
			node(1).address(i)) || fmt.Sprint(r.GIDIndex) != kernel.index || r.GIDType != "RoCE v2" || r.Reason == "" {
			t.Errorf("rail %d: chose GID %+v, the kernel has %+v", i, r, kernel)
		}
	}
}

// exportedGID returns the labels of a rail's gid_info for an IPv4 address.
func exportedGID(m metrics, rail int, address string) (map[string]string, bool) {
	for _, s := range m.find(fmt.Sprintf(`gid_info{rail="%d"}`, rail)) {
		if sameAddress(s.labels["gid"], address) {
			return s.labels, true
		}
	}
	return nil, false
}

// sameAddress reports whether a GID, in any notation, is an IPv4 address.
func sameAddress(gid, address string) bool {
	a, err := netip.ParseAddr(gid)
	return err == nil && a.Unmap() == netip.MustParseAddr(address)
}
