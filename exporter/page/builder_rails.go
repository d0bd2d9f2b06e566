package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// rails fills in the rails.
func (b *builder) rails(s *Snapshot, now time.Time) {
	labels := []string{"rail", "device", "port", "netdev", "pci_address", "numa_node"}
	b.each("rail_info", labels, func(l []string, _ float64) {
		get := b.of("rail", l[0])
		r := Rail{Name: l[0], Device: l[1], Port: l[2], Netdev: l[3], PCIAddress: l[4], NUMA: l[5],
			Up: get("port_up"), MTU: get("port_mtu_bytes", "kind", "active"),
			Rate: get("port_rate_bytes_per_second"), Capacity: get("rail_capacity_bytes_per_second"),
			Transfers: get("pcie_link_transfers_per_second"), MaxTransfers: get("pcie_link_max_transfers_per_second"),
			Width: get("pcie_link_width_lanes"), MaxWidth: get("pcie_link_max_width_lanes"),
			Links: get("netdev_carrier_changes_total")}
		if r.NUMA == "-1" {
			r.NUMA = ""
		}
		if state := get("port_state_id"); state != nil {
			r.State = stateName(*state)
		}
		if is(get("gid_misbound"), 1) {
			r.Notes = []Note{{Bad, "GIDs on another interface", "connections use another port"}}
		}
		for d, name := range directions() {
			r.Traffic[d] = Traffic{Direction: name, Capacity: r.Capacity, Total: get("port_" + name + "_bytes_total")}
		}
		s.Rails = append(s.Rails, r)
	})
	slices.SortFunc(s.Rails, func(a, b Rail) int { return natural(a.Name, b.Name) })
	b.nearGPUs(s)
	b.traffic(s, now)
	b.congestion(s, now)
}

// stateName is the port's state, enum ib_port_state.
func stateName(id float64) string {
	names := map[float64]string{0: "no state", 1: "down", 2: "initializing", 3: "armed", 4: "active", 5: "active, deferred"}
	return cmp.Or(names[id], fmt.Sprintf("state %v", id))
}

// nearGPUs fills in the GPUs of each rail's NUMA node.
func (b *builder) nearGPUs(s *Snapshot) {
	index, nodes := map[string]string{}, map[string][]string{}
	b.each("gpu_info", []string{"gpu", "pci_address"}, func(l []string, _ float64) {
		index[strings.ToLower(l[1])] = l[0]
	})
	b.each("pcie_numa_node", []string{"kind", "pci_address"}, func(l []string, v float64) {
		if l[0] == "gpu" && v >= 0 {
			nodes[fmt.Sprint(v)] = append(nodes[fmt.Sprint(v)], index[strings.ToLower(l[1])])
		}
	})
	for i := range s.Rails {
		r := &s.Rails[i]
		switch list := slices.SortedFunc(slices.Values(nodes[r.NUMA]), natural); {
		case len(list) == 0:
		case list[0] == "": // NVML does not report it
			r.GPUs = plural(len(list), "GPU")
		default:
			r.GPUs = "GPU " + strings.Join(list, " ")
		}
	}
}

// traffic fills in what the rails carry: from the sampler or, without one, from the growth of their counters.
func (b *builder) traffic(s *Snapshot, now time.Time) {
	before := b.totals
	b.totals = map[string]*[2]byteTotals{}
	for i := range s.Rails {
		r := &s.Rails[i]
		totals := cmp.Or(before[r.Name], &[2]byteTotals{})
		for d := range r.Traffic {
			t := &r.Traffic[d]
			if b.o.Recent != nil {
				if recent, rate, ok := b.o.Recent(r.Name, d, nil); ok {
					t.Recent, t.Rate = recent, known(rate)
					continue
				}
			}
			t.Recent, t.Rate = totals[d].add(t.Total, now)
			b.totals[r.Name] = totals
		}
	}
}

// byteTotals is a byte counter of a rail.
type byteTotals struct {
	bytes  float64
	at     time.Time // zero: not yet
	recent []float64
}

// recentSeconds is how far back the lines go.
const recentSeconds = 120

// add records a counter and returns the rates up to now, and the last.
func (t *byteTotals) add(total *float64, now time.Time) (recent []float64, rate *float64) {
	switch took := now.Sub(t.at).Seconds(); {
	case total == nil:
		t.at = time.Time{}
		return nil, nil
	case t.at.IsZero() || *total < t.bytes || took > 3*slowEvery.Seconds(): // nothing to compare with
		t.recent = nil
	case took > 0:
		rate = new((*total - t.bytes) / took)
		t.recent = append(t.recent, slices.Repeat([]float64{*rate}, max(1, int(math.Round(took))))...)
		t.recent = t.recent[max(0, len(t.recent)-recentSeconds):]
	}
	t.bytes, t.at = *total, now
	return slices.Clone(t.recent), rate
}
