// Package ruleeval evaluates the shipped rules with Prometheus' own engine.
package ruleeval

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"

	ours "github.com/railscope/railscope/deploy/rules"
)

// Storage is what rules read and write.
type Storage interface {
	storage.Appendable
	storage.Queryable
}

// Rules are the shipped rules for a storage.
type Rules struct {
	Groups []*rules.Group // in the order of the files
	engine *promql.Engine
}

// New loads the rules of a directory. They must be closed.
func New(ctx context.Context, s Storage, dir string) (*Rules, error) {
	p := parser.NewParser(parser.Options{})
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e8, Timeout: 10 * time.Minute,
		LookbackDelta: 5 * time.Minute, Parser: p})
	m := rules.NewManager(&rules.ManagerOptions{QueryFunc: rules.EngineQueryFunc(engine, s), Appendable: s,
		Queryable: s, Context: ctx, Parser: p, Logger: promslog.NewNopLogger(),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}})
	var files []string
	for _, name := range ours.Sources() {
		files = append(files, filepath.Join(dir, name))
	}
	loaded, errs := m.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, files...)
	ordered, err := ours.LoadGroups(dir)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	byName := map[string]*rules.Group{}
	for _, g := range loaded {
		byName[g.Name()] = g
		for _, r := range g.Rules() {
			if a, ok := r.(*rules.AlertingRule); ok {
				a.SetRestored(true)
			}
		}
	}
	r := &Rules{engine: engine}
	for _, g := range ordered {
		r.Groups = append(r.Groups, byName[g.Name])
	}
	return r, nil
}

// Close frees the engine.
func (r *Rules) Close() error { return r.engine.Close() }

// Eval evaluates the groups whose interval divides the time since start, and returns the errors of rules.
func (r *Rules) Eval(ctx context.Context, start, at time.Time) error {
	var errs []error
	for _, g := range r.Groups {
		if at.Sub(start)%g.Interval() != 0 {
			continue
		}
		g.Eval(ctx, at)
		for _, rule := range g.Rules() {
			if err := rule.LastError(); err != nil {
				errs = append(errs, fmt.Errorf("%s at %v: %w", rule.Name(), at, err))
			}
		}
	}
	return errors.Join(errs...)
}
