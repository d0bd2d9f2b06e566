package probe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/worker"
)

// RingWindow is for how long all members of a ring stream at once. A member alone, with both baselines over TCP, then
// fits into a lease of the default budget (TestBudgetOfLease).
const RingWindow = 50 * time.Millisecond

// A ring is an all-reduce without its arithmetic: each node streams to its successor at once, over all rails. Whoever
// asks for it takes no part. A member makes a round with its successor, in two requests: one until it is connected, and
// one to go. So all bursts begin within the time of a request.
const (
	ringTimeout = time.Minute // of a member, from the request to its end
	ringTries   = 3           // of the burst of all at once: a member that was disturbed has no figure
	maxRing     = 64          // members
)

// ringRequest asks a node to connect to its successor.
type ringRequest struct {
	Successor string `json:"successor"` // host:port, as in the member's own list of peers
	Alone     bool   `json:"alone"`     // no other node streams meanwhile: TCP is measured, too
}

func (r *ringRequest) check() error {
	if r.Successor == "" {
		return errors.New("no successor")
	}
	return checkTexts(r.Successor)
}

// ringReply is the answer when the member is connected.
type ringReply struct {
	ID string `json:"id"`
}

// ringResult is what a member measured.
type ringResult struct {
	Goodput     float64          `json:"goodput_bytes_per_second"` // of all rails; 0: not measured
	TCP         float64          `json:"tcp_bytes_per_second"`     // of the better number of streams; 0: not measured
	Rails       int              `json:"rails"`                    // that carried it
	AllRails    int              `json:"all_rails"`
	RailFailure *failure.Failure `json:"rail_failure,omitempty"` // the first, of a rail that did not
	Failure     *failure.Failure `json:"failure,omitempty"`
}

// RingMember is one node of a ring, with what it carried to its successor, in bytes per second; nil is not measured.
type RingMember struct {
	Node, Successor string // host:port
	Rails, AllRails int    // that carry, and that the node has
	Alone, Together *float64
	TCP             *float64 // alone
	RailFailure     *Failure // the first of a rail that does not carry; nil: none
	Failure         *Failure // of the member, the first; nil: none
}

// RingResult is a ring: its members in order.
type RingResult struct {
	Members []RingMember
}

// slowest is the least of a figure over all members; false if one has none.
func (r RingResult) slowest(of func(RingMember) *float64) (least float64, known bool) {
	for i, m := range r.Members {
		v := of(m)
		if v == nil || *v <= 0 {
			return 0, false
		}
		if i == 0 || *v < least {
			least = *v
		}
	}
	return least, len(r.Members) > 0
}

// Seconds are the times of an all-reduce of so many bytes: 2(n−1)/n of them go over each link, and the slowest node
// counts (Patarasuk and Yuan, 2009). Predicted is from what each carries alone, TCP the same over TCP; nil is not
// known. All are derived from rates of a short burst.
func (r RingResult) Seconds(bytes int64) (measured, predicted, tcp *float64) {
	n := float64(len(r.Members))
	each := 2 * (n - 1) / n * float64(bytes)
	of := func(rate func(RingMember) *float64) *float64 {
		if least, known := r.slowest(rate); known {
			return new(each / least)
		}
		return nil
	}
	return of(func(m RingMember) *float64 { return m.Together }), of(func(m RingMember) *float64 { return m.Alone }),
		of(func(m RingMember) *float64 { return m.TCP })
}

