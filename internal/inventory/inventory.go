// Package inventory lists the rails of a node for people and for scripts: what
// each one is, what it could carry, and which GID a connection over it would
// use, with the reason.
package inventory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/rdma"
	"github.com/railscope/railscope/internal/rail"
)

// List is what `railscope rails` prints. Figures that are not known are absent.
type List struct {
	Rails    []Rail    `json:"rails"`
	LeftOut  []LeftOut `json:"left_out"`
	Missing  []Missing `json:"missing"`
	Problems []string  `json:"problems"` // what could not be read
}

// Rail is one rail.
type Rail struct {
	Rail          string  `json:"rail"`
	Device        string  `json:"device"`
	Port          int     `json:"port"`
	Netdev        string  `json:"netdev"`
	LinkLayer     string  `json:"link_layer"`
	PCIAddress    string  `json:"pci_address"`
	NUMANode      int     `json:"numa_node"` // -1 when unknown
	State         string  `json:"state"`
	PhysicalState string  `json:"physical_state"`
	Rate          float64 `json:"rate_bytes_per_second,omitempty"`
	Capacity      float64 `json:"capacity_bytes_per_second,omitempty"`
	NetdevMTU     int     `json:"netdev_mtu_bytes,omitempty"`
	ActiveMTU     int     `json:"active_mtu_bytes,omitempty"`
	GIDIndex      int     `json:"gid_index"` // -1 when there is none to use
	GID           string  `json:"gid"`
	GIDType       string  `json:"gid_type"`
	GIDNetdev     string  `json:"gid_netdev"`
	Reason        string  `json:"reason"` // why that GID
	Misbound      bool    `json:"gid_misbound"`
}

// LeftOut is an RDMA port that is not a rail.
type LeftOut struct {
	Device string `json:"device"`
	Port   int    `json:"port"`
	Reason string `json:"reason"`
}

// Missing is a rail that is known and not there.
type Missing struct {
	Rail       string `json:"rail"`
	Device     string `json:"device"`
	Port       int    `json:"port"`
	PCIAddress string `json:"pci_address"`
}

// Read makes the list from what the finder and one read of the rdma source say.
func Read(sysfsRoot string, finder *rail.Finder, source *rdma.Source) List {
	values := map[string]float64{}
	err := source.Read(func(s collector.Sample) {
		key := s.Metric.Name
		if len(s.Labels) > 0 {
			key += " " + s.Labels[0]
		}
		if s.Metric.Name == "port_mtu_bytes" {
			key += " " + s.Labels[len(s.Labels)-1]
		}
		values[key] = s.Value
	})
	list := List{Rails: []Rail{}, LeftOut: []LeftOut{}, Missing: []Missing{}, Problems: []string{}}
	for _, f := range collector.Faults(err) {
		if !f.Expected && !errors.Is(f, collector.ErrAbsent) {
			list.Problems = append(list.Problems, f.Error())
		}
	}
	snap := finder.Snapshot()
	for _, r := range snap.Rails {
		value := func(name string) float64 { return values[name+" "+r.Name] }
		v := Rail{Rail: r.Name, Device: r.Device, Port: r.Port, Netdev: r.Netdev, LinkLayer: r.LinkLayer, PCIAddress: r.PCIAddress, NUMANode: r.NUMANode,
			State: stateName(values, "port_state_id "+r.Name, states), PhysicalState: stateName(values, "port_physical_state_id "+r.Name, physStates),
			Rate: value("port_rate_bytes_per_second"), Capacity: value("rail_capacity_bytes_per_second"),
			NetdevMTU: int(values["port_mtu_bytes "+r.Name+" netdev"]), ActiveMTU: int(values["port_mtu_bytes "+r.Name+" active"]),
			Misbound: value("gid_misbound") == 1, GIDIndex: -1}
		gids := rail.NewGIDTable(r.Dir, r.Port)
		table, _ := gids.Read() // what cannot be read is among the problems already
		gids.Close()
		c := rail.ChooseGID(table, r.LinkLayer, rail.Own(sysfsRoot, r.Netdev))
		v.Reason = c.Reason
		if c.OK {
			v.GIDIndex, v.GID, v.GIDType, v.GIDNetdev = c.GID.Index, c.GID.Addr.StringExpanded(), c.GID.Type, c.GID.Netdev
		}
		list.Rails = append(list.Rails, v)
	}
	for _, l := range snap.LeftOut {
		list.LeftOut = append(list.LeftOut, LeftOut{l.Device, l.Port, l.Reason})
	}
	for _, m := range snap.Missing {
		list.Missing = append(list.Missing, Missing{m.Name, m.Device, m.Port, m.PCIAddress})
	}
	return list
}

// Names of the states as the kernel prints them (drivers/infiniband/core/sysfs.c).
var (
	states     = []string{"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"}
	physStates = []string{"", "Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery", "Phy Test"}
)

func stateName(values map[string]float64, key string, names []string) string {
	id, known := values[key]
	if !known {
		return "unknown"
	}
	if i := int(id); i >= 0 && i < len(names) && names[i] != "" {
		return names[i]
	}
	return strconv.Itoa(int(id))
}

// WriteJSON writes the list as one JSON object.
func (l List) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(l)
}

// WriteTable writes the list as a table.
func (l List) WriteTable(w io.Writer) error {
	var b bytes.Buffer
	if len(l.Rails) == 0 {
		fmt.Fprintln(&b, "No rails: this machine has no RDMA port that is not a virtual function (see ls /sys/class/infiniband).")
	} else {
		t := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
		fmt.Fprintln(t, "RAIL\tDEVICE\tPORT\tNETDEV\tSTATE\tRATE\tCAPACITY\tMTU\tPCI\tNUMA\tGID\tADDRESS\tWHY")
		for _, r := range l.Rails {
			index := "-"
			if r.GIDIndex >= 0 {
				index = strconv.Itoa(r.GIDIndex)
			}
			fmt.Fprintln(t, strings.Join([]string{r.Rail, r.Device, strconv.Itoa(r.Port), dash(r.Netdev), r.State, gigabits(r.Rate), gigabits(r.Capacity),
				number(r.ActiveMTU), dash(r.PCIAddress), numa(r.NUMANode), index, dash(address(r.GID)), r.Reason}, "\t"))
		}
		_ = t.Flush() // b takes everything
	}
	for _, o := range l.LeftOut {
		fmt.Fprintf(&b, "Left out: %s port %d: %s\n", o.Device, o.Port, o.Reason)
	}
	for _, m := range l.Missing {
		fmt.Fprintf(&b, "Missing: rail %s (%s port %d at %s)\n", m.Rail, dash(m.Device), m.Port, dash(m.PCIAddress))
	}
	for _, p := range l.Problems {
		fmt.Fprintf(&b, "Problem: %s\n", p)
	}
	_, err := w.Write(b.Bytes())
	return err
}
