package probe

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
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/connlimit"
	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/probe/internal/worker"
)

// NodeOptions are what a [Node] depends on. Optional fields may be zero.
type NodeOptions struct {
	Version string // of railscope
	Name    string // of this node unless it is configured; optional: the host name
	Sysfs   string // mount point of sysfs
	Rails   func() ([]rail.Rail, error)
	Missing func() []rail.Missing // rails that this node had; optional: none are known
	// Expected returns what is expected of the rails, in their order; optional: what they could carry now, and nothing of
	// software devices. It must not block.
	Expected func([]rail.Rail) []expect.Rail
	// Ethtool answers for the interfaces below Sysfs; optional: the kernel if Sysfs is its own, else nothing.
	Ethtool ethtool.Ioctl

	Worker []string          // command of the worker process, which calls [WorkerMain]
	Env    []string          // of the worker, in addition to that of this process
	Log    func(line string) // receives the worker's stderr; optional

	// Addresses of each interface; optional: those of the kernel.
	Addresses func() (map[string][]netip.Prefix, error)
	// Lookup resolves a DNS name; optional: with the system's resolver.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	// Facts are what a peer's doctor may know of this node, at most 1 MiB of JSON; optional. Never called concurrently.
	Facts func(context.Context) ([]byte, error)

	// Class is which class the RDMA traffic of this node's jobs has; optional: 0. It may take seconds.
	Class func(context.Context) Class

	Server  func(*http.Server)        // configures the server of the control channel; optional
	Refused func(reason, from string) // called for the first refusal of a reason, and again after a pause; optional

	Maintenance func() bool // while it returns true, no round starts and no lease is granted; optional
	Simulation  *Simulation // replaces the worker process in the demo; nil otherwise
}

// Node is this machine as the probe sees it: its rails, its one worker process, its one slot for a transfer, its
// budgets. Rounds and answers share it. One per process. Safe for concurrent use.
type Node struct {
	opts         NodeOptions
	socket       *ethtool.Socket // nil: not opened
	instance     string
	worker       *worker.Worker
	slot         *slot
	askBudget    *budget // of rounds
	answerBudget *budget // of leases
	statusLanes  lane.Group[localRail]
	trafficLanes lane.Group[*rail.Traffic]
	recent       *recentTransfers
	past         past
	own          *ownTraffic
	meanTraffic  MeanTraffic // nil: see UseTraffic
	facts        *facts
	secrets      *secretFiles
	refused      *connlimit.Refusals
	// labels is the label of each found peer that has reported its name; used by the one prober. It outlives a reload:
	// a new label would reset the counters.
	labels map[string]string
	asked  atomic.Pointer[[]string] // the addresses that the prober asks; nil: none yet

	guardInterval time.Duration

	railsMu sync.Mutex               // one reading of the rails at a time: a second would find the lanes taken
	ports   map[rail.Rail]*railPorts // protected by railsMu
	netdevs map[string]bool          // interfaces of rails since the start; protected by railsMu
	roles   map[string]string        // of rails since the start, by name; protected by railsMu

	mu       sync.Mutex // protects all following fields
	budget   Budget
	nodeName string         // as reported to peers
	rdmaCore string         // version; empty until the worker has reported it
	maxMTU   map[string]int // bytes by [rail.Key], as reported by the worker
}

// Simulation is a network of sockets on this machine in place of RDMA.
type Simulation = worker.Simulation

// NewNode returns the node. The worker starts when it is needed.
func NewNode(opts NodeOptions) *Node {
	if opts.Addresses == nil {
		opts.Addresses = interfaceAddresses
	}
	if opts.Lookup == nil {
		opts.Lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if opts.Class == nil {
		opts.Class = func(context.Context) Class { return Class{Source: "default: processes are not read"} }
	}
	if opts.Expected == nil {
		opts.Expected = func(rails []rail.Rail) []expect.Rail { return make([]expect.Rail, len(rails)) }
	}
	if opts.Server == nil {
		opts.Server = func(*http.Server) {}
	}
	var socket *ethtool.Socket
	if opts.Ethtool == nil && sysfs.Live(opts.Sysfs) {
		var err error
		if socket, err = ethtool.Open(); err == nil { // without one, only traffic of RDMA is known
			opts.Ethtool = socket.Ioctl
		}
	}
	n := &Node{guardInterval: guardInterval, opts: opts, socket: socket, instance: rand.Text(), slot: newSlot(),
		maxMTU: map[string]int{}, ports: map[rail.Rail]*railPorts{}, netdevs: map[string]bool{}, roles: map[string]string{},
		facts:   &facts{gather: opts.Facts, lock: make(chan struct{}, 1)},
		secrets: newSecretFiles(), refused: newRefusals(opts.Refused), labels: map[string]string{},
		askBudget: newBudget(0), answerBudget: newBudget(0), recent: new(recentTransfers), own: new(ownTraffic),
		worker: worker.New(worker.Options{Command: opts.Worker, Env: opts.Env, Log: opts.Log,
			Simulation: opts.Simulation})}
	n.setName("")
	n.setBudget(DefaultOptions().Budget)
	return n
}

// asks reports whether this node's rounds have the address as their peer.
func (n *Node) asks(address string) bool {
	list := n.asked.Load()
	return list != nil && slices.Contains(*list, address)
}

// MeanTraffic returns what a rail has carried over the last seconds, the probe's own included; ok is false if that is
// not known. It must not block.
type MeanTraffic func(rail.Rail) (mean rail.MeanTraffic, ok bool)

// UseTraffic sets what the traffic of others is judged by before each round; without it, the rails are watched for a
// moment. Call it before the first round.
func (n *Node) UseTraffic(mean MeanTraffic) { n.meanTraffic = mean }

func (n *Node) maintenance() bool { return n.opts.Maintenance != nil && n.opts.Maintenance() }

func (n *Node) name() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nodeName
}

