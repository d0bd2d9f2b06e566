package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// query is one query to Prometheus. %[1]s is the user's selector.
type query struct {
	name string
	expr string
	add  func(*reader, *model.Sample)
}

// queries returns all queries, those whose answers name nodes first.
func queries() []query {
	const by = "by (cluster, node, instance"
	list := []query{
		{"up", `min ` + by + `, rack) (up{job=~".*railscope.*"%s})`, (*reader).addUp},
		{"transport", `max ` + by + `, peer, transport) (railscope_probe_transport{%s} == 1)`, (*reader).addTransport},
		{"rail_up", `min ` + by + `, peer, rail) (railscope_probe_rail_up{%s})`, (*reader).addRailUp},
		{"goodput", `max ` + by + `, peer, rail) (railscope_probe_rail_goodput_bytes_per_second{mode="solo"%s})`,
			func(r *reader, s *model.Sample) { r.round(s, func(one *Round, v float64) { one.Goodput = v }) }},
		{"expected", `max ` + by + `, peer, rail) (railscope_probe_rail_expected_bytes_per_second{%s})`,
			func(r *reader, s *model.Sample) { r.round(s, func(one *Round, v float64) { one.Expected = v }) }},
		{"retransmits", `sum ` + by + `, peer, rail) (increase(railscope_probe_rail_retransmits_total{%s}[30m]))`,
			func(r *reader, s *model.Sample) { r.round(s, func(one *Round, v float64) { one.Retransmits = v }) }},
		{"port_up", `min ` + by + `, rail) (railscope_port_up{%s})`,
			func(r *reader, s *model.Sample) { r.state.PortUp[r.rail(s)] = s.Value == 1 }},
		{"loopback", `max ` + by + `, rail) (railscope_probe_loopback_goodput_bytes_per_second{%s})`,
			func(r *reader, s *model.Sample) { r.state.Loopback[r.rail(s)] = float64(s.Value) }},
		{"leaf", `max ` + by + `, rail, leaf) (railscope_rail_leaf_info{%s})`,
			func(r *reader, s *model.Sample) { r.state.Leaves[r.rail(s)] = string(s.Metric["leaf"]) }},
		{"gpu", `min ` + by + `, rail) (railscope_probe_gpu_ratio{%s})`,
			func(r *reader, s *model.Sample) { r.state.GPU[r.rail(s)] = float64(s.Value) }},
		// Seconds since a pair's last round that was not skipped; with an earlier version, since the last one.
		{questionAge, `time() - (max ` + by +
			`, peer) (railscope_probe_last_result_timestamp_seconds{%[1]s}) or max ` +
			by + `, peer) (railscope_probe_last_round_timestamp_seconds{%[1]s}))`, func(*reader, *model.Sample) {}},
		// Seconds since a pair's last burst: while jobs fill the rails, rounds make none.
		{questionBurst, `time() - max ` + by + `, peer) (railscope_probe_last_burst_timestamp_seconds{%s})`,
			(*reader).addBurst},
		{"rail_expected", `max ` + by + `, rail) (railscope_rail_expected_bytes_per_second{%s})`,
			func(r *reader, s *model.Sample) { r.expected[r.rail(s)] = float64(s.Value) }},
		{"peak", `max ` + by + `, rail, direction) (railscope_rail_peak_bytes_per_second{window="1s"%s})`,
			func(r *reader, s *model.Sample) { r.peak(s, func(p *peak, v float64) { p.rate = v }) }},
		{"peak_age", `time() - max ` + by +
			`, rail, direction) (railscope_rail_peak_timestamp_seconds{window="1s"%s})`,
			func(r *reader, s *model.Sample) { r.peak(s, func(p *peak, v float64) { p.age = v }) }},
	}
	for _, c := range errorCounters() {
		list = append(list, c.query(by))
	}
	return list
}

// Questions about ages.
const (
	questionAge   = "age"
	questionBurst = "burst_age"
)

// Answers maps queries by name to Prometheus' answers. A query without an answer is missing.
type Answers struct {
	Version int                     `json:"version"`
	Time    time.Time               `json:"time"` // time of the evaluation
	Answers map[string]model.Vector `json:"answers"`
	Failed  []string                `json:"failed"` // reasons of missing answers
}

// answersVersion is the version of the JSON form of [Answers].
const answersVersion = 1

// Asker sends a query to Prometheus, for one point in time.
type Asker func(ctx context.Context, expr string, at time.Time) (model.Vector, error)

// Ask sends all queries to Prometheus, for one point in time. selector has label matchers, such as cluster="a", or is
// empty. It fails only if no query is answered.
func Ask(ctx context.Context, selector string, at time.Time, ask Asker) (Answers, error) {
	a := Answers{Version: answersVersion, Time: at.UTC(), Answers: map[string]model.Vector{}, Failed: []string{}}
	var first error
	for _, q := range queries() {
		vector, err := ask(ctx, q.with(selector), at)
		if err != nil {
			if first == nil {
				first = err
			}
			a.Failed = append(a.Failed, fmt.Sprintf("%s: %v", q.name, err))
			if ctx.Err() != nil {
				break
			}
			continue
		}
		a.Answers[q.name] = vector
	}
	if len(a.Answers) == 0 {
		return a, first
	}
	return a, nil
}

func (q query) with(selector string) string {
	if selector != "" && !strings.Contains(q.expr, "{%s}") && !strings.Contains(q.expr, "{%[1]s}") {
		selector = ", " + selector
	}
	return fmt.Sprintf(q.expr, selector)
}

// maxAnswers bounds a saved file, in bytes: 10,000 nodes of 8 rails and 4 peers have 300 MB.
const maxAnswers = 1 << 30

// ReadAnswers reads the output of [Answers.Write].
func ReadAnswers(r io.Reader) (Answers, error) {
	var a Answers
	data, err := io.ReadAll(io.LimitReader(r, maxAnswers+1))
	switch {
	case err != nil:
		return a, err
	case len(data) > maxAnswers:
		return a, fmt.Errorf("larger than %d MiB: not saved answers", maxAnswers>>20)
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return a, fmt.Errorf("not saved answers: %w", err)
	}
	if a.Version != answersVersion {
		return a, fmt.Errorf("not saved answers of form %d: write them by railscope fleet --save", answersVersion)
	}
	return a, nil
}

// Write writes the answers for [ReadAnswers].
func (a Answers) Write(w io.Writer) error { return json.NewEncoder(w).Encode(a) }

// State returns the state that the answers describe. leaves may be nil.
func (a Answers) State(leaves Topology) State {
	r := &reader{state: NewState(), names: map[string]map[string]Node{}, peers: map[Node]Node{},
		rounds: map[uintptr]*Round{}, bursts: map[Pair]float64{}, peaks: map[flow]*peak{}, expected: map[Rail]float64{}}
	for _, q := range queries() {
		for _, s := range a.Answers[q.name] {
			r.nameNode(s)
		}
	}
	for _, q := range queries() {
		for _, s := range a.Answers[q.name] {
			if s != nil && !math.IsNaN(float64(s.Value)) {
				q.add(r, s)
			}
		}
	}
	r.prove(a.Time)
	slices.SortFunc(r.state.Errors, compareCounted)
	for path := range r.state.Rounds {
		if len(leaves) == 0 {
			break
		}
		for _, end := range path.ends() {
			if name := leaves.Of(end); name != "" {
				r.state.Leaves[end] = name
			}
		}
	}
	return r.state
}
