package round

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/history"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

// SetOutcome sets the outcome of a result. err is why RDMA was not used, or nil.
func SetOutcome(res *result.Result, err error) {
	f := failure.As(failure.StageOpen, err)
	reached := f == nil && res.Striped == nil && res.BurstSkipped != nil
	if f == nil {
		f = cmp.Or(res.BurstSkipped, res.StripedFailure)
	}
	switch {
	case err == nil && res.Degraded():
		res.Outcome = result.Degraded
		return
	case reached:
		res.Outcome = result.Reached
	case err == nil && (f == nil || res.Striped != nil):
		res.Outcome = result.OK
		return
	case f.Reason.Skips():
		res.Outcome, res.Transport, res.RetryAfter = result.Skipped, result.NoTransport, f.RetryAfter
	case res.Transport == result.TCP:
		res.Outcome = result.Fallback
	default:
		res.Outcome, res.Transport = result.Failed, result.NoTransport
		addFailure(res, f)
	}
	res.Reason, res.Detail = f.Reason, f.Detail
	if f.Rail != "" {
		res.Detail = fmt.Sprintf("%s: %s", sameFailureRails(res.Failures, f), f.Detail)
	}
}

// noteSkipped records over which of the rails that RDMA reached no burst was made.
func noteSkipped(res *result.Result) {
	if res.Transport != result.RDMA {
		return
	}
	for i := range res.Rails {
		if one := &res.Rails[i]; one.Failure == nil && one.Left != nil {
			res.BurstSkipped = one.Left
			return
		}
	}
	if f := res.StripedFailure; f != nil && f.Reason.Skips() {
		res.BurstSkipped = f
	}
}

// sameFailureRails returns "rail 1 and 2 more" for the rails with the failure of f.
func sameFailureRails(all []failure.Failure, f *failure.Failure) string {
	n := 0
	for _, other := range all {
		if other.Rail != "" && other.Stage == f.Stage && other.Reason == f.Reason {
			n++
		}
	}
	if n < 2 {
		return "rail " + f.Rail
	}
	return fmt.Sprintf("rail %s and %d more", f.Rail, n-1)
}

// Judge derives from the striped burst the goodput of all rails together and with equal parts, their balance, and
// how that compares with each rail alone. A failed flow and a missing rail have carried nothing.
func Judge(res *result.Result, flows []*Flow) {
	var loads []rail.Load
	var judged []*Flow
	var sum, solos float64
	all := true
	slowest, fastest := math.Inf(1), 0.0
	carried := 0
	for _, p := range flows {
		if p.Peer == nil || p.Result.Failure == nil && p.Result.Left != nil {
			continue // it carries no load
		}
		rate := 0.0
		if p.Result.Failure == nil && p.Result.Striped != nil {
			rate = p.Result.Striped.BytesPerSecond()
			sum, slowest, fastest, carried = sum+rate, min(slowest, rate), max(fastest, rate), carried+1
		}
		if rate > 0 {
			rate = p.Result.Carried()
		}
		if p.Result.Busy && !res.InGap {
			continue // its share would be that of the others
		}
		loads, judged = append(loads, p.load(rate)), append(judged, p)
		if p.Result.Failure == nil && p.Result.Solo != nil {
			solos += p.soloRate()
		} else {
			all = all && p.Result.Failure != nil
		}
	}
	if carried == 0 {
		return
	}
	for _, m := range res.Missing {
		if l, known := missingLoad(m, flows); known {
			loads = append(loads, l)
		}
	}
	res.Striped, res.Static = new(sum), new(float64(carried)*slowest)
	if carried > 1 {
		res.FinishSkew = new(1 - slowest/fastest)
	}
	for i, share := range rail.Shares(loads) {
		if !math.IsNaN(share) && i < len(judged) {
			judged[i].Result.Share = &share
		}
	}
	if imbalance, known := rail.Imbalance(loads); known {
		res.Imbalance = &imbalance
	}
	if all && solos > 0 && carried > 1 { // scaling needs two rails
		res.Scaling = new(*res.Striped / solos)
		if *res.Scaling < result.SharedBelow {
			res.Shared = SharedLinks(bursting(flows))
		}
	}
}

// NoteScaling records the goodput of the last striped burst, and counts in past whether it found a bottleneck that the
// rails share. Rounds without solo bursts use those of the last full round.
func NoteScaling(res *result.Result, flows []*Flow, past *history.PastPeer, full bool) {
	if res.Striped == nil {
		return
	}
	res.Runs = append(res.Runs, *res.Striped)
	var solos float64
	var loads []rail.Load
	flows = bursting(flows)
	for _, p := range flows {
		solo := p.soloRate()
		if p.Result.Busy && !res.InGap {
			return // traffic of others hides what the rails can do
		}
		if before := past.Rail(p.Local.Name); solo == 0 && before != nil && !full {
			solo = before.Solo
		}
		if solo <= 0 {
			return // unknown
		}
		solos += solo
		loads = append(loads, p.load(solo))
	}
	if len(flows) < 2 { // sharing needs two rails that took part in the burst
		past.Low = 0
		return
	}
	if slices.ContainsFunc(flows, func(p *Flow) bool { return p.Result.Others != nil }) {
		return // traffic of others hides what the rails can do
	}
	if together := *res.Striped / solos; res.TogetherSeen == nil || *res.TogetherSeen < together {
		res.TogetherSeen = &together
	}
	if *res.Striped >= result.SharedBelow*solos {
		past.Low = 0
		return
	}
	past.Low = min(past.Low+1, history.Agreeing)
	imbalance, known := rail.Imbalance(loads)
	res.EvenAlone = !known || imbalance <= result.UnevenAbove
}

