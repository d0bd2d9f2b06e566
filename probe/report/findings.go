package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe"
)

// Thresholds of findings that leave a round ok. The others of their kind are twice what healthy rails vary from one
// round to the next.
const (
	unevenAbove   = 0.1  // imbalance; from [rail.ImbalancedAbove] on the round is degraded
	sharedBelow   = 0.9  // scaling
	slowerBelow   = 0.95 // speed-up
	mismatchAbove = 0.05 // counter against bytes sent
	smallPathMTU  = 1024 // that an interface MTU of 1500 allows, of 4096
)

// The checks of a round's outcome, which the verdict states, and of a rail that failed or could not be used.
const (
	checkFallback   = "fallback"
	checkCorrupted  = "data_mismatch"
	checkFailed     = "probe_failed"
	checkRailFailed = "rail_failed"
)

// Findings are the faults that a round found, the worst first. A round that is degraded, fallback or failed has one of
// severity warning or critical; one that is ok or skipped has none.
func Findings(r probe.Result) []finding.Finding {
	if r.Outcome == probe.Skipped {
		return nil
	}
	f := findings{result: r, doctor: "railscope doctor --peer=" + r.Peer}
	f.outcome()
	f.failures()
	if r.Transport == probe.RDMA {
		f.belowExpected()
		f.imbalance()
		f.sharedBottleneck()
		if r.Speedup != nil && *r.Speedup < slowerBelow {
			f.peer("slower_than_tcp", finding.Info, "RDMA is slower than TCP here (speed-up %s)", ratio(*r.Speedup))
		}
		f.counters()
	}
	f.smallPackets()
	for _, m := range r.Mismatches {
		f.add("version_mismatch", finding.Info, "peer "+r.Peer, "run the same version of "+m.Component+" on both nodes",
			"%s differs: %s here, %s there", m.Component, m.Here, m.There)
	}
	slices.SortStableFunc(f.list, func(a, b finding.Finding) int { return a.Severity.Compare(b.Severity) })
	return f.list
}

// Slow are the findings that make a round degraded, without the rails that failed: those are in
// [probe.Result.Failures].
func Slow(r probe.Result) []finding.Finding {
	if r.Outcome != probe.Degraded {
		return nil
	}
	return slices.DeleteFunc(Findings(r), func(f finding.Finding) bool {
		return f.Severity == finding.Info || f.Check == checkRailFailed
	})
}

// findings collects the findings of one round.
type findings struct {
	result probe.Result
	doctor string // the command that examines a rail
	list   []finding.Finding
}

func (f *findings) add(check string, severity finding.Severity, subject, fix, format string, args ...any) {
	f.list = append(f.list, finding.Finding{
		Check: check, Severity: severity, Subject: subject, Evidence: fmt.Sprintf(format, args...), Fix: fix,
	})
}

// peer adds a finding of the peer whose fix is to run doctor.
func (f *findings) peer(check string, severity finding.Severity, format string, args ...any) {
	f.add(check, severity, "peer "+f.result.Peer, f.doctor, format, args...)
}

// rail adds a finding of a rail whose fix is to run doctor.
func (f *findings) rail(name, check string, severity finding.Severity, format string, args ...any) {
	f.add(check, severity, "rail "+name, f.doctor, format, args...)
}

func (f *findings) outcome() {
	r := f.result
	reason := why(r.Reason, r.Detail)
	switch {
	case r.Outcome == probe.Fallback:
		f.peer(checkFallback, finding.Critical, "RDMA to %s failed: %s", r.Peer, reason)
	case r.Outcome == probe.Failed && r.Corrupted():
		f.peer(checkCorrupted, finding.Critical, "the probe of %s failed: %s", r.Peer, reason)
	case r.Outcome == probe.Failed:
		f.peer(checkFailed, finding.Warning, "the probe of %s failed: %s", r.Peer, reason)
	}
}

