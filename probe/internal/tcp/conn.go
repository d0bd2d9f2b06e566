package tcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// ackTimeout limits the time from a chunk to the target's acknowledgement. The kernel does not detect a stuck target,
// whose kernel keeps acknowledging segments.
const ackTimeout = 10 * time.Second

// Lane is a path to the target for one rail.
type Lane struct {
	Rail   string
	Local  netip.Addr     // this node's address on the rail; zero lets the routes choose
	Netdev string         // the rail's interface; empty lets the routes choose
	Remote netip.AddrPort // address of the target

	Through func(io.Writer) io.Writer // wraps each connection, for simulated links; may be nil
}

// Conn is an asker's lanes to a target. [Conn.Progress], [Conn.Info] and [Conn.Close] are safe for concurrent use.
// Close it.
type Conn struct {
	lanes []*lane
}

// lane is a Lane and its connections.
type lane struct {
	Lane
	ring  int64 // bytes that each connection owns at the target
	acked atomic.Int64

	mu      sync.Mutex // protects all following fields
	streams []*stream
	broken  *failure.Failure // nil while the lane works
	info    transfer.TCPInfo // last report
}

// stream is one connection. One goroutine may write while another reads.
type stream struct {
	conn  *net.TCPConn
	out   io.Writer // conn, or its wrapper
	raw   syscall.RawConn
	acked uint64

	timeout time.Duration // limit for an acknowledgement
}

// find returns the lane of a rail.
func (c *Conn) find(rail string) (*lane, error) {
	for _, l := range c.lanes {
		if l.Rail == rail {
			return l, nil
		}
	}
	return nil, failure.New("", failure.Other, "the session has no rail %q", rail)
}

// fail ends the lane with a failure, unless it has already ended, and returns the first failure.
func (l *lane) fail(f *failure.Failure) *failure.Failure {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		return l.broken
	}
	f.Rail = l.Rail
	l.info, l.broken = l.readInfo(), f
	for _, s := range l.streams {
		_ = s.conn.Close()
	}
	return f
}

// failed returns the reason why the lane has ended; nil if it has not.
func (l *lane) failed() *failure.Failure {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// broken returns the failure of a connected lane.
func broken(err error) *failure.Failure {
	reason := failure.TCPBroken
	switch {
	case errors.Is(err, context.Canceled):
		reason = failure.Canceled
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		reason = failure.Timeout
	}
	return failure.New("", reason, "%v", err)
}

// readInfo queries the kernel. The caller holds mu.
func (l *lane) readInfo() transfer.TCPInfo {
	var sum transfer.TCPInfo
	for _, s := range l.streams {
		var info *unix.TCPInfo
		var err error
		if s.raw.Control(func(fd uintptr) {
			info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		}) != nil || err != nil {
			continue
		}
		sum.Add(transfer.TCPInfo{Retransmits: uint64(info.Total_retrans), PathMTU: int(info.Pmtu),
			RTT: time.Duration(info.Rtt) * time.Microsecond})
	}
	return sum
}

// Info returns the kernel's report on all connections; for a lane that has ended, the last report.
func (c *Conn) Info() (sum transfer.TCPInfo) {
	for _, l := range c.lanes {
		l.mu.Lock()
		if l.broken == nil {
			l.info = l.readInfo()
		}
		sum.Add(l.info)
		l.mu.Unlock()
	}
	return sum
}

// Progress returns the bytes that the target has acknowledged on each lane in the current or last burst.
func (c *Conn) Progress() []int64 {
	bytes := make([]int64, len(c.lanes))
	for i, l := range c.lanes {
		bytes[i] = l.acked.Load()
	}
	return bytes
}

// Close ends all lanes. A burst in progress fails.
func (c *Conn) Close() { c.fail(fmt.Errorf("closed: %w", context.Canceled)) }

func (c *Conn) fail(err error) {
	for _, l := range c.lanes {
		_ = l.fail(broken(err))
	}
}

// watch ends all lanes when ctx ends, until the returned function is called.
func (c *Conn) watch(ctx context.Context) func() {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		c.fail(ctx.Err())
	})
	return func() {
		if !stop() {
			<-ended
		}
	}
}

// write sends a frame.
func (s *stream) write(at int64, payload []byte) error {
	head := binary.BigEndian.AppendUint64(make([]byte, 0, headLen), uint64(at))
	head = binary.BigEndian.AppendUint32(head, uint32(len(payload)))
	_, err := (&net.Buffers{head, payload}).WriteTo(s.out)
	return err
}

// waitAck waits until the target has acknowledged n more bytes.
func (s *stream) waitAck(n int) error {
	if err := s.conn.SetReadDeadline(time.Now().Add(s.timeout)); err != nil {
		return err
	}
	var ack [ackLen]byte
	if _, err := io.ReadFull(s.conn, ack[:]); err != nil {
		return err
	}
	s.acked += uint64(n)
	if got := binary.BigEndian.Uint64(ack[:]); got != s.acked {
		return fmt.Errorf("the target acknowledged %d bytes, %d were sent", got, s.acked)
	}
	return nil
}