// soloRate returns the solo rate of the path in bytes per second, the lower one if it was measured twice; 0:
// unknown.
func (p *Flow) soloRate() float64 {
	if p.Result.Solo == nil {
		return 0
	}
	if p.slowerSolo > 0 {
		return p.slowerSolo
	}
	return p.Result.Solo.BytesPerSecond()
}

// group returns the group of flows that this flow is compared with. The group's rate is the higher of both ends: a
// port that is down or runs at a lower rate stays in the group of its siblings.
func (p *Flow) group() rail.Group {
	g := rail.Group{Role: p.Local.Role, LinkLayer: p.Local.LinkLayer, Rate: p.Local.Status.Limits.Rate}
	if p.Peer != nil {
		g.Rate = max(g.Rate, p.Peer.Rate)
	}
	return g
}

// load returns the traffic of the flow as a load, for comparison.
func (p *Flow) load(carried float64) rail.Load {
	l := rail.Load{Rate: carried, Group: p.group()}
	if p.Result.Capacity != nil {
		l.Capacity = *p.Result.Capacity
	}
	return l
}

// sharedHardware returns what flows share, the narrowest first.
func sharedHardware(flows []*Flow) []result.Shared {
	return slices.Concat(SharedLinks(flows), groupBy(flows, "PCIe switch", func(p *Flow) string {
		_, port := p.Local.PCIAbove()
		return port
	}), groupBy(flows, "PCIe root port", func(p *Flow) string {
		port, _ := p.Local.PCIAbove()
		return port
	}))
}

// SharedLinks returns what several rails share: a PCIe link, a physical port.
func SharedLinks(flows []*Flow) []result.Shared {
	return slices.Concat(
		groupBy(flows, "PCIe link", func(p *Flow) string { return p.Local.Status.Limits.LinkKey }),
		groupBy(flows, "physical port", func(p *Flow) string { return p.Local.Status.Limits.PortKey }))
}

// groupBy groups the rails of flows by key. An empty key is unknown.
func groupBy(flows []*Flow, what string, key func(*Flow) string) (list []result.Shared) {
	for _, p := range flows {
		k := key(p)
		if k == "" {
			continue
		}
		name := what + " " + k
		i := slices.IndexFunc(list, func(s result.Shared) bool { return s.What == name })
		if i < 0 {
			i, list = len(list), append(list, result.Shared{What: name})
		}
		list[i].Rails = append(list[i].Rails, p.Local.Name)
	}
	return slices.DeleteFunc(list, func(s result.Shared) bool { return len(s.Rails) < 2 })
}

// missingLoad returns a missing rail as a load of 0 among the remaining rails of its role. known is false if its role
// is unknown, or differs from that of the remaining rails.
func missingLoad(m result.MissingRail, beside []*Flow) (l rail.Load, known bool) {
	i := slices.IndexFunc(beside, func(p *Flow) bool { return p.Local.Role == m.Role })
	if m.Role == "" || i < 0 {
		return l, false
	}
	return rail.Load{Group: rail.Group{Role: m.Role, LinkLayer: beside[i].Local.LinkLayer}}, true
}

// Disturbed returns why a burst has no figure.
func Disturbed(args worker.BurstArgs, done worker.BurstDone) *failure.Failure {
	if done.Ramping() < 0 && !done.Disturbed() {
		return failure.New(failure.StageStriped, failure.Timeout, "too few writes completed to measure")
	}
	loads, tries := args.Loads, fmt.Sprintf("each of %d bursts", 1+worker.MaxRepeats)
	if args.Once {
		tries = "the burst"
	}
	if i := done.Ramping(); i >= 0 && !done.Disturbed() {
		return failure.New(failure.StageStriped, failure.Ramping, "rail %s became faster until the burst ended, from "+
			"%.1f to %.1f Gb/s in its last window of %v: neither is what it can carry; raise `burst`", loads[i].Rail,
			done.Rails[i].Early*8/1e9, done.Rails[i].Late*8/1e9, done.Rails[i].Last-done.Rails[i].First)
	}
	var gap time.Duration
	stalled, unclear := false, ""
	for i, b := range done.Rails {
		gap = max(gap, b.Gap)
		l := loads[i]
		last := float64(l.Depth-1) * float64(l.Chunk) / b.Rate()
		switch {
		case !b.Disturbed:
		case b.Rate() == 0 || b.Gap.Seconds() > last-l.RTT.Seconds():
			stalled = true
		case unclear == "":
			unclear = l.Rail
		}
		if b.Disturbed && last < (l.RTT+minSlack).Seconds() {
			return failure.New(failure.StageStriped, failure.Disturbed, "the %d writes in flight on rail %s last "+
				"%.0f µs, and a round trip takes %v: the rail may wait for acknowledgements, so nothing can be said "+
				"of it; raise `depth`", l.Depth, l.Rail, last*1e6, l.RTT.Round(time.Microsecond))
		}
	}
	if !stalled && unclear != "" {
		return failure.New(failure.StageStriped, failure.Disturbed, "the writes of rail %s completed too unevenly to "+
			"say what it carried in %s: its rate varies, or its writes wait for retransmission; raise `burst`", unclear,
			tries)
	}
	return failure.New(failure.StageStriped, failure.Disturbed, "the thread that polls the rails did not run for up "+
		"to %v, longer than the queues of the adapters last, in %s: nothing can be said of the rails; raise `depth` "+
		"and `burst`, or give railscope more CPU time", gap.Round(time.Microsecond), tries)
}
