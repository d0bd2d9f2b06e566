package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
)

// Prometheus asks the HTTP API of Prometheus, or of what has the same: Thanos, Mimir, VictoriaMetrics.
type Prometheus struct{ api v1.API }

// maxAnswer bounds one answer, in bytes.
const maxAnswer = 512 << 20

// NewPrometheus returns what asks the server at address. httpConfig is a file as promtool has it (--http.config.file),
// with credentials and TLS; empty: neither.
func NewPrometheus(address, httpConfig string) (*Prometheus, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, errors.New("not a URL, such as http://prometheus:9090") // err would repeat a password
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, errors.New("want a URL such as http://prometheus:9090")
	case u.User != nil:
		return nil, errors.New("credentials in a URL are seen in lists of processes: write them into the file of " +
			"--http.config.file (basic_auth, authorization)")
	}
	cfg := &config.DefaultHTTPClientConfig
	if httpConfig != "" {
		if cfg, _, err = config.LoadHTTPConfigFile(httpConfig); err != nil {
			return nil, fmt.Errorf("--http.config.file: %w", err)
		}
	}
	transport, err := config.NewRoundTripperFromConfig(*cfg, "railscope_fleet", config.WithUserAgent("railscope"))
	if err != nil {
		return nil, fmt.Errorf("--http.config.file: %w", err)
	}
	client, err := api.NewClient(api.Config{Address: address, RoundTripper: bounded{transport}})
	if err != nil {
		return nil, err
	}
	return &Prometheus{v1.NewAPI(client)}, nil
}

// bounded ends answers that are too long.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(req)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	return resp, err
}

// Ask evaluates an expression at one moment.
func (p *Prometheus) Ask(ctx context.Context, expr string, at time.Time) (model.Vector, error) {
	value, _, _, err := p.api.Query(ctx, expr, at)
	if tooLong, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, fmt.Errorf("the answer is longer than %d MiB: ask for one cluster by --selector", tooLong.Limit>>20)
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
