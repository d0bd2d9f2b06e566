package rules

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/railscope/railscope/test/check/fleetgen"
)

var keep = flag.String("keep", "", "directory that gets the storage of each incident")

// incident is an event in a healthy fleet, with every alert that it must fire.
type incident struct {
	name  string
	lasts time.Duration // time after the beginning until which the rules are evaluated
	event
	kube, gpus bool
	off        func(since time.Duration) bool // times at which Prometheus does not run
	// told has every alert that fires at any time, with its minutes since the fault at 0.
	told []string
	// first has words that the first screen of the Fleet dashboard shows after seen minutes, as make render
	// ARGS=incidents checks.
	seen  int
	first []string
}

// event has the changes by node and time since the beginning. A field that is nil changes nothing.
type event struct {
	away  func(n int, since time.Duration) bool          // neither scraped nor probed
	start func(n int, since time.Duration) time.Duration // time at which railscope started; 0: long ago
	lost  func(n int, rail string, since time.Duration) bool
	is    func(n int, l labels.Labels) fleetgen.Change // other changes
}

// of returns the change of a node's series: first other changes, then lost rails, restarts and absence.
func (e event) of(n int, l labels.Labels) fleetgen.Change {
	name := l.Get(model.MetricNameLabel)
	if l.Get("job") != "railscope" {
		return e.special(n, l)
	}
	special, steps := e.special(n, l), []fleetgen.Change{e.rail(n, l), e.pair(n, l), e.restart(n, l)}
	return func(since time.Duration, v float64) (float64, bool) {
		if e.away != nil && e.away(n, since) {
			return 0, name == "up"
		}
		kept := true
		for _, c := range append(steps, special) {
			if c != nil && kept {
				v, kept = c(since, v)
			}
		}
		return v, kept
	}
}

func (e event) special(n int, l labels.Labels) fleetgen.Change {
	if e.is == nil {
		return nil
	}
	return e.is(n, l)
}

// rail returns the changes of a port that is down.
func (e event) rail(n int, l labels.Labels) fleetgen.Change {
	name := l.Get(model.MetricNameLabel)
	if e.lost == nil || l.Get("rail") == "" || l.Get("peer") != "" {
		return nil
	}
	return func(since time.Duration, v float64) (float64, bool) {
		switch down := e.lost(n, l.Get("rail"), since); {
		case !down:
		case name == "railscope_port_up", name == "railscope_rail_capacity_bytes_per_second":
			return 0, true
		case name == "railscope_port_link_downed_total", name == "railscope_netdev_carrier_down_total":
			return v + 1, true
		}
		return v, true
	}
}

// pair returns the results of rounds with a peer that is away, and of rails that are down at either end, a minute
// later.
func (e event) pair(n int, l labels.Labels) fleetgen.Change {
	var to int
	if _, err := fmt.Sscanf(l.Get("peer"), "node-%d", &to); err != nil {
		return nil
	}
	name, transport := strings.TrimPrefix(l.Get(model.MetricNameLabel), "railscope_probe_"), l.Get("transport")
	return func(now time.Duration, v float64) (float64, bool) {
		since, rail := now-time.Minute, l.Get("rail")
		away := e.away != nil && e.away(to, since)
		lost := rail != "" && e.lost != nil && (e.lost(n, rail, since) || e.lost(to, rail, since))
		switch {
		case !away && !lost:
		case name == "transport" && transport == "none":
			return 1, true
		case name == "transport", name == "rail_up":
			return 0, true
		case strings.HasSuffix(name, "_ratio"), strings.HasSuffix(name, "_per_second"):
			return 0, false
		}
		return v, true
	}
}

// restart makes counters start again, and the probe's results reappear after a round.
func (e event) restart(n int, l labels.Labels) fleetgen.Change {
	name := l.Get(model.MetricNameLabel)
	if e.start == nil {
		return nil
	}
	before := 0.0 // last value before; samples come in order of time
	return func(since time.Duration, v float64) (float64, bool) {
		start := e.start(n, since)
		if start == 0 {
			before = v
		}
		switch {
		case start == 0:
		case name == "process_start_time_seconds":
			return float64(incidentBegin().Add(start).Unix()), true
		case strings.HasSuffix(name, "_total"):
			return v - before, true
		case l.Get("peer") != "":
			return v, since-start >= time.Minute
		}
		return v, true
	}
}

