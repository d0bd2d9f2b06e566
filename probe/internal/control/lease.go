package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/protocol"
)

// HeldLease is a lease while this node holds it. The peer reports on a stream that it has ended.
type HeldLease struct {
	Grant    protocol.Grant
	Ctx      context.Context // done when it has ended; its cause is why, if that was before it was released
	Quiet    <-chan []string // rails of the peer that others do not use, after each change; of a lease for a gap
	stop     context.CancelFunc
	renewing sync.WaitGroup
}

// AcquireLease asks for the lease and holds it until release, also after ctx is done, so that it ends in order.
func (c *Client) AcquireLease(ctx context.Context, ask protocol.LeaseRequest) (*HeldLease, error) {
	stream, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := func() { cancel(nil) }
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	timeout := time.AfterFunc(AnswerTime, func() { cancel(fmt.Errorf("no answer within %v", AnswerTime)) })
	body, _ := json.Marshal(ask) // cannot fail: no field of it can
	res, err := c.send(stream, Request{failure.StageLease, http.MethodPost, protocol.PathLease, body, true})
	if err != nil {
		stop()
		return nil, err
	}
	event, err := res.Events.Next()
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
	quiet := make(chan []string, 1)
	h := &HeldLease{Grant: *event.Grant, Ctx: stream, Quiet: quiet, stop: stop}
	c.lease = protocol.PathLease + "/" + h.Grant.ID
	h.renewing.Go(func() {
		defer res.Body.Close()
		cancel(follow(res.Events, quiet)) // has no effect after stop
	})
	h.renewing.Go(func() { c.renew(h) })
	return h, nil
}

// follow passes on which rails are quiet at the peer, the latest only, until the lease ends, and returns why it ended.
func follow(events *EventReader, quiet chan []string) *failure.Failure {
	for {
		event, err := events.Next()
		switch {
		case err != nil || event.End == nil && event.Quiet == nil:
			return failure.New(failure.StageLease, failure.PeerLost, "the peer ended the lease without a reason: %v",
				err)
		case event.End != nil:
			return event.End
		}
		select {
		case <-quiet:
		default:
		}
		quiet <- event.Quiet.Rails // has room: nobody else sends
	}
}

func (c *Client) renew(h *HeldLease) {
	tick := time.NewTicker(h.Grant.TTL / 3)
	defer tick.Stop()
	for {
		select {
		case <-h.Ctx.Done():
			return
		case <-tick.C:
			// After a failure the stream has the reason, or the next request.
			_ = c.Call(h.Ctx, failure.StageLease, http.MethodPost, c.lease+"/renew", struct{}{}, nil, h.Grant.TTL/3)
		}
	}
}

// Release releases the lease, also when the round was canceled.
func (c *Client) Release(ctx context.Context, h *HeldLease, bytes int64) (err error) {
	if h.Ctx.Err() == nil {
		err = c.Call(context.WithoutCancel(ctx), failure.StageRelease, http.MethodDelete, c.lease,
			protocol.Released{Bytes: bytes}, nil,
			AnswerTime)
	}
	h.stop()
	h.renewing.Wait()
	c.lease = ""
	return err
}

// EventReader reads the stream of a lease.
type EventReader struct {
	Lines *bufio.Reader
}

// MaxLine limits one line of the stream: a sentence for each rail, escaped.
const MaxLine = 64 << 10

// NewEventReader returns a reader of the events of a lease.
func NewEventReader(from io.Reader) *EventReader {
	return &EventReader{bufio.NewReaderSize(from, MaxLine)}
}

// Next returns the next event; [io.EOF] when the stream has ended.
func (r *EventReader) Next() (protocol.LeaseEvent, error) {
	var e protocol.LeaseEvent
	text, err := r.Lines.ReadSlice('\n')
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return e, err
	}
	if e.Grant != nil {
		if err := e.Grant.Check(); err != nil {
			return protocol.LeaseEvent{}, err
		}
	}
	if e.Quiet != nil {
		if err := e.Quiet.Check(); err != nil {
			return protocol.LeaseEvent{}, err
		}
	}
	if e.End != nil {
		protocol.Sanitize(e.End, failure.StageLease)
		e.End.Stage = failure.StageLease
	}
	return e, nil
}
