package why

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/railscope/railscope/fleet"
	"github.com/railscope/railscope/internal/testenv"
)

var began = time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)

func nodeOf(i int) fleet.Node { return fleet.Node{Name: fmt.Sprintf("gpu-%02d", i)} }

// ran returns the data of a healthy job on some nodes with 8 rails, which ran for an hour.
func ran(nodes int, random *rand.Rand) Data {
	d := Data{Job: "4711", Now: began.Add(2 * time.Hour), Seen: map[fleet.Node]Span{}, Rails: map[fleet.Rail]*Use{},
		Fallback: map[fleet.Node]bool{}, Uneven: map[fleet.Node]float64{}, BusRates: map[fleet.Node]float64{}}
	for i := range nodes {
		n := nodeOf(i)
		d.Seen[n] = Span{began, began.Add(time.Hour)}
		for rail := range 8 {
			sent := 5e12 * (1 + 0.1*random.Float64())
			d.Rails[fleet.Rail{Node: n, Rail: fmt.Sprint(rail)}] = &Use{Own: sent, Port: sent, Peak: 40e9,
				TCP: 1e9 * random.Float64()}
		}
	}
	return d
}

// found adds a finding that was there from a time after the start for some time.
func (d *Data) found(node int, severity, check, subject, rail string, from, lasted time.Duration) {
	at := began.Add(from)
	d.Found = append(d.Found, Found{nodeOf(node), check, severity, subject, rail, Span{at, at.Add(lasted)}})
}

// TestJudge: the likeliest cause is named with its evidence, and what is the same on all nodes is not.
func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		name  string
		plant func(d *Data)
		cause string // part of the cause; empty: none
		also  int
	}{
		{"healthy", func(*Data) {}, "", 0},
		{"a warning on all nodes", func(d *Data) {
			for i := range 8 {
				d.found(i, "warning", "mtu_low", "rail 0", "0", 0, time.Hour)
			}
		}, "", 0},
		{"a port that went down", func(d *Data) {
			d.found(3, "critical", "port_down", "rail 2", "2", 20*time.Minute, 10*time.Minute)
			d.Rails[fleet.Rail{Node: nodeOf(3), Rail: "2"}].Port = 2e12
		}, "port_down on gpu-03: rail 2 (from 10:20:00 to 10:30:00)", 1},
		{"two faults, the first one first", func(d *Data) {
			d.found(5, "critical", "rail_missing", "rail 1", "1", 30*time.Minute, 30*time.Minute)
			d.found(3, "critical", "port_down", "rail 2", "2", 0, time.Hour)
		}, "port_down on gpu-03: rail 2 (since before it began, until its end)", 1},
		{"a fallback", func(d *Data) {
			d.Fallback[nodeOf(1)] = true
			d.found(3, "critical", "port_down", "rail 2", "2", 0, time.Hour)
		}, "it did without RDMA on gpu-01", 1},
		{"one node by TCP", func(d *Data) {
			for rail := range 8 {
				u := d.Rails[fleet.Rail{Node: nodeOf(6), Rail: fmt.Sprint(rail)}]
				u.TCP, u.Port = 4e12, 1e12
			}
		}, "gpu-06 sent 32.0 TB over its rails by TCP", 1},
		{"a light rail", func(d *Data) { d.Rails[fleet.Rail{Node: nodeOf(2), Rail: "7"}].Port = 2e12 },
			"rail 7 of gpu-02 carried 0.3", 0},
		{"a warning on one node", func(d *Data) { d.found(2, "warning", "pcie_width", "rail 3", "3", -time.Hour, 2*time.Hour) },
			"pcie_width on gpu-02: rail 3 (since before it began, until its end)", 0},
	} {
		d := ran(8, rand.New(rand.NewPCG(1, 2)))
		tc.plant(&d)
		r := Judge(d)
		if !strings.Contains(r.Cause, tc.cause) || tc.cause == "" && r.Cause != "" || len(r.Also) != tc.also {
			t.Errorf("%s: %q, also %q", tc.name, r.Cause, r.Also)
		}
		if r.Running || len(r.Nodes) != 8 || len(r.Nodes[0].Rails) != 8 {
			t.Errorf("%s: %+v", tc.name, r.Span)
		}
		var text strings.Builder
		if err := r.WriteTable(&text, false); err != nil || !strings.Contains(text.String(), "Job 4711, 8 nodes") {
			t.Errorf("%s: %s, %v", tc.name, text.String(), err)
		}
	}
}

