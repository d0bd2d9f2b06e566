package probe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
)

// zone is a DNS with one name, and the nodes at its addresses.
type zone struct {
	mu       sync.Mutex
	addrs    []string
	err      error
	nodes    map[string]string // address → node; its instance is the same word, and after a slash which one
	greeted  []string
	resolved []string // what was told of the name
}

func (z *zone) set(err error, addrs ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.err, z.addrs = err, addrs
}

func (z *zone) lookup(_ context.Context, host string) ([]netip.Addr, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if host != "peers.ns.svc" {
		return nil, fmt.Errorf("asked for %q", host)
	}
	var list []netip.Addr
	for _, a := range z.addrs {
		list = append(list, netip.MustParseAddr(a))
	}
	return list, z.err
}

func (z *zone) greet(_ context.Context, t target) (node, instance string, err error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.greeted = append(z.greeted, t.address)
	host, _, _ := net.SplitHostPort(t.address)
	if node = z.nodes[host]; node == "" {
		return "", "", errors.New("nobody answers")
	}
	node, _, _ = strings.Cut(node, "/")
	return node, z.nodes[host], nil
}

// directory is that of the node "self" with the address 10.0.0.1.
func (z *zone) directory(t *testing.T, static ...string) (*directory, *Node) {
	n := bareNode(t, "self")
	n.instance = "self"
	n.opts.Lookup = z.lookup
	n.opts.Addresses = func() (map[string][]netip.Prefix, error) {
		return map[string][]netip.Prefix{"eth0": {netip.MustParsePrefix("10.0.0.1/24")}}, nil
	}
	opts := z.options()
	opts.Peers = static
	d := newDirectory(n, opts, func(name string, peers int, err error) {
		z.resolved = append(z.resolved, fmt.Sprint(name, " ", peers, " ", err))
	})
	d.askIdentity = z.greet
	return d, n
}

func (z *zone) options() Options {
	opts := DefaultOptions()
	opts.DNS = []string{"peers.ns.svc:10092"}
	return opts
}

// listed looks up the names and returns their nodes.
func listed(t *testing.T, d *directory) string {
	t.Helper()
	var list []string
	for _, m := range d.refresh(t.Context()) {
		list = append(list, m.address+"="+m.node)
		if m.tlsName != "peers.ns.svc" || !m.found {
			t.Errorf("%+v", m)
		}
	}
	return strings.Join(list, " ")
}

var errNone = &net.DNSError{Err: "no such host", Name: "peers.ns.svc", IsNotFound: true}

