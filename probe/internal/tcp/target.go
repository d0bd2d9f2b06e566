package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/railscope/railscope/internal/connlimit"
)

const (
	proofTimeout = 5 * time.Second       // limit for a connection's proof
	acceptRetry  = 50 * time.Millisecond // delay after a failed accept
	maxUnproven  = 64                    // connections that wait for their proof
)

// Target lets askers who know a key write into memory. It must be closed.
type Target struct {
	memory   [][]byte // by lane
	streams  int      // connections per lane, each with an equal part of the lane's memory
	key      [32]byte
	grant    *grant
	limit    *connlimit.Limit
	listener net.Listener // limits connections

	ctx      context.Context // when it ends, the listener and all connections are closed
	shutdown context.CancelFunc
	wg       sync.WaitGroup
	mu       sync.Mutex // serializes proofs
}

// Listen lets askers who know key write into the memory of each lane, over this many streams per lane, on a free port
// of an address (zero: all addresses), until ctx ends, the target is closed or an asker sends more than granted bytes.
// Other goroutines may read acknowledged bytes.
func Listen(ctx context.Context, at netip.Addr, memory [][]byte, streams int, key [32]byte,
	granted int64) (*Target, error) {
	return listen(ctx, at, memory, streams, key, granted, proofTimeout)
}

// listen is [Listen] with another timeout for proofs.
func listen(ctx context.Context, at netip.Addr, memory [][]byte, streams int, key [32]byte, granted int64,
	timeout time.Duration) (*Target, error) {
	// Accepted connections inherit the listener's options (tcp(7)).
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error { return tune(raw, "") }}
	config.SetMultipathTCP(false) // the asker chooses the path of a connection
	address := ":0"
	if at.IsValid() {
		address = netip.AddrPortFrom(at, 0).String()
	}
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("tcp target: %w", err)
	}
	// An address may have half of all connections, which is enough for all proven ones.
	limit := connlimit.New(connlimit.Options{Connections: 2 * (MaxConns + maxUnproven), Strangers: maxUnproven,
		StrangerTime: timeout})
	t := &Target{memory: memory, streams: streams, key: key, grant: newGrant(granted), limit: limit,
		listener: limit.Listener(l)}
	t.ctx, t.shutdown = context.WithCancel(ctx)
	context.AfterFunc(t.ctx, func() { _ = l.Close() })
	t.wg.Go(t.accept)
	return t, nil
}

// Port returns the port on which the target listens.
func (t *Target) Port() uint16 { return t.listener.Addr().(*net.TCPAddr).AddrPort().Port() }

// Received returns how many bytes of payload were written into the buffer, and whether an asker sent more than granted.
// While connections are open it includes bytes that are still arriving.
func (t *Target) Received() (bytes int64, exceeded bool) {
	return t.grant.used(), t.grant.exceeded.Load()
}

// Close closes all connections and the listener. When it returns, nothing more is written into the buffer. It may be
// called twice.
func (t *Target) Close() {
	t.shutdown()
	t.wg.Wait()
}

func (t *Target) accept() {
	for {
		c, err := t.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			time.Sleep(acceptRetry) // out of file descriptors
		default:
			t.wg.Go(func() { t.serve(connlimit.Of(c)) })
		}
	}
}

// admit accepts a proven connection, unless there are too many or its lane does not exist.
func (t *Target) admit(c *connlimit.Conn, lane, stream uint32) bool {
	if uint64(lane) >= uint64(len(t.memory)) || uint64(stream) >= uint64(t.streams) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if all, unproven := t.limit.Open(); all-unproven >= MaxConns {
		return false
	}
	c.Prove()
	return true
}

// serve serves a connection until it ends. The reason is not logged, because the asker sees the end itself.
func (t *Target) serve(c *connlimit.Conn) {
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(t.ctx, func() { _ = c.Close() })()
	var ring []byte
	err := serveHandshake(c, t.key, newNonce(), func(lane, stream uint32) bool {
		if !t.admit(c, lane, stream) {
			return false
		}
		size := len(t.memory[lane]) / t.streams
		ring = t.memory[lane][int(stream)*size:][:size]
		return true
	})
	if err == nil {
		err = receive(c, ring, t.grant)
	}
	if errors.Is(err, errGrant) {
		t.shutdown()
	}
}

// grant is the number of payload bytes that a target accepts over all connections. Only bytes that are written into the
// buffer count. Safe for concurrent use.
type grant struct {
	total    int64
	left     atomic.Int64
	exceeded atomic.Bool // an asker sent more
}

func newGrant(total int64) *grant {
	g := &grant{total: max(total, 0)}
	g.left.Store(g.total)
	return g
}

// reserve takes all n bytes, before any of them is read, or none.
func (g *grant) reserve(n int64) bool {
	for {
		left := g.left.Load()
		if n > left {
			g.exceeded.Store(true)
			return false
		}
		if g.left.CompareAndSwap(left, left-n) {
			return true
		}
	}
}

// release returns reserved bytes that did not arrive.
func (g *grant) release(n int64) { g.left.Add(n) }

// used returns how many bytes are reserved, including those still arriving.
func (g *grant) used() int64 { return g.total - g.left.Load() }
