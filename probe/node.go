package probe

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/connlimit"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/worker"
)

// NodeOptions are what a [Node] stands on. Zero values of optional ones are what a real machine wants.
type NodeOptions struct {
	Version string // of railscope
	Name    string // what this node calls itself where the configuration does not say; optional: the host's name
	Sysfs   string // where sysfs is mounted
	Rails   func() ([]rail.Rail, error)

	Worker    []string          // command of the worker process, which calls [WorkerMain]
	Env       []string          // beside this process's own, for the worker
	Log       func(line string) // gets what the worker writes to stderr; optional
	Addresses func() (map[string][]netip.Prefix,
		error) // of each interface; optional: asks the kernel
	Lookup func(ctx context.Context, host string) ([]netip.Addr,
		error) // addresses of a DNS name; optional: asks the system's resolver
	Facts func(context.Context) ([]byte,
		error) // what this node tells a peer's doctor, JSON of 1 MiB at most; optional. One call at a time
	Server func(*http.Server) // prepares the control channel's server, its log for one; optional

	// is told of the first refusal of a reason by the control channel, until there were none for a while; optional
	Refused func(reason, from string)

	Maintenance func() bool // no round starts, and no lease is granted, while it returns true; optional

	// takes the place of the worker process, for the demo; nil wherever figures are to be believed
	Simulation *Simulation
}

// Node is this machine as the probe sees it: its rails, its one worker process, its one place for a transfer, its
// budget. One per process; asking and answering share it. Safe for concurrent use.
type Node struct {
	opts         NodeOptions
	instance     string
	worker       *worker.Worker
	slot         *slot
	askBudget    *budget // of the rounds that this node makes
	answerBudget *budget // of the leases that it grants
	statusLanes  lane.Group[localRail]
	trafficLanes lane.Group[traffic]
	recent       recentTransfers
	turns        turns
	facts        *facts
	secrets      *secretFiles
	refused      *connlimit.Refusals
	labels       *labelCache // of peers that were found

	railsMu sync.Mutex               // one look at the rails at a time: a second would find the lanes taken
	ports   map[rail.Rail]*railPorts // protected by looking
	netdevs map[string]bool          // interfaces that were rails' since the start; protected by looking

	mu       sync.Mutex      // protects all following fields
	nodeName string          // its name
	rdmaCore string          // version, as far as the worker has told
	maxMTU   map[portKey]int // bytes, as far as the worker has told
}

// portKey is a port of this node, whatever rail it is.
type portKey struct {
	device string
	port   int
}

// Simulation is a network of sockets on this machine in the place of RDMA.
type Simulation = worker.Simulation

// How long one device may take to say how it is, all of its GID table included, and how long to tell its counters.
const (
	statusBudget = 3 * time.Second
	deviceBudget = time.Second
)

// NewNode returns the node. Nothing is started before it is needed.
func NewNode(opts NodeOptions) *Node {
	if opts.Addresses == nil {
		opts.Addresses = interfaceAddresses
	}
	if opts.Lookup == nil {
		opts.Lookup = lookUpAddresses
	}
	if opts.Server == nil {
		opts.Server = func(*http.Server) {}
	}
	n := &Node{opts: opts, instance: rand.Text(), slot: newSlot(), maxMTU: map[portKey]int{},
		ports: map[rail.Rail]*railPorts{}, facts: newFacts(opts.Facts),
		secrets: newSecretFiles(), refused: newRefusals(opts.Refused), labels: newLabelCache(),
		askBudget: newBudget(DefaultOptions().Budget), answerBudget: newBudget(DefaultOptions().Budget),
		worker: worker.New(worker.Options{Command: opts.Worker, Env: opts.Env, Log: opts.Log,
			Simulation: opts.Simulation})}
	n.setName("")
	return n
}

// maintenance reports whether people are at work on this node.
func (n *Node) maintenance() bool { return n.opts.Maintenance != nil && n.opts.Maintenance() }

// name is what the node calls itself.
func (n *Node) name() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nodeName
}

