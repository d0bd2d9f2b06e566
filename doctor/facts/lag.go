package facts

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/internal/kernellog"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

const maxLAGMessages = 4 // per bond

// readLAG reads the driver's messages about bonds whose members are still separate RDMA devices, if this process may
// read the kernel log. Most nodes have no such bonds and skip it.
func (g *Gatherer) readLAG(n Network) work {
	slots := map[string]int{} // slot of a member → index of its bond
	for i := range n.Bonds {
		if b := &n.Bonds[i]; BondCarriesRDMA(b.Mode) && len(n.RailsOn(b)) > 1 {
			for _, m := range b.Members {
				slots[n.Netdev(m.Name).Slot] = i
			}
		}
	}
	delete(slots, "") // software devices have no slot
	if len(slots) == 0 {
		return nil
	}
	return func(r *reader) func(*Facts) {
		// Many hosts refuse access to the kernel log, and an unknown reason is not a fault.
		list, _ := kernellog.Read(r.at(g.own("dev/kmsg")), maxLAGMessages*len(slots), func(rec kernellog.Record) bool {
			_, ours := slots[slotOfMessage(rec.Text)]
			return ours && rec.Driver() && aboutLAG(rec.Text)
		})
		slices.Reverse(list)
		return func(f *Facts) {
			for _, rec := range list {
				b := &f.Bonds[slots[slotOfMessage(rec.Text)]]
				if text := clean(rec.Text); len(b.Log) < maxLAGMessages && !slices.Contains(b.Log, text) {
					b.Log = append(b.Log, text)
				}
			}
		}
	}
}

// slotOfMessage returns the PCI slot of the function that a message like "mlx5_core 0000:18:00.0: …" is about.
func slotOfMessage(text string) string {
	_, rest, _ := strings.Cut(text, " ")
	address, _, _ := strings.Cut(rest, ": ")
	address, _, _ = strings.Cut(address, " ")
	return rail.LinkKey(address)
}

// aboutLAG reports whether a message explains a missing LAG: "Failed to create LAG (-22)", "Failed to activate RoCE
// LAG", "LAG port selection mode must be the same for both devices" (mlx5/core/lag/lag.c).
func aboutLAG(text string) bool {
	return strings.Contains(text, " LAG ") || strings.HasSuffix(text, " LAG") || strings.Contains(text, "RoCE LAG;")
}

// emptyBond reports whether a bond is administratively up without a member. The module creates bond0 without members
// but down.
func (g *Gatherer) emptyBond(r *reader, name string) bool {
	dir := filepath.Join(g.o.Sysfs, "class/net", name)
	members, err := sysfs.ReadString(dir, "bonding/slaves")
	flags, flagsErr := strconv.ParseUint(r.text(dir, "flags"), 0, 32)
	known := err == nil || sysfs.Reason(err) == sysfs.ReasonEmpty
	return known && members == "" && flagsErr == nil && flags&1 != 0 // IFF_UP
}