// TestDirectory: the peers and events after each answer for one name.
func TestDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &zone{nodes: map[string]string{"10.0.0.2": "b", "10.0.0.3": "c", "fd00::3": "c", "10.0.0.9": "self"}}
		d, n := z.directory(t)
		defer n.Close()
		const b, c, e = "10.0.0.2:10092=b", "10.0.0.3:10092=c", "10.0.0.5:10092="
		for i, step := range []struct {
			after time.Duration
			err   error
			addrs []string
			want  string
			told  string // empty: nothing
		}{
			{0, errNone, nil, "", "peers.ns.svc:10092 0 lookup peers.ns.svc: no such host"},
			{0, errNone, nil, "", ""},
			// This node by its address, and by what it answers at another one; what is no address of a node.
			{0, nil, []string{"10.0.0.2", "10.0.0.1", "10.0.0.9", "0.0.0.0", "ff02::1"}, b,
				"peers.ns.svc:10092 1 <nil>"},
			{0, nil, []string{"10.0.0.2"}, b, ""},
			// A node with addresses of both families is one; who does not answer is a peer.
			{0, nil, []string{"fd00::3", "10.0.0.5", "::ffff:10.0.0.3", "10.0.0.2"}, b + " " + c + " " + e,
				"peers.ns.svc:10092 3 <nil>"},
			{time.Hour, errors.New("refused"), nil, b + " " + c + " " + e, "peers.ns.svc:10092 3 refused"},
			{0, context.DeadlineExceeded, nil, b + " " + c + " " + e, "peers.ns.svc:10092 3 context deadline exceeded"},
			{0, nil, []string{"10.0.0.2", "10.0.0.3", "fd00::3", "10.0.0.5"}, b + " " + c + " " + e,
				"peers.ns.svc:10092 3 <nil>"},
			// A pod that is replaced is away for a moment, one that is deleted for good.
			{time.Minute, nil, []string{"fd00::3"}, b + " " + c + " " + e, ""},
			{forgetAfter - 2*time.Minute, nil, []string{"10.0.0.2", "fd00::3"}, b + " " + c + " " + e, ""},
			{time.Minute, nil, []string{"10.0.0.2", "fd00::3"}, b + " [fd00::3]:10092=c", "peers.ns.svc:10092 2 <nil>"},
		} {
			time.Sleep(step.after)
			z.set(step.err, step.addrs...)
			z.resolved = nil
			if got := listed(t, d); got != step.want {
				t.Errorf("step %d: %q, want %q", i, got, step.want)
			}
			if got := strings.Join(z.resolved, "; "); got != step.told {
				t.Errorf("step %d: told %q, want %q", i, got, step.told)
			}
		}
		const silent = "10.0.0.5:10092"
		asked := len(z.greeted)
		z.greeted = slices.DeleteFunc(z.greeted, func(a string) bool { return a == silent })
		slices.Sort(z.greeted)
		want := []string{"10.0.0.2:10092", "10.0.0.3:10092", "10.0.0.9:10092", "[fd00::3]:10092"}
		if diff := cmp.Diff(want, z.greeted); diff != "" || asked-len(z.greeted) != 6 {
			t.Errorf("greeted %q, want each once, and %s each time, not %d times: %s", z.greeted, silent,
				asked-len(z.greeted), diff)
		}
		stats := []NameStats{{Name: "peers.ns.svc:10092", Peers: 2, Lookups: map[string]uint64{"ok": 7, "not_found": 2,
			"failed": 1, "timeout": 1}}}
		if diff := cmp.Diff(stats, d.Stats()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestGreetingOrder: nodes that start together and find the same addresses ask them in different orders: a node that is
// asked by a thousand at once answers few.
func TestGreetingOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := map[string]int{}
		for _, instance := range []string{"one", "another"} {
			z := &zone{}
			for i := range 200 {
				z.addrs = append(z.addrs, fmt.Sprintf("10.1.0.%d", i))
			}
			d, n := z.directory(t)
			n.instance = instance
			d.askIdentity = func(ctx context.Context, _ target) (string, string, error) { // there is time for 64
				<-ctx.Done()
				return "", "", ctx.Err()
			}
			d.refresh(t.Context())
			for address, m := range d.members {
				asked[address] += m.tries
			}
			n.Close()
		}
		both := 0
		for _, times := range asked {
			both += times / 2
		}
		if both > 30 { // 64²÷200 = 20 of independent orders
			t.Errorf("of the 64 that each asks first both ask %d", both)
		}
	})
}

// TestDirectoryKnowsNodes: a node is one peer, however it is found and whenever it starts to answer.
func TestDirectoryKnowsNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &zone{nodes: map[string]string{"10.0.0.2": "b"}}
		d, n := z.directory(t, "spark-02:10092", "spark-07:10092")
		defer n.Close()
		for i, step := range []struct {
			why   string
			nodes map[string]string
			addrs []string
			want  string
		}{
			{"written, and found by its address", map[string]string{"spark-02": "b", "10.0.0.2": "b", "10.0.0.3": "c"},
				[]string{"10.0.0.2", "10.0.0.3"}, "10.0.0.3:10092=c"},
			{"both ends of one that was restarted", map[string]string{"spark-02": "b/2", "fd00::2": "b/2"},
				[]string{"10.0.0.2", "10.0.0.3", "fd00::2"}, "10.0.0.3:10092=c"},
			{"found by both families before it answers", nil, []string{"10.0.0.2", "10.0.0.3", "fd00::2", "10.0.0.4",
				"fd00::4"}, "10.0.0.3:10092=c 10.0.0.4:10092= [fd00::4]:10092="},
			{"it answers", map[string]string{"10.0.0.4": "d", "fd00::4": "d"},
				[]string{"10.0.0.2", "10.0.0.3", "fd00::2", "10.0.0.4", "fd00::4"},
				"10.0.0.3:10092=c 10.0.0.4:10092=d"},
			{"it moves: a pod that was replaced", map[string]string{"10.0.0.14": "d/2"},
				[]string{"10.0.0.2", "10.0.0.3", "fd00::2", "10.0.0.14"}, "10.0.0.14:10092=d 10.0.0.3:10092=c"},
			{"two nodes of one name", map[string]string{"10.0.0.15": "d/3"},
				[]string{"10.0.0.2", "10.0.0.3", "fd00::2", "10.0.0.14", "10.0.0.15"},
				"10.0.0.14:10092=d 10.0.0.15:10092=d 10.0.0.3:10092=c"},
			{"it is this node, and says so late", nil, []string{"10.0.0.3", "10.0.0.9"},
				"10.0.0.14:10092=d 10.0.0.15:10092=d 10.0.0.3:10092=c 10.0.0.9:10092="},
			{"it is this node", map[string]string{"10.0.0.9": "self"}, []string{"10.0.0.3", "10.0.0.9"},
				"10.0.0.14:10092=d 10.0.0.15:10092=d 10.0.0.3:10092=c"},
		} {
			time.Sleep(time.Second)
			maps.Copy(z.nodes, step.nodes)
			z.set(nil, step.addrs...)
			if got := listed(t, d); got != step.want {
				t.Errorf("step %d, %s: %q, want %q", i, step.why, got, step.want)
			}
		}
	})
}

