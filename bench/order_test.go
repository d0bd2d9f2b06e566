package bench

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/bench/tables"
	"github.com/railscope/railscope/probe/result"
)

// TestRailOrder: for any order of the devices, every table and the report list the rails by name.
func TestRailOrder(t *testing.T) {
	printed := func(r result.Result, o Options) string {
		var text bytes.Buffer
		if err := WriteTable(&text, r, o); err != nil {
			t.Fatal(err)
		}
		if err := WriteCSV(&text, Suite(r, o)); err != nil {
			t.Fatal(err)
		}
		if err := WriteJSON(&text, r, o); err != nil {
			t.Fatal(err)
		}
		return text.String()
	}
	r, o := everything()
	for _, pair := range [][]string{{"0"}, {"1"}, {"0", "1"}} {
		var flows []result.MeasuredFlow
		for _, name := range pair {
			flows = append(flows, result.MeasuredFlow{Rail: name, Op: result.Write, Goodput: new(90 * gb)})
		}
		r.Extras = append(r.Extras, result.Measured{Kind: result.Contention, QueuePairs: 1, Flows: flows})
	}
	want := printed(r, o)
	slices.Reverse(r.Rails)
	for _, one := range r.TCP {
		slices.Reverse(one.Rails)
	}
	for i, m := range r.Extras {
		if m.Kind == result.OneTCP || m.Kind == result.Bond {
			continue
		}
		slices.Reverse(m.Flows)
		if next := i + 1; next < len(r.Extras) && len(m.Flows) == 1 && len(r.Extras[next].Flows) == 1 &&
			alike(m, r.Extras[next]) {
			r.Extras[i], r.Extras[next] = r.Extras[next], m
		}
	}
	if diff := cmp.Diff(want, printed(r, o)); diff != "" {
		t.Error(diff)
	}
}

// TestColumnOrder: the columns of ports are in rail order, followed by members of bonds, although the first row has
// only the last rail.
func TestColumnOrder(t *testing.T) {
	r, o := everything()
	for i := range r.TCP {
		r.TCP[i].Rails = nil
	}
	r.Extras = slices.DeleteFunc(r.Extras, func(m result.Measured) bool { return m.Kind == result.Reads })
	r.Rails[0].Solo.Counted, r.Rails[1].Solo.Counted = nil, new(int64(mb))
	titles := tables.ByPorts(Suite(r, o).Rows)[0]
	var got []string
	for _, c := range titles {
		got = append(got, c.Text)
	}
	if want := "MiB BY THE PORTS,RAIL 0,RAIL 1,eth0,eth1"; strings.Join(got, ",") != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestPairs: each rail and each pair is listed once, in rail order. If a pair seemed to share something, its better
// burst is shown.
func TestPairs(t *testing.T) {
	var r result.Result
	add := func(gigabits float64, rails ...string) {
		m := result.Measured{Kind: result.Contention, QueuePairs: 1}
		for _, name := range rails {
			f := result.MeasuredFlow{Rail: name, Op: result.Write}
			f.Failure = (&result.Failure{Reason: "disturbed"})
			if gigabits > 0 {
				f.Goodput, f.Failure = new(gigabits*gb/float64(len(rails))), nil
			}
			m.Flows = append(m.Flows, f)
		}
		r.Extras = append(r.Extras, m)
	}
	add(90, "10")
	add(100, "2")
	add(0, "10", "2") // disturbed burst
	add(114, "10", "2")
	add(100, "9")
	add(120, "10", "9")
	add(118, "10", "9")
	add(198, "2", "9")
	var got []string
	for _, row := range pairRows(result.Result{}, inRailOrder(r).Extras)[1:] {
		got = append(got, row[0].Text+" "+row[1].Text+" "+row[2].Text)
	}
	want := []string{"rail 2 100.00 -", "rail 9 100.00 -", "rail 10 90.00 -", "rails 2, 9 198.00 99 %",
		"rails 2, 10 114.00 60 %", "rails 9, 10 120.00 63 %"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestRatios: all rails are compared with the best single one of the same operation and memory, and one rail with
// one TCP stream over that rail, even if the node has only one rail.
func TestRatios(t *testing.T) {
	r, o := everything()
	all := Suite(r, o)
	one := round(92, 0)
	one.Rails, one.TCP = one.Rails[:1], []result.TCPResult{{Streams: 1, BytesPerSecond: 9.2 * gb,
		Rails: []result.TCPRail{{Rail: "0", BytesPerSecond: 9.2 * gb}}}}
	var got []string
	for _, ratio := range append(all.Ratios, Suite(one, Options{}).Ratios...) {
		got = append(got, ratio.Name+" "+grid.Ratio(ratio.Ratio)+" "+ratio.Row+" ÷ "+ratio.Of)
	}
	want := []string{"all ÷ one rail 1.98 all rails, WRITE ÷ rail 1, WRITE",
		"all ÷ one rail 1.98 all rails, READ ÷ rail 0, READ", "one rail ÷ TCP 11.41 rail 0, WRITE ÷ rail 0, TCP, 1 stream",
		"one rail ÷ TCP 10.11 rail 0, WRITE ÷ TCP, 1 stream"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
