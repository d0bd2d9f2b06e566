package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"

	"github.com/railscope/railscope/fleet"
	"github.com/railscope/railscope/internal/testenv"
)

// nodesLike returns n nodes with the same facts.
func nodesLike(to fleet.NodeFacts, prefix string, n int, facts map[string]string) {
	for i := range n {
		to[named(prefix, i)] = maps.Clone(facts)
	}
}

func named(prefix string, i int) fleet.Node {
	return fleet.Node{Cluster: "a", Name: fmt.Sprint(prefix, i)}
}

func hgx() map[string]string {
	return map[string]string{"adapters": "8 × mlx5_core MT4129", "gpus": "8 × NVIDIA H100", "firmware": "28.45",
		"kernel": "6.8.0-31", "pfc": "3", "mtu": "4200"}
}

// said returns deviations and splits as text.
func said(d fleet.Drift) (list []string) {
	for _, one := range d.Deviations {
		list = append(list, fmt.Sprintf("%s: %v have %s, %d of %d %s", one.Subject, one.Nodes, one.Value, one.Agree, one.Of,
			one.Usual))
	}
	for _, s := range d.Splits {
		var values []string
		for value, nodes := range s.Values {
			values = append(values, fmt.Sprint(len(nodes), " ", value))
		}
		slices.Sort(values)
		list = append(list, fmt.Sprintf("%s differs among %d: %s", s.Subject, s.Of, strings.Join(values, ", ")))
	}
	return list
}

