// Package otlp pushes the series of a scrape to a receiver of OpenTelemetry's protocol, OTLP over HTTP. ADR 25
// explains why it does not use the exporter of OpenTelemetry's SDK.
package otlp

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/httpclient"
	"github.com/railscope/railscope/internal/terminal"
)

const (
	path      = "/v1/metrics" // path at every receiver (OTLP specification, OTLP/HTTP request)
	maxAnswer = 64 << 10      // bytes
	maxWhy    = 300           // bytes of a response in an error
	answerIn  = 10 * time.Second
)

// Results of a push.
const (
	success = "success"
	partial = "partial"
	failure = "failure"
)

// Options configure a [Pusher].
type Options struct {
	Endpoint   string        // URL of the receiver, with or without /v1/metrics
	ConfigFile string        // credentials and TLS for it, in the form of promtool's --http.config.file; empty: neither
	Interval   time.Duration // time between two pushes, at least 1 s
	Node       string        // the resource's service.instance.id, which Prometheus stores as the label instance
	Version    string        // version of railscope
	Logger     *slog.Logger
}

// Pusher pushes series. As a [collector.Source] it exports the number of pushes by result.
type Pusher struct {
	opts     Options
	url      string
	client   *http.Client
	resource map[string]string

	collector.Table
	pushes *collector.Metric
	counts map[string]*atomic.Uint64 // pushes by result
}

// New returns a pusher. Its error says which option is invalid.
func New(o Options) (*Pusher, error) {
	if o.Interval < time.Second {
		return nil, fmt.Errorf("--otlp.interval must be 1s or more, such as 15s, not %v", o.Interval)
	}
	u, err := httpclient.Address(o.Endpoint, "http://collector:4318", "--otlp.http.config.file")
	if err != nil {
		return nil, fmt.Errorf("--otlp.endpoint: %w", err)
	}
	if !strings.HasSuffix(u.Path, path) {
		u = u.JoinPath(path)
	}
	transport, err := httpclient.Transport(o.ConfigFile, maxAnswer)
	if err != nil {
		return nil, fmt.Errorf("--otlp.http.config.file: %w", err)
	}
	p := &Pusher{opts: o, url: u.String(), client: &http.Client{Transport: transport},
		counts: map[string]*atomic.Uint64{},
		resource: map[string]string{"service.name": "railscope", "service.instance.id": o.Node, "host.name": o.Node,
			"service.version": o.Version}}
	for _, result := range []string{success, partial, failure} {
		p.counts[result] = new(atomic.Uint64)
	}
	p.pushes = p.Group("exporter/otlp/push.go").With("result").
		Counter("otlp_pushes_total", "Pushes to --otlp.endpoint by result. success: the receiver took all series. "+
			"partial: it refused some of them. failure: it took none, and the log says why; the next push has the "+
			"counters' newer values.")
	return p, nil
}

// Name implements [collector.Source].
func (p *Pusher) Name() string { return "otlp" }

// Read implements [collector.Source].
func (p *Pusher) Read(emit func(collector.Sample)) error {
	for result, n := range p.counts {
		emit(collector.Sample{Metric: p.pushes, Labels: []string{result}, Value: float64(n.Load())})
	}
	return nil
}

// Run pushes what series gathers, once per interval until ctx is done. It starts at a random time within the first
// interval, because the nodes of a cluster may start together.
func (p *Pusher) Run(ctx context.Context, series prometheus.Gatherer) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(rand.N(p.opts.Interval)): //nolint:gosec // no secret
	}
	tick := time.NewTicker(p.opts.Interval)
	defer tick.Stop()
	for last := success; ; {
		err := p.push(ctx, series)
		if ctx.Err() != nil {
			return
		}
		now := result(err)
		p.counts[now].Add(1)
		if now != last { // errors contain the connection's local port: each would be a different line
			p.log(err)
			last = now
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (p *Pusher) log(err error) {
	switch result(err) {
	case partial:
		p.opts.Logger.Warn("OTLP receiver refused a part of the series (logged once)", "url", p.url, "err", err)
	case failure:
		p.opts.Logger.Warn("OTLP push failed, the next one has newer values (logged once)", "url", p.url, "err", err)
	default:
		p.opts.Logger.Info("OTLP push succeeded again", "url", p.url)
	}
}

func result(err error) string {
	switch {
	case err == nil:
		return success
	case errors.As(err, new(partialError)):
		return partial
	}
	return failure
}

// push gathers all series and sends them once: a failed push is not repeated.
func (p *Pusher) push(ctx context.Context, series prometheus.Gatherer) error {
	at := time.Now()
	families, err := series.Gather()
	if err != nil {
		return err
	}
	raw, err := proto.Marshal(request(p.resource, p.opts.Version, families, at))
	if err != nil {
		return err
	}
	var body bytes.Buffer
	zip := gzip.NewWriter(&body)
	_, _ = zip.Write(raw) // a buffer never fails
	_ = zip.Close()
	ctx, cancel := context.WithTimeout(ctx, min(p.opts.Interval, answerIn))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, &body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("Content-Encoding", "gzip")
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return &url.Error{Op: "Post", URL: p.url, Err: fmt.Errorf("read the answer: %w", err)}
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("post %q: %s: %s", p.url, resp.Status, cmp.Or(shortened(string(answer)), "no reason given"))
	}
	return refused(answer)
}

func shortened(s string) string {
	s = strings.Join(strings.Fields(terminal.Plain(s)), " ")
	return strings.ToValidUTF8(s[:min(len(s), maxWhy)], "")
}

// partialError is returned if the receiver refused some series.
type partialError struct {
	points int64
	why    string
}

func (e partialError) Error() string {
	return fmt.Sprintf("the receiver refused %d series: %s", e.points, shortened(e.why))
}

// refused parses a response, an ExportMetricsServiceResponse. Its field 1, partial_success, has the number of refused
// points and the reason (opentelemetry/proto/collector/metrics/v1/metrics_service.proto). A reason without refused
// points is a warning, not an error. Any other response is ignored: the receiver accepted the series.
func refused(answer []byte) error {
	var e partialError
	fields(answer, func(n protowire.Number, _ uint64, of []byte) {
		if n != 1 {
			return
		}
		fields(of, func(n protowire.Number, v uint64, b []byte) {
			switch n {
			case 1:
				e.points = int64(v) //nolint:gosec // int64 on the wire
			case 2:
				e.why = string(b)
			}
		})
	})
	if e.points <= 0 {
		return nil
	}
	return e
}

// fields calls each with the numbers and byte strings of a message, up to the first invalid field.
func fields(message []byte, each func(n protowire.Number, v uint64, b []byte)) {
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return
		}
		message = message[size:]
		var v uint64
		var b []byte
		switch kind {
		case protowire.VarintType:
			v, size = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			b, size = protowire.ConsumeBytes(message)
		default:
			size = protowire.ConsumeFieldValue(n, kind, message)
		}
		if size < 0 {
			return
		}
		message = message[size:]
		each(n, v, b)
	}
}
