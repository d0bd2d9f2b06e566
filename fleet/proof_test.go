package fleet_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/railscope/railscope/fleet"
)

// TestProofs: the last proof of each rail that is up is a burst with any peer, or traffic that reached what is
// expected.
func TestProofs(t *testing.T) {
	asked := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	a := fleet.Answers{Time: asked, Answers: map[string]model.Vector{}}
	add := func(question string, v float64, pairs ...string) {
		a.Answers[question] = append(a.Answers[question], sample(v, append([]string{"instance", "a"}, pairs...)...))
	}
	for _, rail := range []string{"0", "1", "2", "3", "4", "5", "10"} {
		up := 1.
		if rail == "5" {
			up = 0
		}
		add("port_up", up, "rail", rail)
		add("rail_expected", 50e9, "rail", rail)
	}
	peak := func(rail, direction string, rate, age float64) {
		add("peak", rate, "rail", rail, "direction", direction)
		add("peak_age", age, "rail", rail, "direction", direction)
	}
	burst := func(rail, peer string, rate, age float64) {
		add("transport", 1, "peer", peer, "transport", "rdma")
		add("rail_up", 1, "peer", peer, "rail", rail)
		add("goodput", rate, "peer", peer, "rail", rail)
		add("burst_age", age, "peer", peer)
		add("age", 10, "peer", peer)
	}
	burst("0", "b", 46e9, 50)
	peak("0", "transmit", 40e9, 600)
	peak("0", "receive", 40e9, 700)
	add("rail_up", 1, "peer", "b", "rail", "3") // left out of the burst
	burst("1", "c", 12e9, 1200)                 // too old, also for the judgement
	peak("1", "receive", 36e9, 300)
	peak("1", "transmit", 34e9, 10) // below 0.7 of what is expected
	burst("2", "d", 45e9, 400)
	burst("2", "e", 44e9, 100)
	peak("5", "transmit", 45e9, 10)
	s := fleet.NewRecent(a, nil, asked, 15*time.Minute)
	got := map[string]string{}
	for _, r := range s.Rails {
		got[r.Rail.Rail] = r.Proof.Text(asked)
	}
	for rail, want := range map[string]string{"0": "368 Gb/s by burst, less than 1 min ago",
		"1": "288 Gb/s by traffic, 5 min ago", "2": "352 Gb/s by burst, 1 min ago", "3": "", "4": "", "10": ""} {
		if text, listed := got[rail]; !listed || text != want {
			t.Errorf("rail %s: %q, want %q", rail, text, want)
		}
	}
	if len(got) != 6 {
		t.Errorf("%d rails, want those that are up", len(got))
	}
	var table, html, js bytes.Buffer
	if err := s.WriteTable(&table, false); err != nil {
		t.Fatal(err)
	}
	if err := s.WriteHTML(&html); err != nil {
		t.Fatal(err)
	}
	const want = "proof of what rails can carry: 3 of 6 rails (2 by burst, 1 by traffic), the oldest 5 min ago; " +
		"without: rail 3 of a, rail 4 of a, rail 10 of a"
	for format, b := range map[string]string{"table": table.String(), "html": html.String()} {
		if !strings.Contains(strings.Join(strings.Fields(b), " "), want) {
			t.Errorf("the %s lacks %q:\n%s", format, want, b)
		}
	}
	if err := s.WriteJSON(&js); err != nil {
		t.Fatal(err)
	}
	var parsed struct {
		Rails []struct{ Proof *struct{ By string } }
	}
	if err := json.Unmarshal(js.Bytes(), &parsed); err != nil || len(parsed.Rails) != 6 ||
		parsed.Rails[0].Proof.By != "burst" || parsed.Rails[5].Proof != nil {
		t.Errorf("%v: %s", err, js.String())
	}
}

// TestBusy: a pair that rounds reach is judged by its transport and its rails, also if its last burst is old.
func TestBusy(t *testing.T) {
	a := fleet.Answers{Time: time.Now(), Answers: map[string]model.Vector{}}
	add := func(question string, v float64, pairs ...string) {
		a.Answers[question] = append(a.Answers[question], sample(v, pairs...))
	}
	nodes := []string{"a", "b", "c", "d", "e", "f", "g"}
	for _, from := range nodes {
		add("up", 1, "instance", from)
		for _, to := range nodes {
			if from == to {
				continue
			}
			transport := "rdma"
			if from == "a" || to == "a" {
				transport = "tcp"
			}
			add("transport", 1, "instance", from, "peer", to, "transport", transport)
			add("age", 40, "instance", from, "peer", to)
			add("burst_age", 7200, "instance", from, "peer", to)
			if transport == "rdma" {
				add("rail_up", 1, "instance", from, "peer", to, "rail", "0")
				add("goodput", map[bool]float64{true: 1e9, false: 45e9}[from == "b" || to == "b"], "instance", from, "peer",
					to, "rail", "0")
				add("expected", 50e9, "instance", from, "peer", to, "rail", "0")
			}
		}
	}
	s := fleet.NewRecent(a, nil, a.Time, 15*time.Minute)
	if len(s.Blames) != 1 || s.Blames[0].Kind != fleet.TCPFallback || s.Blames[0].Name != "a" || len(s.LeftOut) != 0 {
		t.Errorf("%+v, left out %+v", s.Blames, s.LeftOut)
	}
	s = fleet.NewRecent(a, nil, a.Time, 3*time.Hour)
	if len(s.Blames) < 2 {
		t.Errorf("the slow node is not blamed by figures of the last hours: %+v", s.Blames)
	}
}
