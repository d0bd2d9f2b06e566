package main

import (
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/probe"
)

// TestBenchError: bench ends well after an ok round alone.
func TestBenchError(t *testing.T) {
	for _, o := range probe.Outcomes() {
		if err := benchError(probe.Result{Outcome: o}); (err == nil) != (o == "ok") {
			t.Errorf("%s: %v", o, err)
		}
	}
}

// TestObserveDegraded: a degraded round is logged as a warning with its findings, once while only figures change.
func TestObserveDegraded(t *testing.T) {
	var out strings.Builder
	p := newProbing(probe.NewNode(probe.NodeOptions{}), slog.New(slog.NewTextHandler(&out, nil)))
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
	want := `level=WARN msg="Probe finished" peer=b:1 result=degraded transport=rdma
level=WARN msg="Probe finding" peer=b:1 result=degraded transport=rdma check=goodput_below_expected subject="rail 0" evidence="rail 0 carries 16.00 Gb/s, 20 % of the 80.00 Gb/s expected"
level=INFO msg="Probe finished" peer=b:1 result=ok transport=rdma
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +logged:\n%s", diff)
	}
}
