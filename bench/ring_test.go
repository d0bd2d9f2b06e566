package bench

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/railscope/railscope/probe"
)

// TestRing: the tables and the object of a ring, whole and with a member that failed.
func TestRing(t *testing.T) {
	member := func(node, to string, alone, together, tcp float64) probe.RingMember {
		return probe.RingMember{Node: node, Successor: to, Rails: 2, AllRails: 2, Alone: new(alone * gb),
			Together: new(together * gb), TCP: new(tcp * gb)}
	}
	whole := probe.RingResult{Members: []probe.RingMember{member("spark-01:10092", "spark-02:10092", 185, 180, 12),
		member("spark-02:10092", "spark-03:10092", 186, 150, 33), member("spark-03:10092", "spark-01:10092", 180, 176, 12.5)}}
	whole.Members[1].Rails, whole.Members[1].RailFailure = 1, &probe.Failure{Stage: "connect", Rail: "1",
		Reason: "no_gid", Detail: "no GID of RoCE v2"}
	broken := probe.RingResult{Members: []probe.RingMember{member("a:1", "b:1", 185, 180, 12), {Node: "b:1",
		Successor: "a:1", Failure: &probe.Failure{Stage: "lease", Reason: "unauthorized",
			Detail: "the peer takes part in no ring: set probe.allow_ring there"}}}}
	for name, r := range map[string]probe.RingResult{"ring": whole, "ring-broken": broken} {
		for step, suffix := range map[time.Duration]string{0: "", 400 * time.Millisecond: "-step"} {
			var table, object bytes.Buffer
			o := RingOptions{Bytes: 2 << 30, StepTime: step}
			if err := errors.Join(WriteRing(&table, r, o), WriteRingJSON(&object, r, o)); err != nil {
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
