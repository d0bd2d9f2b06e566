package serve

import (
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/baseline"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/state"
	"github.com/railscope/railscope/probe"
	"github.com/railscope/railscope/probe/result"
)

// TestObserveDegraded: a degraded round is logged as a warning with its findings, and only once while just figures
// change.
func TestObserveDegraded(t *testing.T) {
	var out strings.Builder
	p := newProbeController(probe.NewNode(probe.NodeOptions{}), finding.NewStore(nil), baseline.New(nil, nil), false,
		nil, slog.New(slog.NewTextHandler(&out, nil)))
	round := func(rate int64) result.Result {
		expected, sum := 1e10, float64(rate)
		return result.Result{Peer: "b:1", Outcome: result.Degraded, Transport: result.RDMA, MinOfExpected: 0.7,
			Striped: &sum,
			Rails: []result.RailResult{{Rail: "0", Expected: &expected,
				Striped: &result.Flow{Bytes: rate, Active: time.Second}}}}
	}
	p.observe(round(2e9))
	p.observe(round(3e9))
	p.observe(result.Result{Peer: "b:1", Outcome: result.OK, Transport: result.RDMA,
		Class: result.Class{TrafficClass: 106, Source: "configured"}})
	p.observe(result.Result{Peer: "b:1", Outcome: result.Skipped})
	if class := p.class.Load(); class == nil || *class != 106 {
		t.Errorf("the traffic class of the last round is %v, want 106", class)
	}
	got := regexp.MustCompile(`time=\S+ `).ReplaceAllString(out.String(), "")
	want := `level=WARN msg="Probe finished" peer=b:1 result=degraded transport=rdma check=goodput_below_expected subject="rail 0" evidence="rail 0 carries 16 Gb/s, 20 % of the 80 Gb/s expected"
level=INFO msg="Probe finished" peer=b:1 result=ok transport=rdma
level=INFO msg="Probe skipped" peer=b:1 result=skipped transport="" reason="" detail=""
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +logged:\n%s", diff)
	}
}

// TestFindingsOfRoundsEnd: findings of rounds stand for a day without another round that measured, for ten
// minutes after their peer is no longer asked, and end at once when no peer is asked.
func TestFindingsOfRoundsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbeController(probe.NewNode(probe.NodeOptions{}), finding.NewStore(nil), baseline.New(nil, nil),
			false, nil, slog.New(slog.DiscardHandler))
		round := func(peer string, o result.Outcome) {
			p.observe(result.Result{Peer: peer, Start: time.Now(), Outcome: o, Reason: "tcp_connect"})
		}
		stand := func(minutes, want int, why string) {
			t.Helper()
			for range minutes {
				time.Sleep(time.Minute)
				round("b:1", result.Skipped)
			}
			if list, _ := p.findings.List(time.Now()); len(list) != want {
				t.Errorf("%s: %+v, want %d", why, list, want)
			}
		}
		find := func() {
			for range 2 {
				time.Sleep(time.Minute)
				round("a:1", result.Failed)
			}
		}
		p.setPeers([]string{"a:1", "b:1"})
		find()
		stand(24*60-1, 1, "skipped for a day")
		stand(1, 0, "skipped for longer")
		find()
		p.setPeers([]string{"b:1", "c:1"})
		stand(9, 1, "another day's peers")
		stand(1, 0, "another day's peers, later")
		p.setPeers([]string{"a:1"})
		find()
		p.setPeers(nil)
		stand(0, 0, "no peers")
	})
}

// TestBaselinesRestart: a restart keeps the memory of what rails carried.
func TestBaselinesRestart(t *testing.T) {
	dir, at := t.TempDir(), time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	store := state.Open(dir, nil)
	past := (&Host{Store: store}).Baselines()
	for range 5 {
		at = at.Add(5 * time.Minute)
		past.Observe("b:1", "3", at, 44e9, 50e9)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	store = state.OpenReadOnly(dir, nil) // read only, as in bench
	if p := (&Host{Store: store}).Baselines().Compare("b:1", "3", at.Add(24*time.Hour), 22e9); p == nil || p.Best != 44e9 {
		t.Errorf("after a restart: %+v", p)
	}
}
