// Package node is this node as both roles of a round see it: its rails, its slot, budgets, worker and own traffic.
package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/baseline"
	"github.com/railscope/railscope/internal/connlimit"
	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/internal/text"
	"github.com/railscope/railscope/probe/internal/auth"
	"github.com/railscope/railscope/probe/internal/history"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// Options are what a [Node] depends on. Optional fields may be zero.
type Options struct {
	Version string // version of railscope
	Name    string // name of this node unless one is configured; optional: the host name
	Sysfs   string // mount point of sysfs
	Rails   func() ([]rail.Rail, error)
	Missing func() []rail.Missing // rails that this node had and has lost; optional: none
	// Expected returns what is expected of the rails, in the same order; optional: their present capacity, and
	// nothing for software devices. It must not block.
	Expected func([]rail.Rail) []expect.Rail
	// AtLeast returns how many rails the configuration expects, or 0; optional. It must not block.
	AtLeast func() int
	// Past holds what rails carried on other days; optional: nothing is known.
	Past *baseline.Keeper
	// Ethtool answers for the interfaces below Sysfs; optional: the kernel, if Sysfs is the kernel's, else nothing.
	Ethtool ethtool.Ioctl

	Worker []string          // command of the worker process, which calls [WorkerMain]
	Env    []string          // environment of the worker, in addition to that of this process
	Log    func(line string) // receives the worker's stderr; optional
	// WorkerEnded is called when the worker process crashed or was killed, and will be restarted; optional. during
	// is what this node was doing, or empty.
	WorkerEnded func(why, during string)

	// Addresses returns the addresses of each interface; optional: those of the kernel.
	Addresses func() (map[string][]netip.Prefix, error)
	// Lookup resolves a DNS name; optional: the system's resolver.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	// Facts returns what a peer's doctor may know about this node, at most 1 MiB of JSON; optional. It is never
	// called concurrently.
	Facts func(context.Context) ([]byte, error)

	// Class returns the traffic class and service level of this node's jobs; optional: 0. It may take seconds.
	Class func(context.Context) result.Class

	Server  func(*http.Server)        // configures the server of the control channel; optional
	Refused func(reason, from string) // called for the first refusal with a reason, and again after a pause; optional

	Maintenance func() bool // function that is true while no round may start and no lease may be granted; optional
	Simulation  *Simulation // replaces the worker process in the demo; nil otherwise
}

// Node is this machine as seen by the probe: its rails, its one worker process, its one slot for a transfer, its
// budgets. Rounds and answers share it. One per process. Safe for concurrent use.
type Node struct {
	Opts     Options
	socket   *ethtool.Socket // nil: not open
	Instance string
	Place    // place of rounds and leases that may burst at any time
	Budgets
	statusLanes  lane.Group[LocalRail]
	trafficLanes lane.Group[*rail.Traffic]
	Recent       *RecentTransfers
	Past         history.Past
	Own          *OwnTraffic
	Reserved     *Reservation
	Gaps         *Gaps
	MeanTraffic  MeanTraffic // nil: see UseTraffic
	Facts        *Facts
	Secrets      *auth.SecretFiles
	Refused      *connlimit.Refusals
	// Labels holds the label of each found peer that has reported its name. Only the prober uses it. It outlives a
	// reload, because a new label would reset the counters.
	Labels map[string]string
	Known

	Tuning

	railsMu sync.Mutex               // held while the rails are read: a second reader would find the lanes taken
	ports   map[rail.Rail]*railPorts // protected by railsMu
	Netdevs map[string]bool          // interfaces of rails seen since the start; protected by railsMu
	Roles   map[string]string        // roles of rails seen since the start, by name; protected by railsMu

	mu       sync.Mutex // protects all following fields
	budget   options.Budget
	nodeName string         // name reported to peers
	rdmaCore string         // version of rdma-core; empty until the worker has reported it
	maxMTU   map[string]int // bytes by [rail.Key], as reported by the worker
}

// Simulation replaces RDMA by sockets on this machine.
type Simulation = worker.Simulation