// TestDrift: which nodes deviate, and what is no deviation.
func TestDrift(t *testing.T) {
	for _, tc := range []struct {
		name string
		set  func(fleet.NodeFacts)
		want []string
	}{
		{"alike", func(fleet.NodeFacts) {}, nil},
		{"one with older firmware", func(f fleet.NodeFacts) { f[named("n", 3)]["firmware"] = "28.39" },
			[]string{"firmware: [a/n3] have 28.39, 19 of 20 28.45"}},
		{"two with different ones", func(f fleet.NodeFacts) {
			f[named("n", 3)]["firmware"], f[named("n", 4)]["firmware"] = "28.39", "28.31"
		}, []string{"firmware: [a/n4] have 28.31, 18 of 20 28.45", "firmware: [a/n3] have 28.39, 18 of 20 28.45"}},
		{"what is unknown is not different", func(f fleet.NodeFacts) {
			delete(f[named("n", 3)], "firmware")
			f[named("n", 4)]["firmware"] = "28.39"
		}, []string{"firmware: [a/n4] have 28.39, 18 of 19 28.45"}},
		{"a GPU is missing", func(f fleet.NodeFacts) { f[named("n", 3)]["gpus"] = "7 × NVIDIA H100" },
			[]string{"gpus: [a/n3] have 7 × NVIDIA H100, 19 of 20 8 × NVIDIA H100"}},
		{"another adapter", func(f fleet.NodeFacts) {
			f[named("n", 3)]["adapters"] = "7 × mlx5_core MT4129, 1 × mlx5_core MT4123"
		}, []string{"adapters: [a/n3] have 7 × mlx5_core MT4129, 1 × mlx5_core MT4123, 19 of 20 8 × mlx5_core MT4129"}},
		{"another role", func(f fleet.NodeFacts) {
			nodesLike(f, "s", 4, map[string]string{"adapters": "2 × mlx5_core MT4125", "kernel": "5.15", "pfc": "none"})
		}, nil},
		{"two nodes like no others", func(f fleet.NodeFacts) {
			nodesLike(f, "s", 2, map[string]string{"adapters": "2 × mlx5_core MT4125", "kernel": "5.15", "pfc": "none"})
		}, nil},
		{"a pair that differs", func(f fleet.NodeFacts) {
			nodesLike(f, "s", 2, map[string]string{"adapters": "2 × mlx5_core MT4125", "kernel": "5.15", "pfc": "none"})
			f[named("s", 1)]["kernel"] = "6.8"
		}, []string{"kernel differs among 2: 1 5.15, 1 6.8"}},
		{"three nodes like no others, one differs", func(f fleet.NodeFacts) {
			nodesLike(f, "s", 3, map[string]string{"adapters": "2 × mlx5_core MT4125", "kernel": "5.15", "pfc": "none"})
			f[named("s", 1)]["kernel"] = "6.8"
		}, []string{"kernel: [a/s1] have 6.8, 2 of 3 5.15"}},
		{"a roll-out at 40 %, and one node with neither", func(f fleet.NodeFacts) {
			for i := range 8 {
				f[named("n", i)]["kernel"] = "6.8.0-40"
			}
			f[named("n", 9)]["kernel"] = "6.5"
		}, []string{"kernel: [a/n9] have 6.5, 11 of 20 6.8.0-31", "kernel differs among 20: 11 6.8.0-31, 8 6.8.0-40"}},
		{"a roll-out that is nearly through", func(f fleet.NodeFacts) {
			for i := range 19 {
				f[named("n", i)]["kernel"] = "6.8.0-40"
			}
		}, []string{"kernel: [a/n19] have 6.8.0-31, 19 of 20 6.8.0-40"}},
		{"a roll-out that has hardly begun in a small role", func(f fleet.NodeFacts) {
			for i := range 8 {
				f[named("n", i)]["kernel"] = "6.8.0-40"
			}
			small := hgx()
			small["gpus"] = "8 × AMD GPU"
			nodesLike(f, "m", 10, small)
			f[named("m", 0)]["kernel"], f[named("m", 1)]["kernel"] = "6.8.0-40", "6.5"
		}, []string{"kernel: [a/m1] have 6.5, 8 of 10 6.8.0-31", "kernel differs among 10: 1 6.8.0-40, 8 6.8.0-31",
			"kernel differs among 20: 12 6.8.0-31, 8 6.8.0-40"}},
		{"the value of another role", func(f fleet.NodeFacts) {
			other := hgx()
			other["gpus"], other["mtu"] = "8 × AMD GPU", "9000"
			nodesLike(f, "m", 10, other)
			f[named("n", 3)]["mtu"] = "9000"
		}, []string{"mtu: [a/n3] have 9000, 19 of 20 4200"}},
		{"each node has its own", func(f fleet.NodeFacts) {
			for i := range 20 {
				f[named("n", i)]["configuration"] = fmt.Sprint(i)
			}
		}, []string{"configuration differs among 20: "}},
		{"another cluster", func(f fleet.NodeFacts) {
			other := hgx()
			other["firmware"] = "28.39"
			for i := range 5 {
				f[fleet.Node{Cluster: "b", Name: fmt.Sprint(i)}] = other
			}
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := fleet.NodeFacts{}
			nodesLike(f, "n", 20, hgx())
			tc.set(f)
			if diff := cmp.Diff(tc.want, said(fleet.FindDrift(f))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestDriftAtScale: of the deviations planted among 1,000 nodes of four kinds, with a roll-out that has reached 40 %,
// all are found, and no other.
func TestDriftAtScale(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	f := fleet.NodeFacts{}
	for kind, n := range map[string]int{"H100": 600, "H200": 300, "MI300X": 90, "none": 10} {
		facts := hgx()
		facts["gpus"], facts["adapters"] = "8 × "+kind, "8 × adapter of "+kind
		for i := range 20 {
			facts[fmt.Sprint("subject ", i)] = "usual of " + kind
		}
		nodesLike(f, kind+"-", n, facts)
	}
	for n, facts := range f {
		if random.Float64() < 0.4 {
			facts["kernel"] = "6.8.0-40"
		}
		if random.Float64() < 0.05 {
			delete(facts, fmt.Sprint("subject ", random.IntN(20))) // could not be read
		}
		f[n] = facts
	}
	nodes := make([]fleet.Node, 0, len(f))
	for n := range f {
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, fleet.Node.Compare)
	total := 0
	for _, facts := range f {
		total += len(facts)
	}
	planted := map[string]bool{}
	for i := range 200 {
		n := nodes[random.IntN(len(nodes))]
		subject := fmt.Sprint("subject ", random.IntN(20))
		if strings.HasPrefix(n.Name, "none") {
			continue // ten nodes: a second deviation there may be a second usual value
		}
		f[n][subject] = fmt.Sprint("deviation ", i%7)
		planted[n.String()+" "+subject] = true
	}
	found, wrong := map[string]bool{}, []string{}
	for _, d := range fleet.FindDrift(f).Deviations {
		for _, n := range d.Nodes {
			key := n.String() + " " + d.Subject
			found[key] = true
			if !planted[key] {
				wrong = append(wrong, key)
			}
		}
	}
	missed := 0
	for key := range planted {
		if !found[key] {
			missed++
		}
	}
	testenv.Score{What: "another value", Named: len(planted) - missed, Planted: len(planted), Accused: len(wrong),
		Healthy: total - len(planted)}.Log(t)
	if missed > 0 || len(wrong) > 0 {
		t.Errorf("missed %d, false %q", missed, wrong)
	}
}

// TestChanges: what changed first, on how many nodes, between which times.
func TestChanges(t *testing.T) {
	start := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	at := func(minute int, facts map[string]string) fleet.Snapshot { // node → "subject value"
		s := fleet.Snapshot{Time: start.Add(time.Duration(minute) * time.Minute), Facts: fleet.NodeFacts{}}
		for node, text := range facts {
			subject, value, _ := strings.Cut(text, " ")
			s.Facts[fleet.Node{Cluster: "a", Name: node}] = map[string]string{subject: value}
		}
		return s
	}
	got := fleet.FindChanges([]fleet.Snapshot{
		at(0, map[string]string{"n1": "kernel 6.5", "n2": "kernel 6.5", "n3": "mtu 4200", "n4": "pfc 3"}),
		at(10, map[string]string{"n1": "kernel 6.8", "n2": "kernel 6.8", "n3": "mtu 4200"}),
		at(20, map[string]string{"n1": "kernel 6.8", "n2": "kernel 6.8", "n3": "mtu 1500", "n4": "pfc 4", "n5": "mtu 9000"}),
	})
	var list []string
	for _, c := range got {
		list = append(list, fmt.Sprintf("%s to %s: %s from %s to %s on %v", c.After.Format("15:04"), c.Before.Format("15:04"),
			c.Subject, c.From, c.To, c.Nodes))
	}
	want := []string{
		"12:00 to 12:10: kernel from 6.5 to 6.8 on [a/n1 a/n2]",
		"12:00 to 12:20: pfc from 3 to 4 on [a/n4]",
		"12:10 to 12:20: mtu from 4200 to 1500 on [a/n3]",
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAskDrift: facts of two times and between them are asked for; of what changed alone, once the changes are known.
func TestAskDrift(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	since := now.Add(-6 * time.Hour)
	var asked []string
	ask := func(_ context.Context, expr string, at time.Time) (model.Vector, error) {
		asked = append(asked, expr)
		var v model.Vector
		add := func(node, subject, value string) {
			v = append(v, &model.Sample{Value: 1, Metric: model.Metric{"node": model.LabelValue(node), "cluster": "a",
				"subject": model.LabelValue(subject), "value": model.LabelValue(value)}})
		}
		for i := range 5 {
			node, kernel := fmt.Sprint("n", i), "6.5"
			if i == 3 && at.After(since.Add(2*time.Hour)) {
				kernel = "6.8"
			}
			add(node, "kernel", kernel)
			if !strings.Contains(expr, "subject=~") {
				add(node, "mtu", "4200")
			}
		}
		add("n4", "mtu", "9000") // two values at once: unknown
		return v, nil
	}
	d, err := fleet.AskDrift(t.Context(), `cluster="a"`, now, since, ask)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"kernel: [a/n3] have 6.8, 4 of 5 6.5"}
	if diff := cmp.Diff(want, said(d)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	changed := since.Add(2 * time.Hour)
	if len(d.Changes) != 1 || d.Changes[0].After.After(changed) || !d.Changes[0].Before.After(changed) ||
		d.Changes[0].Before.Sub(d.Changes[0].After) > 20*time.Minute {
		t.Errorf("%+v", d.Changes)
	}
	if !strings.Contains(asked[0], `railscope_node_fact_info{cluster="a"}`) ||
		!strings.Contains(asked[2], `{subject=~"kernel",cluster="a"}`) {
		t.Errorf("%q", asked)
	}
	for _, before := range []struct {
		facts model.Vector
		err   error
		want  string
	}{{nil, errors.New("gone"), "at 2026-11-28T06:00:00Z: gone"},
		{nil, nil, "at 2026-11-28T06:00:00Z: no facts: choose a later time"}} {
		d, err := fleet.AskDrift(t.Context(), "", now, since, func(ctx context.Context, expr string, at time.Time) (
			model.Vector, error) {
			if at.Equal(now) {
				return ask(ctx, expr, at)
			}
			return before.facts, before.err
		})
		if err != nil || len(d.Failed) != 1 || d.Failed[0] != before.want || len(d.Deviations) != 1 {
			t.Errorf("%v: %v, %+v", before.err, err, d)
		}
	}
	if _, err := fleet.AskDrift(t.Context(), "", now, time.Time{}, func(context.Context, string, time.Time) (model.Vector,
		error) {
		return nil, errors.New("gone")
	}); err == nil {
		t.Error("no error")
	}
}

// TestDriftTable: what people see of a roll-out, a node with another setting, one like no others, and a change.
func TestDriftTable(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	facts := func(at time.Time) (v model.Vector) {
		add := func(node, subject, value string) {
			v = append(v, &model.Sample{Value: 1, Metric: model.Metric{"node": model.LabelValue(node),
				"subject": model.LabelValue(subject), "value": model.LabelValue(value)}})
		}
		for i := range 10 {
			node, kernel, pfc := fmt.Sprint("gpu-", i), "6.8.0-31", "3"
			if i > 3 {
				kernel = "6.8.0-40"
			}
			if i == 7 && at.Equal(now) {
				pfc = "none"
			}
			add(node, "adapters", "8 × mlx5_core MT4129")
			add(node, "gpus", "8 × NVIDIA H100")
			add(node, "kernel", kernel)
			add(node, "qos", "pfc="+pfc+"; trust=dscp")
		}
		for i, kernel := range []string{"6.11.0-1016-nvidia", "6.14.0-1013-nvidia"} {
			spark := fmt.Sprint("spark-0", i+1)
			add(spark, "adapters", "2 × mlx5_core MT4129 NVD0000000087")
			add(spark, "kernel", kernel)
		}
		add("login", "adapters", "1 × mlx5_core MT4125")
		add("login", "kernel", "5.15")
		return v
	}
	d, err := fleet.AskDrift(t.Context(), "", now, now.Add(-32*time.Minute),
		func(_ context.Context, _ string, at time.Time) (model.Vector, error) { return facts(at), nil })
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	if err := d.WriteTable(&table, false); err != nil {
		t.Fatal(err)
	}
	want := `1 of 13 nodes in 2 roles deviates.
  - mlx5_core MT4129, NVIDIA H100: 10 nodes
  - mlx5_core MT4129 NVD0000000087: 2 nodes
  - 1 node like no other, not compared: login

mlx5_core MT4129, NVIDIA H100
  - qos.pfc: none instead of 3 (9 of 10 nodes): gpu-7

No deviation, but not alike
  - kernel: 6.8.0-40 on 6, 6.8.0-31 on 4 of 10 nodes: a roll-out?
  - kernel: 6.11.0-1016-nvidia on spark-01, 6.14.0-1013-nvidia on spark-02

Changes, the first one first (UTC)
  - 2026-11-28 11:59:00 to 2026-11-28 12:00:00: qos.pfc from 3 to none: gpu-7
`
	if diff := cmp.Diff(want, table.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if d.Good() || !(fleet.FindDrift(fleet.NodeFacts{{Name: "a"}: {}})).Good() || fleet.FindDrift(nil).Good() {
		t.Error("good")
	}
}
