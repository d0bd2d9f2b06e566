package page

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/proof"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/stats"
)

type builder struct {
	o    Options
	past map[string]*past // counters by row, rail and labels

	// State of the snapshot that is being built.
	series Reading
	failed map[string]string              // source → reason of its failure
	index  map[string]map[string]*float64 // values by row and label values
}

func newBuilder(o Options) *builder {
	return &builder{o: o, past: map[string]*past{}}
}

// build makes a snapshot of the series. failed has the reason of each source that failed.
func (b *builder) build(series Reading, failed map[string]string, now time.Time) Snapshot {
	b.series, b.failed, b.index = series, failed, map[string]map[string]*float64{}
	defer func() { b.series, b.failed, b.index = nil, nil, nil }()
	if b.o.Name != nil {
		b.o.Node = b.o.Name()
	}
	s := Snapshot{Node: b.o.Node, Version: b.o.Version, Notice: b.o.Notice, Started: b.o.Started, At: now}
	b.rails(&s, now)
	for d, name := range directions() {
		get := b.of("direction", name)
		s.Balance[d] = Balance{Direction: name, Active: get("rails_active")}
		b.each("rails_imbalance_ratio", []string{"direction", "role"}, func(l []string, v float64) {
			if of := &s.Balance[d]; l[0] == name && (of.Imbalance == nil || v > *of.Imbalance) {
				of.Imbalance, of.Role = &v, l[1]
			}
		})
	}
	b.bonds(&s)
	b.gpus(&s)
	s.NoRails = b.none(len(s.Rails), "rdma", "no RDMA device on this node")
	s.NoBonds = b.none(len(s.Bonds), "bond", "no bond on this node")
	s.NoGPUs = b.none(len(s.GPUs), "gpu", "no GPU on this node, or none that reports its memory")
	s.NoPeers = "no peers configured: the rails are not probed"
	if b.o.Peers != nil {
		var probing bool
		s.Peers, probing = b.o.Peers()
		if len(s.Peers) == 0 && probing {
			s.NoPeers = "this node answers probes and sends none"
		}
	}
	return s
}

// each calls each with every series of a row; l may be kept.
func (b *builder) each(row string, labels []string, each func(l []string, v float64)) {
	b.series.Each(row, labels, func(values []string, v float64) { each(slices.Clone(values), v) })
}

// value returns a series' value, or nil if there is none. labels are alternating names and values; the names are
// the same in each call.
func (b *builder) value(row string, labels ...string) *float64 {
	var names, values []string
	for label := range slices.Chunk(labels, 2) {
		names, values = append(names, label[0]), append(values, label[1])
	}
	if b.index[row] == nil {
		b.index[row] = map[string]*float64{}
		b.series.Each(row, names, func(l []string, v float64) { b.index[row][strings.Join(l, "\xff")] = &v })
	}
	return b.index[row][strings.Join(values, "\xff")]
}

func (b *builder) of(name, value string) func(row string, labels ...string) *float64 {
	return func(row string, labels ...string) *float64 {
		return b.value(row, slices.Concat([]string{name, value}, labels)...)
	}
}

func is(v *float64, want float64) bool { return v != nil && *v == want }

// none returns the reason why a source shows nothing, or "" if it shows something.
func (b *builder) none(shown int, source, absent string) string {
	switch {
	case shown > 0:
		return ""
	case b.value("source_present", "source", source) == nil:
		return "source " + source + " is disabled (--no-source." + source + ")"
	case b.failed[source] != "":
		return "source " + source + " failed: " + b.failed[source]
	}
	return absent
}

func directions() [2]string { return [2]string{rail.Receive: "receive", rail.Transmit: "transmit"} }

func (b *builder) bonds(s *Snapshot) {
	b.each("bond_info", []string{"bond", "mode"}, func(l []string, _ float64) {
		get := b.of("bond", l[0])
		bond := Bond{Name: l[0], Mode: l[1], Up: get("bond_up")}
		b.each("bond_rdma_info", []string{"bond", "rail"}, func(l []string, _ float64) {
			if l[0] == bond.Name && !slices.Contains(bond.Rails, l[1]) {
				bond.Rails = append(bond.Rails, l[1])
			}
		})
		for _, row := range []string{"bond_member_up", "bond_member_active", "bond_member_link_failures_total"} {
			b.each(row, []string{"bond", "member"}, func(l []string, _ float64) {
				named := func(m Member) bool { return m.Name == l[1] }
				if l[0] == bond.Name && !slices.ContainsFunc(bond.Members, named) {
					bond.Members = append(bond.Members, Member{Name: l[1], Up: get("bond_member_up", "member", l[1]),
						Active:   get("bond_member_active", "member", l[1]),
						Failures: get("bond_member_link_failures_total", "member", l[1])})
				}
			})
		}
		s.Bonds = append(s.Bonds, bond)
	})
}

