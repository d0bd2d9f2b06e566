package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// How the addresses of DNS names become peers. An address that is not in the answer any more stays a peer for a while:
// it is a pod that is being replaced, or a node that went down, of which the rounds have to say so.
const (
	lookupEvery      = 30 * time.Second
	lookupTime       = 5 * time.Second // for one name
	forgetAfter      = 5 * time.Minute
	identifyTime     = 5 * time.Second  // for one address
	identifyAllTime  = 2 * identifyTime // for all that are new
	identifyParallel = 32
	identifyTries    = 3               // after which one that is silent is a peer without a name
	identifyPause    = 2 * time.Minute // and likewise, where there was no time to ask
	maxPeers         = 10000           // of all names together
)

// target is one node to ask.
type target struct {
	address string // host:port
	node    string // what it calls itself, as far as it has said so
	tlsName string // whose certificate it must show; empty: its host's
	found   bool   // by a DNS name, so that its address means nothing to people
	pending bool   // it may still say its name, by which it is known from then on
}

// directory finds the nodes that DNS names stand for: all addresses, without this node's own, each node once.
type directory struct {
	node        *Node
	resolved    func(name string, peers int, err error)
	names       []*dnsName
	every       time.Duration // between two looks
	askIdentity func(context.Context, target) (node, instance string, err error)

	members    map[string]*member // by host:port
	configured map[string]*member // peers that are written as addresses, likewise: what is found may be one of them

	mu    sync.Mutex // protects stats
	stats map[string]*NameStats
}

// dnsName is one name that stands for many nodes.
type dnsName struct {
	address    string // host:port
	host, port string
	seen       map[netip.Addr]time.Time // when each address was last in an answer
	answered   time.Time                // when the last answer came
	lastReport string                   // what was last told of it
}

// member is one address.
type member struct {
	target
	instance    string // of the process that answered when it was greeted; empty: none did yet
	tries       int    // greetings without an answer
	since       time.Time
	self        bool   // it is this node
	duplicateOf string // address of the member, or of the written peer, that is the same node
}

// newDirectory returns the directory of the options' DNS names, nil when there are none. resolved is told of each name
// when the number of its peers or what is wrong with it changes.
func newDirectory(node *Node, opts Options, resolved func(name string, peers int, err error)) *directory {
	if len(opts.DNS) == 0 {
		return nil
	}
	d := &directory{node: node, resolved: resolved, every: lookupEvery, members: map[string]*member{},
		configured: map[string]*member{}, stats: map[string]*NameStats{}}
	for _, peer := range opts.Peers {
		d.configured[peer] = &member{target: target{address: peer}}
	}
	for _, name := range opts.DNS {
		host, port, _ := net.SplitHostPort(name) // the configuration has checked it
		d.names = append(d.names, &dnsName{address: name, host: host, port: port, seen: map[netip.Addr]time.Time{}})
		d.stats[name] = &NameStats{Name: name, Lookups: map[string]uint64{}}
	}
	d.askIdentity = func(ctx context.Context, t target) (string, string, error) {
		c, err := newClient(t.address, credentials{t.security(opts.Security), node.secrets})
		if err != nil {
			return "", "", err
		}
		defer c.close()
		h, err := c.hello(ctx)
		return h.Node, h.Instance, err
	}
	return d
}

// security is how this node and the target prove to each other who they are.
func (t target) security(s Security) Security {
	if t.tlsName != "" {
		s.Name = t.tlsName
	}
	return s
}

