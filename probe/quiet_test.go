package probe

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
)

// gapRails returns rails of 1 GB/s; the last two are functions of one port of 2 GB/s.
func gapRails() (rails []node.LocalRail) {
	for i := range 4 {
		var r node.LocalRail
		r.Name, r.Capacity, r.PortCapacity = fmt.Sprint(i), 1e9, 1e9
		if i > 1 {
			r.PortCapacity, r.Status.Limits.PortKey = 2e9, "port"
		}
		rails = append(rails, r)
	}
	return rails
}

// TestQuiet: a rail is quiet after four readings in a row below 5 % of its capacity, in both directions and on its
// port, and while others become quiet after seven.
func TestQuiet(t *testing.T) {
	rails := gapRails()
	gaps := &node.Gaps{}
	for _, r := range rails {
		for range 12 {
			gaps.NoteGap(r.Name, time.Second)
		}
	}
	w := node.NewQuietWatch(&node.Node{Gaps: gaps}, rails)
	at := time.Unix(1e9, 0)
	last := map[string]rail.Traffic{}
	for _, r := range rails {
		last[r.Name] = rail.Traffic{At: at, Physical: r.Status.Limits.PortKey != ""}
	}
	for i, step := range []struct {
		out, in map[string]uint64 // bytes in 5 ms, of 5 MB
		gone    string
		want    []string
	}{
		{want: nil}, {want: nil}, {want: nil},
		{want: []string{"0", "1", "2", "3"}},
		{out: map[string]uint64{"0": 250e3, "1": 251e3}, want: []string{"0", "2", "3"}},
		{in: map[string]uint64{"0": 251e3}, want: nil},              // 1 becomes quiet
		{want: []string{"2", "3"}},                                  // after seven readings they do not wait for it
		{out: map[string]uint64{"2": 501e3, "3": 501e3}, want: nil}, // the port's, which both functions count
		{want: nil}, // 0, 2 and 3 become quiet, 1 waits for them
		{want: nil},
		{want: nil},
		{want: []string{"0", "1", "2", "3"}},
		{gone: "1", want: []string{"0", "2", "3"}},
		{want: []string{"0"}},
		{want: []string{"0", "2", "3"}},
	} {
		at = at.Add(5 * time.Millisecond)
		now := map[string]rail.Traffic{}
		for _, r := range rails {
			v := last[r.Name]
			v.At = at
			v.Port[rail.Transmit] += step.out[r.Name]
			v.Port[rail.Receive] += step.in[r.Name]
			last[r.Name] = v
			if r.Name != step.gone {
				now[r.Name] = v
			}
		}
		before := map[string]rail.Traffic{}
		for name, v := range last {
			v.At = at.Add(-5 * time.Millisecond)
			v.Port[rail.Transmit] -= step.out[name]
			v.Port[rail.Receive] -= step.in[name]
			before[name] = v
		}
		w.Note(before, now)
		if got := w.Quiet(); !slices.Equal(got, step.want) {
			t.Errorf("reading %d: quiet %q, want %q", i, got, step.want)
		}
	}
}

// TestLasts: a burst is made where all of the last twelve gaps would have had time for it, or where quiet has lasted.
func TestLasts(t *testing.T) {
	const ms = time.Millisecond
	eleven := slices.Repeat([]time.Duration{60 * ms}, 11)
	for _, tc := range []struct {
		why  string
		gaps []time.Duration
		age  time.Duration
		so   time.Duration
		want bool
	}{
		{"nothing is known", nil, 0, 20 * ms, false},
		{"nothing is known, but it lasts", nil, 0, 100 * ms, true},
		{"too few", eleven, 0, 20 * ms, false},
		{"all long", append(eleven, 60*ms), 0, 20 * ms, true},
		{"late in them", append(eleven, 60*ms), 0, 51 * ms, false},
		{"early enough", append(eleven, 60*ms), 0, 50 * ms, true},
		{"one was short", append(eleven, 29*ms), 0, 20 * ms, false},
		{"one was just long enough", append(eleven, 30*ms), 0, 20 * ms, true},
		{"a short one, thirteen before", slices.Concat([]time.Duration{29 * ms}, eleven, []time.Duration{60 * ms}), 0, 20 * ms,
			true},
		{"of an hour ago", append(eleven, 60*ms), time.Hour, 20 * ms, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			var gaps node.Gaps
			for _, length := range tc.gaps {
				gaps.NoteGap("0", length)
			}
			time.Sleep(tc.age)
			if got := gaps.Lasts("0", tc.so); got != tc.want {
				t.Errorf("%s: %v", tc.why, got)
			}
			if tc.so < 100*ms && gaps.Lasts("1", tc.so) {
				t.Errorf("%s: on another rail", tc.why)
			}
		})
	}
}

