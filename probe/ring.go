package probe

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/stats"
	"github.com/railscope/railscope/probe/internal/auth"
	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

const ringTries = 3 // bursts of all members at once: a disturbed member has no figure

const maxRing = 64 // members

// Ring measures a ring over nodes: each node to its successor alone, then all at once. Nodes must allow it
// ([options.Options.AllowRing]) and have their successor as a peer. progress is called with the measured member, and
// with an empty name for all at once.
func Ring(ctx context.Context, security options.Security, nodes []string,
	progress func(node string)) (result.RingResult, error) {
	if len(nodes) < 2 || len(nodes) > maxRing {
		return result.RingResult{}, fmt.Errorf("a ring has 2 to %d nodes, not %d", maxRing, len(nodes))
	}
	creds := auth.Credentials{Security: security, SecretFiles: auth.NewSecretFiles()}
	res := result.RingResult{Members: make([]result.RingMember, len(nodes))}
	members, reservation := make([]*ringClient, len(nodes)), rand.Text()
	for i, node := range nodes {
		if slices.Contains(nodes[:i], node) {
			return result.RingResult{}, fmt.Errorf("node %s twice", node)
		}
		c, err := control.NewClient(node, creds)
		if err != nil {
			return result.RingResult{}, err
		}
		defer c.Close()
		res.Members[i] = result.RingMember{Node: node, Successor: nodes[(i+1)%len(nodes)]}
		members[i] = &ringClient{client: c, member: &res.Members[i], reservation: reservation}
	}
	defer reserveAll(ctx, members)()
	for _, m := range members {
		progress(m.member.Node)
		m.prepare(ctx, true)
		if one := m.start(ctx); one != nil {
			m.member.Alone, m.member.TCP = stats.Positive(one.Goodput), stats.Positive(one.TCP)
		}
	}
	if slices.ContainsFunc(res.Members, func(m result.RingMember) bool { return m.Failure != nil }) {
		return res, nil
	}
	progress("")
	for try := 1; ; try++ {
		together(ctx, members)
		if try == ringTries || !disturbedAlone(res.Members) {
			return res, nil
		}
		for i := range res.Members {
			res.Members[i].Failure = nil
		}
	}
}

// reserveAll reserves all members until release is called, so that their schedules do not interfere. An older
// railscope cannot be reserved. A member that is reserved for another ring fails when the ring begins.
func reserveAll(ctx context.Context, members []*ringClient) (release func()) {
	released := make([]func(), len(members))
	var calls sync.WaitGroup
	for i, m := range members {
		calls.Go(func() {
			released[i], _ = reserve(ctx, m.client, m.reservation)
		})
	}
	calls.Wait()
	return func() {
		for _, release := range released {
			calls.Go(release)
		}
		calls.Wait()
	}
}

// reserve reserves a node for a ring or gate, and keeps it so until release is called, or ctx is done. An error says
// why it could not be reserved; it is asked again.
func reserve(ctx context.Context, c *control.Client, id string) (release func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	path := protocol.PathReserve + "/" + id
	ask := func() error {
		return c.Call(ctx, failure.StageHello, http.MethodPut, path, struct{}{}, nil, control.AnswerTime)
	}
	err = ask()
	var renewing sync.WaitGroup
	renewing.Go(func() {
		tick := time.NewTicker(node.RingReserved / 3)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = ask() // a node that was not reserved for a moment fails what it is asked for then
			}
		}
	})
	return func() {
		cancel()
		renewing.Wait()
		_ = c.Call(context.WithoutCancel(ctx), failure.StageRelease, http.MethodDelete, path, struct{}{}, nil,
			control.DialTime) // else the reservation ends by itself
	}, err
}

// together measures all members at once.
func together(ctx context.Context, members []*ringClient) {
	each(members, func(m *ringClient) { m.prepare(ctx, false) })
	if !slices.ContainsFunc(members, func(m *ringClient) bool { return m.member.Failure != nil }) {
		each(members, func(m *ringClient) {
			if one := m.start(ctx); one != nil {
				m.member.Together = stats.Positive(one.Goodput)
			}
		})
	}
	each(members, func(m *ringClient) { m.cancel(ctx) })
}

// disturbedAlone reports whether busy processors of members are the only reason why the ring has no figure.
func disturbedAlone(members []result.RingMember) (disturbed bool) {
	for _, m := range members {
		if m.Failure == nil {
			continue
		}
		disturbed = true
		if m.Failure.Reason != failure.Disturbed {
			return false
		}
	}
	return disturbed
}

// each calls fn for all members in parallel.
func each(members []*ringClient, fn func(*ringClient)) {
	var calls sync.WaitGroup
	for _, m := range members {
		calls.Go(func() { fn(m) })
	}
	calls.Wait()
}

// ringClient sends requests to one member.
type ringClient struct {
	client *control.Client
	member *result.RingMember
	id     string // ID of the prepared round; empty: none

	reservation string // reservation ID, equal for all members
}

// fail records the first failure of a member.
func (m *ringClient) fail(err error) {
	if f := failure.As(failure.StageHello, err); f != nil && m.member.Failure == nil {
		m.member.Failure = f
	}
}

func (m *ringClient) prepare(ctx context.Context, alone bool) {
	if m.member.Failure != nil {
		return
	}
	if _, err := m.client.Hello(ctx); err != nil {
		m.fail(err)
		return
	}
	var reply protocol.RingReply
	err := m.client.Call(ctx, failure.StageConnect, http.MethodPost, protocol.PathRing,
		protocol.RingRequest{Successor: m.member.Successor, Alone: alone, Reservation: m.reservation}, &reply,
		protocol.RingTimeout)
	m.id = reply.ID
	if err != nil {
		m.fail(err)
	}
}

// start starts the prepared round, and returns its result; nil: it failed.
func (m *ringClient) start(ctx context.Context) *protocol.RingResult {
	if m.id == "" || m.member.Failure != nil {
		return nil
	}
	var res protocol.RingResult
	err := m.client.Call(ctx, failure.StageStriped, http.MethodPost, protocol.PathRing+"/"+m.id+"/start", struct{}{},
		&res, protocol.RingTimeout)
	m.id = ""
	if err == nil && res.Failure != nil {
		protocol.Sanitize(res.Failure, failure.StageStriped)
		err = res.Failure
	}
	if err != nil {
		m.fail(err)
		return nil
	}
	m.member.AllRails = min(max(res.AllRails, 0), worker.MaxRails)
	m.member.Rails = min(max(res.Rails, 0), m.member.AllRails)
	m.member.RailFailure = res.RailFailure
	if res.RailFailure != nil {
		protocol.Sanitize(res.RailFailure, failure.StageStriped)
	}
	return &res
}

// cancel ends a prepared round that did not start. Without the request, the member ends it after a timeout.
func (m *ringClient) cancel(ctx context.Context) {
	if m.id != "" {
		_ = m.client.Call(context.WithoutCancel(ctx), failure.StageRelease, http.MethodDelete,
			protocol.PathRing+"/"+m.id, nil, nil, control.AnswerTime)
	}
}