// TestDirectoryBounds: an endless answer and a silent fleet are bounded.
func TestDirectoryBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &zone{}
		d, n := z.directory(t)
		defer n.Close()
		d.askIdentity = func(ctx context.Context, _ target) (string, string, error) {
			<-ctx.Done()
			return "", "", ctx.Err()
		}
		var addrs []string
		for i := range maxPeers + 50 {
			addrs = append(addrs, netip.AddrFrom4([4]byte{11, 0, byte(i >> 8), byte(i)}).String())
		}
		z.set(nil, addrs...)
		start := time.Now()
		if got := len(d.refresh(t.Context())); got != maxPeers || time.Since(start) > identifyAllTime {
			t.Errorf("%d peers after %v", got, time.Since(start))
		}
		for i := range addrs {
			addrs[i] = netip.AddrFrom4([4]byte{12, 0, byte(i >> 8), byte(i)}).String()
		}
		time.Sleep(lookupEvery)
		z.set(nil, addrs...)
		if got := d.refresh(t.Context()); len(got) != maxPeers || !strings.HasPrefix(got[0].address, "12.") {
			t.Errorf("after others took all places %d peers, the first %s", len(got), got[0].address)
		}
		d.node.opts.Lookup = func(ctx context.Context, _ string) ([]netip.Addr, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		start = time.Now()
		if got := len(d.refresh(t.Context())); got != maxPeers || time.Since(start) > lookupTime+identifyAllTime {
			t.Errorf("with a DNS that is silent %d peers after %v", got, time.Since(start))
		}
	})
}

// foundPeers is a prober of DNS names without rounds: the test reports results.
type foundPeers struct {
	*Prober
	told    []string
	results []string
}

func newFound(t *testing.T, static ...string) *foundPeers {
	n := bareNode(t, "self")
	f := &foundPeers{}
	opts := (&zone{}).options()
	opts.Peers = static
	var peers []string
	f.Prober = NewProber(n, opts, func(r Result) {
		if f.results = append(f.results, r.Peer+" "+string(r.Outcome)); !slices.Contains(peers, r.Peer) {
			t.Errorf("a result of %q, when the peers are %q", r.Peer, peers)
		}
	}, Events{Peers: func(list []string) { peers, f.told = list, append(f.told, fmt.Sprint(list)) }}.withDefaults())
	return f
}

func at(address, node string) target { return target{address: address, node: node, found: true} }

