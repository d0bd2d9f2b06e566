package page

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// rails fills in the rails.
func (b *builder) rails(s *Snapshot, now time.Time) {
	at := map[string]*Rail{}
	info := []string{"rail", "device", "port", "netdev", "pci_address", "numa_node", "link_layer"}
	b.each("rail_info", info, func(l []string, _ float64) {
		r := Rail{Name: l[0], Device: l[1], Port: l[2], Netdev: l[3], PCIAddress: l[4], NUMA: l[5], Layer: l[6]}
		if r.NUMA == "-1" {
			r.NUMA = ""
		}
		s.Rails = append(s.Rails, r)
	})
	slices.SortFunc(s.Rails, func(a, b Rail) int { return natural(a.Name, b.Name) })
	for i := range s.Rails {
		at[s.Rails[i].Name] = &s.Rails[i]
	}
	put := func(row string, labels []string, put func(r *Rail, l []string, v float64)) {
		b.each(row, append([]string{"rail"}, labels...), func(l []string, v float64) {
			if r := at[l[0]]; r != nil {
				put(r, l[1:], v)
			}
		})
	}
	put("port_up", nil, func(r *Rail, _ []string, v float64) { r.Up, r.Known = v == 1, true })
	put("port_state_id", nil, func(r *Rail, _ []string, v float64) { r.State = stateName(v) })
	put("port_rate_bytes_per_second", nil, func(r *Rail, _ []string, v float64) { r.Rate = &v })
	put("rail_capacity_bytes_per_second", nil, func(r *Rail, _ []string, v float64) { r.Capacity = &v })
	put("netdev_carrier_changes_total", nil, func(r *Rail, _ []string, v float64) { r.Links = &v })
	put("port_receive_bytes_total", nil, func(r *Rail, _ []string, v float64) { r.Traffic[Receive].Total = &v })
	put("port_transmit_bytes_total", nil, func(r *Rail, _ []string, v float64) { r.Traffic[Transmit].Total = &v })
	put("port_mtu_bytes", []string{"kind"}, func(r *Rail, l []string, v float64) {
		if l[0] == "active" {
			r.MTU = &v
		}
	})
	put("pcie_link_transfers_per_second", nil, func(r *Rail, _ []string, v float64) { r.Transfers = &v })
	put("pcie_link_max_transfers_per_second", nil, func(r *Rail, _ []string, v float64) { r.MaxTransfers = &v })
	put("pcie_link_width_lanes", nil, func(r *Rail, _ []string, v float64) { r.Width = &v })
	put("pcie_link_max_width_lanes", nil, func(r *Rail, _ []string, v float64) { r.MaxWidth = &v })
	put("gid_misbound", nil, func(r *Rail, _ []string, v float64) {
		if v == 1 {
			r.Notes = append(r.Notes,
				Note{Level: Bad, Text: "GIDs on another interface", Detail: "connections use another port"})
		}
	})
	b.nearGPUs(at)
	b.traffic(s, now)
	b.congestion(at, now)
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
func (b *builder) nearGPUs(at map[string]*Rail) {
	index, nodes := map[string]string{}, map[string][]string{}
	b.each("gpu_info", []string{"gpu", "pci_address"}, func(l []string, _ float64) {
		index[strings.ToLower(l[1])] = l[0]
	})
	b.each("pcie_numa_node", []string{"kind", "pci_address"}, func(l []string, v float64) {
		if l[0] != "gpu" || v < 0 {
			return
		}
		node := fmt.Sprint(v)
		nodes[node] = append(nodes[node], index[strings.ToLower(l[1])])
	})
	for _, r := range at {
		switch list := slices.SortedFunc(slices.Values(nodes[r.NUMA]), natural); {
		case r.NUMA == "" || len(list) == 0:
		case list[0] == "": // NVML does not report it
			r.GPUs = plural(len(list), "GPU")
		default:
			r.GPUs = "GPU " + strings.Join(list, " ")
		}
	}
}

// traffic fills in what the rails carry, by the sampler or, without one, by the growth of their counters.
func (b *builder) traffic(s *Snapshot, now time.Time) {
	seen := map[string]bool{}
	for i := range s.Rails {
		r := &s.Rails[i]
		seen[r.Name] = true
		for d := range r.Traffic {
			t := &r.Traffic[d]
			if b.o.Recent != nil {
				if recent, rate, ok := b.o.Recent(r.Name, d, nil); ok {
					t.Recent, t.Rate = recent, known(rate)
					t.use(r.Capacity)
					continue
				}
			}
			if b.totals[r.Name] == nil {
				b.totals[r.Name] = &railTotals{}
			}
			t.Recent, t.Rate = b.totals[r.Name][d].add(t.Total, now)
			t.use(r.Capacity)
		}
	}
	for name := range b.totals {
		if !seen[name] {
			delete(b.totals, name)
		}
	}
}

func (t *Traffic) use(capacity *float64) {
	if t.Rate != nil && capacity != nil && *capacity > 0 {
		used := *t.Rate / *capacity
		t.Used = &used
	}
}

// railTotals is a rail's byte counters, by direction.
type railTotals [2]totals

type totals struct {
	bytes  float64
	at     time.Time // zero: not yet
	recent []float64
}

// recentSeconds is how far back the lines go.
const recentSeconds = 120

// add records a counter and returns the rates up to now, and the last.
func (t *totals) add(total *float64, now time.Time) (recent []float64, rate *float64) {
	switch took := now.Sub(t.at).Seconds(); {
	case total == nil:
		t.at = time.Time{}
		return nil, nil
	case t.at.IsZero() || *total < t.bytes || took > 3*slowEvery.Seconds(): // nothing to compare with
		t.recent = nil
	case took > 0:
		v := (*total - t.bytes) / took
		for range max(1, int(math.Round(took))) {
			t.recent = append(t.recent, v)
		}
		t.recent = t.recent[max(0, len(t.recent)-recentSeconds):]
		rate = &v
	}
	t.bytes, t.at = *total, now
	return slices.Clone(t.recent), rate
}
