package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe"
)

// From where on a figure is off that does not make a round degraded. Scaling is the design's; the others are twice of
// what healthy rails show from one round to the next.
const (
	unevenAbove   = 0.1  // imbalance: a note, up to [rail.ImbalancedAbove]
	sharedBelow   = 0.9  // scaling
	skewedAbove   = 0.2  // finish skew
	slowerBelow   = 0.95 // speed-up
	mismatchAbove = 0.05 // counter against bytes sent
	smallPathMTU  = 1024 // what an interface of MTU 1500 leaves of the 4096 of RDMA
)

// Findings are what is wrong with a round, the worst first. A round that is degraded, fallback or failed has one of
// severity warning or critical; one that is ok or skipped has none.
func Findings(r probe.Result) []finding.Finding {
	if r.Outcome == probe.Skipped {
		return nil
	}
	b := findings{result: r, doctor: "railscope doctor --peer=" + r.Peer}
	b.outcome()
	b.failures()
	if r.Transport == probe.RDMA {
		b.belowExpected()
		b.imbalance()
		b.sharedBottleneck()
		b.finishSkew()
		if r.Speedup != nil && *r.Speedup < slowerBelow {
			b.addPeer("slower_than_tcp", finding.Info, b.doctor, "RDMA is slower than TCP here (speed-up %s)",
				ratio(*r.Speedup))
		}
		b.counters()
	}
	b.smallPackets()
	for _, m := range r.Mismatches {
		b.addPeer("version_mismatch", finding.Info, "run the same version of "+m.Component+" on both nodes",
			"%s differs: %s here, %s there", m.Component, m.Here, m.There)
	}
	slices.SortStableFunc(b.list, func(a, b finding.Finding) int { return a.Severity.Compare(b.Severity) })
	return b.list
}

// headline reports whether a finding is the round's own outcome, which the verdict has in one sentence.
func headline(f finding.Finding) bool {
	return f.Check == checkFallback || f.Check == checkCorrupted || f.Check == checkFailed
}

// railFailed is the check of a rail that broke or could not be used.
const railFailed = "rail_failed"

// Slow are the findings for which a round is degraded, but for the rails that
// failed: those are in [probe.Result.Failures].
func Slow(r probe.Result) []finding.Finding {
	if r.Outcome != probe.Degraded {
		return nil
	}
	return slices.DeleteFunc(Findings(r), func(f finding.Finding) bool {
		return f.Severity == finding.Info || f.Check == railFailed
	})
}

// The checks that are a round's outcome.
const (
	checkFallback  = "fallback"
	checkCorrupted = "data_mismatch"
	checkFailed    = "probe_failed"
)

// book collects the findings of one round.
type findings struct {
	result probe.Result
	doctor string // the command that says more about a rail
	list   []finding.Finding
}

func (b *findings) add(check string, severity finding.Severity, subject, fix, format string, args ...any) {
	evidence := fmt.Sprintf(format, args...)
	b.list = append(b.list, finding.Finding{
		Check: check, Severity: severity, Subject: subject, Evidence: evidence, Fix: fix,
	})
}

func (b *findings) addPeer(check string, severity finding.Severity, fix, format string, args ...any) {
	b.add(check, severity, "peer "+b.result.Peer, fix, format, args...)
}

func (b *findings) addRail(name, check string, severity finding.Severity, fix, format string, args ...any) {
	b.add(check, severity, "rail "+name, fix, format, args...)
}

// outcome is that the round was not by RDMA.
func (b *findings) outcome() {
	r := b.result
	reason := why(r.Reason, r.Detail)
	switch {
	case r.Outcome == probe.Fallback:
		b.addPeer(checkFallback, finding.Critical, b.doctor, "RDMA to %s failed: %s", r.Peer, reason)
	case r.Outcome == probe.Failed && r.Corrupted():
		b.addPeer(checkCorrupted, finding.Critical, b.doctor, "the probe of %s failed: %s", r.Peer, reason)
	case r.Outcome == probe.Failed:
		b.addPeer(checkFailed, finding.Warning, b.doctor, "the probe of %s failed: %s", r.Peer, reason)
	}
}

// failures are those that the round's own reason does not tell.
func (b *findings) failures() {
	r := b.result
	byRDMA := r.Transport == probe.RDMA
	for _, f := range r.Failures {
		own := f.Rail == "" || f.Detail == r.Detail || "rail "+f.Rail+": "+f.Detail == r.Detail
		if !byRDMA && f.Reason == r.Reason && own {
			continue
		}
		text := why(f.Reason, f.Detail)
		switch i := railIndex(r, f.Rail); {
		case i >= 0 && r.Rails[i].Failure != nil && byRDMA && !carried(r.Rails[i]):
			b.addRail(f.Rail, railFailed, finding.Warning, b.doctor, "rail %s was not used: %s", f.Rail, text)
		case i >= 0 && r.Rails[i].Failure != nil:
			b.addRail(f.Rail, railFailed, finding.Warning, b.doctor, "rail %s failed at %s: %s", f.Rail, f.Stage, text)
		case f.Rail != "":
			b.addRail(f.Rail, "step_failed", finding.Info, b.doctor, "rail %s failed at %s: %s", f.Rail, f.Stage, text)
		default:
			b.addPeer("step_failed", finding.Info, b.doctor, "failed at %s: %s", f.Stage, text)
		}
	}
}

