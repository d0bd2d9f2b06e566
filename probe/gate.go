package probe

import (
	"context"
	"errors"
	"net/http"

	"github.com/railscope/railscope/probe/internal/auth"
	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// GateNode is a node of a gate. It must allow gates ([options.Options.AllowGate]), and have the nodes that it visits as
// peers. Its methods may be called concurrently, but for Greet and Leave.
type GateNode struct {
	client      *control.Client
	reservation string
	release     func()
}

// NewGateNode returns the node at an address, host:port. All nodes of a gate have the same reservation ID, letters and
// digits.
func NewGateNode(address, reservation string, security options.Security) (*GateNode, error) {
	c, err := control.NewClient(address, auth.Credentials{Security: security, SecretFiles: auth.NewSecretFiles()})
	if err != nil {
		return nil, err
	}
	return &GateNode{client: c, reservation: reservation, release: func() {}}, nil
}

// Greet reserves the node until Leave, and returns the name that it reports, and a random ID of its process. Without
// Leave, the reservation ends by itself within seconds. Errors are [*result.Failure].
func (n *GateNode) Greet(ctx context.Context) (name, instance string, err error) {
	hello, err := n.client.Hello(ctx)
	if err != nil {
		return "", "", err
	}
	n.release, err = reserve(ctx, n.client, n.reservation)
	return hello.Node, hello.Instance, err
}

// Visit has the node try its rails with a peer, which is named by its addresses: what both have in common is known by
// one of them. With burst, each rail is measured alone. Errors are [*result.Failure].
func (n *GateNode) Visit(ctx context.Context, peers []string, burst bool) (v result.Visit, err error) {
	err = n.client.Call(ctx, failure.StageConnect, http.MethodPost, protocol.PathGate,
		protocol.GateRequest{Peers: peers, Burst: burst, Reservation: n.reservation}, &v,
		protocol.GateTimeout+control.AnswerTime)
	if err != nil {
		return result.Visit{}, err
	}
	if err := protocol.CheckVisit(&v); err != nil {
		return result.Visit{}, failure.New(failure.StageConnect, failure.Protocol, "invalid answer: %v", err)
	}
	return v, nil
}

// Answers reports whether the node still answers.
func (n *GateNode) Answers(ctx context.Context) bool {
	_, err := n.client.Hello(ctx)
	var f *failure.Failure
	return err == nil || errors.As(err, &f) && f.Reason != failure.PeerUnreachable && f.Reason != failure.PeerLost
}

// Leave releases the node, and closes the connections to it.
func (n *GateNode) Leave() {
	n.release()
	n.client.Close()
}
