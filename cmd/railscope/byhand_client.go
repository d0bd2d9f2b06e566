package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/version"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/serve"
	"github.com/railscope/railscope/internal/statussock"
	"github.com/railscope/railscope/probe"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// maxRound limits the answer of an interactive round, in bytes.
const maxRound = 64 << 20

// errOther is returned when the running railscope does not make the round, so that this process must. Always
// wrapped.
var errOther = errors.New("the railscope that runs on this node does not ask it")

// byHand is an interactive round with a peer.
type byHand struct {
	*common
	cfg    *config.Config
	opts   options.Options // options if this process makes the round
	ask    serve.BenchAsk  // request if the running railscope makes it
	logger *slog.Logger

	node  *probe.Node // node of this process; nil: not needed yet
	alone error       // reason why the running railscope does not make the round; nil: it was not asked
}

// hasSecret reports whether a command has its own credentials for a peer. If so, it asks the peer itself.
func hasSecret(s options.Security) bool { return s.TokenFile != "" || s.CertFile != "" }

// round makes the round by the railscope that runs here, which has the token, or by this process while that
// railscope keeps its slot free. simulated reports that the rails are the demo's.
func (h *byHand) round(ctx context.Context, progress func(result.Progress)) (res result.Result, simulated bool,
	err error) {
	if h.node == nil && !hasSecret(h.opts.Security) {
		res, simulated, err = h.remote(ctx, progress)
		if !errors.Is(err, errOther) {
			return res, simulated, err
		}
		h.alone = err
	}
	h.open()
	release, err := h.hold(ctx)
	if err != nil {
		return res, false, err
	}
	defer func() { release(h.node.AllOwnTraffic()) }()
	res = probe.Bench(ctx, h.node, h.opts, h.ask.Peer, progress)
	if h.alone != nil && res.Reason == unauthorized {
		res.Detail += withoutToken(h.alone)
		res.Failures = slices.Clone(res.Failures)
		for i := range res.Failures {
			if res.Failures[i].Reason == unauthorized {
				res.Failures[i].Detail += withoutToken(h.alone)
			}
		}
	}
	return res, false, nil
}

func (h *byHand) close() {
	if h.node != nil {
		h.node.Close()
	}
}

const unauthorized result.Reason = "unauthorized"

// withoutToken returns the end of a failure's detail: what to do when a peer requires a token, and why the running
// railscope does not ask the peer.
func withoutToken(why error) string {
	const give = "give --token-file=FILE, the probe.token_file of both nodes"
	switch {
	case errors.Is(why, os.ErrPermission):
		return "; run this command as root or as the user of the railscope that runs here, which has one, or " + give
	case errors.Is(why, statussock.ErrNotRunning):
		return "; " + give + ", or --config.file=FILE with the configuration of railscope serve"
	}
	return "; " + give + " (" + why.Error() + ")"
}

// remote asks the running railscope for the round.
func (h *byHand) remote(ctx context.Context, progress func(result.Progress)) (res result.Result, simulated bool,
	err error) {
	ask := h.ask
	if until, ok := ctx.Deadline(); ok {
		ask.Most = max(time.Until(until)-time.Second, time.Second)
	}
	answer, err := h.askRunning(ctx, http.MethodPost, serve.PathBench, ask, serve.MaxHold)
	switch {
	case err != nil && ctx.Err() != nil:
		return interrupted(h.ask.Peer), false, nil
	case err != nil:
		return res, false, err
	}
	defer answer.Body.Close()
	for from := json.NewDecoder(io.LimitReader(answer.Body, maxRound)); ; {
		var line serve.BenchLine
		err := from.Decode(&line)
		switch {
		case err != nil && ctx.Err() != nil:
			return interrupted(h.ask.Peer), false, nil
		case err != nil:
			return res, false, fmt.Errorf("the railscope that runs on this node ended the round: %w", err)
		case line.Progress != nil:
			progress(*line.Progress)
		case line.Result != nil:
			_, _ = io.Copy(io.Discard, answer.Body) // drains the body, so that the connection ends in order
			return *line.Result, line.Simulated, nil
		}
	}
}

