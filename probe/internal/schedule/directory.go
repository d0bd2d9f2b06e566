package schedule

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
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/options"
)

// Addresses of DNS names become peers. An address that disappears from the answer stays in the list for a while:
// its pod is being replaced, or its node is down, which rounds have to report.
const (
	LookupEvery = 30 * time.Second // interval of lookups of a name
	readEvery   = 5 * time.Second  // interval of reads of files
	LookupTime  = 5 * time.Second  // timeout of one name or pattern
	ForgetAfter = 5 * time.Minute
	MaxNodes    = 10000 // most nodes of all names and files together

	lookupParallel = 32 // names of configured peers looked up in parallel
	filePrefix     = "file:"
)

// Target is a node to ask.
type Target struct {
	Address string // host:port
	TLSName string // name that its certificate must contain; empty: its host
	Found   bool   // found by a name or file: its address means nothing to people
}

// Security returns s with the name that the certificate of the target must contain.
func (t Target) Security(s options.Security) options.Security {
	s.Name = cmp.Or(t.TLSName, s.Name)
	return s
}

// Directory finds the nodes of DNS names and files, and chooses which of them to ask. No other node is contacted.
type Directory struct {
	Node     *node.Node
	Opts     options.Options
	Resolved func(name string, peers int, err error)
	Sources  []*Source
	Now      func() time.Time // wall clock, for the day

	nodes   map[string]Target // all nodes found, by address
	own     []string          // addresses of this node in nodes
	ring    Ring              // ring over nodes
	ringDay string

	configured     map[string][]string // addresses of each configured peer
	nextConfigured time.Time           // next lookup of configured peers

	mu    sync.Mutex // protects all following fields
	stats []options.NameStats
	Self  string // address at which this node answered itself; empty: none
}

// Source is a DNS name or a file pattern.
type Source struct {
	name   string // name as configured
	Every  time.Duration
	tls    string                                      // Target.TLSName of its nodes
	Lookup func(ctx context.Context) ([]string, error) // returns the nodes known so far with an error

	next       time.Time // next lookup
	addresses  []string
	err        error
	answered   bool // looked up without error at least once
	lastReport string
}

// NewDirectory returns the directory of the options' DNS names and files, or nil if there are none. resolved is
// called when the number of peers of a name, or its error, changes.
func NewDirectory(node *node.Node, opts options.Options, resolved func(name string, peers int, err error)) *Directory {
	if len(opts.DNS)+len(opts.Files) == 0 {
		return nil
	}
	d := &Directory{Node: node, Opts: opts, Resolved: resolved, Now: time.Now, configured: map[string][]string{}}
	for _, name := range opts.DNS {
		host, port, _ := net.SplitHostPort(name) // checked by the configuration
		n := &dnsName{host: host, port: port, resolve: node.Opts.Lookup, seen: map[netip.Addr]time.Time{}}
		d.Sources = append(d.Sources, &Source{name: name, Every: LookupEvery, tls: strings.TrimSuffix(host, "."),
			Lookup: n.lookup})
	}
	for _, pattern := range opts.Files {
		d.Sources = append(d.Sources, &Source{name: filePrefix + pattern, Every: readEvery,
			Lookup: NewPeerFiles(pattern).Lookup})
	}
	for _, s := range d.Sources {
		d.stats = append(d.stats, options.NameStats{Name: s.name, Lookups: map[string]uint64{}})
	}
	return d
}

// Keep takes over the nodes of the previous directory, which must have stopped: a reload during a failing lookup
// drops nobody.
func (d *Directory) Keep(before *Directory) {
	if d == nil || before == nil {
		return
	}
	for _, s := range d.Sources {
		for _, old := range before.Sources {
			if old.name == s.name {
				s.Lookup, s.addresses, s.answered = old.Lookup, old.addresses, old.answered
			}
		}
	}
}

