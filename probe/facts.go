package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/railscope/railscope/probe/internal/auth"
	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/options"
)

// ErrNoFacts is returned when the peer's railscope is too old to report facts.
var ErrNoFacts = errors.New("the peer's railscope does not support this question")

// FetchFacts asks a peer, host:port, for its name and its facts: unchecked JSON of its NodeOptions.Facts, up to 1
// MiB. A peer that is too old fails with [ErrNoFacts], wrapped with its version; other errors are a [*result.Failure].
func FetchFacts(ctx context.Context, peer string, sec options.Security) (node string, facts []byte, err error) {
	c, err := control.NewClient(peer, auth.Credentials{Security: sec, SecretFiles: auth.NewSecretFiles()})
	if err != nil {
		return "", nil, err
	}
	defer c.Close()
	h, err := c.Hello(ctx) // first, because its errors are clear
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, control.AnswerTime)
	defer cancel()
	res, err := c.RoundTrip(ctx, control.Request{Stage: failure.StageHello, Method: http.MethodGet,
		Path: protocol.PathFacts, Body: []byte("{}"), Streams: false})
	switch {
	case err != nil:
		return h.Node, nil, err
	case res.StatusCode == http.StatusNotFound:
		return h.Node, nil, fmt.Errorf("%w: it is version %s", ErrNoFacts, h.Versions.Railscope)
	case res.StatusCode != http.StatusOK:
		return h.Node, nil, control.ResponseFailure(failure.StageHello, res.Response,
			res.Content[:min(len(res.Content), 4096)])
	case !json.Valid(res.Content):
		return h.Node, nil, failure.New(failure.StageHello, failure.Protocol, "the facts are not JSON: %.40q",
			res.Content)
	}
	return h.Node, res.Content, nil
}