func railIndex(r probe.Result, name string) int {
	for i := range r.Rails {
		if name != "" && r.Rails[i].Rail == name {
			return i
		}
	}
	return -1
}

func carried(r probe.RailResult) bool { return r.Stealing != nil && r.Stealing.Bytes > 0 }

// carriers is how many rails had a part in the stealing burst.
func activeRails(r probe.Result) (n int) {
	for _, one := range r.Rails {
		if carried(one) {
			n++
		}
	}
	return n
}

// why is reason and detail.
func why(reason probe.Reason, detail string) string {
	if detail == "" {
		return string(reason)
	}
	return string(reason) + ": " + detail
}

func (b *findings) belowExpected() {
	for _, s := range b.result.Shortfalls() {
		of := percent(s.Goodput / s.Expected)
		if s.Rail == "" {
			b.addPeer("goodput_below_expected", finding.Warning, b.doctor,
				"all rails together carry %s Gb/s, %s of the %s Gb/s expected", gigabits(s.Goodput), of,
				gigabits(s.Expected))
			continue
		}
		b.addRail(s.Rail, "goodput_below_expected", finding.Warning, b.doctor,
			"rail %s carries %s Gb/s, %s of the %s Gb/s expected", s.Rail, gigabits(s.Goodput), of,
			gigabits(s.Expected))
	}
}

// imbalance names the rails that carried too little beside the best one. One that failed has said so.
func (b *findings) imbalance() {
	r := b.result
	if r.Imbalance == nil || *r.Imbalance <= unevenAbove {
		return
	}
	for _, one := range r.Rails {
		if one.Share == nil || one.Failure != nil {
			continue
		}
		severity := finding.Info
		if r.Imbalanced() && 1-*one.Share > rail.ImbalancedAbove {
			severity = finding.Warning
		}
		if *one.Share < 1-unevenAbove {
			b.addRail(one.Rail, "imbalance", severity, b.doctor, "rail %s carries %s of its share (imbalance %s)",
				one.Rail, percent(*one.Share), ratio(1-*one.Share))
		}
	}
}

func (b *findings) sharedBottleneck() {
	r := b.result
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
		switch {
		case len(s.Rails) == 0:
			continue
		case len(s.Rails) != len(alone):
			text = append(text, railNames(s.Rails)+" sit on "+s.What)
		case len(alone) == 2:
			text = append(text, "both sit on "+s.What)
		default:
			text = append(text, "all sit on "+s.What)
		}
	}
	b.addPeer("shared_bottleneck", finding.Info, b.doctor, "%s", strings.Join(text, "; "))
}

// lateRail tells of equal parts that end late, which is news only where the
// rails should be alike and stealing did not show it.
func (b *findings) finishSkew() {
	r := b.result
	if r.FinishSkew == nil || *r.FinishSkew <= skewedAbove || r.Imbalance != nil && *r.Imbalance > unevenAbove {
		return
	}
	var first, last *probe.RailResult
	for i := range r.Rails {
		one := &r.Rails[i]
		if one.Static == nil {
			continue
		}
		if one.Capacity != nil && first != nil && first.Capacity != nil && math.Abs(*one.Capacity /
			*first.Capacity - 1) > unevenAbove {
			return
		}
		if first == nil || one.Static.BytesPerSecond() > first.Static.BytesPerSecond() {
			first = one
		}
		if last == nil || one.Static.BytesPerSecond() < last.Static.BytesPerSecond() {
			last = one
		}
	}
	if first == nil || last.Static.BytesPerSecond() <= 0 {
		return
	}
	times := first.Static.BytesPerSecond() / last.Static.BytesPerSecond()
	b.addRail(last.Rail, "finish_skew", finding.Info, b.doctor,
		"rail %s took %.1f times as long as rail %s for an equal part (finish skew %s)", last.Rail, times, first.Rail,
		ratio(*r.FinishSkew))
}

func (b *findings) counters() {
	for _, one := range b.result.Rails {
		if one.CounterMismatch != nil && *one.CounterMismatch > mismatchAbove {
			b.addRail(one.Rail, "counter_mismatch", finding.Info, b.doctor,
				"the counter of rail %s is %s off what was sent: other traffic, packets sent again, or bytes that "+
					"took another way",
				one.Rail, percent(*one.CounterMismatch))
		}
	}
}

func (b *findings) smallPackets() {
	var small []string
	for _, one := range b.result.Rails {
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
	b.add("path_mtu_small", finding.Info, railNames(small), "set an MTU of 4200 or more on both ends and on the way",
		"%s %s small packets: a path MTU of %d B or less, where 4096 B need an MTU of 4200 on both ends and on the way",
		railNames(small), verb, smallPathMTU)
}
