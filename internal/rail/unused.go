package rail

import (
	"path/filepath"
	"strings"

	"github.com/railscope/railscope/internal/sysfs"
)

// Use says whether a port is in use, as far as known.
type Use struct {
	Rail     Rail
	PortKey  string // key of the physical port; see [Rail.PortKey]
	Active   bool
	Known    bool // the state was read, and it is known whether the port was ever up
	WasUp    bool // it had a link since its interface was created
	Expected bool // the configuration or the memory expects it to be up
}

// Use returns the use of the port in a state that has just been read.
func (p *Port) Use(state int) Use {
	u := Use{Rail: p.rail, PortKey: p.portKey(), Active: state == StateActive, Known: true, WasUp: true,
		Expected: p.rail.Named}
	if u.Active {
		return u
	}
	links, err := sysfs.ReadUint(p.netdev, "carrier_up_count")
	// Without received bytes, not even the subnet manager reached it.
	if p.netdev == "" || err != nil && p.rail.LinkLayer == infiniBand {
		links, err = sysfs.ReadUint(filepath.Join(p.dir(), "counters"), "port_rcv_packets")
	}
	u.Known, u.WasUp = err == nil && state == stateDown, links > 0
	return u
}

// equals identifies ports with the same cabling: the same model, function number and port number.
type equals struct {
	hcaType, board, driver, function string
	port                             int
}

func equalsOf(r Rail) equals {
	_, function, _ := strings.Cut(r.PCIAddress, ".")
	return equals{r.HCAType, r.BoardID, r.Driver, function, r.Port}
}

// Unused returns which ports were never up and need not be: they are not expected to be up, no other function of
// the same physical port is up, and at most half of the equal ports are (none of fewer than three). atLeast is the
// number of rails that the configuration expects; 0: none.
func Unused(ports []Use, atLeast int) []bool {
	all, up, cabled := map[equals]int{}, map[equals]int{}, map[string]bool{}
	for _, p := range ports {
		all[equalsOf(p.Rail)]++
		if p.Active {
			up[equalsOf(p.Rail)]++
			cabled[p.PortKey] = p.PortKey != ""
		}
	}
	unused, used := make([]bool, len(ports)), 0
	for i, p := range ports {
		e := equalsOf(p.Rail)
		unused[i] = p.Known && !p.Active && !p.WasUp && !p.Expected && !cabled[p.PortKey] &&
			!(all[e] >= 3 && 2*up[e] > all[e])
		if !unused[i] {
			used++
		}
	}
	if used < atLeast {
		return make([]bool, len(ports))
	}
	return unused
}
