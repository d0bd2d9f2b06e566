package probe

import (
	"context"

	"github.com/railscope/railscope/probe/internal/worker"
)

// workerSession is the one session that a lease, or a round, has open in the worker. Opening another closes it first.
// If the worker does not confirm that, it is killed. Not safe for concurrent use.
type workerSession struct {
	node     *Node
	current  *worker.Session // nil: none is open
	grant    int64           // bytes that it may receive over TCP
	received int64           // bytes that earlier sessions received over TCP, or may have
}

// begin closes the session that is open, and opens another. After an error none is open.
func (s *workerSession) begin(ctx context.Context, args worker.OpenArgs) (worker.Opened, error) {
	_ = s.end() // closed, or its worker was killed
	session, opened, err := s.node.open(ctx, args)
	s.current, s.grant = session, args.Grant
	return opened, err
}

// end closes the session that is open. When it returns, the worker has confirmed that queue pairs, memory and listeners
// are gone, or was killed.
func (s *workerSession) end() error {
	if s.current == nil {
		return nil
	}
	received, err := s.current.Close()
	if received != nil {
		s.received += received.Bytes
	} else {
		s.received += s.grant
	}
	s.current = nil
	return err
}
