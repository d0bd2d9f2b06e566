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

// Bounds on what a node tells of itself for a peer's doctor: how much, how long it may gather, and how long what was
// gathered is told again. Gathering costs a thousand reads.
const (
	factsTime      = 10 * time.Second
	factsCacheTime = 5 * time.Second
)

// ErrNoFacts says that the peer is a railscope that is too old to tell facts.
var ErrNoFacts = errors.New("the peer's railscope does not know the question")

// FetchFacts asks a peer, host:port, for what it calls itself, and for its facts. They are whatever its
// NodeOptions.Facts made, up to 1 MiB of JSON; nothing in them has been checked. A peer that is too old fails with
// [ErrNoFacts], wrapped with its version, any other with a [*Failure].
func FetchFacts(ctx context.Context, peer string, sec Security) (node string, facts []byte, err error) {
	c, err := newClient(peer, credentials{sec, newSecretFiles()})
	if err != nil {
		return "", nil, err
	}
	defer c.close()
	h, err := c.hello(ctx) // it knows best why nobody, or somebody else, answers
	if err != nil {
		return "", nil, err
	}
	facts, err = c.facts(ctx, h.Versions.Railscope)
	return h.Node, facts, err
}

// facts asks for them. The peer's railscope is of the given version.
func (c *client) facts(ctx context.Context, version string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	res, err := c.roundTrip(ctx, failure.StageHello, http.MethodGet, pathFacts, []byte("{}"), false)
	switch {
	case err != nil:
		return nil, err
	case res.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("%w: it is version %s", ErrNoFacts, version)
	case res.StatusCode != http.StatusOK:
		return nil, responseFailure(failure.StageHello, res.Response, res.body[:min(len(res.body), 4096)])
	case !json.Valid(res.body):
		return nil, failure.New(failure.StageHello, failure.Protocol, "facts that are no JSON: %.40q", res.body)
	}
	return res.body, nil
}

// facts is what this node last told of itself. One gathering is in flight at a time, and what it came to, a failure
// too, is told for a while to whoever asks: peers that ask often cost no more than one that asks now and then.
type facts struct {
	gather func(context.Context) ([]byte, error)

	lock chan struct{} // holds one while somebody gathers; protects all following fields
	at   time.Time     // when the last gathering ended
	data []byte
	err  error
}

func newFacts(gather func(context.Context) ([]byte, error)) *facts {
	return &facts{gather: gather, lock: make(chan struct{}, 1)}
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
	// An asker that hangs up does not make the next one gather anew.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), factsTime)
	defer cancel()
	f.data, f.err = f.gather(ctx)
	if f.err == nil && len(f.data) > maxBody {
		f.data, f.err = nil, fmt.Errorf("%d bytes of facts: the most are %d", len(f.data), maxBody)
	}
	f.at = time.Now()
	return f.data, f.err
}

// serveFacts answers with this node's facts: only to peers that have proved who
// they are, because facts say what runs here.
func (r *Responder) serveFacts(w http.ResponseWriter, req *http.Request) {
	switch {
	case r.facts.gather == nil:
		writeFailure(w, http.StatusNotFound, failure.New(failure.StageHello, failure.Protocol, "this node tells no facts"))
		return
	case r.opts.Security.TokenFile == "" && r.opts.Security.ClientCAFile == "":
		writeFailure(w, http.StatusForbidden, failure.New(failure.StageHello, failure.Unauthorized,
			"the peer answers anyone (insecure: true), and so tells nobody what runs on it: give both ends a "+
				"token_file"))
		return
	}
	data, err := r.facts.get(req.Context())
	if err != nil {
		writeFailure(w, http.StatusInternalServerError, failure.New(failure.StageHello, failure.Other,
			"the peer cannot tell its facts: %v", err))
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(requestTime))
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // the asker is gone: it will not miss the answer
}
