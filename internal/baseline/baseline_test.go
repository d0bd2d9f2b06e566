package baseline

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func date(day int) time.Time { return time.Date(2026, 5, day, 0, 0, 0, 0, time.UTC) }

// observe adds n figures, one every five minutes from t, and returns the last past and the time of the next figure.
func observe(k *Keeper, t time.Time, n int, value float64) (p Past, next time.Time) {
	for range n {
		p, t = k.Observe("a", "0", t, value, 0), t.Add(5*time.Minute)
	}
	return p, t
}

// TestPast: a rail is compared with the median of its last 24 hours, and with the best day of its last week, which
// a slow decline does not lower.
func TestPast(t *testing.T) {
	k := New(nil, nil)
	p, at := observe(k, noon, 4, 100)
	if want := (Past{Latest: 100}); p != want {
		t.Errorf("before 5 figures: %+v", p)
	}
	p, at = observe(k, at, 2, 100)
	if want := (Past{Median: 100, Best: 100, On: date(1), Latest: 100}); p != want {
		t.Errorf("%+v", p)
	}
	p, at = observe(k, at, 1, 20)
	if p.Latest != 100 {
		t.Errorf("one slow figure alone: %+v", p)
	}
	p, _ = observe(k, at, 1, 30)
	if p.Latest != 30 || p.Median != 100 {
		t.Errorf("two of them: %+v", p)
	}
	for day := 2; day <= 7; day++ {
		p, _ = observe(k, date(day), 12*24, float64(100-10*day))
		if want := (Past{Median: float64(100 - 10*day), Best: 100, On: date(1),
			Latest: float64(100 - 10*day)}); p != want {
			t.Errorf("day %d: %+v", day, p)
		}
	}
	p, _ = observe(k, date(8), 12, 30)
	if p.Best != 80 || p.On != date(2) {
		t.Errorf("after a week: %+v", p)
	}
	if last := k.Last("a", "0"); last == nil || *last != p || k.Last("a", "1") != nil || k.Last("b", "0") != nil {
		t.Errorf("%+v", last)
	}
	p, at = observe(k, noon, 12, 1)
	if p.Best != 80 {
		t.Errorf("soon after the clock was set back: %+v", p)
	}
	p, _ = observe(k, at, 1, 1)
	if p.Best > 1 {
		t.Errorf("an hour after the clock was set back: %+v", p)
	}
}

// TestClockJumps: a clock that is wrong for an hour, in the past or in the future, also after a start, forgets no
// day.
func TestClockJumps(t *testing.T) {
	for name, wrong := range map[string]time.Time{"back": time.Unix(1000, 0), "forward": date(5000)} {
		var saved State
		k := New(nil, func(s State) { saved = s })
		_, _ = observe(k, date(1), 12*24, 100)
		_, _ = observe(k, date(2), 12*24, 90)
		k = restart(t, saved)
		_, _ = observe(k, wrong, 11, 50)
		if p, _ := observe(k, date(3), 11, 50); p.Best != 100 || p.On != date(1) {
			t.Errorf("%s: %+v", name, p)
		}
		_ = restart(t, k.stateLocked())
		_, _ = observe(k, date(3).Add(time.Hour), 12, 50)
		for _, d := range k.series[key{"a", "0"}].days {
			if d.Number > date(3).Unix()/day || d.Number < date(1).Unix()/day {
				t.Errorf("%s: a day of the wrong clock is left: %v", name, d)
			}
		}
	}
}

// TestFanOut: peers that are probed on one day only do not accumulate, with or without a state directory.
func TestFanOut(t *testing.T) {
	for _, save := range []func(State){nil, func(State) {}} {
		k := New(nil, save)
		for d := 1; d <= 60; d++ {
			peer := fmt.Sprint("peer-", d)
			k.SetPeers([]string{peer})
			for i := range 12 * 24 {
				k.Observe(peer, "0", date(d).Add(time.Duration(i)*5*time.Minute), 100, 0)
			}
		}
		if len(k.series) > week {
			t.Errorf("%d series after 60 days", len(k.series))
		}
	}
}

// TestBounded: the figures of a day are evenly spread and use bounded memory.
func TestBounded(t *testing.T) {
	s := &series{}
	for second := range int64(200_000) { // one per second for more than two days
		at := noon.Add(time.Duration(second) * time.Second)
		s.expire(at)
		s.add(at, float64(second))
		if len(s.figures) > 256 || len(s.days) > week ||
			!slices.IsSortedFunc(s.figures, func(a, b figure) int { return int(a.at - b.at) }) {
			t.Fatalf("%d figures after %d s", len(s.figures), second)
		}
	}
	n := len(s.figures)
	if span := s.figures[n-1].at - s.figures[0].at; n < 200 || span < day*9/10 || span > day {
		t.Errorf("%d figures over %d s", n, span)
	}
	if m := s.median(noon.Add(200_000 * time.Second)); m < 200_000-86400/2-3000 || m > 200_000-86400/2+3000 {
		t.Errorf("the median is %v", m)
	}
}

// restart makes a keeper from the saved state, in the format of the state directory.
func restart(t *testing.T, s State) *Keeper {
	t.Helper()
	var again State
	data, err := json.MarshalIndent(s, "", "  ")
	if err = errors.Join(err, json.Unmarshal(data, &again), again.Check()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, again); diff != "" {
		t.Errorf("JSON changes the state: %s", diff)
	}
	return New(again, nil)
}

