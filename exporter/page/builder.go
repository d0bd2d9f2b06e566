package page

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// builder makes snapshots of the series. Not safe for concurrent use.
type builder struct {
	o      Options
	past   map[string]*past          // of counters, by row, rail and labels
	totals map[string]*[2]byteTotals // by rail; without a sampler

	series Reading
	failed map[string]string
}

func newBuilder(o Options) *builder {
	return &builder{o: o, past: map[string]*past{}, totals: map[string]*[2]byteTotals{}}
}

// build makes a snapshot of the series. failed has the reason of each source that failed.
func (b *builder) build(series Reading, failed map[string]string, now time.Time) Snapshot {
	b.series, b.failed = series, failed
	defer func() { b.series, b.failed = nil, nil }()
	s := Snapshot{Node: b.o.Node, Version: b.o.Version, Notice: b.o.Notice, Started: b.o.Started, At: now}
	b.rails(&s, now)
	b.balance(&s)
	b.bonds(&s)
	b.gpus(&s)
	present := b.by("source_present", "source")
	s.NoRails = b.none(len(s.Rails), present, "rdma", "no RDMA device on this node")
	s.NoBonds = b.none(len(s.Bonds), present, "bond", "no bond on this node")
	s.NoGPUs = b.none(len(s.GPUs), present, "gpu", "no GPU on this node, or none that reports its memory")
	s.NoPeers = "no peers configured: the rails are not probed"
	if b.o.Peers != nil {
		var probing bool
		if s.Peers, probing = b.o.Peers(); len(s.Peers) == 0 && probing {
			s.NoPeers = "this node answers peers and asks none"
		}
	}
	b.sourceNotes(&s)
	return s
}

// each calls each with the series of a row; l may be kept.
func (b *builder) each(row string, labels []string, each func(l []string, v float64)) {
	b.series.Each(row, labels, func(values []string, v float64) { each(slices.Clone(values), v) })
}

// by returns the values of a row by one label.
func (b *builder) by(row, label string) map[string]*float64 {
	values := map[string]*float64{}
	b.each(row, []string{label}, func(l []string, v float64) { values[l[0]] = &v })
	return values
}

// none is the reason why a source shows nothing; it is empty when it does. present has all sources.
func (b *builder) none(shown int, present map[string]*float64, source, absent string) string {
	switch {
	case shown > 0:
		return ""
	case present[source] == nil:
		return "source " + source + " is disabled (--no-collector." + source + ")"
	case b.failed[source] != "":
		return "source " + source + " failed: " + b.failed[source]
	}
	return absent
}

// sourceNotes notes failures that series report.
func (b *builder) sourceNotes(s *Snapshot) {
	note := func(row, label string, bad float64, make func(value string) Note) {
		var labels []string
		if label != "" {
			labels = []string{label}
		}
		b.each(row, labels, func(l []string, v float64) {
			if v == bad {
				s.Notes = append(s.Notes, make(strings.Join(l, "")))
			}
		})
	}
	note("source_success", "source", 0, func(source string) Note {
		return Note{Warn, "source " + source + " could not be read completely", b.failed[source]}
	})
	note("config_last_reload_successful", "", 0, func(string) Note {
		return Note{Warn, "the last configuration was refused", "the previous one is still active"}
	})
	note("nccl_fallback", "job", 1, func(job string) Note {
		return Note{Bad, "NCCL job " + job + " uses sockets instead of RDMA", "according to its log"}
	})
}

// balance fills in the balance of the rails, and suspected fallbacks.
func (b *builder) balance(s *Snapshot) {
	imbalance, active := b.by("rails_imbalance_ratio", "direction"), b.by("rails_active", "direction")
	for d, name := range directions() {
		s.Balance[d] = Balance{name, imbalance[name], active[name], active[name] != nil}
	}
	b.each("fallback_suspected", []string{"reason"}, func(l []string, v float64) {
		if v != 1 {
			return
		}
		note := Note{Bad, "suspected fallback, " + l[0], ""}
		switch l[0] {
		case "rdma_idle_tcp_busy":
			note = Note{Bad, "suspected fallback to TCP",
				"GPUs are busy, the rails carry no RDMA, and their interfaces carry other traffic"}
		case "single_rail":
			note = Note{Bad, "suspected fallback to one rail",
				"traffic was even, and now one rail carries nearly all of it"}
		}
		s.Notes = append(s.Notes, note)
	})
}

func directions() [2]string { return [2]string{Receive: "receive", Transmit: "transmit"} }

func (b *builder) bonds(s *Snapshot) {
	up, byName := b.by("bond_up", "bond"), map[string]*Bond{}
	b.each("bond_info", []string{"bond", "mode"}, func(l []string, _ float64) {
		s.Bonds = append(s.Bonds, Bond{Name: l[0], Mode: l[1], Up: up[l[0]]})
	})
	for i := range s.Bonds {
		byName[s.Bonds[i].Name] = &s.Bonds[i]
	}
	put := func(row, label string, put func(bond *Bond, value string, v float64)) {
		b.each(row, []string{"bond", label}, func(l []string, v float64) {
			if bond := byName[l[0]]; bond != nil {
				put(bond, l[1], v)
			}
		})
	}
	put("bond_member_up", "member", func(bond *Bond, name string, v float64) { bond.member(name).Up = &v })
	put("bond_member_active", "member", func(bond *Bond, name string, v float64) { bond.member(name).Active = &v })
	put("bond_member_link_failures_total", "member", func(bond *Bond, name string, v float64) {
		bond.member(name).Failures = &v
	})
	put("bond_rdma_info", "rail", func(bond *Bond, rail string, _ float64) {
		if !slices.Contains(bond.Rails, rail) {
			bond.Rails = append(bond.Rails, rail)
		}
	})
}

// member returns the member of this name, added if it is new.
func (b *Bond) member(name string) *Member {
	for i := range b.Members {
		if b.Members[i].Name == name {
			return &b.Members[i]
		}
	}
	b.Members = append(b.Members, Member{Name: name})
	return &b.Members[len(b.Members)-1]
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
