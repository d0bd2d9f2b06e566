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

	"golang.org/x/sync/errgroup"
)

// How addresses of DNS names become peers. An address that is no longer in the answer remains a peer for a while: its
// pod is being replaced, or its node is down, which rounds have to report.
const (
	lookupEvery      = 30 * time.Second
	lookupTime       = 5 * time.Second // for one name
	forgetAfter      = 5 * time.Minute
	identifyTime     = 5 * time.Second  // for one address
	identifyAllTime  = 2 * identifyTime // for all new ones
	identifyParallel = 32
	identifyTries    = 3               // after which a silent address is a peer without a name
	identifyPause    = 2 * time.Minute // likewise, if there was no time to ask
	maxPeers         = 10000           // of all names together
)

// target is one node to ask.
type target struct {
	address string // host:port
	node    string // name that it reports; empty: not yet
	tlsName string // that its certificate must contain; empty: its host
	found   bool   // by a DNS name: its address means nothing to people
	pending bool   // it may still report its name
}

func (t target) security(s Security) Security {
	s.Name = cmp.Or(t.tlsName, s.Name)
	return s
}

// directory finds the nodes behind DNS names: all addresses but this node's own, each node once.
type directory struct {
	node        *Node
	resolved    func(name string, peers int, err error)
	names       []*dnsName
	every       time.Duration // between two lookups
	askIdentity func(context.Context, target) (node, instance string, err error)

	members    map[string]*member // by host:port
	configured map[string]*member // peers that are configured by address; a found one may be one of them

	mu    sync.Mutex // protects stats
	stats map[string]*NameStats
}

// dnsName is one name of many nodes.
type dnsName struct {
	address    string // host:port
	host, port string
	seen       map[netip.Addr]time.Time // when each address was last in an answer
	answered   time.Time                // when the last answer arrived
	lastReport string
}

// member is one address.
type member struct {
	target
	instance    string // of its process; empty: it has not answered yet
	tries       int    // attempts without an answer
	since       time.Time
	self        bool   // it is this node
	duplicateOf string // address of another member, or of a configured peer, that is the same node
}

// newDirectory returns the directory of the options' DNS names, nil without any. resolved is called for a name when the
// number of its peers or its error changes.
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

// run looks up all names periodically and sends their nodes, until ctx is done.
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

