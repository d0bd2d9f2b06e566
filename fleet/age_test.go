package fleet_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/railscope/railscope/fleet"
)

// TestAge: answers that are too old or of unknown age are listed and not judged, in every format. So are answers that
// were saved long ago.
func TestAge(t *testing.T) {
	asked := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	a := fleet.Answers{Time: asked, Answers: map[string]model.Vector{}}
	add := func(question string, v float64, pairs ...string) {
		a.Answers[question] = append(a.Answers[question], sample(v, pairs...))
	}
	const day = 24 * 3600
	// Rail 1 of node-0 carries nothing to any of 4 nodes in a ring. node-3 was last measured 3 days ago, when its
	// rounds used TCP, and node-2 has no age.
	for i := range 4 {
		from := fmt.Sprintf("node-%d", i)
		add("up", 1, "instance", from)
		age := map[int]float64{0: 30, 1: 600, 3: 3 * day}
		for j := range 4 {
			if i == j {
				continue
			}
			to := fmt.Sprintf("node-%d:10092", j)
			transport := "rdma"
			if i == 3 {
				transport = "tcp"
			}
			add("transport", 1, "instance", from, "peer", to, "transport", transport)
			for _, rail := range []string{"0", "1"} {
				up := 1.
				if rail == "1" && (i == 0 || j == 0) {
					up = 0
				}
				if i != 3 {
					add("rail_up", up, "instance", from, "peer", to, "rail", rail)
				}
			}
			if v, known := age[i]; known {
				add("age", v, "instance", from, "peer", to)
			}
		}
		if i == 3 {
			add("loopback", 1, "instance", from, "rail", "0")
		} else {
			add("loopback", 5e9, "instance", from, "rail", "0")
		}
	}
	for _, tc := range []struct {
		name   string
		later  time.Duration
		maxAge time.Duration
		blamed string // expected subjects of blames
		old    int
		left   []string // expected notes in every format
	}{
		{"fifteen minutes", time.Minute, 15 * time.Minute, "rail 1 of node-0", 6,
			[]string{"3 pairs of node-2: the age of the last round is not known", "3 pairs of node-3: the last round ended 72h1m0s ago"}},
		{"five minutes", 0, 5 * time.Minute, "rail 1 of node-0", 9, []string{"3 pairs of node-1: the last round ended 10m0s ago"}},
		{"any age", 0, 0, "node-3, rail 1 of node-0", 0, nil},
		{"saved long ago", 72 * time.Hour, 15 * time.Minute, "", 12, []string{"3 pairs of node-0: the last round ended 72h0m30s ago"}},
	} {
		s := fleet.NewRecent(a, nil, asked.Add(tc.later), tc.maxAge)
		var table, drain, html, js bytes.Buffer
		for _, err := range []error{s.WriteTable(&table, false), s.WriteDrain(&drain), s.WriteHTML(&html),
			s.WriteJSON(&js)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		blamed := map[string]bool{}
		for _, b := range s.Blames {
			blamed[b.Subject()] = true
		}
		want := strings.Split(tc.blamed, ", ")
		if tc.blamed == "" {
			want = nil
		}
		for _, subject := range want {
			if !blamed[subject] {
				t.Errorf("%s: %q is not blamed: %+v", tc.name, subject, s.Blames)
			}
		}
		if tc.maxAge > 0 && len(blamed) != len(want) || len(s.LeftOut) != tc.old {
			t.Errorf("%s: %v are blamed, want %q; %d left out, want %d", tc.name, blamed, want, len(s.LeftOut), tc.old)
		}
		for _, text := range tc.left {
			for format, b := range map[string]string{"table": table.String(), "drain": drain.String(), "html": html.String()} {
				if !strings.Contains(strings.Join(strings.Fields(b), " "), text) {
					t.Errorf("%s: the %s lacks %q:\n%s", tc.name, format, text, b)
				}
			}
		}
		for line := range strings.Lines(drain.String()) {
			if tc.maxAge > 0 && !strings.HasPrefix(line, "#") && line != "node-0\n" {
				t.Errorf("%s: %q is drained", tc.name, line)
			}
		}
		if n := strings.Count(js.String(), `"age_seconds": null`); tc.maxAge > 0 && n != 3 {
			t.Errorf("%s: %d pairs of unknown age in JSON", tc.name, n)
		}
		if s.Good() {
			t.Errorf("%s: nothing is wrong", tc.name)
		}
	}
}
