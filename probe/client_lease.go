package probe

import (
	"bufio"
	"context"
	"crypto/hmac"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
)

// heldLease is a lease while this node holds it. The peer reports on a stream that it has ended.
type heldLease struct {
	grant    grant
	ctx      context.Context // done when it has ended; its cause is why, if that was before it was released
	stop     context.CancelFunc
	renewing sync.WaitGroup
}

// acquireLease asks for the lease and holds it until release, also after ctx is done, so that it ends in order.
func (c *client) acquireLease(ctx context.Context, ask leaseRequest) (*heldLease, error) {
	stream, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := func() { cancel(nil) }
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	timeout := time.AfterFunc(answerTime, func() { cancel(fmt.Errorf("no answer within %v", answerTime)) })
	body, _ := json.Marshal(ask) // cannot fail: no field of it can
	res, err := c.send(stream, request{failure.StageLease, http.MethodPost, pathLease, body, true})
	if err != nil {
		stop()
		return nil, err
	}
	event, err := res.events.next()
	if !timeout.Stop() || err != nil || event.Grant == nil {
		defer stop()
		res.Body.Close()
		switch {
		case err == nil && event.End != nil:
			return nil, event.End
		case stream.Err() != nil:
			return nil, c.connFailure(stream, failure.StageLease, context.Cause(stream))
		case err == nil:
			err = errors.New("neither a grant nor a reason")
		}
		return nil, failure.New(failure.StageLease, failure.Protocol, "request a lease: %v", err)
	}
	h := &heldLease{grant: *event.Grant, ctx: stream, stop: stop}
	c.lease = pathLease + "/" + h.grant.ID
	h.renewing.Go(func() {
		defer res.Body.Close()
		event, err := res.events.next()
		if err != nil || event.End == nil {
			event.End = failure.New(failure.StageLease, failure.PeerLost,
				"the peer ended the lease without a reason: %v", err)
		}
		cancel(event.End) // of no effect after stop
	})
	h.renewing.Go(func() { c.renew(h) })
	return h, nil
}

func (c *client) renew(h *heldLease) {
	tick := time.NewTicker(h.grant.TTL / 3)
	defer tick.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-tick.C:
			// After a failure the stream has the reason, or the next request.
			_ = c.call(h.ctx, failure.StageLease, http.MethodPost, c.lease+"/renew", struct{}{}, nil, h.grant.TTL/3)
		}
	}
}

// release releases the lease, also when the round was canceled.
func (c *client) release(ctx context.Context, h *heldLease, bytes int64) (err error) {
	if h.ctx.Err() == nil {
		err = c.call(context.WithoutCancel(ctx), failure.StageRelease, http.MethodDelete, c.lease, released{bytes}, nil,
			answerTime)
	}
	h.stop()
	h.renewing.Wait()
	return err
}

// eventReader reads the stream of a lease.
type eventReader struct {
	lines   *bufio.Reader
	session *session // nil: nothing is proved
	path    string
	line    uint64
}

// maxLine limits one line of the stream: a sentence, escaped, and its proof.
const maxLine = 16 << 10

func newEventReader(from io.Reader, s *session, path string) *eventReader {
	return &eventReader{lines: bufio.NewReaderSize(from, maxLine), session: s, path: path}
}

func (r *eventReader) next() (leaseEvent, error) {
	var line leaseLine
	var e leaseEvent
	text, err := r.lines.ReadSlice('\n')
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(text, &line); err != nil {
		return e, err
	}
	if r.line++; r.session != nil {
		mac, err := hex.DecodeString(line.Proof)
		if err != nil || !hmac.Equal(mac, r.session.ofEvent(r.path, r.session.count, r.line, line.Event)) {
			return e, errors.New("a line without a valid proof")
		}
	}
	if err := json.Unmarshal(line.Event, &e); err != nil {
		return e, err
	}
	if g := e.Grant; g != nil {
		if err := g.check(r.session != nil); err != nil {
			return leaseEvent{}, err
		}
		if r.session != nil {
			key := r.session.dataKey(g.ID)
			g.Key = key[:]
		}
	}
	if e.End != nil {
		sanitize(e.End, failure.StageLease)
		e.End.Stage = failure.StageLease
	}
	return e, nil
}

// check refuses a grant that no railscope sends. A derived key is not sent.
func (g *grant) check(derived bool) error {
	switch {
	case !derived && len(g.Key) != keySize, derived && len(g.Key) != 0:
		return fmt.Errorf("a grant with a key of %d bytes", len(g.Key))
	case g.TTL < time.Second || g.TTL > maxTTL:
		return fmt.Errorf("a grant for %v", g.TTL)
	case g.ID == "" || len(g.ID) > maxText || strings.Trim(g.ID, alphanumeric) != "":
		return fmt.Errorf("a grant with the ID %.40q", g.ID)
	}
	return nil
}

const alphanumeric = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
