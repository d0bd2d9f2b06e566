package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/railscope/railscope/fleet"
)

// past is a Prometheus with the history of 8 nodes with 3 rails. Faults begin at a time.
type past struct {
	now   time.Time
	dead  map[[2]int]time.Time // rails of nodes that carry nothing, and since when
	begin time.Time            // there is nothing before
	fails string               // part of a question that is not answered
	asked int
}

func (p *past) ask(_ context.Context, question string, at time.Time) (v model.Vector, err error) {
	p.asked++
	add := func(value float64, pairs ...string) { v = append(v, sample(value, pairs...)) }
	if p.fails != "" && strings.Contains(question, p.fails) {
		return nil, errors.New("query timed out")
	}
	if at.Before(p.begin) {
		return nil, nil
	}
	dead := func(node, rail int) bool {
		since, is := p.dead[[2]int{node, rail}]
		return is && !at.Before(since)
	}
	for from := range 8 {
		node := fmt.Sprintf("gpu-%d", from)
		switch {
		case strings.Contains(question, "railscope_node_fact_info"):
			firmware := "28.39"
			if from == 2 && dead(2, 0) || from == 6 && dead(6, 2) {
				firmware = "28.40"
			}
			if strings.HasPrefix(question, "count") {
				add(1, "value", firmware) // one of several that Prometheus adds up
				continue
			}
			add(1, "instance", node+":10091", "subject", "firmware", "value", firmware)
		case strings.Contains(question, "railscope_process_queue_pairs"):
			if from == 2 {
				add(8, "instance", node+":10091", "pod", "ml/train-0", "container", "main")
				add(8, "instance", node+":10091", "pod", "", "container", "slurm-4711")
				add(8, "instance", node+":10091", "pod", "other", "container", "other")
			}
		case strings.Contains(question, "up{job"):
			rack := ""
			if from == 5 || from == 6 {
				rack = "R7"
			}
			add(1, "instance", node+":10091", "rack", rack)
		}
		for to := range 8 {
			if from == to {
				continue
			}
			peer := fmt.Sprintf("gpu-%d:10092", to)
			switch {
			case strings.Contains(question, "railscope_probe_transport"):
				add(1, "instance", node+":10091", "peer", peer, "transport", "rdma")
			case strings.Contains(question, "probe_last_result"):
				add(30, "instance", node+":10091", "peer", peer)
			}
			for rail := range 3 {
				labels := []string{"instance", node + ":10091", "peer", peer, "rail", fmt.Sprint(rail)}
				switch {
				case strings.Contains(question, "railscope_probe_rail_up"):
					up := 1.
					if dead(from, rail) || dead(to, rail) {
						up = 0
					}
					add(up, labels...)
				case strings.Contains(question, "rail_goodput"), strings.Contains(question, "rail_expected_bytes") &&
					strings.Contains(question, "probe"):
					add(10e9, labels...)
				}
			}
		}
	}
	return v, nil
}

// TestContext: each fault has the time in which it began, what else began and changed then, and the jobs on its node.
func TestContext(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	p := &past{now: now, begin: now.Add(-30 * 24 * time.Hour), dead: map[[2]int]time.Time{
		{2, 0}: now.Add(-40 * time.Minute), {5, 0}: now.Add(-50 * time.Minute), {6, 2}: now.Add(-30 * time.Minute),
		{4, 1}: now.Add(-20 * 24 * time.Hour)}}
	judge := func() fleet.Shown {
		answers, err := fleet.Ask(t.Context(), "", now, p.ask)
		if err != nil {
			t.Fatal(err)
		}
		s := fleet.NewRecent(answers, nil, now, 15*time.Minute)
		s.AddContext(t.Context(), "", nil, p.ask)
		return s
	}
	s := judge()
	var table, html strings.Builder
	if err := errors.Join(s.WriteTable(&table, false), s.WriteHTML(&html)); err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, b := range s.Blames {
		text := strings.Join(append(slices.Clone(b.Beside), b.Jobs...), "; ")
		switch {
		case b.Began == nil:
			t.Errorf("%s: no time", b.Subject())
		case b.Began.After == nil:
			text = "at least " + now.Sub(b.Began.Before).String() + "; " + text
		default:
			text = fmt.Sprintf("%v to %v; ", now.Sub(*b.Began.After), now.Sub(b.Began.Before)) + text
		}
		got[b.Subject()] = append(got[b.Subject()], text)
	}
	want := map[string][]string{
		"rail 0 of gpu-2": {"1h0m0s to 15m0s; began at the same time, on firmware 28.40: rail 2 of gpu-6; began at the same " +
			"time, on rail 0: rail 0 of gpu-5; changed at the same time: firmware from 28.39 to 28.40; ml/train-0; slurm-4711"},
		"rail 0 of gpu-5": {"1h0m0s to 15m0s; began at the same time, on rack R7: rail 2 of gpu-6; began at the same time, " +
			"on rail 0: rail 0 of gpu-2"},
		"rail 2 of gpu-6": {"1h0m0s to 15m0s; began at the same time, on firmware 28.40: rail 0 of gpu-2; began at the " +
			"same time, on rack R7: rail 0 of gpu-5; changed at the same time: firmware from 28.39 to 28.40"},
		"rail 1 of gpu-4": {"at least 168h0m0s; "},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, text := range []string{"began between 1h0m and 15m ago", "there for at least 7 days", "runs there now: ml/train-0",
		"changed at the same time: firmware from 28.39 to 28.40"} {
		for format, all := range map[string]string{"table": table.String(), "page": html.String()} {
			if !strings.Contains(strings.Join(strings.Fields(all), " "), text) {
				t.Errorf("the %s lacks %q:\n%s", format, text, all)
			}
		}
	}

	dead := p.dead
	p.dead = map[[2]int]time.Time{{3, 0}: now.Add(-40 * time.Minute), {5, 1}: now.Add(-50 * time.Minute),
		{4, 1}: now.Add(-20 * 24 * time.Hour)}
	for _, b := range judge().Blames {
		if b.Subject() == "rail 1 of gpu-5" && fmt.Sprint(b.Beside) != "[began at the same time: rail 0 of gpu-3]" {
			t.Errorf("nothing in common: %q", b.Beside)
		}
	}
	p.dead = dead
	p.begin = now.Add(-10 * time.Minute) // all that Prometheus has
	for _, b := range judge().Blames {
		if b.Began.After != nil || now.Sub(b.Began.Before) != 5*time.Minute {
			t.Errorf("%s: %+v", b.Subject(), b.Began)
		}
	}
	p.dead = nil
	p.asked = 0
	if s := judge(); len(s.Blames) > 0 || p.asked > 25 {
		t.Errorf("%d questions about a good fleet: %+v", p.asked, s.Blames)
	}
	p.dead = map[[2]int]time.Time{{2, 0}: now.Add(-40 * time.Minute)}
	p.fails, p.begin = "process_queue_pairs", time.Time{}
	if s := judge(); len(s.Failed) != 1 || len(s.Blames) != 1 || len(s.Blames[0].Jobs) > 0 || s.Blames[0].Began == nil {
		t.Errorf("%q %+v", s.Failed, s.Blames)
	}
}
