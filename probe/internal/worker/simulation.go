package worker

import (
	"io"
	"net"
	"net/netip"

	"github.com/railscope/railscope/probe/internal/failure"
)

// Simulation is a network in the place of libibverbs and of the machine's own
// interfaces, for a demonstration on one machine: what goes by RDMA and what goes
// by TCP both go over sockets of the loopback interface. Bytes are moved,
// checked and timed as ever, but by goroutines of this process, because no
// foreign code is in the way. All functions are called by several goroutines.
type Simulation struct {
	// Through returns what passes on the bytes of one connection over a rail: it
	// is as fast as the rail is to be, and counts.
	Through func(rail, transport string, to io.Writer) io.Writer
	// Fault says why nothing gets through by RDMA, nil where it does.
	Fault func() *failure.Failure
	// Moved is called when a transfer has ended, before anybody hears of it:
	// counters must show it from then on.
	Moved func()
}

// network opens sessions otherwise than by libibverbs and bare sockets.
type network interface {
	info() Info
	open(OpenArgs) (engine, uint16, error)
}

var _ network = (*Simulation)(nil)

// start is [start] without a process.
func (s *Simulation) start() *process {
	ours, theirs := net.Pipe()
	p := &process{conn: ours, gone: make(chan struct{})}
	go func() {
		defer close(p.gone)
		srv := &server{network: s, out: theirs}
		_ = srv.serve(theirs) // it ends when the connection is closed
		srv.mu.Lock()
		if srv.stop != nil {
			srv.stop()
		}
		srv.mu.Unlock()
		_ = theirs.Close()
		<-srv.idle
		_, _ = srv.close() // sockets: nobody is left to be told
	}()
	return p
}

// info says what takes the place of libibverbs.
func (s *Simulation) info() Info { return Info{Library: "simulated"} }

// loopback is the only address at which anything can be written to.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

func (s *Simulation) open(args OpenArgs) (engine, uint16, error) {
	tcp, port, err := openTCP(args, loopback)
	if err != nil {
		return nil, 0, err
	}
	tcp.through = func(rail string) func(io.Writer) io.Writer {
		return func(to io.Writer) io.Writer { return s.Through(rail, args.Transport, to) }
	}
	return &simulatedEngine{tcpEngine: tcp, s: s, port: port}, port, nil
}

// simulatedEngine is a session that moves its bytes as [tcpEngine] does.
type simulatedEngine struct {
	*tcpEngine
	s    *Simulation
	port uint16 // on which a target listens
}

// simulatedMTU is that of the path that a simulated rail claims to be.
const simulatedMTU = 4096

// ends are those of queue pairs that there are not. The address of a target's
// memory is the port on which it can be written to.
func (e *simulatedEngine) ends() []End {
	ends := e.tcpEngine.ends()
	if e.args.Transport == TCP {
		return ends
	}
	for i, r := range e.args.Rails {
		ends[i].QPNs, ends[i].PSNs = make([]uint32, e.args.QueuePairs), make([]uint32, e.args.QueuePairs)
		for n := range ends[i].QPNs {
			ends[i].QPNs[n] = uint32(i*e.args.QueuePairs + n + 2) // 0 and 1 are special (IBTA 3.5.10)
		}
		ends[i].GID, ends[i].ActiveMTU, ends[i].MaxMTU, ends[i].Addr = r.GID, simulatedMTU, simulatedMTU, uint64(e.port)
	}
	return ends
}

// connect connects an asker's rails. Queue pairs have two ends that connect;
// here a target waits for it.
func (e *simulatedEngine) connect(args ConnectArgs) Connected {
	if e.args.Target {
		return Connected{}
	}
	for i := range args.Rails {
		r := &args.Rails[i]
		port := r.TCP.Port()
		if e.args.Transport != TCP {
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

func (e *simulatedEngine) burst(args BurstArgs) (done BurstDone, err error) {
	if e.fault("") != nil {
		for _, rail := range args.Rails {
			done.Rails = append(done.Rails, BurstRail{Failure: e.fault(rail)})
		}
		return done, nil
	}
	defer e.s.Moved()
	return e.tcpEngine.burst(args)
}

// fault is why nothing gets through a rail by RDMA.
func (e *simulatedEngine) fault(rail string) *failure.Failure {
	if e.args.Transport == TCP {
		return nil
	}
	f := e.s.Fault()
	if f == nil {
		return nil
	}
	own := *f
	own.Rail = rail
	return &own
}