// incidentBegin returns the time at which the fault begins.
func incidentBegin() time.Time { return time.Unix(1.8e9, 0) }

// run evaluates all rules every minute, those with longer intervals just before the fault begins, and returns when
// each alert fired. A restarted Prometheus knows only the alerts that its storage has.
func (i incident) run(t *testing.T, nodes int) []string {
	t.Helper()
	const warm = 16 * time.Minute
	db := database(t)
	f := newFleet(t, fleetgen.Healthy(nodes), nodes, incidentBegin())
	f.To, f.Warm, f.Kube, f.Off, f.Change = i.lasts, warm+i.lasts, i.kube, i.off, i.of
	f.Skip = without(gpuMetrics, latencyMetrics)
	if i.gpus {
		f.Skip = without(latencyMetrics)
	}
	store(t, f, db)
	e, fired, was := newEvaluator(t, db), map[string][]int{}, false
	for since := -warm; since <= i.lasts; since += time.Minute {
		if i.off != nil && i.off(since) {
			was = true
			continue
		}
		if was {
			e = newEvaluator(t, db)
		}
		e.evalDue(t, incidentBegin(), since)
		if was {
			for _, g := range e.groups {
				g.RestoreForState(incidentBegin().Add(since))
			}
		}
		was = false
		for _, alert := range e.firing() {
			fired[alert] = append(fired[alert], int(since.Minutes()))
		}
	}
	var list []string
	for _, alert := range slices.Sorted(maps.Keys(fired)) {
		list = append(list, alert+": "+spans(fired[alert]))
	}
	i.keep(t, db)
	_ = db.Close()
	runtime.GC()
	return list
}

// keep writes the storage and the expected words for scripts/render.sh.
func (i incident) keep(t *testing.T, db *tsdb.DB) {
	t.Helper()
	if *keep == "" {
		return
	}
	dir := filepath.Join(*keep, strings.ReplaceAll(i.name, " ", "-"))
	err := os.MkdirAll(dir, 0o755)
	for name, text := range map[string]string{"first": strings.Join(i.first, "\n") + "\n",
		"to": fmt.Sprintln(incidentBegin().Add(minutes(i.seen)).Unix())} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	if err := errors.Join(err, db.Snapshot(filepath.Join(dir, "data"), true)); err != nil {
		t.Fatal(err)
	}
}

// evalDue evaluates the groups whose interval has passed.
func (e *evaluator) evalDue(t *testing.T, begin time.Time, since time.Duration) {
	t.Helper()
	all := e.groups
	defer func() { e.groups = all }()
	e.groups = nil
	for _, g := range all {
		if (since+time.Minute)%g.Interval() == 0 {
			e.groups = append(e.groups, g)
		}
	}
	e.eval(t, begin.Add(since))
}

// spans formats minutes as 3-20,31-40.
func spans(minutes []int) string {
	var list []string
	for i := 0; i < len(minutes); {
		j := i
		for j+1 < len(minutes) && minutes[j+1] == minutes[j]+1 {
			j++
		}
		list = append(list, fmt.Sprintf("%d-%d", minutes[i], minutes[j]))
		i = j + 1
	}
	return strings.Join(list, ",")
}

func minutes(n int) time.Duration { return time.Duration(n) * time.Minute }

// between reports whether a time is in [from, to) minutes.
func between(since time.Duration, from, to int) bool {
	return since >= minutes(from) && since < minutes(to)
}

// TestIncidents checks all alerts of ten incidents, which docs/alerts.md lists. -long uses 1,000 nodes.
func TestIncidents(t *testing.T) {
	nodes := 60
	if *long {
		nodes = 1000
	}
	for _, i := range incidents(nodes) {
		t.Run(i.name, func(t *testing.T) {
			start := time.Now()
			got := i.run(t, nodes)
			t.Logf("%d nodes, %v:\n  %s", nodes, time.Since(start).Round(time.Second/10), strings.Join(got, "\n  "))
			if !slices.Equal(got, i.told) {
				t.Errorf("want\n  %s", strings.Join(i.told, "\n  "))
			}
		})
	}
}
