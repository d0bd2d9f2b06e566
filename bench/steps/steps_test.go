package steps

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/probe/result"
)

func extra(kind result.Kind, values ...int) result.Extra {
	return result.Extra{Kind: kind, Values: values}
}

// measured returns a figure of a kind, or its failure.
func measured(kind result.Kind, gigabytes float64, failed result.Reason) result.Measured {
	m := result.Measured{Kind: kind, Flows: []result.MeasuredFlow{{Rail: "0"}}}
	if failed != "" {
		m.Flows[0].Failure = &result.Failure{Stage: "extra", Reason: failed}
	} else {
		m.Flows[0].Goodput = new(gigabytes)
	}
	return m
}

func round(second int, outcome result.Outcome, extras ...result.Measured) result.Result {
	return result.Result{Peer: "b:10092", Start: time.Unix(int64(second), 0).UTC(), Duration: time.Second,
		Outcome: outcome, Extras: extras, Rails: []result.RailResult{{Rail: "0"}}}
}

// shown is what is left of a round, for comparison.
func shown(r result.Result) string {
	text := fmt.Sprint(r.Start.Unix(), " ", len(r.Rails), " rails")
	for _, m := range r.Extras {
		text += fmt.Sprint(", ", m.Kind)
		switch {
		case m.Failure != nil:
			text += " failed: " + string(m.Failure.Reason)
		case m.Flows[0].Failure != nil:
			text += " " + string(m.Flows[0].Failure.Reason)
		default:
			text += fmt.Sprint(" ", *m.Flows[0].Goodput)
		}
	}
	return text
}

// TestOf: each part has its steps, in order, after the round that all extend.
func TestOf(t *testing.T) {
	names := func(parts ...string) (list []string) {
		for _, s := range Of(parts, Sizes{[]int{1 << 20}, []int{4096}}) {
			list = append(list, s.Name)
		}
		return list
	}
	for _, tc := range []struct{ parts, want string }{
		{"", "round"}, {"host", "round read sweep kv-cache"}, {"bond tcp", "round tcp bond"}, {"storage", "round"},
		{"host gpu tcp bond storage", "round read sweep kv-cache gpu tcp bond"},
	} {
		if got := strings.Join(names(strings.Fields(tc.parts)...), " "); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.parts, got, tc.want)
		}
	}
}

// TestJoined: each round of the first step gets the extras of one round of each other step, in the order of kinds. The
// last one has the most figures; what a round did not come to fails as the round did.
func TestJoined(t *testing.T) {
	base := Done{Name: First}
	for n, outcome := range []result.Outcome{result.OK, result.OK, result.OK} {
		base.Add(round(n, outcome))
	}
	tcp := Done{Name: "tcp", Extras: []result.Extra{extra(result.TCPStreams, 8)}}
	tcp.Add(round(3, result.OK, measured(result.TCPStreams, 8, "")))
	reads := Done{Name: "read", Extras: []result.Extra{extra(result.Reads), extra(result.Messages, 4096)}}
	reads.Add(round(4, result.OK, measured(result.Reads, 1, ""), measured(result.Messages, 2, "")))
	reads.Add(round(5, result.Degraded, measured(result.Reads, 3, "disturbed"), measured(result.Messages, 4, "")))
	skipped := round(6, result.Skipped)
	skipped.Reason = "busy"
	reads.Add(skipped)
	var got []string
	for _, r := range Joined([]Done{base, tcp, reads}) {
		got = append(got, shown(r))
	}
	want := []string{"0 1 rails, read failed: busy, messages failed: busy", "1 1 rails, read disturbed, messages 4",
		"2 1 rails, read 1, messages 2, tcp_streams 8"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if Joined(nil) != nil || len(base.Rounds[2].Extras) > 0 {
		t.Error("joining changes what was joined")
	}
	notes := []string{"step read, round 2 of 3 was degraded: ", "step read, round 3 of 3 was skipped: busy"}
	if diff := cmp.Diff(notes, Notes([]Done{base, tcp, reads})); diff != "" {
		t.Error(diff)
	}
	later := Done{Name: "later"}
	later.Add(round(2*3600, result.OK))
	notes = []string{"resumed: measured until 1970-01-01 00:00:03 and from 1970-01-01 02:00:00 on"}
	if diff := cmp.Diff(notes, Notes([]Done{base, tcp, later})); diff != "" {
		t.Error(diff)
	}
}

// TestResumed: a step is made again if its extras have changed, and what is not asked for now is left out.
func TestResumed(t *testing.T) {
	all := Of([]string{Host, TCP}, Sizes{[]int{1 << 20}, []int{4096}})
	var done []Done
	for _, s := range all {
		d := Done{Name: s.Name, Extras: s.Extras}
		for range Runs {
			d.Add(round(1, result.OK))
		}
		done = append(done, d)
	}
	other := slices.Clone(all)
	other[2].Extras = []result.Extra{extra(result.Sweep, 1<<21)}
	less := slices.Clone(done)
	less[4].Rounds = less[4].Rounds[:2]
	needs := map[string]int{"round": 10, "read": 20, "sweep": 5, "kv-cache": 3, "tcp": 2}
	for _, tc := range []struct {
		why   string
		done  []Done
		all   []Step
		ended bool
		kept  int
		left  time.Duration // a burst took 3 s × 5 ÷ (3 × 40)
	}{
		{"all made", done, all, true, 5, 0},
		{"other sizes", done, other, false, 4, 15 * 125 * time.Millisecond},
		{"fewer parts", done, all[:2], true, 2, 0},
		{"broken off", less, all, false, 5, 0},
		{"nothing made", nil, all, false, 0, 0},
	} {
		if got := Ended(tc.done, tc.all); got != tc.ended {
			t.Errorf("%s: ended %v", tc.why, got)
		}
		if got := Kept(slices.Clone(tc.done), tc.all); len(got) != tc.kept {
			t.Errorf("%s: %d kept, want %d", tc.why, len(got), tc.kept)
		}
		if got := Left(tc.done, tc.all, needs); tc.left > 0 && got != tc.left || tc.done == nil && got != 0 ||
			tc.ended && got != 0 || !tc.ended && tc.done != nil && got == 0 {
			t.Errorf("%s: %v left, want %v", tc.why, got, tc.left)
		}
	}
}

// TestRead: what is no suite is refused, with the reason.
func TestRead(t *testing.T) {
	d := Done{Name: First}
	d.Add(round(1, result.OK))
	text, err := json.Marshal(map[string]any{"version": 1, "peer": "b:10092", "steps": []Done{d},
		"storage": []suite.Checkpoint{{Target: "/x"}}})
	if err != nil {
		t.Fatal(err)
	}
	file, err := Read(strings.NewReader(string(text)))
	if err != nil || file.Peer != "b:10092" || len(file.Steps) != 1 ||
		!file.Steps[0].Rounds[0].Start.Equal(time.Unix(1, 0)) || file.Storage[0].Target != "/x" {
		t.Errorf("%+v, %v", file, err)
	}
	for text, want := range map[string]string{
		"":                          "not a suite",
		`{"version":2}`:             "form 2",
		`{"version":1,"steps":[]}`:  "bench --suite",
		`{"version":1,"peer":"b"}`:  "bench --suite",
		strings.Repeat(" ", 65<<20): "larger than 64 MiB",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}
