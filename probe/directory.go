package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/railscope/railscope/internal/hostport"
)

// How addresses of DNS names become peers. An address that is no longer in the answer stays in the list for a while:
// its pod is being replaced, or its node is down, which rounds have to report.
const (
	lookupEvery = 30 * time.Second // of a name
	readEvery   = 5 * time.Second  // of files
	lookupTime  = 5 * time.Second  // for one name or pattern
	forgetAfter = 5 * time.Minute
	maxNodes    = 10000 // of all names and files together

	lookupParallel = 32 // names of configured peers
	filePrefix     = "file:"
)

// target is one node to ask.
type target struct {
	address string // host:port
	tlsName string // that its certificate must contain; empty: its host
	found   bool   // by a name or file: its address means nothing to people
}

func (t target) security(s Security) Security {
	s.Name = cmp.Or(t.tlsName, s.Name)
	return s
}

// directory finds the nodes of DNS names and files, and chooses whom of them to ask. Nobody else is contacted.
type directory struct {
	node     *Node
	opts     Options
	resolved func(name string, peers int, err error)
	sources  []*source
	now      func() time.Time // wall clock: the day

	nodes   map[string]target // all that were found, by address
	own     []string          // of these, this node's
	ring    ring              // of nodes
	ringDay string

	configured     map[string][]string // addresses of each configured peer
	nextConfigured time.Time           // when to look them up

	mu    sync.Mutex // protects all following fields
	stats []NameStats
	self  string // address at which this node answered itself; empty: none
}

// source is a DNS name or the pattern of files.
type source struct {
	name   string // as configured
	every  time.Duration
	tls    string                                      // target.tlsName of its nodes
	lookup func(ctx context.Context) ([]string, error) // with an error: those known so far

	next       time.Time // when to look up
	addresses  []string
	err        error
	answered   bool // once without an error
	lastReport string
}

// newDirectory returns the directory of the options' DNS names and files, nil without any. resolved is called for one
// when the number of its peers or its error changes.
func newDirectory(node *Node, opts Options, resolved func(name string, peers int, err error)) *directory {
	if len(opts.DNS)+len(opts.Files) == 0 {
		return nil
	}
	d := &directory{node: node, opts: opts, resolved: resolved, now: time.Now, configured: map[string][]string{}}
	for _, name := range opts.DNS {
		host, port, _ := net.SplitHostPort(name) // the configuration has checked it
		n := &dnsName{host: host, port: port, resolve: node.opts.Lookup, seen: map[netip.Addr]time.Time{}}
		d.sources = append(d.sources, &source{name: name, every: lookupEvery, tls: strings.TrimSuffix(host, "."),
			lookup: n.lookup})
	}
	for _, pattern := range opts.Files {
		d.sources = append(d.sources, &source{name: filePrefix + pattern, every: readEvery,
			lookup: newPeerFiles(pattern).lookup})
	}
	for _, s := range d.sources {
		d.stats = append(d.stats, NameStats{Name: s.name, Lookups: map[string]uint64{}})
	}
	return d
}

// keep takes over the nodes that the directory of the options before knows, which no longer runs: a reload while a
// lookup fails drops nobody.
func (d *directory) keep(before *directory) {
	if d == nil || before == nil {
		return
	}
	for _, s := range d.sources {
		for _, old := range before.sources {
			if old.name == s.name {
				s.lookup, s.addresses, s.answered = old.lookup, old.addresses, old.answered
			}
		}
	}
}

