package bench

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/probe/result"
)

func ringMember(node, to string, alone, together, tcp float64) result.RingMember {
	return result.RingMember{Node: node, Successor: to, Rails: 2, AllRails: 2, Alone: new(alone * gb),
		Together: new(together * gb), TCP: new(tcp * gb)}
}

// ringOfThree returns a ring in which all nodes at once carry the fraction part of 180, 150 and 176 Gb/s.
func ringOfThree(part float64) result.RingResult {
	return result.RingResult{Members: []result.RingMember{
		ringMember("spark-01:10092", "spark-02:10092", 185, 180*part, 12),
		ringMember("spark-02:10092", "spark-03:10092", 186, 150*part, 33),
		ringMember("spark-03:10092", "spark-01:10092", 180, 176*part, 12.5)}}
}

// TestRing: tables and object of a ring, complete and with a failed member.
func TestRing(t *testing.T) {
	member := ringMember
	whole := ringOfThree(1)
	whole.Members[1].Rails, whole.Members[1].RailFailure = 1, &result.Failure{Stage: "connect", Rail: "1",
		Reason: "no_gid", Detail: "no GID of RoCE v2"}
	broken := result.RingResult{Members: []result.RingMember{member("a:1", "b:1", 185, 180, 12), {Node: "b:1",
		Successor: "a:1", Failure: &result.Failure{Stage: "lease", Reason: "unauthorized",
			Detail: "the peer takes part in no ring: set probe.allow_ring there"}}}}
	for name, r := range map[string]result.RingResult{"ring": whole, "ring-broken": broken} {
		for step, suffix := range map[time.Duration]string{0: "", 400 * time.Millisecond: "-step"} {
			var table, object bytes.Buffer
			s := Ring([]result.RingResult{r}, RingOptions{Start: time.Unix(1e9, 0), Bytes: 2 << 30, StepTime: step})
			if err := errors.Join(WriteRing(&table, s, false), WriteRingJSON(&object, s)); err != nil {
				t.Fatal(err)
			}
			golden(t, name+suffix+".table", table.Bytes())
			golden(t, name+suffix+".json", object.Bytes())
			for line := range strings.Lines(table.String()) {
				if n := utf8.RuneCountInString(line); n > 101 {
					t.Errorf("%d columns: %q", n, line)
				}
			}
		}
	}
}

// TestRingFigures: the bus bandwidth equals that of nccl-tests. Sharing between nodes is reported only above the
// difference of two equal measurements. A time longer than a step is printed in steps.
func TestRingFigures(t *testing.T) {
	for _, tc := range []struct {
		bytes          int64
		nodes          int
		seconds, wants float64
	}{{8 << 30, 2, 0.4, 8 << 30 / 0.4}, {1 << 30, 8, 0.01, 187.904819e9}, {1e9, 3, 1, 4e9 / 3}} {
		if got := busBandwidth(tc.bytes, tc.nodes, tc.seconds); math.Abs(got/tc.wants-1) > 1e-6 {
			t.Errorf("%+v: %v", tc, got)
		}
	}
	for ratio, want := range map[float64]string{1.01: "as fast as alone", 1.11: "as fast as alone", 1.12: "share something",
		28: "share something", 0.96: "as fast as alone", 0.94: "measure again"} {
		if got := ringMeaning(ratio); !strings.Contains(got, want) {
			t.Errorf("%v: %q, want %q", ratio, got, want)
		}
	}
	for share, want := range map[float64]string{0.382: "38.2 % of a step", 1: "100.0 % of a step", 1.04: "1.0 steps",
		4.772: "4.8 steps", 9.96: "10 steps", 28.03: "28 steps", 112.922: "113 steps"} {
		if value, unit := grid.OfStep(share); value+" "+unit != want {
			t.Errorf("%v: %s %s, want %s", share, value, unit, want)
		}
	}
}

// TestRingRuns: of several runs the best one is shown, each row has all runs, and a later ring is compared with
// them.
func TestRingRuns(t *testing.T) {
	of := func(parts ...float64) suite.Suite {
		var runs []result.RingResult
		for _, part := range parts {
			runs = append(runs, ringOfThree(part))
		}
		return Ring(runs, RingOptions{Start: time.Unix(1e9, 0), Bytes: 2 << 30})
	}
	var saved, table, lines bytes.Buffer
	if err := WriteRingJSON(&saved, of(0.99, 1, 0.98)); err != nil {
		t.Fatal(err)
	}
	before, err := suite.Read(&saved)
	if err != nil || before.Ring == nil || len(before.Members) != 3 || before.Rows[0].Name != "bus bandwidth" ||
		len(before.Rows[0].Runs) != 3 || math.Abs(*before.Bus/(150*gb)-1) > 1e-6 {
		t.Fatalf("%+v, %v", before, err)
	}
	now := of(0.81, 0.8, 0.82)
	now.Compared = suite.Compare(before, now)
	if !now.Compared[0].Worse() || math.Abs(*now.Bus/(0.82*150*gb)-1) > 1e-6 {
		t.Errorf("%+v", now.Compared[0])
	}
	if err := errors.Join(WriteRing(&table, now, false), WriteCSV(&lines, now)); err != nil {
		t.Fatal(err)
	}
	golden(t, "ring-compared.table", table.Bytes())
	golden(t, "ring.csv", lines.Bytes())
}