// refresh looks up all names and returns their nodes, sorted by address. A name whose lookup fails keeps its nodes.
func (d *directory) refresh(ctx context.Context) []target {
	errs := make([]error, len(d.names))
	var lookups sync.WaitGroup
	for i, name := range d.names {
		lookups.Go(func() { errs[i] = d.resolve(ctx, name) })
	}
	lookups.Wait()
	present := d.present()
	maps.DeleteFunc(d.members, func(address string, _ *member) bool { return present[address] == nil })
	d.identify(ctx, present)
	d.removeMoved(present)
	var list []target
	count := map[*dnsName]int{}
	for _, address := range slices.Sorted(maps.Keys(d.members)) {
		m := d.members[address]
		if !m.self && d.members[m.duplicateOf] == nil && d.configured[m.duplicateOf] == nil {
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

func (n *dnsName) removed(a netip.Addr) bool { return n.seen[a].Before(n.answered) }

// addresses are those of the last answer, then those removed since, both in order.
func (n *dnsName) addresses() []netip.Addr {
	return slices.SortedFunc(maps.Keys(n.seen), func(a, b netip.Addr) int {
		switch removed := n.removed(a); {
		case removed == n.removed(b):
			return a.Compare(b)
		case removed:
			return 1
		}
		return -1
	})
}

// present are the addresses of all names, without this node's own, and the name of each.
func (d *directory) present() map[string]*dnsName {
	own := map[netip.Addr]bool{}
	byNetdev, _ := d.node.opts.Addresses() // without them, identify finds this node
	for _, prefixes := range byNetdev {
		for _, p := range prefixes {
			own[p.Addr().Unmap()] = true
		}
	}
	present := map[string]*dnsName{}
	for _, name := range d.names {
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
	return present
}

// identify asks the addresses that have not answered yet for the name and instance of their node: names are the labels
// of peers, and the base of the schedule. An address that does not answer is a peer all the same, and its rounds fail.
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
	// In an order that differs between nodes: in a fleet that starts at once, all would ask the same nodes first.
	order := slices.SortedFunc(slices.Values(ask), func(a, b *member) int {
		return cmp.Or(a.tries-b.tries, cmp.Compare(hash(a.address+d.node.instance), hash(b.address+d.node.instance)))
	})
	configured := slices.Collect(maps.Values(d.configured)) // again: they may have been restarted
	for m, answer := range d.identifyAll(ctx, configured) {
		m.instance = cmp.Or(answer.instance, m.instance)
	}
	answers := d.identifyAll(ctx, order)
	// A node with addresses of both families is one node, and so is one that is also configured.
	known := map[string]string{} // instance → address
	for _, m := range slices.Concat(slices.Collect(maps.Values(d.members)), configured) {
		if m.instance != "" && m.duplicateOf == "" {
			known[m.instance] = m.address
		}
	}
	for _, m := range ask {
		answer := answers[m]
		if answer.asked {
			m.tries++
		}
		if m.node, m.instance = answer.node, answer.instance; m.instance == "" {
			continue
		}
		m.self = m.instance == d.node.instance
		if m.duplicateOf = known[m.instance]; m.duplicateOf == "" {
			known[m.instance] = m.address
		}
	}
}

// identity is the answer of a node; empty without one.
type identity struct {
	node, instance string
	asked          bool // there was time to
}

// identifyAll asks the members in order, some at a time: there may not be time for all.
func (d *directory) identifyAll(ctx context.Context, all []*member) map[*member]identity {
	end := time.Now().Add(identifyAllTime)
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	list := make([]identity, len(all))
	var asking errgroup.Group
	asking.SetLimit(identifyParallel)
	for i, m := range all {
		asking.Go(func() error {
			if ctx.Err() != nil || !time.Now().Before(end) {
				return nil // the next lookup asks it
			}
			ctx, cancel := context.WithTimeout(ctx, identifyTime)
			defer cancel()
			list[i].asked = true
			if node, instance, err := d.askIdentity(ctx, m.target); err == nil {
				list[i].node, list[i].instance = node, instance
			}
			return nil
		})
	}
	_ = asking.Wait() // no function returns an error
	answers := map[*member]identity{}
	for i, m := range all {
		answers[m] = list[i]
	}
	return answers
}

// removeMoved removes an address that is no longer in the answer when another process of its node has answered at one
// that is: a pod was replaced.
func (d *directory) removeMoved(present map[string]*dnsName) {
	removed, here := map[string][]*member{}, map[string][]string{} // by node: members, instances
	addr := func(address string) netip.Addr { a, _ := netip.ParseAddrPort(address); return a.Addr() }
	for address, m := range d.members {
		switch {
		case m.node == "":
		case present[address].removed(addr(address)):
			removed[m.node] = append(removed[m.node], m)
		default:
			here[m.node] = append(here[m.node], m.instance)
		}
	}
	for node, members := range removed {
		for _, m := range members {
			if len(here[node]) > 0 && !slices.Contains(here[node], m.instance) {
				delete(present[m.address].seen, addr(m.address))
				delete(d.members, m.address)
			}
		}
	}
}

func (d *directory) report(errs []error, count map[*dnsName]int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, name := range d.names {
		result := lookupResult(errs[i])
		st := d.stats[name.address]
		st.Peers = count[name]
		st.Lookups[result]++
		if report := fmt.Sprint(result, st.Peers); report != name.lastReport {
			name.lastReport = report
			d.resolved(name.address, st.Peers, errs[i])
		}
	}
}

// Results of a lookup: the label of probe_dns_lookups_total.
const (
	lookupOK       = "ok"
	lookupNotFound = "not_found"
	lookupTimeout  = "timeout"
	lookupFailed   = "failed"
)

// LookupResults are all results of a lookup.
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

// Stats are copies of what was counted, in the order of the configuration.
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