// Ring measures a ring over nodes: each to its successor alone, then all at once. Nodes must allow it
// ([Options.AllowRing]), and have their successor as a peer. progress is called with the member that is measured, and
// with an empty name when all are.
func Ring(ctx context.Context, security Security, nodes []string, progress func(node string)) (RingResult, error) {
	if len(nodes) < 2 || len(nodes) > maxRing {
		return RingResult{}, fmt.Errorf("a ring has 2 to %d nodes, not %d", maxRing, len(nodes))
	}
	creds := credentials{security, newSecretFiles()}
	res := RingResult{Members: make([]RingMember, len(nodes))}
	members := make([]*ringClient, len(nodes))
	for i, node := range nodes {
		if slices.Contains(nodes[:i], node) {
			return RingResult{}, fmt.Errorf("node %s twice", node)
		}
		c, err := newClient(node, creds)
		if err != nil {
			return RingResult{}, err
		}
		defer c.close()
		res.Members[i] = RingMember{Node: node, Successor: nodes[(i+1)%len(nodes)]}
		members[i] = &ringClient{client: c, member: &res.Members[i]}
	}
	for _, m := range members {
		progress(m.member.Node)
		m.prepare(ctx, true)
		if one := m.start(ctx); one != nil {
			m.member.Alone, m.member.TCP = positive(one.Goodput), positive(one.TCP)
		}
	}
	if slices.ContainsFunc(res.Members, func(m RingMember) bool { return m.Failure != nil }) {
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

// together measures all members at once.
func together(ctx context.Context, members []*ringClient) {
	each(members, func(m *ringClient) { m.prepare(ctx, false) })
	if !slices.ContainsFunc(members, func(m *ringClient) bool { return m.member.Failure != nil }) {
		each(members, func(m *ringClient) {
			if one := m.start(ctx); one != nil {
				m.member.Together = positive(one.Goodput)
			}
		})
	}
	each(members, func(m *ringClient) { m.cancel(ctx) })
}

// disturbedAlone reports whether the ring has no figure only because processors of members were busy.
func disturbedAlone(members []RingMember) (disturbed bool) {
	for _, m := range members {
		if m.Failure == nil {
			continue
		}
		if disturbed = true; m.Failure.Reason != failure.Disturbed {
			return false
		}
	}
	return disturbed
}

// each calls fn for all members at the same time.
func each(members []*ringClient, fn func(*ringClient)) {
	var calls sync.WaitGroup
	for _, m := range members {
		calls.Go(func() { fn(m) })
	}
	calls.Wait()
}

// ringClient asks one member.
type ringClient struct {
	client *client
	member *RingMember
	id     string // of what is prepared; empty: nothing
}

// fail keeps the first failure of a member.
func (m *ringClient) fail(err error) {
	if f := failure.As(failure.StageHello, err); f != nil && m.member.Failure == nil {
		m.member.Failure = f
	}
}

func (m *ringClient) prepare(ctx context.Context, alone bool) {
	if m.member.Failure != nil {
		return
	}
	if _, err := m.client.hello(ctx); err != nil {
		m.fail(err)
		return
	}
	var reply ringReply
	err := m.client.call(ctx, failure.StageConnect, http.MethodPost, pathRing,
		ringRequest{m.member.Successor, alone}, &reply, ringTimeout)
	if m.id = reply.ID; err != nil {
		m.fail(err)
	}
}

// start makes what is prepared begin, and returns its result; nil: it failed.
func (m *ringClient) start(ctx context.Context) *ringResult {
	if m.id == "" || m.member.Failure != nil {
		return nil
	}
	var res ringResult
	err := m.client.call(ctx, failure.StageStriped, http.MethodPost, pathRing+"/"+m.id+"/start", struct{}{}, &res,
		ringTimeout)
	m.id = ""
	if err == nil && res.Failure != nil {
		sanitize(res.Failure, failure.StageStriped)
		err = res.Failure
	}
	if err != nil {
		m.fail(err)
		return nil
	}
	m.member.AllRails = min(max(res.AllRails, 0), worker.MaxRails)
	m.member.Rails = min(max(res.Rails, 0), m.member.AllRails)
	if m.member.RailFailure = res.RailFailure; res.RailFailure != nil {
		sanitize(res.RailFailure, failure.StageStriped)
	}
	return &res
}

// cancel ends what was prepared and did not start. A member ends it by itself, too.
func (m *ringClient) cancel(ctx context.Context) {
	if m.id != "" {
		_ = m.client.call(context.WithoutCancel(ctx), failure.StageRelease, http.MethodDelete, pathRing+"/"+m.id, nil, nil,
			answerTime)
	}
}
