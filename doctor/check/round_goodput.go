package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/internal/units"
	"github.com/railscope/railscope/probe/result"
)

func checkBelowExpected(r *result.Result, report reporter) {
	list := r.Shortfalls()
	for _, s := range list {
		if s.Rail == "" && (r.Throttled() || explainsAll(r, s, list[1:])) {
			continue
		}
		who, subject := "all rails together carry", ""
		if s.Rail != "" {
			who, subject = "rail "+s.Rail+" carries", "rail "+s.Rail
		}
		report(finding.Finding{Severity: ofGoodput(s.Goodput / s.Expected), Subject: subject,
			Evidence: fmt.Sprintf("%s %s, %s of the %s expected", who, units.Gigabits(s.Goodput),
				terminal.Percent(s.Goodput/s.Expected), units.Gigabits(s.Expected)) + besidesWire(r, s),
			Fix: fixShortfall(r, s)})
	}
}

// besidesWire returns a text that the wire or the peer limits a rail, if the rail's loopback was fast enough.
func besidesWire(r *result.Result, s result.Shortfall) string {
	home := r.LoopbackOf(s.Rail)
	if home == nil || *home < r.MinOfExpected*s.Expected {
		return ""
	}
	return fmt.Sprintf("; to itself it carries %s: the wire or the peer limits it, not this host",
		units.Gigabits(*home))
}

// checkDegraded compares rails with their own history and skips those that are below the expected rate anyway.
func checkDegraded(r *result.Result, report reporter) {
	for i := range r.Rails {
		one := &r.Rails[i]
		below := func(s result.Shortfall) bool { return s.Rail == one.Rail }
		if !one.Slowed() || slices.ContainsFunc(r.Shortfalls(), below) {
			continue
		}
		past := one.Past
		report(finding.Finding{Severity: ofGoodput(past.Latest / past.Best), Subject: "rail " + one.Rail,
			Evidence: fmt.Sprintf("rail %s carries %s alone, %s of the %s on %s (median of its best day of the last 7)",
				one.Rail, units.Gigabits(past.Latest), terminal.Percent(past.Latest/past.Best),
				units.Gigabits(past.Best),
				past.On.Format(time.DateOnly)),
			Fix: append(whatLimits(r, one.Rail), afterChange(expect.BestSeen, "", one.Rail))})
	}
}

// checkImbalance finds rails that carried too little beside the best one, did not fail, lost nothing and had no other
// traffic. Behind a bottleneck that equal rails share, their split says nothing about them.
func checkImbalance(r *result.Result, report reporter) {
	if r.Imbalance == nil || *r.Imbalance <= result.UnevenAbove || r.EvenAlone {
		return
	}
	for _, one := range r.Rails {
		if one.Share == nil || one.Failure != nil || one.Lossy || one.OthersSeen() != nil ||
			*one.Share >= 1-result.UnevenAbove {
			continue
		}
		out := finding.Finding{Subject: "rail " + one.Rail, Fix: whatLimits(r, one.Rail),
			Evidence: fmt.Sprintf("rail %s carries %s of its share (imbalance %.2f)", one.Rail,
				terminal.Percent(*one.Share), 1-*one.Share)}
		if r.Imbalanced() && 1-*one.Share > rail.ImbalancedAbove {
			out.Severity = warning
		}
		report(out)
	}
}

// explainsAll reports whether the short or failed rails alone explain the total of all rails.
func explainsAll(r *result.Result, all result.Shortfall, short []result.Shortfall) bool {
	carried := all.Goodput
	for i := range r.Rails {
		one := &r.Rails[i]
		bad := one.Failure != nil ||
			slices.ContainsFunc(short, func(s result.Shortfall) bool { return s.Rail == one.Rail })
		if !bad || one.Expected == nil {
			continue
		}
		carried += *one.Expected
		if one.Failure == nil && one.Striped != nil {
			carried -= one.Striped.BytesPerSecond()
		}
	}
	return carried >= r.MinOfExpected*all.Expected
}

// badStartBelow is the share of its capacity below which a rail, by RDMA and by TCP, points to a bad start of its
// adapter.
const badStartBelow = 0.25

// fixShortfall returns the fix for one rail, or all together, below the expected rate.
func fixShortfall(r *result.Result, s result.Shortfall) []string {
	switch {
	case badStart(r, s.Rail):
		return []string{note("the adapter started badly, here or at %s: shut the machine down and take its power "+
			"away for a minute, or replug the cable; then measure again", r.Peer)}
	case s.Rail == "":
		return []string{note("find what the rails share, here and at %s: a PCIe switch, an uplink, one processor: "+
			"lspci -tv", r.Peer)}
	}
	return whatLimits(r, s.Rail)
}

// badStart reports whether a rail, or each rail, shows the pattern of a GB10's adapter that started badly: link and
// PCIe are correct, but it carries less than badStartBelow of its capacity by RDMA and by TCP.
func badStart(r *result.Result, name string) bool {
	bad := 0
	for i := range r.Rails {
		one := &r.Rails[i]
		if name != "" && one.Rail != name {
			continue
		}
		tcp, known := tcpOf(r, one.Rail)
		full := one.Capacity != nil && one.Expected != nil && *one.Capacity >= 0.99**one.Expected
		if !one.Soldered || !full || !known || tcp >= badStartBelow**one.Capacity ||
			!below(one, badStartBelow**one.Capacity) {
			return false
		}
		bad++
	}
	return bad > 0
}

// below reports whether the rail carried less than rate (bytes per second) in each RDMA burst.
func below(r *result.RailResult, rate float64) bool {
	flows := slices.DeleteFunc([]*result.Flow{r.Solo, r.Striped}, func(f *result.Flow) bool { return f == nil })
	return r.OthersSeen() == nil && len(flows) > 0 && !slices.ContainsFunc(flows, func(f *result.Flow) bool {
		return f.BytesPerSecond() >= rate
	})
}

// tcpOf returns the highest TCP rate of a rail, in bytes per second.
func tcpOf(r *result.Result, name string) (best float64, known bool) {
	for _, t := range r.TCP {
		for _, one := range t.Rails {
			if one.Rail == name {
				best, known = max(best, one.BytesPerSecond), true
			}
		}
	}
	return best, known
}

// whatLimits returns what to examine where a rail carries too little.
func whatLimits(r *result.Result, name string) []string {
	i := slices.IndexFunc(r.Rails, func(one result.RailResult) bool { return one.Rail == name })
	if i < 0 {
		return nil
	}
	one := &r.Rails[i]
	home := r.LoopbackOf(name)
	wire := note("the wire: compare speed and FEC of both ends, and drops and pauses of the switch ports between, "+
		"if any: ethtool %[1]s; ethtool -S %[1]s | grep -iE 'err|discard|drop|pause'", shellWord(one.Netdev))
	switch {
	case home == nil:
		return append(limitsOfHost(one), wire,
			note("which of the two it is: measure the rail to itself, railscope bench %s --loopback",
				shellWord(r.Peer)))
	case one.Expected != nil && *home < r.MinOfExpected**one.Expected:
		return limitsOfHost(one)
	}
	return []string{wire}
}
