package page

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/terminal"
)

// builder makes snapshots of the series. Not safe for concurrent use.
type builder struct {
	o      Options
	counts counts
	totals map[string]*railTotals // by rail; without a sampler

	series Reading
	failed map[string]string
}

func newBuilder(o Options) *builder {
	return &builder{o: o, counts: newCounts(), totals: map[string]*railTotals{}}
}

// build makes a snapshot of the series.
func (b *builder) build(series Reading, failed map[string]string, now time.Time) Snapshot {
	b.series, b.failed = series, failed
	defer func() { b.series, b.failed = nil, nil }()
	s := Snapshot{Node: b.o.Node, Version: b.o.Version, Notice: b.o.Notice, Started: b.o.Started, At: now}
	sources := b.sources()
	b.rails(&s, now)
	b.balance(&s)
	b.bonds(&s)
	b.gpus(&s)
	s.NoRails = b.none(len(s.Rails), sources, "rdma", "no RDMA device on this node")
	s.NoBonds = b.none(len(s.Bonds), sources, "bond", "no bond on this node")
	s.NoGPUs = b.none(len(s.GPUs), sources, "gpu", "no GPU on this node, or none that reports its memory")
	s.NoPeers = "no peers configured: the rails are not probed"
	if b.o.Peers != nil {
		peers, probing := b.o.Peers()
		s.Peers = peers
		if len(peers) == 0 && probing {
			s.NoPeers = "this node answers peers and asks none"
		}
	}
	b.sourceNotes(&s)
	return s
}

// each is Reading.Each with labels without control characters.
func (b *builder) each(row string, labels []string, each func(l []string, v float64)) {
	b.series.Each(row, labels, func(values []string, v float64) {
		shown := make([]string, len(values))
		for i, s := range values {
			shown[i] = terminal.Plain(s)
		}
		each(shown, v)
	})
}

// by returns the values of a row by one label.
func (b *builder) by(row, label string) map[string]*float64 {
	values := map[string]*float64{}
	b.each(row, []string{label}, func(l []string, v float64) { values[l[0]] = &v })
	return values
}

// sources returns the sources, and whether the machine has hardware for them.
func (b *builder) sources() map[string]bool {
	present := map[string]bool{}
	b.each("source_present", []string{"source"}, func(l []string, v float64) { present[l[0]] = v == 1 })
	return present
}

// none says why nothing is shown of a source; it is empty when something is.
func (b *builder) none(shown int, sources map[string]bool, source, absent string) string {
	_, on := sources[source]
	switch {
	case shown > 0:
		return ""
	case !on:
		return "source " + source + " is disabled (--no-collector." + source + ")"
	case b.failed[source] != "":
		return "source " + source + " failed: " + terminal.Plain(b.failed[source])
	}
	return absent
}

// sourceNotes notes failures that series report.
func (b *builder) sourceNotes(s *Snapshot) {
	b.each("source_success", []string{"source"}, func(l []string, v float64) {
		if v == 1 {
			return
		}
		s.Notes = append(s.Notes,
			Note{Warn, "source " + l[0] + " could not be read completely", terminal.Plain(b.failed[l[0]])})
	})
	b.each("config_last_reload_successful", nil, func(_ []string, v float64) {
		if v == 0 {
			s.Notes = append(s.Notes, Note{Level: Warn, Text: "the last configuration was refused",
				Detail: "the previous one is still active"})
		}
	})
	b.each("nccl_fallback", []string{"job"}, func(l []string, v float64) {
		if v == 1 {
			s.Notes = append(s.Notes, Note{Level: Bad, Text: "NCCL job " + l[0] + " uses sockets instead of RDMA",
				Detail: "according to its log"})
		}
	})
}

