package node

import (
	"context"
	"fmt"
	"time"

	"github.com/railscope/railscope/probe/internal/protocol"
)

// Limits of the facts that this node reports to a peer's doctor: how long gathering may take, and for how long its
// result is reused. Gathering costs about 1,000 reads.
const (
	FactsTime      = 10 * time.Second
	FactsCacheTime = 5 * time.Second
)

// Facts holds the facts that this node last reported. One gathering runs at a time. Its result, also an error, is
// kept for a while, so that frequent requests cost no more than rare ones.
type Facts struct {
	Gather func(context.Context) ([]byte, error)

	Lock chan struct{} // holds one token while facts are gathered; protects all following fields
	at   time.Time     // end of the last gathering
	data []byte
	err  error
}

// Get returns the facts as JSON. Calls that overlap share one reading.
func (f *Facts) Get(ctx context.Context) ([]byte, error) {
	select {
	case f.Lock <- struct{}{}:
		defer func() { <-f.Lock }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !f.at.IsZero() && time.Since(f.at) < FactsCacheTime {
		return f.data, f.err
	}
	// The gathering continues if the asker hangs up, so that the next one can use its result.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), FactsTime)
	defer cancel()
	f.data, f.err = f.Gather(ctx)
	if f.err == nil && len(f.data) > protocol.MaxBody {
		f.data, f.err = nil, fmt.Errorf("%d bytes of facts: the limit is %d", len(f.data), protocol.MaxBody)
	}
	f.at = time.Now()
	return f.data, f.err
}