// failures adds those that are not the reason of the outcome.
func (f *findings) failures() {
	r := f.result
	byRDMA := r.Transport == probe.RDMA
	for _, one := range r.Failures {
		same := one.Rail == "" || one.Detail == r.Detail || "rail "+one.Rail+": "+one.Detail == r.Detail
		if !byRDMA && one.Reason == r.Reason && same {
			continue
		}
		text := why(one.Reason, one.Detail)
		i := slices.IndexFunc(r.Rails, func(x probe.RailResult) bool { return x.Rail == one.Rail })
		switch failed := i >= 0 && r.Rails[i].Failure != nil; {
		case one.Rail == "":
			f.peer("step_failed", finding.Info, "failed at %s: %s", one.Stage, text)
		case failed && byRDMA && !carried(r.Rails[i]):
			f.rail(one.Rail, checkRailFailed, finding.Warning, "rail %s was not used: %s", one.Rail, text)
		case failed:
			f.rail(one.Rail, checkRailFailed, finding.Warning, "rail %s failed at %s: %s", one.Rail, one.Stage, text)
		default:
			f.rail(one.Rail, "step_failed", finding.Info, "rail %s failed at %s: %s", one.Rail, one.Stage, text)
		}
	}
}

func carried(r probe.RailResult) bool { return r.Stealing != nil && r.Stealing.Bytes > 0 }

func why(reason probe.Reason, detail string) string {
	if detail == "" {
		return string(reason)
	}
	return string(reason) + ": " + detail
}

func (f *findings) belowExpected() {
	const text = "%s %s Gb/s, %s of the %s Gb/s expected"
	for _, s := range f.result.Shortfalls() {
		goodput, part, expected := gigabits(s.Goodput), percent(s.Goodput/s.Expected), gigabits(s.Expected)
		if s.Rail == "" {
			f.peer("goodput_below_expected", finding.Warning, text, "all rails together carry", goodput, part, expected)
			continue
		}
		f.rail(s.Rail, "goodput_below_expected", finding.Warning, text, "rail "+s.Rail+" carries", goodput, part,
			expected)
	}
}

// imbalance adds the rails that carried too little beside the best one and did not fail.
func (f *findings) imbalance() {
	r := f.result
	if r.Imbalance == nil || *r.Imbalance <= unevenAbove {
		return
	}
	for _, one := range r.Rails {
		if one.Share == nil || one.Failure != nil || *one.Share >= 1-unevenAbove {
			continue
		}
		severity := finding.Info
		if r.Imbalanced() && 1-*one.Share > rail.ImbalancedAbove {
			severity = finding.Warning
		}
		f.rail(one.Rail, "imbalance", severity, "rail %s carries %s of its share (imbalance %s)", one.Rail,
			percent(*one.Share), ratio(1-*one.Share))
	}
}

func (f *findings) sharedBottleneck() {
	r := f.result
	if r.Scaling == nil || *r.Scaling >= sharedBelow {
		return
	}
	var alone []string
	for _, one := range r.Rails {
		if one.Solo != nil {
			alone = append(alone, one.Rail)
		}
	}
	if len(alone) == 0 {
		alone = []string{"?"}
	}
	text := []string{fmt.Sprintf("%s together reach %s of their sum: they share a bottleneck", railNames(alone),
		percent(*r.Scaling))}
	for _, s := range r.Shared {
		who := "all"
		switch {
		case len(s.Rails) == 0:
			continue
		case len(s.Rails) != len(alone):
			who = railNames(s.Rails)
		case len(alone) == 2:
			who = "both"
		}
		text = append(text, who+" sit on "+s.What)
	}
	f.peer("shared_bottleneck", finding.Info, "%s", strings.Join(text, "; "))
}

func (f *findings) counters() {
	for _, one := range f.result.Rails {
		if one.CounterMismatch != nil && *one.CounterMismatch > mismatchAbove {
			f.rail(one.Rail, "counter_mismatch", finding.Info, "the counter of rail %s differs from the bytes sent by "+
				"%s: other traffic, retransmissions, or bytes on another path", one.Rail, percent(*one.CounterMismatch))
		}
	}
}

func (f *findings) smallPackets() {
	var small []string
	for _, one := range f.result.Rails {
		if one.PathMTU > 0 && one.PathMTU <= smallPathMTU {
			small = append(small, one.Rail)
		}
	}
	if len(small) == 0 {
		return
	}
	verb := "use"
	if len(small) == 1 {
		verb = "uses"
	}
	f.add("path_mtu_small", finding.Info, railNames(small), "set an MTU of 4200 or more on both ends and on the path",
		"%s %s small packets: a path MTU of %d B or less; 4096 B need an MTU of 4200 on both ends and on the path",
		railNames(small), verb, smallPathMTU)
}
