package suite

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func row(name string, runs ...float64) Row {
	r := Row{Name: name, Runs: runs}
	if len(runs) > 0 {
		r.Goodput = new(slices.Max(runs))
	}
	return r
}

func TestCompare(t *testing.T) {
	before := Suite{Rows: []Row{row("same", 100, 101, 102, 103, 104), row("small", 100, 100.1, 100.2), row("worse", 100, 101,
		99), row("better", 50, 51, 52), row("overlap", 100, 120, 140), row("gone", 1), row("fails", 10, 11), row("never")}}
	after := Suite{Rows: []Row{row("same", 104, 105, 103), row("small", 101, 101.1, 101.2), row("worse", 90, 91, 92),
		row("better", 60, 61, 62), row("overlap", 80, 90, 101), row("fails"), row("never"), row("new", 3)}}
	want := []Change{{"same", 102, 104, false, ""}, {"small", 100.1, 101.1, false, ""}, {"worse", 100, 91, true, ""},
		{"better", 51, 61, true, ""}, {"overlap", 120, 90, false, ""}, {Name: "gone", Missing: "not measured now"},
		{"fails", 10.5, 0, true, ""}, {Name: "never", Missing: "without a figure before and now"},
		{Name: "new", Missing: "not measured before"}}
	got := Compare(before, after)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var worse []string
	for _, c := range got {
		if c.Worse() {
			worse = append(worse, c.Name)
		}
	}
	if !slices.Equal(worse, []string{"worse", "fails"}) {
		t.Errorf("worse: %q", worse)
	}
}

// TestCompareSweep: a sweep that reads is not compared with one that writes.
func TestCompareSweep(t *testing.T) {
	of := func(op string, runs ...float64) Suite {
		r := row("64 KiB", runs...)
		r.Op = op
		return Suite{Sweep: []Row{r}}
	}
	if got := Compare(of("write", 10), of("read", 5)); len(got) != 2 || got[0].Missing == "" || got[1].Missing == "" {
		t.Errorf("%+v", got)
	}
	if got := Compare(of("read", 10), of("read", 5)); len(got) != 1 || !got[0].Worse() {
		t.Errorf("%+v", got)
	}
}

func TestMerge(t *testing.T) {
	one := func(g float64) Suite { return Suite{Good: true, Rows: []Row{row("a", g), row("b")}} }
	list := []Suite{one(3), one(5), one(4)}
	list[1].Good = false
	list[0].Rows[1] = row("b", 7)
	got := Merge(list)
	if a, b := got.Rows[0], got.Rows[1]; got.Good || *a.Goodput != 5 || !slices.Equal(a.Runs, []float64{3, 5, 4}) ||
		b.Goodput != nil || !slices.Equal(b.Runs, []float64{7}) {
		t.Errorf("%+v", got)
	}
}

func TestRead(t *testing.T) {
	for text, want := range map[string]string{
		"": "unexpected end of JSON", "{": "not a saved benchmark", `{"verdict": "x"}`: "no key", `[]`: "not a saved",
		`{"version": 2}`: "of form 2", `{"version": 1, "rows": [{"name": "a"}], "outcome": "ok"}`: "",
	} {
		s, err := Read(strings.NewReader(text))
		if want == "" && (err != nil || len(s.Rows) != 1) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
