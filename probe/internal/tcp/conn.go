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
)

// unanswered is how long a chunk may stay without an answer. The kernel does
// not see when the target stands still: it goes on to acknowledge segments.
const unanswered = 10 * time.Second

// Lane is a way to the target, and which rail it is for.
type Lane struct {
	Rail   string         // for failures
	Local  netip.Addr     // this node's address on the rail; zero: whichever the routes say
	Netdev string         // the rail's interface; empty: whichever the routes say
	Remote netip.AddrPort // where the target listens

	// what passes on the bytes of each connection, for links that are simulated; nil: nothing
	Through func(io.Writer) io.Writer
}

// Info is what the kernel says of a lane's connections (TCP_INFO).
type Info struct {
	Retransmits uint64        // segments sent again since Dial, of all streams
	PathMTU     int           // bytes, the least of all streams; 0: unknown
	RTT         time.Duration // smoothed, the largest of all streams
}

// Conn is an asker's lanes to a target. [Conn.Progress] and [Conn.Close] may be
// called at any time, all else by one at a time. Close it.
type Conn struct {
	lanes []*lane
}

// lane is a Lane and its connections.
type lane struct {
	Lane
	acked atomic.Int64

	mu      sync.Mutex // protects all following fields
	streams []*stream
	broken  *failure.Failure // nil: all is well
	info    Info             // as it was when the lane ended
}

// stream is one connection. One may write while another reads.
type stream struct {
	conn  *net.TCPConn
	out   io.Writer // conn, or what passes on to it
	raw   syscall.RawConn
	acked uint64
}

// fail ends the lane for this reason, unless it has ended for another before;
// and returns why it has.
func (l *lane) fail(f *failure.Failure) *failure.Failure {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		return l.broken
	}
	l.info, l.broken = l.read(), f
	for _, s := range l.streams {
		_ = s.conn.Close()
	}
	return f
}

// failed returns why the lane has ended, nil if it has not.
func (l *lane) failed() *failure.Failure {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// whyBroken names why a lane ends that had come about.
func (l *lane) whyBroken(stage failure.Stage, err error) *failure.Failure {
	reason := failure.TCPBroken
	switch {
	case errors.Is(err, context.Canceled):
		reason = failure.Canceled
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		reason = failure.Timeout
	}
	f := failure.New(stage, reason, "%v", err)
	f.Rail = l.Rail
	return f
}

// read asks the kernel. Call with mu held.
func (l *lane) read() Info {
	var sum Info
	for _, s := range l.streams {
		var info *unix.TCPInfo
		var err error
		if s.raw == nil || s.raw.Control(func(fd uintptr) {
			info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		}) != nil || err != nil {
			continue
		}
		sum.Retransmits += uint64(info.Total_retrans)
		sum.RTT = max(sum.RTT, time.Duration(info.Rtt)*time.Microsecond)
		if mtu := int(info.Pmtu); mtu > 0 && (sum.PathMTU == 0 || mtu < sum.PathMTU) {
			sum.PathMTU = mtu
		}
	}
	return sum
}

// Info returns what the kernel says of each lane's connections; of a lane that
// has ended, what it said then.
func (c *Conn) Info() []Info {
	infos := make([]Info, len(c.lanes))
	for i, l := range c.lanes {
		l.mu.Lock()
		if infos[i] = l.info; l.broken == nil {
			infos[i] = l.read()
		}
		l.mu.Unlock()
	}
	return infos
}

// Progress returns the bytes that the target has acknowledged on each lane
// since Dial.
func (c *Conn) Progress() []int64 {
	bytes := make([]int64, len(c.lanes))
	for i, l := range c.lanes {
		bytes[i] = l.acked.Load()
	}
	return bytes
}

// Close ends all lanes. What is still going on fails.
func (c *Conn) Close() {
	for _, l := range c.lanes {
		_ = l.fail(l.whyBroken(failure.StageRelease, fmt.Errorf("closed: %w", context.Canceled)))
	}
}

// watch ends all lanes when ctx does, until the function it returns is called.
func (c *Conn) watch(ctx context.Context, stage failure.Stage) func() {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		for _, l := range c.lanes {
			_ = l.fail(l.whyBroken(stage, ctx.Err()))
		}
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

// answer waits until the target says that it has n more bytes.
func (s *stream) answer(n int) error {
	if err := s.conn.SetReadDeadline(time.Now().Add(unanswered)); err != nil {
		return err
	}
	var ack [ackLen]byte
	if _, err := io.ReadFull(s.conn, ack[:]); err != nil {
		return err
	}
	s.acked += uint64(n)
	if got := binary.BigEndian.Uint64(ack[:]); got != s.acked {
		return fmt.Errorf("the target says it has %d bytes, %d were sent", got, s.acked)
	}
	return nil
}