// run looks up all names and files periodically and sends the nodes to ask, until ctx is done.
func (d *directory) run(ctx context.Context, found chan<- []target) {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for {
		if list := d.refresh(ctx); d.answered() { // before, the peers of the last configuration are the better guess
			select {
			case found <- list:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// answered reports whether a name or file had an answer since the options were applied.
func (d *directory) answered() bool {
	return slices.ContainsFunc(d.sources, func(s *source) bool { return s.answered })
}

// refresh looks up what is due and returns the nodes to ask. A name or file whose lookup fails keeps its nodes.
func (d *directory) refresh(ctx context.Context) []target {
	now := time.Now()
	var lookups sync.WaitGroup
	var looked []int
	for i, s := range d.sources {
		if now.Before(s.next) {
			continue
		}
		s.next = now.Add(s.every)
		looked = append(looked, i)
		lookups.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, lookupTime)
			defer cancel()
			s.addresses, s.err = s.lookup(ctx)
			s.answered = s.answered || s.err == nil
		})
	}
	if !now.Before(d.nextConfigured) {
		d.nextConfigured = now.Add(lookupEvery)
		lookups.Go(func() { d.resolveConfigured(ctx) })
	}
	lookups.Wait()
	if day := d.now().UTC().Format(time.DateOnly); len(looked) > 0 || day != d.ringDay {
		count := d.merge(day)
		if ctx.Err() == nil {
			d.report(looked, count)
		}
	}
	return d.choose()
}

// resolveConfigured looks up the names of configured peers: one that is found as well is one peer.
func (d *directory) resolveConfigured(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	var all errgroup.Group
	all.SetLimit(lookupParallel)
	answers := make([][]string, len(d.opts.Peers))
	for i, peer := range d.opts.Peers {
		host, port, _ := net.SplitHostPort(peer)
		all.Go(func() error {
			addrs, err := d.node.opts.Lookup(ctx, host) // of an address, that address
			for _, a := range addrs {
				answers[i] = append(answers[i], net.JoinHostPort(a.Unmap().String(), port))
			}
			if err != nil {
				answers[i] = d.configured[peer] // as before; nil at first
			} else {
				answers[i] = append(answers[i], hostport.Canonical(peer))
			}
			return nil
		})
	}
	_ = all.Wait() // no function returns an error
	for i, peer := range d.opts.Peers {
		if d.configured[peer] = answers[i]; answers[i] == nil {
			d.configured[peer] = []string{hostport.Canonical(peer)}
		}
	}
}

// merge makes nodes of the addresses of all sources, and returns how many each has, without this node.
func (d *directory) merge(day string) (count []int) {
	nodes, from := map[string]target{}, map[string]int{}
	for i, s := range d.sources {
		for _, address := range slices.Sorted(slices.Values(s.addresses)) {
			if _, known := nodes[address]; !known && len(nodes) < maxNodes {
				nodes[address], from[address] = target{address: address, tlsName: s.tls, found: true}, i
			}
		}
	}
	count = make([]int, len(d.sources))
	if own := d.ownOf(nodes); len(own) > 0 {
		d.own = own
	} else { // an interface without its address for a moment does not change whom to ask
		d.own = slices.DeleteFunc(d.own, func(address string) bool { _, listed := nodes[address]; return !listed })
	}
	for address, i := range from {
		if !slices.Contains(d.own, address) {
			count[i]++
		}
	}
	if day != d.ringDay || !maps.Equal(nodes, d.nodes) {
		d.nodes, d.ringDay, d.ring = nodes, day, newRing(slices.Collect(maps.Keys(nodes)), d.now())
	}
	return count
}

// ownOf returns the addresses of this node in order: its own, with the port on which it answers, or its own name.
func (d *directory) ownOf(nodes map[string]target) (own []string) {
	host, port, err := net.SplitHostPort(d.opts.Listen)
	if err != nil {
		return nil // it answers nobody
	}
	hostName, _ := os.Hostname()
	hosts := []string{host, d.node.name(), hostName}
	if a, err := netip.ParseAddr(host); host == "" || err == nil && a.IsUnspecified() {
		hosts = append(hosts, "127.0.0.1", "::1")
		byNetdev, _ := d.node.opts.Addresses() // without them, rounds find this node
		for _, prefixes := range byNetdev {
			for _, p := range prefixes {
				hosts = append(hosts, p.Addr().String())
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, address := range append(joined(hosts, port), d.self) {
		if _, listed := nodes[address]; listed {
			own = append(own, address)
		}
	}
	slices.Sort(own)
	return slices.Compact(own)
}

func joined(hosts []string, port string) (list []string) {
	for _, host := range hosts {
		if host != "" {
			list = append(list, hostport.Canonical(net.JoinHostPort(host, port)))
		}
	}
	return list
}

// choose returns the nodes that follow this one in the ring, in order of address, without those that are configured as
// well.
func (d *directory) choose() []target {
	self := d.node.name()
	if len(d.own) > 0 {
		self = d.own[0]
	}
	next := d.ring.after(self, d.now(), d.opts.Fanout+len(d.own))
	next = slices.DeleteFunc(next, func(address string) bool { return slices.Contains(d.own, address) })
	list := []target{}
	for _, address := range next[:min(len(next), d.opts.Fanout)] {
		if !d.isConfigured(address) {
			list = append(list, d.nodes[address])
		}
	}
	slices.SortFunc(list, func(a, b target) int { return cmp.Compare(a.address, b.address) })
	return list
}

func (d *directory) isConfigured(address string) bool {
	for _, known := range d.configured {
		if slices.Contains(known, address) {
			return true
		}
	}
	return false
}

// setSelf records that this node answered itself at an address: through a translated address, or another name.
func (d *directory) setSelf(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.self = address
}

// dnsName is a name with an address for each node.
type dnsName struct {
	host, port string
	resolve    func(ctx context.Context, host string) ([]netip.Addr, error)
	seen       map[netip.Addr]time.Time // when each address was last in an answer
}

// lookup returns the addresses of the last minutes. A node with addresses of both families is one: if there are IPv4
// addresses, the others do not count.
func (n *dnsName) lookup(ctx context.Context) (list []string, err error) {
	addrs, err := n.resolve(ctx, n.host)
	if now := time.Now(); err == nil {
		for _, a := range addrs {
			if a = a.Unmap(); a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() {
				n.seen[a] = now
			}
		}
		maps.DeleteFunc(n.seen, func(_ netip.Addr, seen time.Time) bool { return now.Sub(seen) >= forgetAfter })
	}
	both := slices.ContainsFunc(slices.Collect(maps.Keys(n.seen)), netip.Addr.Is4)
	for a := range n.seen {
		if a.Is4() || !both {
			list = append(list, net.JoinHostPort(a.String(), n.port))
		}
	}
	return list, err
}

func (d *directory) report(looked []int, count []int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, s := range d.sources {
		d.stats[i].Peers = count[i]
		if slices.Contains(looked, i) {
			d.stats[i].Lookups[lookupResult(s.err)]++
		}
		report := fmt.Sprint(lookupResult(s.err), count[i])
		if strings.HasPrefix(s.name, filePrefix) { // of a name, the text differs each time
			report = fmt.Sprint(s.err, count[i])
		}
		if report != s.lastReport {
			s.lastReport = report
			d.resolved(s.name, count[i], s.err)
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
	case dns != nil && dns.IsNotFound, errors.Is(err, os.ErrNotExist):
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
	list := slices.Clone(d.stats)
	for i := range list {
		list[i].Lookups = maps.Clone(list[i].Lookups)
	}
	return list
}