// TestFoundPeers: a found peer keeps the label of the name that it first reported, and its series are announced before
// its results.
func TestFoundPeers(t *testing.T) {
	f := newFound(t, "x:1")
	told := func(want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, f.told); diff != "" {
			t.Error(diff)
		}
		f.told = nil
	}
	set := func(changed bool, list ...target) {
		t.Helper()
		if got := f.set(list); got != changed {
			t.Errorf("changed: %v", got)
		}
		f.publish()
	}
	told() // nobody, before the names were looked up
	set(true, at("10.0.0.2:7", "b"), at("10.0.0.3:7", ""), at("10.0.0.4:7", "b"), at("10.0.0.5:7", "x:1"),
		at("10.0.0.6:7", "self"))
	told("[x:1 b 10.0.0.3 10.0.0.4:7 10.0.0.5:7 10.0.0.6:7]")
	set(false, at("10.0.0.2:7", "b"), at("10.0.0.3:7", ""), at("10.0.0.4:7", "b"), at("10.0.0.5:7", "x:1"),
		at("10.0.0.6:7", "self"))
	told()
	set(true, at("10.0.0.2:7", "b"), at("10.0.0.3:7", ""))
	told("[x:1 b 10.0.0.3]")
	// A pod that was replaced is the peer that it was.
	set(true, at("10.0.0.12:7", "b"), at("10.0.0.3:7", ""))
	set(true, at("10.0.0.2:7", "b"), at("10.0.0.3:7", ""))
	told()
	// It says its name at last, which the schedule goes by; one that left says something.
	f.report("10.0.0.3:7", Result{Outcome: OK, PeerNode: "c"})
	f.report("10.0.0.2:7", Result{Outcome: Failed, Reason: failure.PeerUnreachable})
	f.report("10.0.0.4:7", Result{Outcome: OK, PeerNode: "d"})
	f.report("x:1", Result{Outcome: OK, PeerNode: "y"})
	told()
	// It says at last that it is this node, after it said that it is another: so it stays.
	f.report("10.0.0.2:7", Result{Outcome: Failed, Reason: failure.Self, PeerNode: "b"})
	told()
	// It turns out to be this node, seen through another address: gone, and not back.
	f.report("10.0.0.2:7", Result{Outcome: Failed, Reason: failure.Self, PeerNode: ""})
	told("[x:1 10.0.0.3]")
	set(false, at("10.0.0.2:7", "b"), at("10.0.0.3:7", ""))
	told()
	if diff := cmp.Diff([]string{"10.0.0.3 ok", "b failed", "x:1 ok", "b failed"}, f.results); diff != "" {
		t.Error(diff)
	}
	got := map[string]int{}
	for address, one := range f.peers {
		got[address] = one.rounds
	}
	if !cmp.Equal(got, map[string]int{"10.0.0.3:7": 1, "x:1": 1}) {
		t.Errorf("rounds %v", got)
	}
	if due := f.schedule(map[string]bool{"x:1": true}); len(due) != 1 || due["10.0.0.3:7"].IsZero() {
		t.Errorf("while x:1 is being asked, to be asked: %v", due)
	}
	f.untilDue("x:1")
	if want := []string{"c", "self", "y"}; !slices.Equal(f.sortedNames, want) {
		t.Errorf("the schedule goes by %q, want %q", f.sortedNames, want)
	}
}

// TestFoundPeersAreApart: no two peers have the same name, whatever they report and in whatever order.
func TestFoundPeersAreApart(t *testing.T) {
	f := newFound(t, "x:1")
	for i, step := range []struct {
		list []target
		want string
	}{
		{[]target{at("10.0.0.2:7", "10.0.0.3:7")}, "[x:1 10.0.0.2:7]"},
		{[]target{at("10.0.0.2:7", "10.0.0.3:7"), at("10.0.0.3:7", "self")}, "[x:1 10.0.0.2:7 10.0.0.3:7]"},
		{[]target{at("10.0.0.2:7", ""), at("10.0.0.3:7", ""), at("10.0.0.4:7", "10.0.0.5:7"),
			at("10.0.0.5:7", "10.0.0.6:7")}, "[x:1 10.0.0.2:7 10.0.0.3:7 10.0.0.4:7 10.0.0.5:7]"},
		{[]target{at("10.0.0.4:7", ""), at("10.0.0.5:7", ""), at("10.0.0.6:7", "x:1")},
			"[x:1 10.0.0.4:7 10.0.0.5:7 10.0.0.6:7]"},
	} {
		f.set(step.list)
		f.publish()
		if got := f.told[len(f.told)-1]; got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
		if len(f.peers) != len(f.byName) {
			t.Errorf("step %d: %d names of %d peers", i, len(f.byName), len(f.peers))
		}
	}
}

// TestFoundPeersAgree: nodes that find each other by one name compute the same tournament, each without itself.
func TestFoundPeersAgree(t *testing.T) {
	const nodes = 6
	meet := map[string]time.Time{}
	now := time.Unix(1_800_000_000, 0)
	for i := range nodes {
		f := newFound(t)
		f.node.setName(fmt.Sprint("node-", i))
		var list []target
		for j := range nodes {
			if j != i {
				list = append(list, at(fmt.Sprintf("10.0.0.%d:7", j+1), fmt.Sprint("node-", j)))
			}
		}
		f.set(list)
		f.now = func() time.Time { return now }
		for j := range nodes {
			if j != i {
				meet[fmt.Sprint(i, j)] = now.Add(f.untilDue(fmt.Sprintf("10.0.0.%d:7", j+1)))
			}
		}
	}
	for i := range nodes {
		times := map[time.Time]bool{}
		for j := range nodes {
			if j != i {
				times[meet[fmt.Sprint(i, j)]], times[meet[fmt.Sprint(j, i)]] = true, true
			}
		}
		if len(times) != 2*(nodes-1) {
			t.Errorf("node %d takes part in %d rounds at different moments, want %d", i, len(times), 2*(nodes-1))
		}
	}
}

