// Package prometheus asks the HTTP API of Prometheus.
package prometheus

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/railscope/railscope/internal/httpclient"
)

// Client queries the HTTP API of Prometheus, or of a compatible server: Thanos, Mimir, VictoriaMetrics.
type Client struct{ api v1.API }

// maxAnswer bounds one response, in bytes.
const maxAnswer = 512 << 20

// NewClient returns a client for the server at address. httpConfig is a file with credentials and TLS in promtool's
// format (--http.config.file), or empty.
func NewClient(address, httpConfig string) (*Client, error) {
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
	return &Client{v1.NewAPI(client)}, nil
}

// Ask evaluates an expression at one point in time.
func (c *Client) Ask(ctx context.Context, expr string, at time.Time) (model.Vector, error) {
	value, _, _, err := c.api.Query(ctx, expr, at)
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
