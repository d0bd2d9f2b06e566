package probe

import (
	"context"

	"github.com/railscope/railscope/probe/internal/worker"
)

// ownSession is the one session that a lease, or a round, has open in the worker: whoever wants another ends that one
// first, and what the worker does not confirm it loses with its life. Not safe for concurrent use.
type workerSession struct {
	node     *Node
	current  *worker.Session // nil: nothing is open
	grant    int64           // bytes that it may take in over TCP
	received int64           // bytes that those before it took in over TCP, or may have
}

// begin ends the session that is open, and opens another. With an error nothing is open.
func (o *workerSession) begin(ctx context.Context, args worker.OpenArgs) (worker.Opened, error) {
	_ = o.end() // it is over, either way
	session, opened, err := o.node.open(ctx, args)
	o.current, o.grant = session, args.Grant
	return opened, err
}

// end ends the session that is open. When it returns the worker has confirmed
// that queue pairs, memory and listeners are gone, or was killed.
func (o *workerSession) end() error {
	if o.current == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	err := o.current.Close(ctx)
	if in, known := o.current.Total(); known {
		o.received += in.Bytes
	} else {
		o.received += o.grant
	}
	o.current = nil
	return err
}