// TestPlanted: of 1,000 generated jobs on 4 to 64 nodes, one fault in each of four kinds, or none: which are named.
func TestPlanted(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	kinds := []string{"no fault", "a port was down", "GPUs without RDMA", "a rail carried less", "PCIe of a rail was narrow"}
	scores := make([]testenv.Score, len(kinds))
	for range 1000 {
		nodes := 4 + random.IntN(61)
		d := ran(nodes, random)
		i, rail := random.IntN(nodes), fmt.Sprint(random.IntN(8))
		want := nodeOf(i).Name
		kind := random.IntN(len(kinds))
		switch kind {
		case 0:
			want = ""
		case 1:
			d.found(i, "critical", "port_down", "rail "+rail, rail, time.Duration(random.IntN(50))*time.Minute, 5*time.Minute)
		case 2:
			d.Fallback[nodeOf(i)] = true
		case 3:
			d.Rails[fleet.Rail{Node: nodeOf(i), Rail: rail}].Port *= 0.1 + 0.55*random.Float64()
		case 4:
			d.found(i, "warning", "pcie_width", "rail "+rail, rail, 0, time.Hour)
		}
		s, r := &scores[kind], Judge(d)
		s.What = kinds[kind]
		switch {
		case want == "" && r.Cause == "":
			s.Healthy++
		case want == "":
			s.Healthy++
			s.Accused++
			t.Errorf("%d nodes, healthy: %q", nodes, r.Cause)
		case strings.Contains(r.Cause, want):
			s.Planted++
			s.Named++
		default:
			s.Planted++
			t.Errorf("%d nodes, %s: %q", nodes, want, r.Cause)
		}
	}
	for _, s := range scores {
		s.Log(t)
	}
}

// TestNotKnown: what is missing is said.
func TestNotKnown(t *testing.T) {
	d := ran(4, rand.New(rand.NewPCG(1, 2)))
	for r, u := range d.Rails {
		switch r.Node {
		case nodeOf(1):
			delete(d.Rails, r)
		case nodeOf(2):
			u.Own = -1
		}
	}
	list := strings.Join(Judge(d).NotKnown, "\n")
	for _, want := range []string{"what the rails carried on gpu-01", "is the job's on gpu-02", "NCCL Inspector"} {
		if !strings.Contains(list, want) {
			t.Errorf("%q is not in %s", want, list)
		}
	}
	d.Now = began.Add(time.Hour + time.Minute)
	d.BusRates[nodeOf(0)] = 300e9
	if r := Judge(d); !r.Running || !strings.Contains(r.Headline(), "since 2026-11-28 10:00:00 UTC") ||
		strings.Contains(strings.Join(r.NotKnown, "\n"), "NCCL Inspector") {
		t.Errorf("%s %q", r.Headline(), r.NotKnown)
	}
}

// TestNewJob: Slurm jobs and pods are selected exactly, and nothing else can be put into a question.
func TestNewJob(t *testing.T) {
	for name, want := range map[string]string{"4711": `container="slurm-4711"`, "ml/train": `pod=~"ml/train(-.*)?"`,
		"train.v1": `pod=~"(.*/)?train\\.v1(-.*)?"`, `a"b`: `pod=~"(.*/)?a\"b(-.*)?"`, "": "", "a b": "", "a\n": "",
		strings.Repeat("a", 321): ""} {
		job, err := NewJob(name)
		if job.matchers != want || (err == nil) != (want != "") {
			t.Errorf("%.40q: %s, %v", name, job.matchers, err)
		}
	}
}

// TestAskFails: a job without series is an error that says what to do, and an unanswered question is named.
func TestAskFails(t *testing.T) {
	job, err := NewJob("4711")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(context.Context, string, time.Time) (model.Vector, error) { return nil, nil }
	if _, err := Ask(t.Context(), job, "", began, time.Hour, ask); err == nil ||
		!strings.Contains(err.Error(), "--source.process") {
		t.Errorf("%v", err)
	}
	ask = func(_ context.Context, question string, _ time.Time) (model.Vector, error) {
		if !strings.Contains(question, "queue_pairs|gpu_memory") {
			return nil, fmt.Errorf("query timed out")
		}
		return model.Vector{{Metric: model.Metric{"instance": "gpu-01:10091"}, Value: model.SampleValue(began.Unix())}}, nil
	}
	d, err := Ask(t.Context(), job, `cluster="a"`, began, time.Hour, ask)
	if r := Judge(d); err != nil || len(r.Failed) != 10 || len(r.Nodes) != 1 || r.Nodes[0].Name != "gpu-01" {
		t.Errorf("%+v, %v", r, err)
	}
}
