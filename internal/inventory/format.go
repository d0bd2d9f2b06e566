package inventory

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/railscope/railscope/internal/rdmadev"
)

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
		fmt.Fprintln(&b, "No rails: this machine has no RDMA port that is not a virtual function "+
			"(see ls /sys/class/infiniband).")
	} else {
		t := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
		fmt.Fprintln(t, "RAIL\tDEVICE\tPORT\tNETDEV\tSTATE\tRATE\tCAPACITY\tMTU\tPCI\tNUMA\tGID\tADDRESS\tWHY")
		for _, r := range l.Rails {
			fmt.Fprintln(t, strings.Join([]string{r.Rail, r.Device, strconv.Itoa(r.Port), dash(r.Netdev), r.State,
				gigabits(r.Rate), gigabits(r.Capacity), number(r.ActiveMTU, 1), dash(r.PCIAddress),
				number(r.NUMANode, 0), number(r.GIDIndex, 0), dash(address(r.GID)), r.Reason}, "\t"))
		}
		_ = t.Flush() // b takes everything
		if nodes := l.characterDevices(); len(nodes) > 0 {
			fmt.Fprintf(&b, "Devices for a container: %s\n", rdmadev.Flags(nodes))
		}
	}
	for _, o := range l.LeftOut {
		fmt.Fprintf(&b, "Left out: %s port %d: %s\n", o.Device, o.Port, o.Reason)
	}
	for _, m := range l.Missing {
		fmt.Fprintf(&b, "Missing: rail %s (%s port %d at %s)\n", m.Name, dash(m.Device), m.Port, dash(m.PCIAddress))
	}
	for _, p := range l.Problems {
		fmt.Fprintf(&b, "Problem: %s\n", p)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// characterDevices are those of all rails, each once: those of one rail first, then what rails share.
func (l List) characterDevices() []string {
	var own, shared []string
	for _, r := range l.Rails {
		for _, node := range r.CharacterDevices {
			switch {
			case slices.Contains(own, node) || slices.Contains(shared, node):
			case strings.HasSuffix(node, "/rdma_cm"):
				shared = append(shared, node)
			default:
				own = append(own, node)
			}
		}
	}
	return append(own, shared...)
}

func dash(s string) string { return cmp.Or(s, "-") }

// number formats n, or a dash if it is below least: unknown.
func number(n, least int) string {
	if n < least {
		return "-"
	}
	return strconv.Itoa(n)
}

func gigabits(bytesPerSecond float64) string {
	if bytesPerSecond == 0 {
		return "-"
	}
	return strconv.FormatFloat(bytesPerSecond*8/1e9, 'f', 1, 64) + " Gb/s"
}

// address formats a GID as the IP address that it contains.
func address(gid string) string {
	a, err := netip.ParseAddr(gid)
	if err != nil {
		return gid
	}
	return a.Unmap().String()
}
