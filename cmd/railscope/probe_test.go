package main

import (
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/internal/baseline"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/state"
	"github.com/railscope/railscope/probe"
)

// TestBenchError: bench ends well after an ok round alone.
func TestBenchError(t *testing.T) {
	for _, o := range probe.Outcomes() {
		if err := benchError([]probe.Result{{Outcome: o}}); (err == nil) != (o == "ok") {
			t.Errorf("%s: %v", o, err)
		}
	}
}

// TestObserveDegraded: a degraded round is logged as a warning with its findings, once while only figures change.
func TestObserveDegraded(t *testing.T) {
	var out strings.Builder
	p := newProbing(probe.NewNode(probe.NodeOptions{}), finding.NewStore(nil), baseline.New(nil, nil), false,
		slog.New(slog.NewTextHandler(&out, nil)))
	round := func(rate int64) probe.Result {
		expected, sum := 1e10, float64(rate)
		return probe.Result{Peer: "b:1", Outcome: probe.Degraded, Transport: probe.RDMA, MinOfExpected: 0.7,
			Stealing: &sum,
			Rails: []probe.RailResult{{Rail: "0", Expected: &expected,
				Stealing: &probe.Flow{Bytes: rate, Active: time.Second}}}}
	}
	p.observe(round(2e9))
	p.observe(round(3e9))
	p.observe(probe.Result{Peer: "b:1", Outcome: probe.OK, Transport: probe.RDMA})
	got := regexp.MustCompile(`time=\S+ `).ReplaceAllString(out.String(), "")
	want := `level=WARN msg="Probe finished" peer=b:1 result=degraded transport=rdma check=goodput_below_expected subject="rail 0" evidence="rail 0 carries 16 Gb/s, 20 % of the 80 Gb/s expected"
level=INFO msg="Probe finished" peer=b:1 result=ok transport=rdma
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +logged:\n%s", diff)
	}
}

// TestFindingsOfRoundsEnd: what rounds found stands for an hour without another one that measured, for ten minutes once
// the peer is one of those that are asked no longer, and not at all once none is.
func TestFindingsOfRoundsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbing(probe.NewNode(probe.NodeOptions{}), finding.NewStore(nil), baseline.New(nil, nil), false,
			slog.New(slog.DiscardHandler))
		round := func(peer string, o probe.Outcome) {
			p.observe(probe.Result{Peer: peer, Start: time.Now(), Outcome: o, Reason: "tcp_connect"})
		}
		stand := func(minutes, want int, why string) {
			t.Helper()
			for range minutes {
				time.Sleep(time.Minute)
				round("b:1", probe.Skipped)
			}
			if list, _ := p.found.List(time.Now()); len(list) != want {
				t.Errorf("%s: %+v, want %d", why, list, want)
			}
		}
		find := func() {
			for range 2 {
				time.Sleep(time.Minute)
				round("a:1", probe.Failed)
			}
		}
		p.setPeers([]string{"a:1", "b:1"})
		find()
		stand(59, 1, "skipped for an hour")
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

// TestCompareWithPast: a rail that carries much less than on other days makes rounds degraded after two full ones that
// agree, until a full one is better; a restart does not forget how it was.
func TestCompareWithPast(t *testing.T) {
	dir, expected := t.TempDir(), 50e9
	store := state.Open(dir, nil)
	past, at := newBaselines(store), time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	round := func(gigabytes int64) string {
		at = at.Add(5 * time.Minute)
		one := probe.RailResult{Rail: "3", Expected: &expected}
		if gigabytes > 0 {
			one.Solo = &probe.Flow{Bytes: gigabytes * 1e9, Active: time.Second}
		}
		given := probe.Result{Peer: "b:1", Start: at, Outcome: probe.OK, Transport: probe.RDMA,
			Rails: []probe.RailResult{one}}
		r := compareWithPast(past, given)
		if given.Rails[0].Past != nil {
			t.Error("the result was changed")
		}
		text := string(r.Outcome)
		for _, f := range check.Round(r) {
			text += fmt.Sprintf("; %s %s %s: %s", f.Severity, f.Check, f.Subject, f.Evidence)
		}
		return text
	}
	const slow = "degraded; warning goodput_degraded rail 3: rail 3 carries 192 Gb/s alone, 55 % of the 352 Gb/s on " +
		"2026-11-20 (median of its best day of the last 7)"
	for i, c := range []struct {
		gigabytes int64
		want      string
	}{{44, "ok"}, {44, "ok"}, {44, "ok"}, {44, "ok"}, {44, "ok"}, {24, "ok"}, {0, "ok"}, {22, slow}, {0, slow},
		{44, "ok"}} {
		if got := round(c.gigabytes); got != c.want {
			t.Errorf("round %d: %s, want %s", i+1, got, c.want)
		}
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	store = state.Open(dir, nil)
	past, at = newBaselines(store), at.Add(24*time.Hour)
	_ = round(24)
	if got := round(22); got != slow {
		t.Errorf("after a restart: %s", got)
	}
	past.Forget("3") // after a planned change
	if got := round(22); got != "ok" {
		t.Errorf("after a reset: %s", got)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}
