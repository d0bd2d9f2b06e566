package machines_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/machines"
	"github.com/railscope/railscope/internal/rail"
)

// broken returns the machine with faults of each kind for which somebody would touch it.
func broken(whole *facts.Facts) (list []*facts.Facts) {
	add := func(change func(f *facts.Facts)) {
		f := *whole
		f.Rails, f.Netdevs, f.Bonds = slices.Clone(f.Rails), slices.Clone(f.Netdevs), slices.Clone(f.Bonds)
		f.Live = &facts.Live{Over: 10 * time.Minute}
		change(&f)
		list = append(list, &f)
	}
	each := func(change func(f *facts.Facts, r *facts.Rail)) {
		add(func(f *facts.Facts) {
			for i := range f.Rails {
				change(f, &f.Rails[i])
			}
		})
	}
	add(func(f *facts.Facts) {
		f.Missing = append(f.Missing, rail.Missing{Name: "gone", Device: "gone0", Port: 1, PCIAddress: "0009:01:00.0"})
		f.Expected.GPUs = expect.Figure[int]{Value: len(f.GPUs) + 1, Source: expect.BestSeen}
	})
	each(func(f *facts.Facts, r *facts.Rail) { r.StateID, r.State = 1, "1: DOWN" })
	each(func(f *facts.Facts, r *facts.Rail) {
		r.StateID, r.State = 1, "1: DOWN"
		up, none := true, false
		if n := f.Find(r.Netdev); n != nil {
			n.Up, n.Carrier = &up, &none
		}
	})
	each(func(f *facts.Facts, r *facts.Rail) {
		r.Expected.Rate = expect.Figure[float64]{Value: 4 * r.Rate, Source: expect.BestSeen}
	})
	each(func(f *facts.Facts, r *facts.Rail) {
		if r.Link != nil {
			link := *r.Link
			link.Width = 1
			r.Link = &link
		}
	})
	each(func(f *facts.Facts, r *facts.Rail) { r.GIDs, r.GIDsRead = nil, true })
	each(func(f *facts.Facts, r *facts.Rail) {
		f.Live.Increases = append(f.Live.Increases,
			facts.Increase{Row: "netdev_phy_symbol_errors_total", Labels: []string{r.Name}, By: 1000})
		f.Live.Hot = append(f.Live.Hot, facts.Hot{Rail: r.Name, Sensor: "Module0", Excess: 5})
	})
	each(func(f *facts.Facts, r *facts.Rail) {
		f.Live.Increases = append(f.Live.Increases,
			facts.Increase{Row: "netdev_carrier_changes_total", Labels: []string{r.Name}, By: 40},
			facts.Increase{Row: "kernel_events_total", Labels: []string{"rail " + r.Name, "health_compromised"}, By: 1, Ever: 1})
		downs := uint64(1000)
		if n := f.Find(r.Netdev); n != nil {
			n.Downs = &downs
		}
		f.Uptime = 24 * 3600
	})
	add(func(f *facts.Facts) {
		for i := range f.Bonds {
			f.Bonds[i].Members = slices.Clone(f.Bonds[i].Members)
			for j := range f.Bonds[i].Members {
				f.Bonds[i].Members[j].Status = "down"
			}
		}
	})
	return list
}

// TestFixes: no fix asks for what its machine does not have: hands where nobody can touch it, a slot where adapters are
// soldered, tools of another vendor, or systemd.
func TestFixes(t *testing.T) {
	touch := regexp.MustCompile(`\b(reseat|riser|cables?|transceiver|BIOS|power the|replaced?)\b`)
	moved := regexp.MustCompile(`(?i)\breseat (it|the adapter)|\briser\b|\bmove (it|the adapter)\b`)
	unconditional := regexp.MustCompile(`(?:^|[.:;] )(reseat|move) the (adapter|GPU)`)
	tools := regexp.MustCompile(`\b(mlxlink|mlxconfig|mst)\b`)
	found := map[string]bool{}
	for _, m := range machines.All() {
		tree := machines.NewTree(t)
		m.Build(tree)
		var kernel rail.Kernel
		if k := tree.Kernel(); k != nil {
			kernel = k
		}
		finder := rail.NewFinder(tree.Sys(), rail.Options{}, kernel, budget)
		whole := facts.New(facts.Options{Sysfs: tree.Sys(), Procfs: tree.Procfs(), Rootfs: tree.Root,
			Rails: finder.Snapshot, Budget: budget}).Gather(t.Context(), facts.WithoutJobs)
		has := func(what func(r facts.Rail) bool) bool { return slices.ContainsFunc(whole.Rails, what) }
		cloud := has(func(r facts.Rail) bool { return r.Guest || slices.Contains([]string{"efa", "mana"}, r.Provider) })
		soldered := has(func(r facts.Rail) bool { return r.Slot != nil && r.Slot.SoC }) &&
			!has(func(r facts.Rail) bool { return r.Slot != nil && !r.Slot.SoC })
		nvidia := has(func(r facts.Rail) bool { return strings.HasPrefix(r.Provider, "mlx") })
		for _, f := range broken(whole) {
			for _, one := range check.Node(f, func(c check.Check) bool { return !c.Own() }) {
				found[one.Check] = true
				fix := strings.Join(one.Fix, "\n")
				switch {
				case cloud && touch.MatchString(fix):
					t.Errorf("%s, %s: nobody can touch it: %s", m.Name, one.Check, fix)
				case soldered && moved.MatchString(fix), unconditional.MatchString(fix):
					t.Errorf("%s, %s: it may be soldered: %s", m.Name, one.Check, fix)
				case !nvidia && tools.MatchString(fix):
					t.Errorf("%s, %s: no adapter of NVIDIA: %s", m.Name, one.Check, fix)
				case strings.Contains(fix, "journalctl"), strings.Contains(fix, "systemctl start"):
					t.Errorf("%s, %s: systemd is not everywhere: %s", m.Name, one.Check, fix)
				}
			}
		}
	}
	for _, id := range []string{"rail_missing", "gpu_missing", "port_down", "rate_lost", "pcie_link_low", "gid_missing",
		"link_errors", "link_flapping", "carrier_flapping", "hardware_event", "temperature_critical", "bond_member_down"} {
		if !found[id] {
			t.Errorf("no machine has %s", id)
		}
	}
}
