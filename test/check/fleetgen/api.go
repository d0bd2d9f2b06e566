package fleetgen

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
)

// API answers instant queries on a storage as Prometheus' /api/v1/query does, at one fixed time. It is an
// http.Handler.
type API struct {
	storage storage.Queryable
	engine  *promql.Engine
	now     time.Time
}

// NewAPI returns an API. It must be closed.
func NewAPI(s storage.Queryable, now time.Time) *API {
	return &API{s, promql.NewEngine(promql.EngineOpts{MaxSamples: 1e7, Timeout: time.Minute, LookbackDelta: lookback,
		Parser: parser.NewParser(parser.Options{})}), now}
}

// Close frees the engine.
func (a *API) Close() error { return a.engine.Close() }

// Ask evaluates an instant query.
func (a *API) Ask(ctx context.Context, expr string, at time.Time) (model.Vector, error) {
	q, err := a.engine.NewInstantQuery(ctx, a.storage, nil, expr, at)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	vector, err := q.Exec(ctx).Vector()
	if err != nil {
		return nil, err
	}
	out := model.Vector{}
	for _, one := range vector {
		m := model.Metric{}
		one.Metric.Range(func(l labels.Label) { m[model.LabelName(l.Name)] = model.LabelValue(l.Value) })
		out = append(out, &model.Sample{Metric: m, Value: model.SampleValue(one.F), Timestamp: model.Time(one.T)})
	}
	return out, nil
}

// ServeHTTP answers /api/v1/query.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	vector, err := a.Ask(r.Context(), r.FormValue("query"), a.now)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "error", "errorType": "bad_data", "error": err.Error()})
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"resultType": "vector",
		"result": vector}})
}
