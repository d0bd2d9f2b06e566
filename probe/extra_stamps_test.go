package probe

import (
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/result"
)

// TestExtraStamps: an interactive round reports the adapter's part of the latency if the adapter stamps
// completions. The latency itself does not change, and other rounds have no parts.
func TestExtraStamps(t *testing.T) {
	t.Parallel()
	const delay = 2 * time.Millisecond
	p := newPair(t, 2, func(_ string, i int, d *fakeverbs.Device) { d.Stamps, d.Latency = i == 0, delay })
	res := p.bench()
	p.clean()
	if res.Outcome != result.OK || len(res.Failures) > 0 {
		t.Fatalf("%s: %s, failures %v", res.Outcome, res.Detail, res.Failures)
	}
	for i, parts := range []int{p.opts.LatencySamples, 0} {
		l := res.Rails[i].Latency
		if len(l.Samples) != p.opts.LatencySamples || len(l.Adapter) != parts || len(l.Host) != parts {
			t.Errorf("rail %d: %d samples, of %d and %d the parts", i, len(l.Samples), len(l.Adapter), len(l.Host))
		}
	}
	l := res.Rails[0].Latency // the host's part depends on the load of this machine
	if a := result.Quantile(l.Adapter, 0.5); a < delay*9/10 || a > delay*3/2 || result.Quantile(l.Host, 0) < 0 {
		t.Errorf("the adapter had %v of %v, the host %v", a, delay, l.Host)
	}
	scheduled := round.Round{Pairing: round.Pairing{Node: p.a}, Plan: round.Plan{Options: p.opts}, Peer: p.peer,
		Progress: func(result.Progress) {}}
	res = scheduled.Run(t.Context())
	if res.Outcome != result.OK || res.Rails[0].Latency.Adapter != nil {
		t.Errorf("%s, and the adapter's part %v", res.Outcome, res.Rails[0].Latency.Adapter)
	}
}
