package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/railscope/railscope/internal/httpclient"
)

// Prometheus queries the HTTP API of Prometheus, or of a compatible server: Thanos, Mimir, VictoriaMetrics.
type Prometheus struct{ api v1.API }

// maxAnswer bounds one response, in bytes.
const maxAnswer = 512 << 20

// NewPrometheus returns a client for the server at address. httpConfig is a file with credentials and TLS in promtool's
// format (--http.config.file), or empty.
func NewPrometheus(address, httpConfig string) (*Prometheus, error) {
	if _, err := httpclient.Address(address, "http://prometheus:9090", "--http.config.file"); err != nil {
		return nil, err
	}
	transport, err := httpclient.Transport(httpConfig, maxAnswer)
	if err != nil {
		return nil, fmt.Errorf("--http.config.file: %w", err)
	}
	client, err := api.NewClient(api.Config{Address: address, RoundTripper: transport})
	if err != nil {
		return nil, err
	}
	return &Prometheus{v1.NewAPI(client)}, nil
}

// Ask evaluates an expression at one point in time.
func (p *Prometheus) Ask(ctx context.Context, expr string, at time.Time) (model.Vector, error) {
	value, _, _, err := p.api.Query(ctx, expr, at)
	if httpclient.TooLong(err) {
		return nil, fmt.Errorf("the answer is longer than %d MiB: ask for one cluster by --selector", maxAnswer>>20)
	}
	if err != nil {
		return nil, err
	}
	vector, ok := value.(model.Vector)
	if !ok {
		return nil, fmt.Errorf("the answer is a %s, not a vector", value.Type())
	}
	return vector, nil
}