// TestFoundPeersAreAsked: of two nodes behind one name, one asks the other and not itself; a silent node that joins
// does not disturb the running round.
func TestFoundPeersAreAsked(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, func(_ string, _ int, d *fakeverbs.Device) { d.Rate = 4e6 })
	_, port, _ := net.SplitHostPort(p.peer)
	own, _, _ := net.SplitHostPort(freeAddress())
	z := &zone{}
	z.set(nil, "127.0.0.1", own)
	p.a.opts.Lookup = z.lookup
	opts := p.opts
	opts.DNS, opts.Interval, opts.Transfer = []string{"peers.ns.svc:" + port}, 2*time.Second, 1<<20
	answeringAt(t, p.a, opts, net.JoinHostPort(own, port))

	var mu sync.Mutex
	var told []string
	results := map[string][]Result{}
	prober := NewProber(p.a, opts, func(r Result) {
		mu.Lock()
		defer mu.Unlock()
		results[r.Peer] = append(results[r.Peer], r)
	}, Events{Peers: func(peers []string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprint(peers))
	}}.withDefaults())
	prober.directory.every = 50 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { prober.Run(ctx) })
	if !within(20*time.Second, func() bool { return p.resp.Leases() > 0 }) {
		t.Fatal("no round begins")
	}
	silent, _, _ := net.SplitHostPort(freeAddress())
	z.set(nil, "127.0.0.1", own, silent)
	enough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(results["b"]) > 0 && len(results[silent]) > 0
	}
	if !within(20*time.Second, enough) {
		t.Errorf("results of %v", results)
	}
	stop()
	running.Wait()
	if want := []string{"[b]", fmt.Sprintf("[b %s]", silent)}; !slices.Equal(told, want) {
		t.Errorf("told of %q, want %q", told, want)
	}
	for _, r := range results["b"] {
		if r.Outcome != OK || r.PeerNode != "b" {
			t.Errorf("b: %s because of %q (%s)", r.Outcome, r.Reason, r.Detail)
		}
	}
	if r := results[silent]; len(r) > 0 && r[0].Reason != failure.PeerUnreachable {
		t.Errorf("who does not answer: %s because of %q", r[0].Outcome, r[0].Reason)
	}
	if len(results) > 2 {
		t.Errorf("results of %v", results)
	}
	p.clean()
}

// TestFoundPeersShowTheName: the certificate of a found peer must contain the name that was looked up, not its address.
func TestFoundPeersShowTheName(t *testing.T) {
	dir := t.TempDir()
	ca := newAuthority(t)
	a, b := ca.issue(dir, "a"), ca.issue(dir, "b")
	opts := DefaultOptions()
	opts.Security = b
	peer := answeringAt(t, bareNode(t, "b"), opts, freeAddress()) // an address that is not in the certificate
	for name, want := range map[string]failure.Reason{"": failure.TLS, "others.ns.svc": failure.TLS,
		"peers.ns.svc": ""} {
		var got failure.Reason
		if _, f := askHello(t, peer, target{address: peer, tlsName: name}.security(a)); f != nil {
			got = f.Reason
		}
		if got != want {
			t.Errorf("as %q: %q, want %q", name, got, want)
		}
		opts := (&zone{}).options()
		opts.Security = a
		var asked Result
		p := NewProber(bareNode(t, "a"), opts, func(r Result) { asked = r }, Events{}.withDefaults())
		p.set([]target{{address: peer, tlsName: name, found: true}})
		if p.round(t.Context(),
			peer); (asked.Reason == failure.TLS) != (want == failure.TLS) || asked.PeerNode == "" !=
			(want == failure.TLS) {
			t.Errorf("a round as %q: %q of %q", name, asked.Reason, asked.PeerNode)
		}
	}
}

// TestNodeNames: the configuration precedes the command line, which precedes the host name.
func TestNodeNames(t *testing.T) {
	n := NewNode(NodeOptions{Name: "spark-01"})
	for _, tc := range []struct{ configured, want string }{{"", "spark-01"}, {"left", "left"}, {"", "spark-01"}} {
		if n.setName(tc.configured); n.name() != tc.want {
			t.Errorf("%q: it calls itself %q, want %q", tc.configured, n.name(), tc.want)
		}
	}
}
