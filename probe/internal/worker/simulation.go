package worker

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// Simulation replaces libibverbs and the network for a demonstration on one machine: both transports use sockets on the
// loopback interface. Bytes are moved, verified and timed as usual, but by goroutines of this process. Several
// goroutines call the functions.
type Simulation struct {
	// Through wraps a connection over a rail: it limits the rate and counts bytes. They are the peer's if op is [Read].
	Through func(rail, transport string, op Op, to io.Writer) io.Writer
	// Fault returns the failure of RDMA; nil if it works.
	Fault func() *failure.Failure
	// Moved is called after a transfer, before its result is returned. From then on counters must include the transfer.
	Moved func()
}

// start is [start] without a process.
func (s *Simulation) start() *process {
	ours, theirs := net.Pipe()
	p := &process{conn: ours, in: newMessages(ours), gone: make(chan struct{})}
	go func() {
		defer close(p.gone)
		srv := &server{simulation: s, out: theirs}
		_ = srv.serve(theirs) // ends when the connection is closed
		srv.mu.Lock()
		srv.stopLocked()
		srv.mu.Unlock()
		_ = theirs.Close()
		<-srv.idle
		_, _ = srv.close() // closes only sockets
	}()
	return p
}

// loopback is the only address of a simulated target.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// simulatedMTU is the path MTU of a simulated rail.
const simulatedMTU = 4096

// open opens a session over TCP. The address of a target's memory is its port, instead of queue pairs. Reads do not
// involve the target: the asker has a target of its own, and writes to it what the target would send.
func (s *Simulation) open(args OpenArgs, memory map[string][]byte) (engine, Opened, error) {
	tcp, opened, err := openTCP(args, memory, loopback)
	if err != nil {
		return nil, Opened{}, err
	}
	tcp.through = func(r RailArg, to io.Writer) io.Writer {
		return s.Through(cmp.Or(r.Rail, r.Name), args.Transport, r.Op, to)
	}
	e := &simulatedEngine{tcpEngine: tcp, s: s}
	if args.Transport == TCP {
		return e, opened, nil
	}
	if !args.Target && slices.ContainsFunc(args.Rails, func(r RailArg) bool { return r.Op == Read }) {
		own := args
		own.Target = true
		e.reads, _, err = openTCP(own, memory, loopback)
		if err != nil {
			_ = tcp.close() // it has no connection yet
			return nil, Opened{}, err
		}
	}
	for i := range opened.Ends {
		end := &opened.Ends[i]
		for n := range args.QueuePairs {
			end.QPNs = append(end.QPNs, uint32(i*args.QueuePairs+n+2)) // 0 and 1 are special (IBTA 3.5.10)
		}
		end.PSNs = make([]uint32, args.QueuePairs)
		end.GID, end.ActiveMTU, end.MaxMTU = args.Rails[i].GID, simulatedMTU, simulatedMTU
		end.Addr, end.Size = uint64(opened.TCPPort), args.Buffer
		if args.Rails[i].Op == Read {
			end.Size = transfer.SourceLen
		}
	}
	return e, opened, nil
}

// simulatedEngine is a session that moves its bytes as [tcpEngine] does.
type simulatedEngine struct {
	*tcpEngine
	reads *tcpEngine // where reads arrive; nil: there are none
	s     *Simulation
}

// connect connects an asker's rails. Queue pairs connect at both ends, but a simulated target only listens.
func (e *simulatedEngine) connect(args ConnectArgs) []failure.Failure {
	if e.args.Target {
		return nil
	}
	read := map[string]bool{}
	for _, r := range e.args.Rails {
		read[r.Name] = r.Op == Read
	}
	for i := range args.Rails {
		r := &args.Rails[i]
		port := r.TCP.Port()
		switch {
		case read[r.Name]:
			port = e.reads.target.Port()
		case e.args.Transport != TCP:
			port = uint16(r.Remote.Addr)
		}
		r.TCP = netip.AddrPortFrom(loopback, port)
	}
	return e.tcpEngine.connect(args)
}

func (e *simulatedEngine) latency(args LatencyArgs) (Latencies, error) {
	if f := e.fault(args.Rail); f != nil {
		return Latencies{}, f
	}
	defer e.s.Moved()
	return e.tcpEngine.latency(args)
}

// transfers times transfers whose shares are written at once, each message after the one before it has arrived.
func (e *simulatedEngine) transfers(args TransfersArgs) (l Latencies, err error) {
	for _, s := range args.Shares {
		if f := e.fault(s.Rail); f != nil {
			return l, f
		}
	}
	defer e.s.Moved()
	for begin := time.Now(); len(l.Samples) < args.N && (len(l.Samples) == 0 || time.Since(begin) < args.Limit); {
		ctx, cancel := context.WithTimeout(e.ctx, args.Deadline)
		start := time.Now()
		group, ctx := errgroup.WithContext(ctx)
		for _, s := range args.Shares {
			group.Go(func() error {
				_, err := e.conn.Latency(ctx, s.Rail, int(s.Chunk), s.Count)
				return err
			})
		}
		err = group.Wait()
		cancel()
		if err != nil {
			return l, err
		}
		l.Samples = append(l.Samples, time.Since(start))
	}
	return l, nil
}

func (e *simulatedEngine) close() error {
	err := e.tcpEngine.close()
	if e.reads != nil {
		err = errors.Join(err, e.reads.close())
	}
	return err
}

func (e *simulatedEngine) burst(source []byte, args BurstArgs) (done BurstDone, err error) {
	for _, l := range args.Loads {
		if f := e.fault(l.Rail); f != nil {
			done.Rails = append(done.Rails, BurstRail{Failure: f})
		}
	}
	if done.Rails != nil {
		return done, nil
	}
	defer e.s.Moved()
	return e.tcpEngine.burst(source, args)
}

// fault returns the failure of RDMA on a rail.
func (e *simulatedEngine) fault(rail string) *failure.Failure {
	f := e.s.Fault()
	if e.args.Transport == TCP || f == nil {
		return nil
	}
	own := *f
	own.Rail = rail
	return &own
}
