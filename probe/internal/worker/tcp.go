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

// tcpEngine is a session over TCP: a target that listens, or an asker's
// connections to one.
type tcpEngine struct {
	args   OpenArgs
	key    [32]byte
	buffer []byte
	target *tcp.Target
	conn   *tcp.Conn
	lanes  map[string]int // rail → place in conn

	through func(rail string) func(io.Writer) io.Writer // of a simulated network; nil: none

	ctx  context.Context // done when the session is canceled or closed
	stop context.CancelFunc
}

// openTCP begins the session, and tells the port on which a target listens: at
// one address, or at all for none.
func openTCP(args OpenArgs, at ...netip.Addr) (*tcpEngine, uint16, error) {
	if len(args.Key) != 32 {
		return nil, 0, failure.New("", failure.Other, "a key of %d bytes: it must have 32", len(args.Key))
	}
	e := &tcpEngine{args: args, key: [32]byte(args.Key), buffer: make([]byte, args.Buffer), lanes: map[string]int{}}
	e.ctx, e.stop = context.WithCancel(context.Background())
	if !args.Target {
		return e, 0, nil
	}
	granted := args.Grant
	if args.Transport != TCP { // what stands for RDMA is bounded as RDMA is
		granted = math.MaxInt64
	}
	target, err := tcp.Listen(e.ctx, at, e.buffer, e.key, granted)
	if err != nil {
		e.stop()
		return nil, 0, failure.New("", failure.Other, "%v", err)
	}
	e.target = target
	return e, target.Addrs()[0].Port(), nil
}

func (e *tcpEngine) ends() []End {
	ends := make([]End, len(e.args.Rails))
	for i, r := range e.args.Rails {
		ends[i].Name = r.Name
	}
	return ends
}

func (e *tcpEngine) connect(args ConnectArgs) Connected {
	own := map[string]RailArg{}
	for _, r := range e.args.Rails {
		own[r.Name] = r
	}
	var lanes []tcp.Lane
	for _, r := range args.Rails {
		e.lanes[r.Name] = len(lanes)
		lane := tcp.Lane{Rail: r.Name, Local: own[r.Name].Local, Netdev: own[r.Name].Netdev, Remote: r.TCP}
		if e.through != nil {
			lane.Through = e.through(r.Name)
		}
		lanes = append(lanes, lane)
	}
	var failures []*failure.Failure
	e.conn, failures = tcp.Dial(e.ctx, lanes, e.args.QueuePairs, e.key)
	var c Connected
	for _, f := range failures {
		if f != nil {
			c.Failures = append(c.Failures, *f)
		}
	}
	return c
}

// connected says what is wrong when there is nobody to send to.
func (e *tcpEngine) connected() error {
	if e.conn == nil {
		return failure.New("", failure.Other, "the session is not connected")
	}
	return nil
}

func (e *tcpEngine) latency(args LatencyArgs) (Latencies, error) {
	if err := e.connected(); err != nil {
		return Latencies{}, err
	}
	lane, ok := e.lanes[args.Rail]
	if !ok {
		return Latencies{}, failure.New("", failure.Other, "the session has no rail %q", args.Rail)
	}
	ctx, cancel := context.WithTimeout(e.ctx, args.Limit)
	defer cancel()
	samples, err := e.conn.Latency(ctx, lane, args.N)
	return Latencies{Samples: samples}, err
}

func (e *tcpEngine) burst(args BurstArgs) (BurstDone, error) {
	if err := e.connected(); err != nil {
		return BurstDone{}, err
	}
	o := tcp.Options{Mode: tcp.Static, Total: args.Total, Chunk: min(args.Chunk, tcp.MaxChunk), Depth: args.Depth,
		Limit: args.Limit}
	if args.Stealing {
		o.Mode = tcp.Stealing
	}
	for _, name := range args.Rails {
		lane, ok := e.lanes[name]
		if !ok {
			return BurstDone{}, failure.New("", failure.Other, "the session has no rail %q", name)
		}
		o.Lanes = append(o.Lanes, lane)
	}
	ctx, cancel := context.WithTimeout(e.ctx, max(args.Deadline, time.Millisecond))
	defer cancel()
	res, err := e.conn.Burst(ctx, e.buffer, o)
	if len(res.Lanes) == 0 && err != nil {
		return BurstDone{}, err
	}
	done := BurstDone{Elapsed: res.Elapsed, Bytes: res.Bytes}
	for _, lane := range o.Lanes {
		l := res.Lanes[lane]
		done.Rails = append(done.Rails, BurstRail{Bytes: l.Bytes, First: l.First, Last: l.Last, Failure: l.Err})
	}
	for _, r := range res.Done {
		done.Done = append(done.Done, Range(r))
	}
	return done, nil
}

func (e *tcpEngine) tcpInfo() []TCPInfo {
	list := []TCPInfo{}
	if e.conn != nil {
		for _, i := range e.conn.Info() {
			list = append(list, TCPInfo(i))
		}
	}
	return list
}

func (e *tcpEngine) intake() Intake {
	if e.target == nil || e.args.Transport != TCP {
		return Intake{}
	}
	bytes, exceeded := e.target.Taken()
	return Intake{Bytes: bytes, Exceeded: exceeded}
}

func (e *tcpEngine) bytes() []byte { return e.buffer }

func (e *tcpEngine) progress() []int64 {
	if e.conn == nil {
		return nil
	}
	return e.conn.Progress()
}

func (e *tcpEngine) cancel() { e.stop() }

func (e *tcpEngine) close() error {
	e.stop()
	if e.conn != nil {
		e.conn.Close()
	}
	if e.target != nil {
		e.target.Close()
	}
	return nil
}

var _ engine = (*tcpEngine)(nil)
