package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
)

// Limits of the facts that this node reports to a peer's doctor: how long they may be gathered, and for how long they
// are answered again. Gathering costs a thousand reads.
const (
	factsTime      = 10 * time.Second
	factsCacheTime = 5 * time.Second
)

// ErrNoFacts is that the peer's railscope is too old to report facts.
var ErrNoFacts = errors.New("the peer's railscope does not support this question")

// FetchFacts asks a peer, host:port, for its name and its facts: unchecked JSON of its NodeOptions.Facts, up to 1 MiB.
// A peer that is too old fails with [ErrNoFacts], wrapped with its version, any other with a [*Failure].
func FetchFacts(ctx context.Context, peer string, sec Security) (node string, facts []byte, err error) {
	c, err := newClient(peer, credentials{sec, newSecretFiles()})
	if err != nil {
		return "", nil, err
	}
	defer c.close()
	h, err := c.hello(ctx) // first, for its clear errors
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	res, err := c.roundTrip(ctx, request{failure.StageHello, http.MethodGet, pathFacts, []byte("{}"), false})
	switch {
	case err != nil:
		return h.Node, nil, err
	case res.StatusCode == http.StatusNotFound:
		return h.Node, nil, fmt.Errorf("%w: it is version %s", ErrNoFacts, h.Versions.Railscope)
	case res.StatusCode != http.StatusOK:
		return h.Node, nil, responseFailure(failure.StageHello, res.Response, res.body[:min(len(res.body), 4096)])
	case !json.Valid(res.body):
		return h.Node, nil, failure.New(failure.StageHello, failure.Protocol, "the facts are not JSON: %.40q", res.body)
	}
	return h.Node, res.body, nil
}

// facts are those that this node last reported. One gathering runs at a time, and its result, also an error, is kept
// for a while: peers that ask often cost no more than one that asks now and then.
type facts struct {
	gather func(context.Context) ([]byte, error)

	lock chan struct{} // holds one while somebody gathers; protects all following fields
	at   time.Time     // when the last gathering ended
	data []byte
	err  error
}

func (f *facts) get(ctx context.Context) ([]byte, error) {
	select {
	case f.lock <- struct{}{}:
		defer func() { <-f.lock }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !f.at.IsZero() && time.Since(f.at) < factsCacheTime {
		return f.data, f.err
	}
	// After an asker that hangs up, the next one does not gather again.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), factsTime)
	defer cancel()
	f.data, f.err = f.gather(ctx)
	if f.err == nil && len(f.data) > maxBody {
		f.data, f.err = nil, fmt.Errorf("%d bytes of facts: the limit is %d", len(f.data), maxBody)
	}
	f.at = time.Now()
	return f.data, f.err
}

// serveFacts answers with this node's facts, but only to authenticated peers: facts say what runs here.
func (r *Responder) serveFacts(w http.ResponseWriter, req *http.Request) {
	switch {
	case r.node.facts.gather == nil:
		write(w, http.StatusNotFound, failure.New(failure.StageHello, failure.Protocol, "this node reports no facts"))
		return
	case r.opts.Security.TokenFile == "" && r.opts.Security.ClientCAFile == "":
		write(w, http.StatusForbidden, failure.New(failure.StageHello, failure.Unauthorized,
			"the peer answers anyone (insecure: true), so it does not report what runs on it: give both ends a "+
				"token_file"))
		return
	}
	data, err := r.node.facts.get(req.Context())
	if err != nil {
		write(w, http.StatusInternalServerError, failure.New(failure.StageHello, failure.Other,
			"the peer cannot gather its facts: %v", err))
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(requestTime))
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // on an error the asker is gone
}
