package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/railscope/railscope/bench"
	"github.com/railscope/railscope/internal/statussock"
	"github.com/railscope/railscope/probe"
)

const (
	pathBench    = "/-/bench"
	outcomeField = "X-Railscope-Outcome" // of the answer: that of the round
	benchTime    = 30 * time.Second
	maxBench     = 1 << 20 // bytes of its output
)

// benchHandler runs a round of the demo, whose rails exist in its process only, and answers with what bench prints.
func benchHandler(node *probe.Node, opts probe.Options) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ask := r.URL.Query()
		res := probe.Bench(r.Context(), node, opts, ask.Get("peer"), func(probe.Progress) {})
		color, _ := strconv.ParseBool(ask.Get("color")) // no color otherwise
		var out bytes.Buffer
		if err := writeRound(&out, ask.Get("format"), res, bench.Options{Simulated: true, Color: color}); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set(outcomeField, string(res.Outcome))
		_, _ = w.Write(out.Bytes()) // the client is gone
	})
}

// benchDemo asks the demo for a round, and prints it.
func (s *benchSettings) benchDemo(ctx context.Context, peer string, w io.Writer) error {
	ask := url.Values{"peer": {peer}, "format": {s.format}, "color": {strconv.FormatBool(page().Color)}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, statussock.URL+pathBench+"?"+ask.Encode(), nil)
	if err != nil {
		return err
	}
	answer, err := statussock.Client(s.socketDir(), benchTime).Do(req)
	if err != nil {
		return fmt.Errorf("ask railscope demo for a round: %w", err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxBench))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(strings.TrimSpace(string(body)))
	}
	if err != nil {
		return fmt.Errorf("ask railscope demo for a round: %w", err)
	}
	if _, err := w.Write(body); err != nil {
		return err
	}
	return benchError([]probe.Result{{Outcome: probe.Outcome(answer.Header.Get(outcomeField))}})
}