// balance fills in the balance of the rails, and suspected fallbacks.
func (b *builder) balance(s *Snapshot) {
	imbalance, active := b.by("rails_imbalance_ratio", "direction"), b.by("rails_active", "direction")
	for d, name := range directions() {
		s.Balance[d] = Balance{imbalance[name], active[name], active[name] != nil}
	}
	b.each("fallback_suspected", []string{"reason"}, func(l []string, v float64) {
		if v != 1 {
			return
		}
		note := Note{Level: Bad, Text: "suspected fallback, " + l[0]}
		switch l[0] {
		case "rdma_idle_tcp_busy":
			note.Text = "suspected fallback to TCP"
			note.Detail = "GPUs are busy, the rails carry no RDMA, and their interfaces carry other traffic"
		case "single_rail":
			note.Text = "suspected fallback to one rail"
			note.Detail = "traffic was even, and now one rail carries nearly all of it"
		}
		s.Notes = append(s.Notes, note)
	})
}

func directions() [2]string { return [2]string{Receive: "receive", Transmit: "transmit"} }

func (b *builder) bonds(s *Snapshot) {
	at := map[string]*Bond{}
	b.each("bond_info", []string{"bond", "mode"}, func(l []string, _ float64) {
		s.Bonds = append(s.Bonds, Bond{Name: l[0], Mode: l[1]})
	})
	up := b.by("bond_up", "bond")
	for i := range s.Bonds {
		at[s.Bonds[i].Name] = &s.Bonds[i]
		s.Bonds[i].Up = up[s.Bonds[i].Name]
	}
	member := func(row string, put func(m *Member, v float64)) {
		b.each(row, []string{"bond", "member"}, func(l []string, v float64) {
			bond := at[l[0]]
			if bond == nil {
				return
			}
			i := slices.IndexFunc(bond.Members, func(m Member) bool { return m.Name == l[1] })
			if i < 0 {
				i = len(bond.Members)
				bond.Members = append(bond.Members, Member{Name: l[1]})
			}
			put(&bond.Members[i], v)
		})
	}
	member("bond_member_up", func(m *Member, v float64) { m.Up = &v })
	member("bond_member_active", func(m *Member, v float64) { m.Active = &v })
	member("bond_member_link_failures_total", func(m *Member, v float64) { m.Failures = &v })
	b.each("bond_active_member_info", []string{"bond", "member"}, func(l []string, _ float64) {
		if bond := at[l[0]]; bond != nil {
			bond.Active = l[1]
		}
	})
	b.each("bond_rdma_info", []string{"bond", "rail"}, func(l []string, _ float64) {
		if bond := at[l[0]]; bond != nil && !slices.Contains(bond.Rails, l[1]) {
			bond.Rails = append(bond.Rails, l[1])
		}
	})
}

func (b *builder) gpus(s *Snapshot) {
	used, total := b.by("gpu_memory_used_bytes", "gpu"), b.by("gpu_memory_total_bytes", "gpu")
	busy := b.by("gpu_utilization_ratio", "gpu")
	peak, start, source := map[string]*float64{}, map[string]*float64{}, map[string]string{}
	b.each("gpu_memory_used_peak_bytes", []string{"gpu", "window"}, func(l []string, v float64) {
		if l[1] == "1m" {
			peak[l[0]] = &v
		} else {
			start[l[0]] = &v
		}
	})
	b.each("gpu_memory_source_info", []string{"gpu", "source"}, func(l []string, _ float64) { source[l[0]] = l[1] })
	b.each("gpu_info", []string{"gpu", "name"}, func(l []string, _ float64) {
		i := l[0]
		s.GPUs = append(s.GPUs, GPU{i, l[1], source[i], used[i], total[i], peak[i], start[i], busy[i]})
	})
	slices.SortFunc(s.GPUs, func(a, b GPU) int { return natural(a.Index, b.Index) })
	b.each("gpudirect_info", []string{"mode", "reason"}, func(l []string, _ float64) {
		s.GPUDirect = l[0] + ": " + l[1]
	})
}

// natural orders names that end in numbers by number.
func natural(a, b string) int {
	return cmp.Or(cmp.Compare(len(strings.TrimRight(a, "0123456789")), len(strings.TrimRight(b, "0123456789"))),
		cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// known returns v where it is a number.
func known(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
