package blame

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/util/teststorage"

	"github.com/railscope/railscope/fleet"
	"github.com/railscope/railscope/fleet/fleettest"
	"github.com/railscope/railscope/internal/testenv"
	"github.com/railscope/railscope/test/check/fleetgen"
	"github.com/railscope/railscope/test/check/ruleeval"
)

// TestRules checks the recording rules railscope:blame on fleets with one fault each, like TestBlame of package
// fleet with more: the kind and the subject must be right, and nothing else may be blamed.
func TestRules(t *testing.T) {
	kinds := []fleet.Kind{fleet.RailDown, fleet.SlowWire, fleet.SlowHost, fleet.GPUPath, fleet.PeerDown, fleet.Leaf,
		fleet.TCPFallback, fleet.SlowPath}
	random := rand.New(rand.NewPCG(1, 2))
	right, all, accused := 0, 0, 0
	for i := range 3 * len(kinds) {
		o := fleettest.Options{Seed: uint64(i), LeafSize: 10, Nodes: 40, Rails: 4, Fanout: 4, Noise: 0.02,
			Missing: 0.05, Loopback: true}
		o.Faults = []fleettest.Fault{planted(o, kinds[i%len(kinds)], random)}
		want, got := subject(o.Faults[0]), blamed(t, fleettest.New(o))
		all++
		if slices.Contains(got, want) {
			right++
		}
		got = slices.DeleteFunc(got, func(s string) bool { return s == want })
		accused += len(got)
		if len(got) > 0 {
			t.Logf("fleet %d: also %q, planted %s", i, got, want)
		}
	}
	testenv.Score{What: "one fault", Named: right, Planted: all, Accused: accused, Healthy: 40*all - all}.Log(t)
	if right < all || accused > 0 {
		t.Error("want all right, and nobody else accused")
	}
}

// planted returns a random fault. A slow pair is one that loses packets.
func planted(o fleettest.Options, kind fleet.Kind, random *rand.Rand) fleettest.Fault {
	i, rail := random.IntN(o.Nodes), random.IntN(o.Rails)
	f := fleettest.Fault{Kind: kind, Node: fleet.Node{Name: fleettest.Name(i)}, Rail: fmt.Sprint(rail)}
	switch kind {
	case fleet.PeerDown, fleet.TCPFallback:
		f.Rail = ""
	case fleet.Leaf:
		f.Leaf = o.LeafOf(i, rail)
		f.Name, f.Rail = "", ""
	case fleet.SlowPath:
		p := fleettest.Pairs(o)[random.IntN(o.Nodes)]
		f.Kind, f.Node, f.Peer = fleet.LossyPath, p.From, p.To.Name
	}
	return f
}

// subject returns a fault in the words of the rules.
func subject(f fleettest.Fault) string {
	if f.Kind == fleet.LossyPath {
		f.Kind = fleet.SlowPath
	}
	return strings.Join([]string{string(f.Kind), cmp.Or(f.Name, f.Leaf), f.Peer, f.Rail}, " ")
}

// blamed evaluates the rules over half an hour of a constant state, and returns what they blame at the end.
func blamed(t *testing.T, s fleet.State) (list []string) {
	t.Helper()
	const every, lasts = 2 * time.Minute, 30 * time.Minute
	stored := teststorage.New(t)
	r, err := ruleeval.New(t.Context(), stored, filepath.Join("..", "..", "..", "deploy", "rules"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	f := fleetgen.OfState(s, now())
	if err := f.Store(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	for ago := lasts; ago >= 0; ago -= every {
		if err := r.Eval(t.Context(), now().Add(-ago), now().Add(-ago)); err != nil { // all groups
			t.Fatal(err)
		}
	}
	q, err := stored.Querier(now().UnixMilli(), now().UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.Close() }()
	host := func(s string) string { name, _, _ := strings.Cut(s, ":"); return name }
	set := q.Select(t.Context(), false, nil, labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel,
		"railscope:blame"))
	for set.Next() {
		if it := set.At().Iterator(nil); it.Seek(now().UnixMilli()) != 0 {
			if _, v := it.At(); math.IsNaN(v) { // stale marker
				continue
			}
			l := set.At().Labels()
			list = append(list, strings.Join([]string{l.Get("kind"), cmp.Or(host(l.Get("instance")), l.Get("leaf")),
				host(l.Get("peer")), l.Get("rail")}, " "))
		}
	}
	return list
}
