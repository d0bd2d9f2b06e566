package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe"
)

// From where on a figure is off. Scaling is the design's; the others are twice
// of what healthy rails show from one round to the next.
const (
	uneven       = 0.1  // imbalance
	sharing      = 0.9  // scaling
	skewed       = 0.2  // finish skew
	slower       = 0.95 // speed-up
	miscounted   = 0.05 // counter against bytes sent
	smallPathMTU = 1024 // what an interface of MTU 1500 leaves of the 4096 of RDMA
)

// findings are what is off beside the round's own reason, in plain words, the
// worst first.
func findings(r probe.Result) []string {
	if r.Outcome == probe.Skipped {
		return nil
	}
	found := failures(r)
	if r.Transport == probe.RDMA {
		found = append(found, unevenRails(r)...)
		found = append(found, sharedBottleneck(r)...)
		found = append(found, lateRail(r)...)
		if r.Speedup != nil && *r.Speedup < slower {
			found = append(found, fmt.Sprintf("RDMA is slower than TCP here (speed-up %s)", ratio(*r.Speedup)))
		}
		found = append(found, counters(r)...)
	}
	found = append(found, smallPackets(r)...)
	for _, m := range r.Mismatches {
		found = append(found, fmt.Sprintf("%s differs: %s here, %s there", m.Component, m.Here, m.There))
	}
	return found
}

// failures are those that the verdict does not tell.
func failures(r probe.Result) []string {
	var found []string
	for _, f := range r.Failures {
		if r.Outcome != probe.OK && f.Reason == r.Reason && (f.Rail == "" || f.Detail == r.Detail) {
			continue
		}
		who := ""
		if f.Rail != "" {
			who = "rail " + f.Rail + " "
		}
		text := why(f.Reason, f.Detail)
		switch {
		case f.Rail != "" && r.Outcome == probe.OK && !carried(r, f.Rail):
			found = append(found, fmt.Sprintf("%swas not used: %s", who, text))
		default:
			found = append(found, fmt.Sprintf("%sfailed at %s: %s", who, f.Stage, text))
		}
	}
	return found
}

func carried(r probe.Result, name string) bool {
	for _, rail := range r.Rails {
		if rail.Rail == name {
			return rail.Stealing != nil && rail.Stealing.Bytes > 0
		}
	}
	return false
}

