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
		r := Rail{Name: l[0], Device: l[1], Port: l[2], Netdev: l[3], PCIAddress: l[4]}
		if l[5] != "-1" {
			r.NUMA = l[5]
		}
		s.Rails = append(s.Rails, r)
	})
	slices.SortFunc(s.Rails, func(a, b Rail) int { return natural(a.Name, b.Name) })
	byName := map[string]*Rail{}
	for i := range s.Rails {
		byName[s.Rails[i].Name] = &s.Rails[i]
	}
	put := func(row string, put func(r *Rail, v float64)) {
		b.each(row, []string{"rail"}, func(l []string, v float64) {
			if r := byName[l[0]]; r != nil {
				put(r, v)
			}
		})
	}
	put("port_up", func(r *Rail, v float64) { r.Up, r.Known = v == 1, true })
	put("port_state_id", func(r *Rail, v float64) { r.State = stateName(v) })
	put("port_rate_bytes_per_second", func(r *Rail, v float64) { r.Rate = &v })
	put("rail_capacity_bytes_per_second", func(r *Rail, v float64) { r.Capacity = &v })
	put("netdev_carrier_changes_total", func(r *Rail, v float64) { r.Links = &v })
	put("port_receive_bytes_total", func(r *Rail, v float64) { r.Traffic[Receive].Total = &v })
	put("port_transmit_bytes_total", func(r *Rail, v float64) { r.Traffic[Transmit].Total = &v })
	put("pcie_link_transfers_per_second", func(r *Rail, v float64) { r.Transfers = &v })
	put("pcie_link_max_transfers_per_second", func(r *Rail, v float64) { r.MaxTransfers = &v })
	put("pcie_link_width_lanes", func(r *Rail, v float64) { r.Width = &v })
	put("pcie_link_max_width_lanes", func(r *Rail, v float64) { r.MaxWidth = &v })
	put("gid_misbound", func(r *Rail, v float64) {
		if v == 1 {
			r.Notes = append(r.Notes, Note{Bad, "GIDs on another interface", "connections use another port"})
		}
	})
	b.each("port_mtu_bytes", []string{"rail", "kind"}, func(l []string, v float64) {
		if r := byName[l[0]]; r != nil && l[1] == "active" {
			r.MTU = &v
		}
	})
	b.nearGPUs(s)
	b.traffic(s, now)
	b.congestion(byName, now)
}

// stateName is the port's state in words, enum ib_port_state.
func stateName(id float64) string {
	names := []string{"no state", "down", "initializing", "armed", "active", "active, deferred"}
	if i := int(id); i >= 0 && i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("state %v", id)
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
			t.Direction, t.Capacity = directions()[d], r.Capacity
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