// TestRestart: a restart forgets neither the best day nor yesterday's goodput.
func TestRestart(t *testing.T) {
	var saved State
	saves := 0
	k := New(nil, func(s State) { saved, saves = s, saves+1 })
	_, _ = observe(k, date(1), 12*24, 100)
	_, _ = observe(k, date(2), 12*24, 90)
	if saves < 40 || saves > 48 {
		t.Errorf("saved %d times in two days", saves)
	}
	k = restart(t, saved)
	if p, _ := observe(k, date(3), 1, 50); p != (Past{Median: 90, Best: 100, On: date(1)}) {
		t.Errorf("%+v", p)
	}
	k = restart(t, saved)
	if p, _ := observe(k, date(4), 1, 50); p != (Past{Best: 100, On: date(1)}) { // no figures of the last 24 hours
		t.Errorf("%+v", p)
	}
	k = restart(t, saved)
	_, _ = observe(k, date(2).Add(23*time.Hour), 6, 10) // a few figures of a day do not replace many
	if p, _ := observe(k, date(3), 1, 50); p.Best != 100 || k.series[key{"a", "0"}].days[1].Median != 90 {
		t.Errorf("%+v, %v", p, k.series[key{"a", "0"}].days)
	}
}

// TestPeers: figures of peers that are no longer probed are dropped. Their days are kept, for a limited number of
// peers so that the file stays small.
func TestPeers(t *testing.T) {
	var saved State
	k := New(nil, func(s State) { saved = s })
	for figure := range week * least {
		at := date(1 + figure/least).Add(time.Duration(figure%least) * 10 * time.Minute)
		for i := range 100 {
			for r := range maxRails {
				k.Observe(fmt.Sprintf("peer-%d.gpu.example.com:10092", i), fmt.Sprint("rail", r), at,
					48123456789.5+float64(i), 0)
			}
		}
	}
	k.Forget("none")
	data, err := json.MarshalIndent(map[string]State{"baselines": saved}, "", "  ")
	if err != nil || len(saved) != maxPeers || len(data) > 300<<10 {
		t.Errorf("%d peers in %d bytes, %v", len(saved), len(data), err)
	}
	if _, err := json.Marshal(saved); err != nil || saved.Check() != nil {
		t.Error(err, saved.Check())
	}
	k.SetPeers([]string{"peer-1.gpu.example.com:10092"})
	kept := 0
	for _, s := range k.series {
		if len(s.figures) > 0 {
			kept++
		}
	}
	if kept != maxRails {
		t.Errorf("figures of %d rails", kept)
	}
	k.Forget("rail3")
	for of := range k.series {
		if of.rail == "rail3" {
			t.Fatal("not forgotten")
		}
	}
}

// TestInvalid: a state that no keeper writes is rejected.
func TestInvalid(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": {"0": "20780 4.9e+10 48"}}`:                                       "",
		`{"a": {"0": ""}}`:                                                       "invalid day",
		`{"a": {"0": "20780 4.9e+10"}}`:                                          "invalid day",
		`{"a": {"0": "20780 0 48"}}`:                                             "invalid day",
		`{"a": {"0": "20780 NaN 48"}}`:                                           "invalid day",
		`{"a": {"0": "20780 1e99 48"}}`:                                          "invalid day",
		`{"a": {"0": "20780 1 48, 20780 1 48"}}`:                                 "invalid day",
		`{"a": {"0": "20780 1 99999999"}}`:                                       "out of range",
		`{"a": {"0": "` + strings.Repeat("20780 1 48, ", 30) + `"}}`:             "too many days",
		`{"a": {"0": "1 1 1, 2 1 1, 3 1 1, 4 1 1, 5 1 1, 6 1 1, 7 1 1, 8 1 1"}}`: "invalid day",
		`{"` + strings.Repeat("a", 301) + `": {}}`:                               "too long",
		`{"a": {"` + strings.Repeat("a", 301) + `": "20780 1 48"}}`:              "too long",
	} {
		var s State
		err := json.Unmarshal([]byte(text), &s)
		if err == nil {
			err = s.Check()
		}
		if want == "" && err != nil || want != "" && !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
}

// FuzzDays: accepted text is formatted again without a change.
func FuzzDays(f *testing.F) {
	f.Add("20780 4.9e+10 48, 20781 5e+10 250")
	f.Fuzz(func(t *testing.T, text string) {
		var d, again Days
		if d.UnmarshalText([]byte(text)) != nil {
			return
		}
		out, err := d.MarshalText()
		if err = errors.Join(err, again.UnmarshalText(out)); err != nil || len(again) != len(d) {
			t.Errorf("%q: %q, %v", text, out, err)
		}
	})
}

// TestHealthyIsNotSlow: a rail whose figures vary by 10 % is never reported as slower than its best day.
func TestHealthyIsNotSlow(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	k := New(nil, nil)
	for i := range 30 * 288 {
		p := k.Observe("a", "0", noon.Add(time.Duration(i)*5*time.Minute), 48e9*(1+0.1*max(-3, min(3, rng.NormFloat64()))), 0)
		if p.Latest > 0 && p.Latest < 0.7*p.Best {
			t.Fatalf("figure %d: %+v", i, p)
		}
	}
}

// TestExpectation: the past is forgotten if the expected goodput decreases, but not while it is unknown.
func TestExpectation(t *testing.T) {
	for _, tc := range []struct {
		why      string
		expected []float64 // in this order
		want     float64   // best day at the end
	}{
		{"the same", []float64{100, 100}, 48},
		{"not known for a while", []float64{100, 0, 100}, 48},
		{"more", []float64{50, 100}, 48},
		{"less", []float64{100, 50}, 0},
		{"less, later", []float64{100, 0, 50}, 0},
	} {
		k := New(nil, nil)
		observe(k, noon, 6, 48)
		var p Past
		for i, expected := range tc.expected {
			p = k.Observe("a", "0", noon.Add(time.Duration(i+1)*time.Hour), 24, expected)
		}
		if p.Best != tc.want {
			t.Errorf("%s: %+v", tc.why, p)
		}
	}
}