// run looks all names up, again and again, and sends what they stand for, until ctx is done.
func (d *directory) run(ctx context.Context, found chan<- []target) {
	tick := time.NewTicker(d.every)
	defer tick.Stop()
	for {
		list := d.refresh(ctx)
		select {
		case found <- list:
		case <-ctx.Done():
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look looks all names up and returns the nodes that they stand for, sorted by
// address. Of a name that cannot be looked up it is those that there were.
func (d *directory) refresh(ctx context.Context) []target {
	errs := make([]error, len(d.names))
	var looking sync.WaitGroup
	for i, name := range d.names {
		looking.Go(func() { errs[i] = d.resolve(ctx, name) })
	}
	looking.Wait()
	present, count := d.present()
	maps.DeleteFunc(d.members, func(address string, _ *member) bool { return present[address] == nil })
	d.identify(ctx, present)
	d.removeMoved(present)
	var list []target
	for _, address := range slices.Sorted(maps.Keys(d.members)) {
		if m := d.members[address]; !m.self && d.members[m.duplicateOf] == nil && d.configured[m.duplicateOf] == nil {
			t := m.target
			t.pending = m.instance == "" && m.tries < identifyTries && time.Since(m.since) < identifyPause
			list = append(list, t)
			count[present[address]]++
		}
	}
	if ctx.Err() == nil {
		d.report(errs, count)
	}
	return list
}

// lookUp asks for the addresses of one name.
func (d *directory) resolve(ctx context.Context, name *dnsName) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	addrs, err := d.node.opts.Lookup(ctx, name.host)
	if err != nil {
		return err
	}
	now := time.Now()
	name.answered = now
	for _, a := range addrs {
		if a = a.Unmap(); a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() {
			name.seen[a] = now
		}
	}
	maps.DeleteFunc(name.seen, func(_ netip.Addr, seen time.Time) bool { return now.Sub(seen) >= forgetAfter })
	return nil
}

// left reports whether an address is not in the answer any more.
func (n *dnsName) removed(a netip.Addr) bool { return n.seen[a].Before(n.answered) }

// addresses are those of the last answer in order, and then those that left.
func (n *dnsName) addresses() []netip.Addr {
	return slices.SortedFunc(maps.Keys(n.seen), func(a, b netip.Addr) int {
		switch left := n.removed(a); {
		case left == n.removed(b):
			return a.Compare(b)
		case left:
			return 1
		}
		return -1
	})
}

// present is the addresses that there are, and for which name, without this
// node's own; and nothing counted yet for each name.
func (d *directory) present() (present map[string]*dnsName, count map[*dnsName]int) {
	own := map[netip.Addr]bool{}
	byNetdev, _ := d.node.opts.Addresses() // without them greeting shows who is this node
	for _, prefixes := range byNetdev {
		for _, p := range prefixes {
			own[p.Addr().Unmap()] = true
		}
	}
	present, count = map[string]*dnsName{}, map[*dnsName]int{}
	for _, name := range d.names {
		count[name] = 0
		for _, a := range name.addresses() {
			address := net.JoinHostPort(a.String(), name.port)
			if own[a] || present[address] != nil {
				continue
			}
			if len(present) == maxPeers {
				break
			}
			present[address] = name
		}
	}
	return present, count
}

// welcome asks those that are new, or have not answered yet, who they are: their names are what people know, and what
// the schedule goes by. Who does not answer is a peer all the same, and says so in its rounds.
func (d *directory) identify(ctx context.Context, present map[string]*dnsName) {
	var ask []*member
	for _, address := range slices.Sorted(maps.Keys(present)) {
		m := d.members[address]
		if m == nil {
			m = &member{since: time.Now(),
				target: target{address: address, tlsName: strings.TrimSuffix(present[address].host, "."), found: true}}
			d.members[address] = m
		}
		if m.instance == "" {
			ask = append(ask, m)
		}
	}
	if len(ask) == 0 {
		return
	}
	// In an order of this node's own: in a fleet that starts at once all would ask
	// the same nodes first, and those would answer few.
	turn := func(m *member) uint64 { return hash(d.node.instance + m.address) }
	order := slices.SortedFunc(slices.Values(ask), func(a, b *member) int {
		return cmp.Or(a.tries-b.tries, cmp.Compare(turn(a), turn(b)))
	})
	written := slices.Collect(maps.Values(d.configured)) // anew: they may have been restarted
	for i, said := range d.identifyAll(ctx, written) {
		written[i].instance = cmp.Or(said.instance, written[i].instance)
	}
	answers := map[*member]identity{}
	for i, said := range d.identifyAll(ctx, order) {
		answers[order[i]] = said
	}
	// A node with addresses of both families is one node, and so is one that is written as well.
	known := map[string]string{} // instance → address
	for _, m := range slices.Concat(slices.Collect(maps.Values(d.members)), written) {
		if m.instance != "" && m.duplicateOf == "" {
			known[m.instance] = m.address
		}
	}
	for _, m := range ask {
		said := answers[m]
		if said.asked {
			m.tries++
		}
		if m.node, m.instance = said.node, said.instance; m.instance == "" {
			continue
		}
		m.self = m.instance == d.node.instance
		if m.duplicateOf = known[m.instance]; m.duplicateOf == "" {
			known[m.instance] = m.address
		}
	}
}

// greeting is what a node answers; empty when it does not.
type identity struct {
	node, instance string
	asked          bool // there was time to
}

// greetAll asks all who they are, some at a time.
func (d *directory) identifyAll(ctx context.Context, all []*member) []identity {
	ctx, cancel := context.WithTimeout(ctx, identifyAllTime)
	defer cancel()
	said := make([]identity, len(all))
	var greeting sync.WaitGroup
	turns := make(chan struct{}, identifyParallel)
	for i, m := range all {
		turns <- struct{}{} // in order: there may not be time for all
		greeting.Go(func() {
			defer func() { <-turns }()
			if ctx.Err() != nil {
				return // its turn is in the next look
			}
			ctx, cancel := context.WithTimeout(ctx, identifyTime)
			defer cancel()
			said[i].asked = true
			if node, instance, err := d.askIdentity(ctx, m.target); err == nil {
				said[i].node, said[i].instance = node, instance
			}
		})
	}
	greeting.Wait()
	return said
}

// follow forgets an address that is not in the answer any more when its node has answered at one that is, as another
// process: it has moved, as a pod does that is replaced.
func (d *directory) removeMoved(present map[string]*dnsName) {
	left, here := map[string][]*member{}, map[string][]string{} // by node: members, instances
	addr := func(address string) netip.Addr { a, _ := netip.ParseAddrPort(address); return a.Addr() }
	for address, m := range d.members {
		name := present[address]
		switch {
		case m.node == "":
		case name.removed(addr(address)):
			left[m.node] = append(left[m.node], m)
		default:
			here[m.node] = append(here[m.node], m.instance)
		}
	}
	for node, members := range left {
		for _, m := range members {
			if len(here[node]) > 0 && !slices.Contains(here[node], m.instance) {
				delete(present[m.address].seen, addr(m.address))
				delete(d.members, m.address)
			}
		}
	}
}

// tell counts the lookups, and says what has changed.
func (d *directory) report(errs []error, count map[*dnsName]int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, name := range d.names {
		result := lookupResult(errs[i])
		st := d.stats[name.address]
		st.Peers = count[name]
		st.Lookups[result]++
		if what := fmt.Sprint(result, st.Peers); what != name.lastReport {
			name.lastReport = what
			d.resolved(name.address, st.Peers, errs[i])
		}
	}
}

// What a lookup came to: the label of probe_dns_lookups_total.
const (
	lookupOK       = "ok"
	lookupNotFound = "not_found"
	lookupTimeout  = "timeout"
	lookupFailed   = "failed"
)

// LookupResults are all that a lookup can come to.
func LookupResults() []string { return []string{lookupOK, lookupNotFound, lookupTimeout, lookupFailed} }

func lookupResult(err error) string {
	var dns *net.DNSError
	switch {
	case err == nil:
		return lookupOK
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &dns) && dns.IsTimeout:
		return lookupTimeout
	case dns != nil && dns.IsNotFound:
		return lookupNotFound
	}
	return lookupFailed
}

// Stats are copies of what was counted, in order of the configuration.
func (d *directory) Stats() []NameStats {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []NameStats
	for _, name := range d.names {
		st := *d.stats[name.address]
		st.Lookups = maps.Clone(st.Lookups)
		list = append(list, st)
	}
	return list
}

// lookUpAddresses asks the system's resolver.
func lookUpAddresses(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}