// run looks up all names and files periodically and sends the nodes to ask, until ctx is done.
func (d *Directory) run(ctx context.Context, found chan<- []Target) {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for {
		// Until a lookup has succeeded, the peers of the previous configuration are a better guess.
		if list := d.Refresh(ctx); d.answered() {
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

// answered reports whether a lookup has succeeded since the options were applied.
func (d *Directory) answered() bool {
	return slices.ContainsFunc(d.Sources, func(s *Source) bool { return s.answered })
}

// Refresh looks up what is due and returns the nodes to ask. A name or file whose lookup fails keeps its nodes.
func (d *Directory) Refresh(ctx context.Context) []Target {
	now := time.Now()
	var lookups sync.WaitGroup
	var looked []int
	for i, s := range d.Sources {
		if now.Before(s.next) {
			continue
		}
		s.next = now.Add(s.Every)
		looked = append(looked, i)
		lookups.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, LookupTime)
			defer cancel()
			s.addresses, s.err = s.Lookup(ctx)
			s.answered = s.answered || s.err == nil
		})
	}
	if !now.Before(d.nextConfigured) {
		d.nextConfigured = now.Add(LookupEvery)
		lookups.Go(func() { d.resolveConfigured(ctx) })
	}
	lookups.Wait()
	if day := d.Now().UTC().Format(time.DateOnly); len(looked) > 0 || day != d.ringDay {
		count := d.merge(day)
		if ctx.Err() == nil {
			d.report(looked, count)
		}
	}
	return d.choose()
}

// resolveConfigured looks up the names of configured peers, so that a node that is also found counts as one peer.
func (d *Directory) resolveConfigured(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, LookupTime)
	defer cancel()
	var all errgroup.Group
	all.SetLimit(lookupParallel)
	answers := make([][]string, len(d.Opts.Peers))
	for i, peer := range d.Opts.Peers {
		host, port, _ := net.SplitHostPort(peer)
		all.Go(func() error {
			addrs, err := d.Node.Opts.Lookup(ctx, host) // an address resolves to itself
			for _, a := range addrs {
				answers[i] = append(answers[i], net.JoinHostPort(a.Unmap().String(), port))
			}
			if err != nil {
				answers[i] = d.configured[peer] // the previous answer; nil at first
			} else {
				answers[i] = append(answers[i], hostport.Canonical(peer))
			}
			return nil
		})
	}
	_ = all.Wait() // the functions return no error
	for i, peer := range d.Opts.Peers {
		d.configured[peer] = answers[i]
		if answers[i] == nil {
			d.configured[peer] = []string{hostport.Canonical(peer)}
		}
	}
}

// merge builds nodes from the addresses of all sources, and returns the number of nodes per source, without this
// node.
func (d *Directory) merge(day string) (count []int) {
	nodes, from := map[string]Target{}, map[string]int{}
	for i, s := range d.Sources {
		for _, address := range slices.Sorted(slices.Values(s.addresses)) {
			if _, known := nodes[address]; !known && len(nodes) < MaxNodes {
				nodes[address], from[address] = Target{Address: address, TLSName: s.tls, Found: true}, i
			}
		}
	}
	count = make([]int, len(d.Sources))
	if own := d.ownOf(nodes); len(own) > 0 {
		d.own = own
	} else { // keep the old list: an interface that lost its address for a moment must not change the choice of peers
		d.own = slices.DeleteFunc(d.own, func(address string) bool { _, listed := nodes[address]; return !listed })
	}
	for address, i := range from {
		if !slices.Contains(d.own, address) {
			count[i]++
		}
	}
	if day != d.ringDay || !maps.Equal(nodes, d.nodes) {
		d.nodes, d.ringDay, d.ring = nodes, day, NewRing(slices.Collect(maps.Keys(nodes)), d.Now())
		names := make(map[string]string, len(nodes))
		for address, t := range nodes {
			names[address] = t.TLSName
		}
		d.Node.Listed.Store(&names)
	}
	return count
}