// TestGapsSeen: a watch records gaps from their beginning to their end, and not what it saw only a part of.
func TestGapsSeen(t *testing.T) {
	rails := gapRails()[:1]
	gaps := &node.Gaps{}
	w := node.NewQuietWatch(&node.Node{Gaps: gaps}, rails)
	at, sent := time.Unix(1e9, 0), uint64(0)
	read := func(n int, bytes uint64) {
		for range n {
			before := map[string]rail.Traffic{"0": {At: at, Port: [2]uint64{rail.Transmit: sent}}}
			at, sent = at.Add(5*time.Millisecond), sent+bytes
			w.Note(before, map[string]rail.Traffic{"0": {At: at, Port: [2]uint64{rail.Transmit: sent}}})
		}
	}
	read(5, 0) // The watch has not seen the beginning of this gap.
	for i := range 12 {
		read(3, 5e6)
		read(3, 0) // This one cannot be noticed.
		read(1, 5e6)
		if gaps.Lasts("0", 25*time.Millisecond) {
			t.Errorf("after %d gaps", i)
		}
		read(7, 0)
		if got := w.Quiet(); got != nil {
			t.Errorf("quiet %q after %d gaps", got, i)
		}
	}
	read(1, 5e6)
	if !gaps.Lasts("0", 25*time.Millisecond) || gaps.Lasts("0", 26*time.Millisecond) {
		t.Error("after twelve gaps of 35 ms")
	}
	for i, want := range [][]string{nil, nil, nil, {"0"}, {"0"}, nil} { // 25 ms and a burst have time, 30 ms not
		read(1, 0)
		if got := w.Quiet(); !slices.Equal(got, want) {
			t.Errorf("reading %d: quiet %q, want %q", i, got, want)
		}
	}
	read(14, 0)
	if got := w.Quiet(); len(got) != 1 {
		t.Errorf("after 100 ms: quiet %q", got)
	}
}

// TestMet: around a burst, a rail may carry its payload with headers, acknowledgements in the other direction, and 5 %
// of its capacity; what is sent again is no traffic of others.
func TestMet(t *testing.T) {
	for _, tc := range []struct {
		why             string
		out, in, resent uint64
		own             int64
		met             bool
	}{
		{"the burst", 1.05e6, 0.02e6, 0, 1e6, false},
		{"the burst in small packets", 1.3e6, 0.4e6, 0, 1e6, false},
		{"others, as much as a quiet rail carries", 1.5e6, 0.5e6, 0, 1e6, false},
		{"others out", 1.9e6, 0.02e6, 0, 1e6, true},
		{"others in", 1.05e6, 1e6, 0, 1e6, true},
		{"the other end's burst", 0.1e6, 1.2e6, 0, 1e6, false},
		{"the burst twice", 2.2e6, 0.02e6, 7, 1e6, false},
		{"the burst twice, and others in", 2.2e6, 1.9e6, 7, 1e6, true},
		{"no burst, and others", 1e6, 0, 0, 0, true},
	} {
		rails := gapRails()[:1]
		at := time.Unix(1e9, 0)
		before := map[string]rail.Traffic{"0": {At: at}}
		after := map[string]rail.Traffic{"0": {At: at.Add(4 * time.Millisecond), Retransmits: tc.resent,
			Port: [rail.Directions]uint64{rail.Transmit: tc.out, rail.Receive: tc.in}}}
		if got := node.Met(rails, before, after, map[string]int64{"0": tc.own}); (len(got) > 0) != tc.met {
			t.Errorf("%s: met others on %q", tc.why, got)
		}
	}
}

// TestUnseen: no burst is made in a gap over a rail whose gaps cannot be seen, or, for an hour, over one where a burst
// met other traffic.
func TestUnseen(t *testing.T) {
	g := &node.Gaps{}
	rails := gapRails()
	rails[1].Capacity = 0
	now := map[string]rail.Traffic{"0": {Period: 10 * time.Millisecond}, "1": {}, "2": {Period: time.Second}}
	unseen := g.Unseen(rails, now)
	if len(unseen) != 3 || unseen["0"] != nil || unseen["1"].Reason != failure.NoGap || unseen["2"].Reason != failure.NoGap ||
		unseen["3"].Reason != failure.NoGap {
		t.Errorf("%v", unseen)
	}
	g.Collide("0")
	if f := g.Unseen(rails, now)["0"]; f == nil || f.Reason != failure.Collided || f.Rail != "0" {
		t.Errorf("after a collision: %v", f)
	}
}
