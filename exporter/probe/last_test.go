package probe

import (
	"testing"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// TestLastFindings: the last round has its findings, even if the caller modifies the list; earlier rounds have
// none.
func TestLastFindings(t *testing.T) {
	p := NewSource(func() options.Stats { return options.Stats{Running: true} })
	p.SetPeers([]string{"a"})
	for i := range 2 {
		found := []finding.Finding{{Check: "imbalance", Subject: "rail 1"}, {Check: "slower_than_tcp"}}
		p.Observe(result.Result{Peer: "a", Start: time.Unix(int64(i), 0), Outcome: result.Degraded}, found)
		clear(found)
	}
	peers, _ := p.Peers()
	rounds := peers[0].Rounds
	if len(rounds) != 2 || len(rounds[0].Findings) != 2 || rounds[0].Findings[1].Check != "slower_than_tcp" ||
		rounds[1].Findings != nil {
		t.Errorf("%+v", rounds)
	}
}

// TestSimulated: in the demo, RDMA is called simulated; TCP is called TCP.
func TestSimulated(t *testing.T) {
	p := NewSource(func() options.Stats { return options.Stats{Running: true} })
	p.Simulated = true
	p.SetPeers([]string{"a"})
	for transport, want := range map[result.Transport]string{result.RDMA: "simulated", result.TCP: "tcp"} {
		p.Observe(result.Result{Peer: "a", Outcome: result.Degraded, Transport: transport}, nil)
		got := map[string]float64{}
		if err := p.Read(func(s collector.Sample) {
			if s.Metric == p.transport {
				got[s.Labels[1]] = s.Value
			}
		}); err != nil {
			t.Fatal(err)
		}
		peers, _ := p.Peers()
		if len(got) != 3 || got[want] != 1 || peers[0].Rounds[0].Transport != want {
			t.Errorf("%s: %v, page %q", transport, got, peers[0].Rounds[0].Transport)
		}
	}
}