func (b *builder) gpus(s *Snapshot) {
	source := map[string]string{}
	b.each("gpu_memory_source_info", []string{"gpu", "source"}, func(l []string, _ float64) { source[l[0]] = l[1] })
	b.each("gpu_info", []string{"gpu", "name"}, func(l []string, _ float64) {
		get := b.of("gpu", l[0])
		s.GPUs = append(s.GPUs, GPU{Index: l[0], Name: l[1], Source: source[l[0]],
			Used: get("gpu_memory_used_bytes"), Total: get("gpu_memory_total_bytes"),
			Busy: get("gpu_utilization_ratio"), Peak: get("gpu_memory_used_peak_bytes", "window", "1m"),
			Start: get("gpu_memory_used_peak_bytes", "window", "start")})
	})
	slices.SortFunc(s.GPUs, func(a, b GPU) int { return rail.NaturalCompare(a.Index, b.Index) })
	b.each("gpudirect_info", []string{"mode", "reason"}, func(l []string, _ float64) {
		s.GPUDirect = l[0] + ": " + l[1]
	})
}

func (b *builder) rails(s *Snapshot, now time.Time) {
	labels := []string{"rail", "device", "port", "netdev", "pci_address", "numa_node", "role", "gpu", "gpu_distance"}
	gpus := b.gpuNames()
	b.each("rail_info", labels, func(l []string, _ float64) {
		get := b.of("rail", l[0])
		r := Rail{Name: l[0], Device: l[1], Port: l[2], Netdev: l[3], PCIAddress: l[4], NUMA: l[5], Role: l[6],
			Distance: l[8],
			Up:       get("port_up"), MTU: get("port_mtu_bytes", "kind", "active"),
			Rate: get("port_rate_bytes_per_second"), Capacity: get("rail_capacity_bytes_per_second"),
			Link: Link{get("pcie_link_transfers_per_second"), get("pcie_link_max_transfers_per_second"),
				get("pcie_link_width_lanes"), get("pcie_link_max_width_lanes")},
			Links: get("netdev_carrier_changes_total")}
		r.Expected, r.Unsaved = get("rail_expected_bytes_per_second"), !is(b.value("state_saved"), 1)
		if r.NUMA == "-1" {
			r.NUMA = ""
		}
		if l[7] != "" {
			r.GPU = cmp.Or(gpus[l[7]], "GPU "+l[7])
		}
		if state := get("port_state_id"); state != nil {
			r.State = stateName(*state)
		}
		r.Unused, r.NotMeasured = is(get("rail_unused"), 1), is(get("rail_bytes_counted"), 0)
		for d, name := range directions() {
			t := Traffic{Direction: name, Capacity: r.Capacity, Total: get("port_" + name + "_bytes_total")}
			if b.o.Recent != nil {
				if recent, rate, ok := b.o.Recent(r.Name, d, nil); ok {
					t.Recent, t.Rate = recent, stats.Finite(&rate)
				}
			}
			r.Traffic[d] = t
		}
		last := b.proof(&r, get)
		r.Evidence = Evidence{last, last.Text(now)}
		s.Rails = append(s.Rails, r)
	})
	slices.SortFunc(s.Rails, func(a, b Rail) int { return rail.NaturalCompare(a.Name, b.Name) })
	b.congestion(s, now)
}

// proof returns the last proof of a rail, by a burst or by the traffic of either direction.
func (b *builder) proof(r *Rail, get func(row string, labels ...string) *float64) *proof.Proof {
	if b.o.Proof == nil {
		return nil
	}
	last, part := b.o.Proof(r.Name)
	for _, name := range directions() {
		peak := get("rail_peak_bytes_per_second", "direction", name, "window", "1s")
		at := get("rail_peak_timestamp_seconds", "direction", name, "window", "1s")
		if peak != nil && at != nil && r.Expected != nil {
			last = proof.Later(last, proof.Traffic(*peak, time.UnixMilli(int64(*at*1e3)), *r.Expected, part))
		}
	}
	return last
}

// stateName returns the name of a port's state, enum ib_port_state.
func stateName(id float64) string {
	names := map[float64]string{0: "no state", 1: "down", 2: "initializing", 3: "armed", 4: "active",
		5: "active, deferred"}
	return cmp.Or(names[id], fmt.Sprintf("state %v", id))
}

// gpuNames returns the names of GPUs by PCI address. GPUs that the source gpu does not read have none.
func (b *builder) gpuNames() map[string]string {
	names := map[string]string{}
	b.each("gpu_info", []string{"gpu", "pci_address"}, func(l []string, _ float64) { names[l[1]] = "GPU " + l[0] })
	return names
}

// recentSeconds is the time that the lines cover.
const recentSeconds = 120

// watched is a counter of congestion or loss.
type watched struct {
	row, name string
	labels    []string // labels in addition to rail; they are shown
}

func watchedRows() []watched {
	prio, dir := []string{"direction", "priority"}, []string{"direction"}
	return []watched{
		{"port_ecn_marked_packets_total", "ECN-marked packets", nil},
		{"port_cnp_sent_total", "congestion notifications (CNP) sent", nil},
		{"port_cnp_handled_total", "congestion notifications (CNP) received (mlx5: and retransmissions)", nil},
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

// countsOver is how long a counter that moved is shown, so that a counter that moves rarely does not blink.
const countsOver = time.Minute

// past holds a counter's value about a minute ago, half a minute ago, and at the last read.
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

// moved records a counter and returns its rate over the last 30 s to 60 s, or over the time that was read.
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
