package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/railscope/railscope/internal/nodefact"
)

// changeSteps is the number of times between the two at which it is asked when something changed.
const changeSteps = 32

// AskDrift asks for what nodes have now and, unless since is zero, for what has changed since then. selector has label
// matchers, such as cluster="a", or is empty. A question about a time between that is not answered makes the times of
// changes less exact. A change that was undone meanwhile is not found.
func AskDrift(ctx context.Context, selector string, now, since time.Time, ask Asker) (Drift, error) {
	facts, err := askFacts(ctx, selector, nil, now, ask)
	if err != nil {
		return Drift{}, err
	}
	d := FindDrift(facts)
	d.Time = now.UTC()
	if since.IsZero() {
		return d, nil
	}
	first, err := askFacts(ctx, selector, nil, since, ask)
	if err == nil && len(first) == 0 {
		err = errors.New("no facts: choose a later time")
	}
	if err != nil {
		d.Failed = append(d.Failed, fmt.Sprintf("at %s: %v", since.UTC().Format(time.RFC3339), err))
		return d, nil
	}
	ends := []Snapshot{{since, first}, {now, facts}}
	subjects := map[string]bool{}
	for _, c := range FindChanges(ends) {
		subjects[nodefact.Whole(c.Subject)] = true
	}
	if len(subjects) == 0 {
		return d, nil
	}
	snapshots := ends[:1]
	for i := 1; i < changeSteps && ctx.Err() == nil; i++ {
		at := since.Add(now.Sub(since) * time.Duration(i) / changeSteps)
		between, err := askFacts(ctx, selector, slices.Sorted(maps.Keys(subjects)), at, ask)
		if err != nil {
			d.Failed = append(d.Failed, fmt.Sprintf("at %s: %v", at.UTC().Format(time.RFC3339), err))
			continue
		}
		snapshots = append(snapshots, Snapshot{at, between})
	}
	d.Changes = FindChanges(append(snapshots, Snapshot{now, facts}))
	return d, nil
}

// askFacts asks for the facts of subjects, or of all if there are none.
func askFacts(ctx context.Context, selector string, subjects []string, at time.Time, ask Asker) (NodeFacts, error) {
	var matchers []string
	if len(subjects) > 0 {
		matchers = append(matchers, fmt.Sprintf(`subject=~"%s"`, strings.Join(subjects, "|")))
	}
	if selector != "" {
		matchers = append(matchers, selector)
	}
	answer, err := ask(ctx, `max by (cluster, node, instance, subject, value) (railscope_node_fact_info{`+
		strings.Join(matchers, ",")+`})`, at)
	if err != nil {
		return nil, err
	}
	return factsOf(answer), nil
}

// factsOf returns the facts of an answer. A subject with two values, as after a restart, is unknown.
func factsOf(answer model.Vector) NodeFacts {
	facts, twice := NodeFacts{}, map[Node]map[string]bool{}
	for _, s := range answer {
		if s == nil {
			continue
		}
		n := NodeOf(s)
		if facts[n] == nil {
			facts[n], twice[n] = map[string]string{}, map[string]bool{}
		}
		fact := nodefact.Fact{Subject: string(s.Metric["subject"]), Value: string(s.Metric["value"])}
		for _, part := range fact.Parts() {
			if was, known := facts[n][part.Subject]; known && was != part.Value {
				twice[n][part.Subject] = true
			}
			facts[n][part.Subject] = part.Value
		}
	}
	for n, subjects := range twice {
		for subject := range subjects {
			delete(facts[n], subject)
		}
	}
	return facts
}