// NewNode returns the node. The worker starts when it is needed.
func NewNode(opts Options) *Node {
	if opts.Addresses == nil {
		opts.Addresses = InterfaceAddresses
	}
	if opts.Lookup == nil {
		opts.Lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if opts.Class == nil {
		unread := result.Class{Source: "default: processes are not read"}
		opts.Class = func(context.Context) result.Class { return unread }
	}
	if opts.Expected == nil {
		opts.Expected = func(rails []rail.Rail) []expect.Rail { return make([]expect.Rail, len(rails)) }
	}
	if opts.AtLeast == nil {
		opts.AtLeast = func() int { return 0 }
	}
	if opts.WorkerEnded == nil {
		opts.WorkerEnded = func(string, string) {}
	}
	if opts.Server == nil {
		opts.Server = func(*http.Server) {}
	}
	var socket *ethtool.Socket
	if opts.Ethtool == nil && sysfs.Live(opts.Sysfs) {
		var err error
		socket, err = ethtool.Open()
		if err == nil { // without it, only RDMA traffic is known
			opts.Ethtool = socket.Ioctl
		}
	}
	n := &Node{Tuning: Tuning{GuardInterval: guardInterval, StrangersWork: strangersWork}, Opts: opts,
		socket: socket, Instance: rand.Text(), maxMTU: map[string]int{}, ports: map[rail.Rail]*railPorts{},
		Netdevs: map[string]bool{},
		Roles:   map[string]string{}, Facts: &Facts{Gather: opts.Facts, Lock: make(chan struct{}, 1)},
		Secrets: auth.NewSecretFiles(), Refused: newRefusals(opts.Refused), Labels: map[string]string{},
		Budgets: Budgets{NewBudget(0), NewBudget(0), NewBudget(0)}, Recent: new(RecentTransfers), Own: new(OwnTraffic),
		Reserved: new(Reservation),
	}
	n.Place, n.Gaps = newPlace(n), &Gaps{Place: newPlace(n)}
	n.SetName("")
	n.SetBudget(options.DefaultOptions().Budget)
	return n
}

// newPlace returns a free place, with a worker that starts when it is needed.
func newPlace(n *Node) Place {
	slot, opts := NewSlot(), &n.Opts
	return Place{Slot: slot, Worker: worker.New(worker.Options{Command: opts.Worker, Env: opts.Env, Log: opts.Log,
		Simulation: opts.Simulation, Ended: func(why string) { opts.WorkerEnded(why, slot.Holder()) },
		Patience: &n.Patience})}
}

// MeanTraffic returns what a rail has carried over the last seconds, the probe's own traffic included. ok is false
// if that is unknown. It must not block.
type MeanTraffic func(rail.Rail) (mean rail.MeanTraffic, ok bool)

// UseTraffic sets the source by which traffic of others is judged before each round. Without it, the rails are
// watched for a moment. Call it before the first round.
func (n *Node) UseTraffic(mean MeanTraffic) { n.MeanTraffic = mean }

// Maintenance reports whether the node is in maintenance.
func (n *Node) Maintenance() bool { return n.Opts.Maintenance != nil && n.Opts.Maintenance() }

// Name returns the name reported to peers.
func (n *Node) Name() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nodeName
}

// SetName changes the node's name. Empty restores the name from its options, or the host name.
func (n *Node) SetName(name string) {
	name = cmp.Or(name, n.Opts.Name)
	if name == "" {
		name, _ = os.Hostname()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nodeName = cmp.Or(name, "localhost")
}

// Close ends the worker process.
func (n *Node) Close() {
	n.Worker.Close()
	n.Gaps.Worker.Close()
	if n.socket != nil {
		_ = n.socket.Close() // nothing was written to it
	}
}

// WorkerMain runs the worker process, and returns its exit code.
func WorkerMain() int {
	return worker.Main(os.Getenv("RAILSCOPE_LIBIBVERBS"),
		worker.Libraries{CUDA: os.Getenv("RAILSCOPE_LIBCUDA"), HSA: os.Getenv("RAILSCOPE_LIBHSA")})
}

// Hello returns what this node reports about itself.
func (n *Node) Hello() protocol.Hello {
	h := protocol.Hello{Flows: true, Parts: true, Node: n.Name(), Instance: n.Instance, Versions: n.Versions(),
		Rails:   []protocol.HelloRail{},
		Missing: n.helloMissing()}
	rails, _ := n.Rails() // rails that cannot be read are left out
	for _, r := range rails[:min(len(rails), worker.MaxRails)] {
		limits := r.Status.Limits
		h.Rails = append(h.Rails, protocol.HelloRail{Name: r.Name, Device: r.Device, Port: r.Port, Netdev: r.Netdev,
			State: r.Status.State, Active: limits.Active, Rate: limits.Rate, Capacity: r.Capacity,
			Expected: r.remembered(), NetdevMTU: r.Status.NetdevMTU, MTU: r.ActiveMTU(r.Status.NetdevMTU),
			GID:  n.GID(r, nil).GID.Addr,
			Role: r.Role, Firmware: r.Firmware, Driver: r.Driver, Software: r.IsSoftware(), Members: r.Members,
			Prefixes: r.Prefixes[:min(len(r.Prefixes), protocol.MaxAddresses)], GIDs: n.HelloGIDs(r)})
	}
	n.FitBudget(RailRate(rails))
	h.Grants = &protocol.Grants{Lease: n.AnswerBudget.MaxLease().Seconds(), Left: n.AnswerBudget.Remaining()}
	all := n.Addresses()
	h.Addresses = all[:min(len(all), protocol.MaxAddresses)]
	return h
}

// Addresses returns the addresses of the node, by which peers recognise it.
func (n *Node) Addresses() []protocol.Address {
	byNetdev, _ := n.Opts.Addresses() // empty if they cannot be read
	list := []protocol.Address{}
	for netdev, prefixes := range byNetdev {
		for _, p := range prefixes {
			list = append(list, protocol.Address{Netdev: netdev, Prefix: p})
		}
	}
	slices.SortFunc(list, func(a, b protocol.Address) int { return a.Prefix.Addr().Compare(b.Prefix.Addr()) })
	return list
}

// RailAddresses returns the addresses of the rails' interfaces, also if an RDMA device is gone.
func (n *Node) RailAddresses() []protocol.Address {
	n.railsMu.Lock()
	defer n.railsMu.Unlock()
	return slices.DeleteFunc(n.Addresses(), func(a protocol.Address) bool {
		return !n.Netdevs[a.Netdev] || a.Prefix.Addr().IsLinkLocalUnicast()
	})
}

// InterfaceAddresses returns the addresses of all interfaces that are up, except loopback and link-local addresses.
func InterfaceAddresses() (map[string][]netip.Prefix, error) {
	list, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	all := map[string][]netip.Prefix{}
	for _, i := range list {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, _ := i.Addrs() // empty if it has just been removed
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLinkLocalUnicast() {
				all[i.Name] = append(all[i.Name], p)
			}
		}
	}
	return all, nil
}

