// Package prometheus asks the HTTP API of Prometheus.
package prometheus

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/railscope/railscope/internal/httpclient"
)

// Client queries the HTTP API of Prometheus, or of a compatible server: Thanos, Mimir, VictoriaMetrics. It must not be
// used by several goroutines at once.
type Client struct {
	query  *url.URL
	http   http.Client
	series *series
}

// maxAnswer bounds one response, in bytes.
const maxAnswer = 512 << 20

// NewClient returns a client for the server at address. httpConfig is a file with credentials and TLS in promtool's
// format (--http.config.file), or empty.
func NewClient(address, httpConfig string) (*Client, error) {
	base, err := httpclient.Address(address, "http://prometheus:9090", "--http.config.file")
	if err != nil {
		return nil, err
	}
	transport, err := httpclient.Transport(httpConfig, maxAnswer)
	if err != nil {
		return nil, fmt.Errorf("--http.config.file: %w", err)
	}
	return &Client{base.JoinPath("api/v1/query"), http.Client{Transport: transport}, newSeries()}, nil
}

// Ask evaluates an expression at one point in time. Series with equal labels share one [model.Metric], also those of
// several answers, so callers must not change them. An answer that its server calls incomplete is an error.
func (c *Client) Ask(ctx context.Context, expr string, at time.Time) (model.Vector, error) {
	seconds := strconv.FormatFloat(float64(at.UnixMilli())/1e3, 'f', -1, 64)
	resp, err := c.post(ctx, url.Values{"query": {expr}, "time": {seconds}}.Encode())
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // what was wanted of it is read
	vector, err := c.series.decode(resp.Body, model.TimeFromUnixNano(at.UnixNano()))
	switch {
	case httpclient.TooLong(err):
		return nil, fmt.Errorf("the answer is longer than %d MiB: ask for one cluster by --selector", maxAnswer>>20)
	case resp.StatusCode/100 != 2 && (err == nil || !isReported(err)): // a proxy's page, or nothing
		return nil, fmt.Errorf("HTTP status %s", resp.Status)
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return vector, err
}

// post sends a query in the body, because it may be longer than a URL may be; in the URL if that is not allowed.
func (c *Client) post(ctx context.Context, form string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.query.String(), strings.NewReader(form))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	switch resp.StatusCode {
	case http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusNotImplemented:
	default:
		return resp, nil
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16)) // the connection can be used again
	_ = resp.Body.Close()
	withQuery := *c.query
	withQuery.RawQuery = form
	req, err = http.NewRequestWithContext(ctx, http.MethodGet, withQuery.String(), nil)
	if err != nil {
		return nil, err
	}
	return c.http.Do(req)
}
