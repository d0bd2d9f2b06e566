package page

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/terminal"
)

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
			t := Traffic{Direction: name, Capacity: r.Capacity, Total: get("port_" + name + "_bytes_total")}
			if b.o.Recent != nil {
				if recent, rate, ok := b.o.Recent(r.Name, d, nil); ok {
					t.Recent, t.Rate = recent, known(rate)
				}
			}
			r.Traffic[d] = t
		}
		s.Rails = append(s.Rails, r)
	})
	slices.SortFunc(s.Rails, func(a, b Rail) int { return rail.NaturalCompare(a.Name, b.Name) })
	b.nearGPUs(s)
	b.congestion(s, now)
}

// stateName is the port's state, enum ib_port_state.
func stateName(id float64) string {
	names := map[float64]string{0: "no state", 1: "down", 2: "initializing", 3: "armed", 4: "active",
		5: "active, deferred"}
	return cmp.Or(names[id], fmt.Sprintf("state %v", id))
}

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
		switch list := slices.SortedFunc(slices.Values(nodes[r.NUMA]), rail.NaturalCompare); {
		case len(list) == 0:
		case list[0] == "": // NVML does not report it
			r.GPUs = terminal.Count(len(list), "GPU")
		default:
			r.GPUs = "GPU " + strings.Join(list, " ")
		}
	}
}

// recentSeconds is how far back the lines go.
const recentSeconds = 120

// watched is a counter of congestion or loss.
type watched struct {
	row, name string
	labels    []string // beside rail; they are shown
}

func watchedRows() []watched {
	prio, dir := []string{"direction", "priority"}, []string{"direction"}
	return []watched{
		{"port_ecn_marked_packets_total", "ECN-marked packets", nil},
		{"port_cnp_sent_total", "congestion notifications (CNP) sent", nil},
		{"port_cnp_handled_total", "congestion notifications (CNP) received", nil},
		{"port_cnp_ignored_total", "congestion notifications (CNP) ignored", nil},
		{"port_out_of_sequence_packets_total", "out-of-sequence packets", nil},
		{"port_packet_sequence_errors_total", "packet sequence errors (NAK)", nil},
		{"port_ack_timeouts_total", "ACK timeouts", nil},
		{"port_adaptive_retransmits_total", "adaptive retransmissions", nil},
		{"port_retransmitted_packets_total", "retransmitted packets", nil},
		{"port_rnr_naks_received_total", "receiver-not-ready NAKs (RNR)", nil},
		{"port_out_of_buffer_total", "packets dropped: no receive buffer", nil},
		{"port_icrc_errors_total", "corrupt packets (ICRC)", nil},
		{"port_transmit_discards_total", "transmit discards", nil},
		{"port_receive_discards_total", "receive discards", nil},
		{"port_symbol_errors_total", "link symbol errors", nil},
		{"port_pause_frames_total", "PFC pause frames", prio},
		{"port_global_pause_frames_total", "global pause frames", dir},
		{"netdev_phy_discards_total", "port discards", dir},
	}
}

// countsOver is how long a counter that moved is shown, so that one that moves now and then does not blink.
const countsOver = time.Minute

// past is a counter about a minute ago, half a minute ago, and at the last read.
type past struct{ old, young, last reading }

type reading struct {
	at    time.Time
	value float64
}

func (b *builder) congestion(s *Snapshot, now time.Time) {
	for _, w := range watchedRows() {
		b.each(w.row, append([]string{"rail"}, w.labels...), func(l []string, v float64) {
			rate := b.moved(w.row+"\xff"+strings.Join(l, "\xff"), v, now)
			i := slices.IndexFunc(s.Rails, func(r Rail) bool { return r.Name == l[0] })
			if i >= 0 && rate > 0 {
				name := strings.TrimSpace(w.name + " " + inWords(w.labels, l[1:]))
				s.Rails[i].Counters = append(s.Rails[i].Counters, Moving{w.row, name, rate})
			}
		})
	}
	maps.DeleteFunc(b.past, func(_ string, p *past) bool { return now.Sub(p.last.at) > countsOver })
}

func inWords(labels, values []string) string {
	var words []string
	for i, l := range labels {
		switch values[i] {
		case "receive":
			words = append(words, "received")
		case "transmit":
			words = append(words, "sent")
		default:
			words = append(words, l+" "+values[i])
		}
	}
	return strings.Join(words, ", ")
}

// moved records a counter and returns its rate over the last half to whole minute, as far as it was read.
func (b *builder) moved(key string, value float64, now time.Time) (perSecond float64) {
	r := reading{now, value}
	p := b.past[key]
	if p == nil || value < p.last.value || now.Sub(p.last.at) > countsOver {
		b.past[key] = &past{r, r, r}
		return 0
	}
	p.last = r
	if now.Sub(p.young.at) >= countsOver/2 {
		p.old, p.young = p.young, r
	}
	if took := now.Sub(p.old.at).Seconds(); took > 0 {
		return (value - p.old.value) / took
	}
	return 0
}