// setName changes the node's name; empty is that of its options, or of the host.
func (n *Node) setName(name string) {
	if name = cmp.Or(name, n.opts.Name); name == "" {
		name, _ = os.Hostname()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nodeName = cmp.Or(name, "localhost")
}

// Close ends the worker process.
func (n *Node) Close() {
	n.worker.Close()
	if n.socket != nil {
		_ = n.socket.Close() // nothing was written to it
	}
}

// WorkerMain is what the worker process runs; it returns the exit code.
func WorkerMain() int {
	return worker.Main(os.Getenv("RAILSCOPE_LIBIBVERBS"), os.Getenv("RAILSCOPE_LIBCUDA"))
}

// hello is what this node reports about itself.
func (n *Node) hello() hello {
	h := hello{Flows: true, Node: n.name(), Instance: n.instance, Versions: n.versions(), Rails: []helloRail{},
		Missing: n.helloMissing()}
	rails, _ := n.rails() // without those that cannot be read
	for _, r := range rails[:min(len(rails), worker.MaxRails)] {
		limits := r.status.Limits
		h.Rails = append(h.Rails, helloRail{Name: r.Name, Device: r.Device, Port: r.Port, Netdev: r.Netdev,
			State: r.status.State, Active: limits.Active, Rate: limits.Rate, Capacity: r.capacity, Expected: r.remembered(),
			NetdevMTU: r.status.NetdevMTU, MTU: r.ActiveMTU(r.status.NetdevMTU), GID: n.gid(r, nil).GID.Addr,
			Role: r.Role, Firmware: r.Firmware, Driver: r.Driver, Software: r.software(), Members: r.Members,
			Prefixes: r.prefixes[:min(len(r.prefixes), maxAddresses)], GIDs: n.helloGIDs(r)})
	}
	all := n.addresses()
	h.Addresses = all[:min(len(all), maxAddresses)]
	return h
}

func (n *Node) addresses() []address {
	byNetdev, _ := n.opts.Addresses() // none, if they cannot be read
	list := []address{}
	for netdev, prefixes := range byNetdev {
		for _, p := range prefixes {
			list = append(list, address{netdev, p})
		}
	}
	slices.SortFunc(list, func(a, b address) int { return a.Prefix.Addr().Compare(b.Prefix.Addr()) })
	return list
}

// railAddresses are those of interfaces of rails, also if the RDMA device is gone.
func (n *Node) railAddresses() []address {
	n.railsMu.Lock()
	defer n.railsMu.Unlock()
	return slices.DeleteFunc(n.addresses(), func(a address) bool {
		return !n.netdevs[a.Netdev] || a.Prefix.Addr().IsLinkLocalUnicast()
	})
}

// interfaceAddresses are those of all interfaces that are up, without loopback and link-local ones.
func interfaceAddresses() (map[string][]netip.Prefix, error) {
	list, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	all := map[string][]netip.Prefix{}
	for _, i := range list {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, _ := i.Addrs() // none, if it has just been removed
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLinkLocalUnicast() {
				all[i.Name] = append(all[i.Name], p)
			}
		}
	}
	return all, nil
}

// versions are those that are known. The worker is not asked: it may be busy.
func (n *Node) versions() versions {
	n.mu.Lock()
	defer n.mu.Unlock()
	v := versions{Railscope: n.opts.Version, RDMACore: n.rdmaCore}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		v.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return v
}

// loadRDMACore asks the worker for the version of rdma-core, unless it is known.
func (n *Node) loadRDMACore(ctx context.Context) {
	n.mu.Lock()
	known := n.rdmaCore != ""
	n.mu.Unlock()
	if known {
		return
	}
	info, err := n.worker.Info(ctx)
	if err != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rdmaCore = info.RDMACore
}

// MaxMTU is the largest RDMA MTU in bytes that the port supports, independent of its interface: max_mtu of
// ibv_query_port(3), which sysfs does not have. 0 until a round, asked or answered, has opened the port.
func (n *Node) MaxMTU(device string, port int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.maxMTU[rail.Key(device, port)]
}

// workerSession is the one session that a lease, or a round, has open in the worker. Opening another closes it first.
// If the worker does not confirm that, it is killed. Not safe for concurrent use.
type workerSession struct {
	node     *Node
	current  *worker.Session // nil: none is open
	grant    int64           // bytes that it may receive over TCP
	received int64           // bytes that earlier sessions received over TCP, or may have
}

// begin closes the session that is open, and opens another. After an error none is open. The node keeps what a session
// over RDMA reports about the ports.
func (s *workerSession) begin(ctx context.Context, args worker.OpenArgs) (opened worker.Opened, err error) {
	_ = s.end() // closed, or its worker was killed
	s.grant = args.Grant
	s.current, opened, err = s.node.worker.Open(ctx, args)
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	for i, end := range opened.Ends[:min(len(opened.Ends), len(args.Rails))] {
		if r := args.Rails[i]; end.MaxMTU > 0 {
			s.node.maxMTU[rail.Key(r.Device, r.Port)] = end.MaxMTU
		}
	}
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