// carriers is how many rails had a part in the stealing burst.
func carriers(r probe.Result) (n int) {
	for _, one := range r.Rails {
		if one.Stealing != nil && one.Stealing.Bytes > 0 {
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

// shares are the rails' shares of the stealing burst as their imbalance has
// them, by index of r.Rails; NaN where a rail took no part or is not judged.
func shares(r probe.Result) []float64 {
	var index []int
	var rates, expected []float64
	for i, one := range r.Rails {
		if one.Stealing == nil {
			continue
		}
		e := 0.0
		if one.Expected != nil {
			e = *one.Expected
		}
		index, rates, expected = append(index, i), append(rates, one.Stealing.BytesPerSecond()), append(expected, e)
	}
	all := make([]float64, len(r.Rails))
	for i := range all {
		all[i] = math.NaN()
	}
	for n, share := range rail.BurstShares(rates, expected) {
		all[index[n]] = share
	}
	return all
}

func unevenRails(r probe.Result) []string {
	if r.Imbalance == nil || *r.Imbalance <= uneven {
		return nil
	}
	var found []string
	for i, share := range shares(r) {
		if share < 1-uneven {
			found = append(found, fmt.Sprintf("rail %s carries %s of its share (imbalance %s)", r.Rails[i].Rail, percent(share), ratio(*r.Imbalance)))
		}
	}
	if len(found) == 0 && len(r.Failures) == 0 {
		found = append(found, fmt.Sprintf("the rails do not carry alike (imbalance %s)", ratio(*r.Imbalance)))
	}
	return found
}

func sharedBottleneck(r probe.Result) []string {
	if r.Scaling == nil || *r.Scaling >= sharing {
		return nil
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
	text := []string{fmt.Sprintf("%s together reach %s of their sum: they share a bottleneck", list(alone), percent(*r.Scaling))}
	for _, s := range r.Shared {
		switch {
		case len(s.Rails) == 0:
			continue
		case len(s.Rails) != len(alone):
			text = append(text, list(s.Rails)+" sit on "+s.What)
		case len(alone) == 2:
			text = append(text, "both sit on "+s.What)
		default:
			text = append(text, "all sit on "+s.What)
		}
	}
	return []string{strings.Join(text, "; ")}
}

// lateRail tells of equal parts that end late, which is news only where the
// rails should be alike and stealing did not show it.
func lateRail(r probe.Result) []string {
	if r.FinishSkew == nil || *r.FinishSkew <= skewed || r.Imbalance != nil && *r.Imbalance > uneven {
		return nil
	}
	var first, last *probe.RailResult
	for i := range r.Rails {
		one := &r.Rails[i]
		if one.Static == nil {
			continue
		}
		if one.Expected != nil && first != nil && first.Expected != nil && math.Abs(*one.Expected / *first.Expected - 1) > uneven {
			return nil
		}
		if first == nil || one.Static.BytesPerSecond() > first.Static.BytesPerSecond() {
			first = one
		}
		if last == nil || one.Static.BytesPerSecond() < last.Static.BytesPerSecond() {
			last = one
		}
	}
	if first == nil || last.Static.BytesPerSecond() <= 0 {
		return nil
	}
	times := first.Static.BytesPerSecond() / last.Static.BytesPerSecond()
	return []string{fmt.Sprintf("rail %s took %.1f times as long as rail %s for an equal part (finish skew %s)", last.Rail, times, first.Rail, ratio(*r.FinishSkew))}
}

func counters(r probe.Result) []string {
	var found []string
	for _, one := range r.Rails {
		if one.CounterMismatch != nil && *one.CounterMismatch > miscounted {
			found = append(found, fmt.Sprintf("the counter of rail %s is %s off what was sent: other traffic, packets sent again, or bytes that took another way", one.Rail, percent(*one.CounterMismatch)))
		}
	}
	return found
}

func smallPackets(r probe.Result) []string {
	var small []string
	for _, one := range r.Rails {
		if one.PathMTU > 0 && one.PathMTU <= smallPathMTU {
			small = append(small, one.Rail)
		}
	}
	if len(small) == 0 {
		return nil
	}
	verb := "use"
	if len(small) == 1 {
		verb = "uses"
	}
	return []string{fmt.Sprintf("%s %s small packets: a path MTU of %d B or less, where 4096 B need an MTU of 4200 on both ends and on the way", list(small), verb, smallPathMTU)}
}

// verdict is the round in one sentence, and its colour.
func verdict(r probe.Result, found []string) (text, colour string) {
	used, rate := carriers(r), ""
	if r.Stealing != nil {
		rate = gigabits(*r.Stealing) + " Gb/s"
	}
	reason := strings.TrimRight(why(r.Reason, r.Detail), ". ")
	switch r.Outcome {
	case probe.Skipped:
		return fmt.Sprintf("%s was not probed: %s Nothing is wrong.", r.Peer, ended(reason)), ""
	case probe.Fallback:
		text = fmt.Sprintf("RDMA to %s failed: %s; ", r.Peer, reason)
		if best := bestTCP(r); best != nil {
			return text + fmt.Sprintf("the same transfer over TCP: %s Gb/s.", gigabits(best.BytesPerSecond)), terminal.Red
		}
		return text + "the peer can be reached by TCP.", terminal.Red
	case probe.Failed:
		return fmt.Sprintf("The probe of %s failed: %s", r.Peer, ended(reason)), terminal.Red
	}
	switch {
	case used == 0 || rate == "":
		text = "RDMA to " + r.Peer + " works"
	case used < len(r.Rails):
		text = fmt.Sprintf("RDMA to %s works on %d of %d rails: %s", r.Peer, used, len(r.Rails), rate)
	case used == 1:
		text = fmt.Sprintf("RDMA to %s works: 1 rail carries %s", r.Peer, rate)
	default:
		text = fmt.Sprintf("RDMA to %s works: %d rails carry %s", r.Peer, used, rate)
	}
	if len(found) > 0 {
		return text + ", but:", terminal.Yellow
	}
	if used > 1 && r.Imbalance != nil {
		text += ", evenly"
	}
	return text + ".", terminal.Green
}

// ended is a sentence with its end.
func ended(s string) string {
	if strings.HasSuffix(s, "?") || strings.HasSuffix(s, "!") {
		return s
	}
	return s + "."
}