// Versions returns the known versions. It does not ask the worker, which may be busy.
func (n *Node) Versions() protocol.Versions {
	n.mu.Lock()
	defer n.mu.Unlock()
	v := protocol.Versions{Railscope: n.Opts.Version, RDMACore: n.rdmaCore}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		v.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return v
}

// LoadRDMACore asks the worker for the version of rdma-core, unless it is already known.
func (n *Node) LoadRDMACore(ctx context.Context) {
	n.mu.Lock()
	known := n.rdmaCore != ""
	n.mu.Unlock()
	if known {
		return
	}
	info, err := n.Worker.Info(ctx)
	if err != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rdmaCore = info.RDMACore
}

// MaxMTU returns the largest RDMA MTU in bytes that the port supports, independent of its interface: max_mtu of
// ibv_query_port(3), which sysfs lacks. It is 0 until a round or a lease has opened the port.
func (n *Node) MaxMTU(device string, port int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.maxMTU[rail.Key(device, port)]
}

// WorkerSession is the one session that a lease, or a round, has open in the worker. Opening another one closes it
// first. A worker that does not confirm the close is killed. Not safe for concurrent use.
type WorkerSession struct {
	Node     *Node
	Worker   *worker.Worker
	Current  *worker.Session // nil: no session is open
	Grant    int64           // bytes that the session may receive over TCP
	Received int64           // upper bound of the bytes that earlier sessions received over TCP
}

// Begin closes the open session, and opens another one. After an error no session is open. What a session over RDMA
// reports about the ports is recorded in the node.
func (s *WorkerSession) Begin(ctx context.Context, args worker.OpenArgs) (opened worker.Opened, err error) {
	_ = s.End() // closed, or its worker was killed
	s.Grant = args.Grant
	s.Current, opened, err = s.Worker.Open(ctx, args)
	s.Node.mu.Lock()
	defer s.Node.mu.Unlock()
	for i, end := range opened.Ends[:min(len(opened.Ends), len(args.Rails))] {
		if r := args.Rails[i]; end.MaxMTU > 0 {
			s.Node.maxMTU[rail.Key(r.Device, r.Port)] = end.MaxMTU
		}
	}
	return opened, err
}

// End closes the open session. When it returns, the worker has confirmed that queue pairs, memory and listeners are
// gone, or was killed.
func (s *WorkerSession) End() error {
	if s.Current == nil {
		return nil
	}
	received, err := s.Current.Close()
	if received != nil {
		s.Received += received.Bytes
	} else {
		s.Received += s.Grant
	}
	s.Current = nil
	return err
}

// CompareWithPast adds what the rails carried alone on other days, and marks the round degraded if one has become
// slow. An interactive round is compared but not remembered.
func (n *Node) CompareWithPast(r result.Result, byHand bool) result.Result {
	past := n.Opts.Past
	if past == nil || r.Transport != result.RDMA || r.Outcome == result.Skipped {
		return r
	}
	r.Rails = slices.Clone(r.Rails)
	for i := range r.Rails {
		one := &r.Rails[i]
		solo, expected := 0.0, 0.0
		if one.Solo != nil {
			solo = one.Solo.BytesPerSecond()
		}
		if one.Expected != nil {
			expected = *one.Expected
		}
		switch {
		case solo <= 0:
			one.Past = past.Last(r.Peer, one.Rail) // the comparison of the last full round holds until the next one
		case byHand:
			one.Past = cmp.Or(past.Compare(r.Peer, one.Rail, r.Start, solo),
				past.Compare(text.Label(r.PeerNode), one.Rail, r.Start, solo))
		default:
			before := past.Observe(r.Peer, one.Rail, r.Start, solo, expected)
			one.Past = &before
		}
	}
	if r.Outcome == result.OK && r.Degraded() {
		r.Outcome = result.Degraded
	}
	return r
}