// rename changes what the node calls itself; empty is the name it was made with, or the host's.
func (n *Node) setName(name string) {
	if name = cmp.Or(name, n.opts.Name); name == "" {
		name, _ = os.Hostname()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nodeName = cmp.Or(name, "localhost")
}

// Close ends the worker process.
func (n *Node) Close() { n.worker.Close() }

// WorkerMain is what the worker process runs; it returns the exit code.
func WorkerMain() int { return worker.Main(os.Getenv("RAILSCOPE_LIBIBVERBS")) }

// ownRail is one of this node's rails at one moment.
type localRail struct {
	rail.Rail
	status   rail.Status
	err      error      // why status is not known
	traffic  *rail.Port // used in the lane of its rail in meters
	capacity float64
	prefixes []netip.Prefix // of its interface
}

// rails looks at this node's rails, each device in a lane of its own.
func (n *Node) rails() ([]localRail, error) {
	n.railsMu.Lock()
	defer n.railsMu.Unlock()
	list, err := n.opts.Rails()
	addresses, addrErr := n.opts.Addresses()
	var names []string
	for _, r := range list {
		names = append(names, r.Name)
	}
	ports := n.portsLocked(list)
	rails := make([]localRail, len(list))
	limits := make([]rail.Limits, len(list))
	for i, res := range n.statusLanes.Run(statusBudget, names, func(name string) localRail {
		status, err := ports[name].status.Status()
		return localRail{status: status, err: err}
	}) {
		rails[i] = res.Value
		if res.Err != nil {
			rails[i] = localRail{err: res.Err}
		}
		rails[i].Rail, rails[i].traffic = list[i], ports[list[i].Name].traffic
		rails[i].prefixes = addresses[list[i].Netdev]
		n.rememberLocked(list[i].Netdev)
		limits[i] = rails[i].status.Limits
	}
	for i, c := range rail.Capacities(limits) {
		rails[i].capacity = c
	}
	return rails, errors.Join(err, addrErr)
}

// railPorts reads one rail. Each reader is used in the rail's lane of one group.
type railPorts struct {
	status  *rail.Port // in Node.statuses
	traffic *rail.Port // in Node.meters; it leaves no file open
}

// portsLocked returns the readers of rails, by name. They are kept: a GID table of a thousand entries takes long to
// read, but only the first time, and a counter that the driver refused is left alone.
func (n *Node) portsLocked(list []rail.Rail) map[string]*railPorts {
	ports := map[string]*railPorts{}
	for _, r := range list {
		if n.ports[r] == nil {
			n.ports[r] = &railPorts{rail.NewPort(n.opts.Sysfs, r, nil), rail.NewPort(n.opts.Sysfs, r, nil)}
		}
		ports[r.Name] = n.ports[r]
	}
	for r, p := range n.ports {
		if ports[r.Name] == p {
			continue
		}
		closed := n.statusLanes.Run(deviceBudget, []string{r.Name}, func(string) localRail {
			p.status.Close()
			return localRail{}
		})
		if closed[0].State == lane.Done {
			delete(n.ports, r)
		}
	}
	return ports
}

// gid chooses the GID for a connection to a peer with these addresses: as
// [rail.ChooseGID] does, but among those in the peer's subnet, if there are any.
func (n *Node) gid(r localRail, peer []netip.Prefix) rail.Choice {
	own := rail.Own(n.opts.Sysfs, r.Netdev)
	choice := rail.ChooseGID(r.status.GIDs, r.LinkLayer, own)
	if !choice.OK || r.LinkLayer == "InfiniBand" {
		return choice
	}
	near := slices.DeleteFunc(slices.Clone(r.status.GIDs), func(g rail.GID) bool {
		i := slices.IndexFunc(r.prefixes, func(p netip.Prefix) bool { return p.Addr() == g.Addr.Unmap() })
		return i < 0 || !inSubnet(r.prefixes[i], peer).IsValid()
	})
	if better := rail.ChooseGID(near, r.LinkLayer, own); better.OK && better.GID.Type == rail.TypeRoCEv2 {
		better.Reason += ", in the peer's subnet"
		return better
	}
	return choice
}

// usable says why a rail cannot take part, or nil.
func (r localRail) unusable(choice rail.Choice) *failure.Failure {
	fail := func(reason failure.Reason, format string, args ...any) *failure.Failure {
		f := failure.New(failure.StageOpen, reason, format, args...)
		f.Rail = r.Name
		return f
	}
	switch {
	case r.err != nil:
		return fail(failure.Other, "%s does not say how it is: %v", r.Device, r.err)
	case !r.status.Limits.Active:
		return fail(failure.PortDown, "%s port %d is %q: look at its cable and at `ip link show %s`", r.Device, r.Port,
			r.status.State, r.Netdev)
	case !choice.OK:
		return fail(failure.NoGID, "%s: %s", r.Device, choice.Reason)
	}
	return nil
}

// hello is what this node says of itself.
func (n *Node) hello() hello {
	h := hello{Node: n.name(), Instance: n.instance, Versions: n.versions(), Rails: []helloRail{},
		Addresses: []address{}}
	rails, _ := n.rails() // what cannot be read is not there to be used
	for _, r := range rails[:min(len(rails), worker.MaxRails)] {
		h.Rails = append(h.Rails, helloRail{Name: r.Name, Device: r.Device, Port: r.Port, Netdev: r.Netdev,
			State:  r.status.State,
			Active: r.status.Limits.Active, Rate: r.status.Limits.Rate, Capacity: r.capacity,
			NetdevMTU: r.status.NetdevMTU,
			MTU:       r.ActiveMTU(r.status.NetdevMTU), GID: n.gid(r, nil).GID.Addr, Firmware: r.Firmware,
			Driver:   r.Driver,
			Software: r.software(),
			Prefixes: r.prefixes[:min(len(r.prefixes), maxAddresses)]})
	}
	all := n.addresses()
	h.Addresses = all[:min(len(all), maxAddresses)]
	return h
}

// addresses are those of all interfaces, in order.
func (n *Node) addresses() []address {
	byNetdev, _ := n.opts.Addresses() // none is a value, too
	list := []address{}
	for netdev, prefixes := range byNetdev {
		for _, p := range prefixes {
			list = append(list, address{netdev, p})
		}
	}
	slices.SortFunc(list, func(a, b address) int { return a.Prefix.Addr().Compare(b.Prefix.Addr()) })
	return list
}

// rememberLocked notes that an interface is a rail's.
func (n *Node) rememberLocked(netdev string) {
	if n.netdevs == nil {
		n.netdevs = map[string]bool{}
	}
	n.netdevs[netdev] = true
}

// railAddresses are those of the interfaces that are rails', or were before their RDMA device went.
func (n *Node) railAddresses() []address {
	n.railsMu.Lock()
	defer n.railsMu.Unlock()
	return slices.DeleteFunc(n.addresses(), func(a address) bool {
		return !n.netdevs[a.Netdev] || a.Prefix.Addr().IsLinkLocalUnicast()
	})
}

// versions are those known without asking the worker, which may be at work.
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

// learn asks the worker which rdma-core there is, unless that is known. What it does not tell stays unknown.
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

// open begins a session of the worker, and keeps what that says of ports: nothing where it goes by TCP.
func (n *Node) open(ctx context.Context, args worker.OpenArgs) (*worker.Session, worker.Opened, error) {
	session, opened, err := n.worker.Open(ctx, args)
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, end := range opened.Ends[:min(len(opened.Ends), len(args.Rails))] {
		if r := args.Rails[i]; end.MaxMTU > 0 {
			n.maxMTU[portKey{r.Device, r.Port}] = end.MaxMTU
		}
	}
	return session, opened, err
}

// MaxMTU is the largest RDMA MTU in bytes that the port can do, whatever its interface is set to: max_mtu of
// ibv_query_port(3), which sysfs does not have. 0 until a round, asked for or answered, has opened the port.
func (n *Node) MaxMTU(device string, port int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.maxMTU[portKey{device, port}]
}

// interfaceAddresses asks the kernel for the addresses of all interfaces that are up and lead out of the machine.
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
		addrs, err := i.Addrs()
		if err != nil {
			continue // it went away in this moment
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLinkLocalUnicast() {
				all[i.Name] = append(all[i.Name], p)
			}
		}
	}
	return all, nil
}
