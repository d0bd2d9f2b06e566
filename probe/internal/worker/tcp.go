package worker

import (
	"context"
	"io"
	"math"
	"net/netip"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/tcp"
)

// tcpEngine is a session over TCP: a target that listens, or an asker's connections to one.
type tcpEngine struct {
	args   OpenArgs
	target *tcp.Target // nil for an asker
	conn   *tcp.Conn   // no lanes until connect

	through func(r RailArg, to io.Writer) io.Writer // wrapper of a simulated network; nil for a real one

	ctx  context.Context // done when the session is canceled or closed
	stop context.CancelFunc
}

// openTCP opens the session. A target has memory for each rail and listens at an address, or at all addresses if at is
// zero.
func openTCP(args OpenArgs, memory map[string][]byte, at netip.Addr) (*tcpEngine, Opened, error) {
	if len(args.Key) != 32 {
		return nil, Opened{}, failure.New("", failure.Other, "a key of %d bytes instead of 32", len(args.Key))
	}
	e := &tcpEngine{args: args, conn: new(tcp.Conn)}
	opened := Opened{Ends: make([]End, len(args.Rails))}
	for i, r := range args.Rails {
		opened.Ends[i].Name = r.Name
	}
	e.ctx, e.stop = context.WithCancel(context.Background())
	if !args.Target {
		return e, opened, nil
	}
	granted := args.Grant
	if args.Transport != TCP { // simulated RDMA, which cannot refuse bytes
		granted = math.MaxInt64
	}
	var lanes [][]byte
	for _, r := range args.Rails {
		lanes = append(lanes, memory[r.Name])
	}
	var err error
	e.target, err = tcp.Listen(e.ctx, at, lanes, args.QueuePairs, [32]byte(args.Key), granted)
	if err != nil {
		e.stop()
		return nil, Opened{}, failure.As("", err)
	}
	opened.TCPPort = e.target.Port()
	return e, opened, nil
}

func (e *tcpEngine) connect(args ConnectArgs) (failures []failure.Failure) {
	own := map[string]RailArg{}
	for _, r := range e.args.Rails {
		own[r.Name] = r
	}
	var lanes []tcp.Lane
	for _, r := range args.Rails {
		lane := tcp.Lane{Rail: r.Name, Local: own[r.Name].Local, Netdev: own[r.Name].Netdev, Remote: r.TCP}
		if e.through != nil {
			lane.Through = func(to io.Writer) io.Writer { return e.through(own[r.Name], to) }
		}
		lanes = append(lanes, lane)
	}
	var broken []*failure.Failure
	e.conn, broken = tcp.Dial(e.ctx, lanes, e.args.QueuePairs, e.args.Buffer, [32]byte(e.args.Key))
	for _, f := range broken {
		if f != nil {
			failures = append(failures, *f)
		}
	}
	return failures
}

func (e *tcpEngine) latency(args LatencyArgs) (l Latencies, err error) {
	ctx, cancel := context.WithTimeout(e.ctx, args.Limit)
	defer cancel()
	if args.Over <= 0 {
		l.Samples, err = e.conn.Latency(ctx, args.Rail, int(args.Size), args.N)
		return l, err
	}
	begin := time.Now()
	for _, at := range args.arrivals() {
		time.Sleep(at - time.Since(begin))
		samples, err := e.conn.Latency(ctx, args.Rail, int(args.Size), 1)
		if err != nil {
			return l, err
		}
		l.Samples = append(l.Samples, samples...)
	}
	return l, nil
}

func (e *tcpEngine) transfers(TransfersArgs) (Latencies, error) {
	return Latencies{}, failure.New("", failure.Other, "transfers over TCP are not measured")
}

func (e *tcpEngine) burst(source []byte, args BurstArgs) (BurstDone, error) {
	ctx, cancel := context.WithTimeout(e.ctx, max(args.Deadline, time.Millisecond))
	defer cancel()
	return e.conn.Burst(ctx, source, args)
}

func (e *tcpEngine) arrived(string, int, time.Duration) error { return nil } // acknowledged bytes have arrived
func (e *tcpEngine) stopRail(string)                          {}             // a broken connection is closed

func (e *tcpEngine) intake() Intake {
	if e.target == nil || e.args.Transport != TCP {
		return Intake{}
	}
	bytes, exceeded := e.target.Received()
	return Intake{Bytes: bytes, Exceeded: exceeded}
}

func (e *tcpEngine) tcpInfo() TCPInfo  { return e.conn.Info() }
func (e *tcpEngine) progress() []int64 { return e.conn.Progress() }
func (e *tcpEngine) cancel()           { e.stop() }

func (e *tcpEngine) close() error {
	e.stop()
	e.conn.Close()
	if e.target != nil {
		e.target.Close()
	}
	return nil
}