// ownOf returns the sorted addresses of this node: its interface addresses with the port on which it answers, or
// its own name.
func (d *Directory) ownOf(nodes map[string]Target) (own []string) {
	host, port, err := net.SplitHostPort(d.Opts.Listen)
	if err != nil {
		return nil // this node does not answer
	}
	hostName, _ := os.Hostname()
	hosts := []string{host, d.Node.Name(), hostName}
	if a, err := netip.ParseAddr(host); host == "" || err == nil && a.IsUnspecified() {
		hosts = append(hosts, "127.0.0.1", "::1")
		byNetdev, _ := d.Node.Opts.Addresses() // without them, rounds detect this node
		for _, prefixes := range byNetdev {
			for _, p := range prefixes {
				hosts = append(hosts, p.Addr().String())
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, address := range append(joined(hosts, port), d.Self) {
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

// choose returns the nodes that follow this one in the ring, ordered by address, without configured peers.
func (d *Directory) choose() []Target {
	self := d.Node.Name()
	if len(d.own) > 0 {
		self = d.own[0]
	}
	next := d.ring.After(self, d.Now(), d.Opts.Fanout+len(d.own))
	next = slices.DeleteFunc(next, func(address string) bool { return slices.Contains(d.own, address) })
	list := []Target{}
	for _, address := range next[:min(len(next), d.Opts.Fanout)] {
		if !d.isConfigured(address) {
			list = append(list, d.nodes[address])
		}
	}
	slices.SortFunc(list, func(a, b Target) int { return cmp.Compare(a.Address, b.Address) })
	return list
}

func (d *Directory) isConfigured(address string) bool {
	for _, known := range d.configured {
		if slices.Contains(known, address) {
			return true
		}
	}
	return false
}

// SetSelf records an address at which this node answered itself, such as a translated address or another name.
func (d *Directory) SetSelf(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Self = address
}

// dnsName is a DNS name with one address per node.
type dnsName struct {
	host, port string
	resolve    func(ctx context.Context, host string) ([]netip.Addr, error)
	seen       map[netip.Addr]time.Time // time of the last answer with each address
}

// lookup returns the addresses seen in the last minutes. A node with addresses of both families must count once: if
// there are IPv4 addresses, IPv6 addresses are ignored.
func (n *dnsName) lookup(ctx context.Context) (list []string, err error) {
	addrs, err := n.resolve(ctx, n.host)
	if now := time.Now(); err == nil {
		for _, a := range addrs {
			a = a.Unmap()
			if a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() {
				n.seen[a] = now
			}
		}
		maps.DeleteFunc(n.seen, func(_ netip.Addr, seen time.Time) bool { return now.Sub(seen) >= ForgetAfter })
	}
	both := slices.ContainsFunc(slices.Collect(maps.Keys(n.seen)), netip.Addr.Is4)
	for a := range n.seen {
		if a.Is4() || !both {
			list = append(list, net.JoinHostPort(a.String(), n.port))
		}
	}
	return list, err
}

func (d *Directory) report(looked []int, count []int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, s := range d.Sources {
		d.stats[i].Peers = count[i]
		if slices.Contains(looked, i) {
			d.stats[i].Lookups[lookupResult(s.err)]++
		}
		report := fmt.Sprint(lookupResult(s.err), count[i])
		if strings.HasPrefix(s.name, filePrefix) { // the error text of a DNS name differs each time
			report = fmt.Sprint(s.err, count[i])
		}
		if report != s.lastReport {
			s.lastReport = report
			d.Resolved(s.name, count[i], s.err)
		}
	}
}

func lookupResult(err error) string {
	var dns *net.DNSError
	switch {
	case err == nil:
		return options.LookupOK
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &dns) && dns.IsTimeout:
		return options.LookupTimeout
	case dns != nil && dns.IsNotFound, errors.Is(err, os.ErrNotExist):
		return options.LookupNotFound
	}
	return options.LookupFailed
}

// Stats returns copies of the counts, in the order of the configuration.
func (d *Directory) Stats() []options.NameStats {
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