// plans returns what rounds with each of the lists of extras would need.
func (h *byHand) plans(ctx context.Context, lists [][]result.Extra) (plans result.Plans, err error) {
	if h.node == nil && !hasSecret(h.opts.Security) {
		ask := h.ask
		ask.Plans = lists
		var line serve.BenchLine
		answer, err := h.askRunning(ctx, http.MethodPost, serve.PathBench, ask, serve.FactsTime)
		if err == nil {
			defer answer.Body.Close()
			err = json.NewDecoder(io.LimitReader(answer.Body, maxRound)).Decode(&line)
		}
		switch {
		case err == nil && line.Failure != nil:
			return plans, line.Failure
		case err == nil && line.Plans != nil:
			return *line.Plans, nil
		case !errors.Is(err, errOther):
			return plans, cmp.Or(err, errors.New("the railscope that runs on this node has no plans"))
		}
		h.alone = err
	}
	h.open()
	return probe.BenchPlans(ctx, h.node, h.opts, h.ask.Peer, lists)
}

// open opens the node of this process, once.
func (h *byHand) open() {
	if h.node == nil {
		host := h.host(h.cfg, serve.GatherBudget)
		h.node = host.ProbeNode(host.Baselines(), host.Gatherer(nil), nil, h.logger)
	}
}

// interrupted returns the result of a round that its command has stopped.
func interrupted(peer string) result.Result {
	return result.Result{Peer: peer, Start: time.Now(), Outcome: result.Skipped, Transport: result.NoTransport,
		Reason: "canceled", Detail: "interrupted"}
}

// askRunning sends a request to the railscope that runs here. Its error wraps errOther if none answers that could
// make the round.
func (c *common) askRunning(ctx context.Context, method, path string, body any, limit time.Duration) (*http.Response,
	error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, statussock.URL+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	req.Header.Set(serve.VersionField, version.Version)
	answer, err := statussock.Client(c.socketDir(), limit).Do(req)
	if none := alone(err); none != nil {
		return nil, errors.Join(errOther, none)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the railscope that runs on this node: %w", err)
	}
	if answer.StatusCode == http.StatusOK {
		return answer, nil
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 4<<10)) // an error leaves the part that has arrived
	err = fmt.Errorf("the railscope that runs on this node: %s", strings.TrimSpace(string(text)))
	switch answer.StatusCode {
	case http.StatusNotFound, http.StatusPreconditionFailed: // the node is not a peer, or the versions differ
		err = fmt.Errorf("%w: %w", errOther, err)
	}
	return nil, err
}

// hold makes the running railscope keep its slot free until release is called with all bytes that this process has
// moved. If none answers, nothing is held.
func (h *byHand) hold(ctx context.Context) (release func(probe.OwnBytes), err error) {
	before := h.node.AllOwnTraffic()
	held, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	answer, err := h.askRunning(held, http.MethodPost, serve.PathHold, nil, serve.MaxHold)
	if err == nil {
		var line serve.HeldLine
		if err = json.NewDecoder(answer.Body).Decode(&line); err == nil {
			h.opts.Name = cmp.Or(h.opts.Name, line.Node)
		} else if errors.Is(err, io.EOF) {
			err = nil // the running railscope has no probe, so no slot
		}
	}
	if !stop() || err != nil {
		cancel()
		if errors.Is(err, errOther) || ctx.Err() != nil {
			err = nil
		}
		return func(probe.OwnBytes) {}, err
	}
	return func(all probe.OwnBytes) {
		own := probe.OwnBytes{}
		for key, sum := range all {
			for d := range sum.All {
				sum.All[d] -= before[key].All[d]
				sum.TCP[d] -= before[key].TCP[d]
			}
			own[key] = sum
		}
		note, cancelNote := context.WithTimeout(held, serve.LineTime)
		defer cancelNote()
		if noted, err := h.askRunning(note, http.MethodPost, serve.PathOwn, own, serve.LineTime); err == nil {
			noted.Body.Close()
		}
		answer.Body.Close()
		cancel()
	}, nil
}

// factsOf returns the facts of a peer, asked by the railscope that runs here, or by this process.
func (c *common) factsOf(ctx context.Context, peer string, security options.Security) (*facts.Facts, error) {
	if hasSecret(security) {
		return fetchFacts(ctx, peer, security)
	}
	answer, err := c.askRunning(ctx, http.MethodGet, serve.PathFacts+"?peer="+url.QueryEscape(peer), nil,
		serve.FactsTime)
	if errors.Is(err, errOther) {
		got, failed := fetchFacts(ctx, peer, security)
		if f, ok := errors.AsType[*result.Failure](failed); ok && f.Reason == unauthorized {
			f.Detail += withoutToken(err)
		}
		return got, failed
	}
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var got serve.PeerFacts
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxRound)).Decode(&got); err != nil {
		return nil, fmt.Errorf("ask the railscope that runs on this node: %w", err)
	}
	switch {
	case got.Failure != nil:
		return nil, got.Failure
	case got.Error != "":
		return nil, errors.New(got.Error)
	}
	return parseFacts(got.Node, got.Facts)
}
