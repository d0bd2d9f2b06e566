package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/probe/certtest"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/schedule"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// zone is a DNS that resolves the name of all nodes.
type zone struct {
	mu       sync.Mutex
	addrs    []string
	err      error
	others   map[string]string // addresses of further names
	resolved []string          // reported results of the name's lookups
}

func (z *zone) set(err error, addrs ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.err, z.addrs = err, addrs
}

func (z *zone) lookup(_ context.Context, host string) ([]netip.Addr, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if a := z.others[host]; a != "" {
		return []netip.Addr{netip.MustParseAddr(a)}, nil
	}
	if host != "peers.ns.svc" {
		return nil, fmt.Errorf("asked for %q", host)
	}
	var list []netip.Addr
	for _, a := range z.addrs {
		list = append(list, netip.MustParseAddr(a))
	}
	return list, z.err
}

// directory returns the directory of the node "self" with the address 10.0.0.1, which asks all others.
func (z *zone) directory(t *testing.T, static ...string) *schedule.Directory {
	n := bareNode(t, "self")
	n.Opts.Lookup = z.lookup
	n.Opts.Addresses = func() (map[string][]netip.Prefix, error) {
		return map[string][]netip.Prefix{"eth0": {netip.MustParsePrefix("10.0.0.1/24")}}, nil
	}
	opts := z.options()
	opts.Peers, opts.Listen, opts.Fanout = static, ":10092", 100
	return schedule.NewDirectory(n, opts, func(name string, peers int, err error) {
		z.resolved = append(z.resolved, fmt.Sprint(name, " ", peers, " ", err))
	})
}

func (z *zone) options() options.Options {
	opts := options.DefaultOptions()
	opts.DNS = []string{"peers.ns.svc:10092"}
	return opts
}

// listed looks up the names and returns the nodes to ask, in order.
func listed(t *testing.T, d *schedule.Directory) string {
	t.Helper()
	var list []string
	for _, m := range d.Refresh(t.Context()) {
		list = append(list, m.Address)
		if m.TLSName != "peers.ns.svc" || !m.Found {
			t.Errorf("%+v", m)
		}
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

var errNone = &net.DNSError{Err: "no such host", Name: "peers.ns.svc", IsNotFound: true}

// TestDirectory checks the peers and events after each answer for one name.
func TestDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &zone{}
		d := z.directory(t)
		defer d.Node.Close()
		const b, c, e, f = "10.0.0.2:10092", "10.0.0.3:10092", "10.0.0.5:10092", "[fd00::7]:10092"
		for i, step := range []struct {
			after time.Duration
			err   error
			addrs []string
			want  string
			told  string // reported event; empty: none
		}{
			{0, errNone, nil, "", "peers.ns.svc:10092 0 lookup peers.ns.svc: no such host"},
			{schedule.LookupEvery, errNone, nil, "", ""},
			// Addresses of a single family are used unchanged.
			{schedule.LookupEvery, nil, []string{"fd00::7"}, f, "peers.ns.svc:10092 1 <nil>"},
			{schedule.ForgetAfter, nil, []string{"10.0.0.2", "fd00::7"}, b, ""},
			// The answer has this node by its address, addresses that no node can have, and both families of a
			// node.
			{schedule.LookupEvery, nil, []string{"10.0.0.2", "10.0.0.1", "0.0.0.0", "ff02::1", "fd00::2", "fd00::1"}, b, ""},
			{schedule.LookupEvery, nil, []string{"fd00::3", "10.0.0.5", "::ffff:10.0.0.3", "10.0.0.2"}, b + " " + c + " " + e,
				"peers.ns.svc:10092 3 <nil>"},
			{schedule.LookupEvery - 1, nil, nil, b + " " + c + " " + e, ""}, // the next lookup is not due yet
			{time.Hour, errors.New("refused"), nil, b + " " + c + " " + e, "peers.ns.svc:10092 3 refused"},
			{schedule.LookupEvery, errors.New("refused, port 4711"), nil, b + " " + c + " " + e, ""},
			{schedule.LookupEvery, context.DeadlineExceeded, nil, b + " " + c + " " + e,
				"peers.ns.svc:10092 3 context deadline exceeded"},
			{schedule.LookupEvery, nil, []string{"10.0.0.2", "10.0.0.3", "10.0.0.5"}, b + " " + c + " " + e,
				"peers.ns.svc:10092 3 <nil>"},
			// A replaced pod is away for a moment, a deleted pod for good.
			{time.Minute, nil, []string{"10.0.0.3"}, b + " " + c + " " + e, ""},
			{schedule.ForgetAfter - 2*time.Minute, nil, []string{"10.0.0.2", "10.0.0.3"}, b + " " + c + " " + e, ""},
			{time.Minute, nil, []string{"10.0.0.2", "10.0.0.3"}, b + " " + c, "peers.ns.svc:10092 2 <nil>"},
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
		stats := []options.NameStats{{Name: "peers.ns.svc:10092", Peers: 2, Lookups: map[string]uint64{"ok": 8, "not_found": 2,
			"failed": 2, "timeout": 1}}}
		if diff := cmp.Diff(stats, d.Stats()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestDirectorySelf: the node itself is recognized by its address and port, by its name and port, and by its own
// answer.
func TestDirectorySelf(t *testing.T) {
	const other = "10.0.0.2:10092"
	for _, tc := range []struct {
		name, listen string
		list         []string
		learned      string
		want         []string
	}{
		{"all addresses", ":10092", []string{"10.0.0.1:10092", other}, "", []string{other}},
		{"the loopback address", ":10092", []string{"127.0.0.1:10092", other}, "", []string{other}},
		{"IPv6 that listens for IPv4", "[::]:10092", []string{"10.0.0.1:10092", other}, "", []string{other}},
		{"another port", ":10092", []string{"10.0.0.1:10092", "10.0.0.1:7000", other}, "",
			[]string{"10.0.0.1:7000", other}},
		{"one of its addresses", "10.0.0.1:10092", []string{"10.0.0.1:10092", "127.0.0.1:10092"}, "",
			[]string{"127.0.0.1:10092"}},
		{"nobody else", ":10092", []string{"10.0.0.1:10092"}, "", nil},
		{"its name", ":10092", []string{"self:10092", "self:7000", other}, "", []string{"self:7000", other}},
		{"a translated address", ":10092", []string{"192.0.2.1:10092", other}, "192.0.2.1:10092", []string{other}},
		{"it answers nobody", "", []string{"10.0.0.1:10092", other}, "", []string{"10.0.0.1:10092", other}},
	} {
		d := (&zone{}).directory(t)
		d.Opts.Listen = tc.listen
		d.Sources = []*schedule.Source{{Lookup: func(context.Context) ([]string, error) { return tc.list, nil }}}
		d.SetSelf(tc.learned)
		slices.Sort(tc.want)
		for _, addresses := range []func() (map[string][]netip.Prefix, error){d.Node.Opts.Addresses,
			// The interface has no address for a moment.
			func() (map[string][]netip.Prefix, error) { return nil, nil }} {
			d.Node.Opts.Addresses = addresses
			var got []string
			for _, m := range d.Refresh(t.Context()) {
				got = append(got, m.Address)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: %s", tc.name, diff)
			}
		}
		if n := d.Stats()[0].Peers; n != len(tc.want) {
			t.Errorf("%s: %d peers in the statistics", tc.name, n)
		}
	}
}

// TestDirectoryKnowsConfigured: a configured peer that is also found counts once.
func TestDirectoryKnowsConfigured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &zone{others: map[string]string{"spark-02": "10.0.0.2", "10.0.0.3": "10.0.0.3"}}
		d := z.directory(t, "spark-02:10092", "10.0.0.3:10092", "spark-04:7000")
		defer d.Node.Close()
		z.set(nil, "10.0.0.2", "10.0.0.3", "10.0.0.4")
		const want = "10.0.0.4:10092"
		if got := listed(t, d); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		time.Sleep(schedule.LookupEvery)
		delete(z.others, "spark-02") // the name no longer resolves
		if got := listed(t, d); got != want {
			t.Errorf("after a failure %q, want %q", got, want)
		}
	})
}

// TestDirectoryFanout: of many nodes, only those that follow in the ring are contacted. The next day on the wall
// clock, others are.
func TestDirectoryFanout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &zone{}
		for i := range 200 {
			z.addrs = append(z.addrs, fmt.Sprintf("10.0.0.%d", i+1))
		}
		d := z.directory(t)
		defer d.Node.Close()
		d.Opts.Fanout = 4
		now := anyDay
		d.Now = func() time.Time { return now }
		asked := func() (list []string) {
			for _, m := range d.Refresh(t.Context()) {
				list = append(list, m.Address)
			}
			return list
		}
		var all []string
		for _, a := range z.addrs {
			all = append(all, a+":10092")
		}
		first := asked()
		want := schedule.NewRing(all, now).After("10.0.0.1:10092", now, 4)
		slices.Sort(want)
		if !slices.Equal(first, want) {
			t.Errorf("%q, want %q", first, want)
		}
		now = anyDay.Add(11 * time.Hour)
		if got := asked(); !slices.Equal(got, first) {
			t.Errorf("later that day %q, want %q", got, first)
		}
		now = anyDay.Add(13 * time.Hour)
		if got := asked(); slices.Equal(got, first) || len(got) != 4 {
			t.Errorf("the next day %q again", got)
		}
	})
}

// TestDirectoryBounds: an endless answer and a silent DNS are limited.
func TestDirectoryBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &zone{}
		d := z.directory(t)
		defer d.Node.Close()
		for i := range schedule.MaxNodes + 50 {
			z.addrs = append(z.addrs, netip.AddrFrom4([4]byte{11, 0, byte(i >> 8), byte(i)}).String())
		}
		if got := len(d.Refresh(t.Context())); got != 100 || d.Stats()[0].Peers != schedule.MaxNodes {
			t.Errorf("%d peers of %d nodes", got, d.Stats()[0].Peers)
		}
		d.Node.Opts.Lookup = func(ctx context.Context, _ string) ([]netip.Addr, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		d = schedule.NewDirectory(d.Node, d.Opts, d.Resolved)
		start := time.Now()
		if got := len(d.Refresh(t.Context())); got != 0 || time.Since(start) > schedule.LookupTime {
			t.Errorf("with a DNS that is silent %d peers after %v", got, time.Since(start))
		}
	})
}

// foundPeers is a prober of DNS names without rounds: the test reports results.
type foundPeers struct {
	*schedule.Prober
	told    []string
	results []string
}

func newFound(t *testing.T, static ...string) *foundPeers {
	n := bareNode(t, "self")
	f := &foundPeers{}
	opts := (&zone{}).options()
	opts.Peers = static
	var peers []string
	f.Prober = schedule.NewProber(n, opts, func(r result.Result) {
		f.results = append(f.results, r.Peer+" "+string(r.Outcome))
		if !slices.Contains(peers, r.Peer) {
			t.Errorf("a result of %q, when the peers are %q", r.Peer, peers)
		}
	}, quiet(options.Events{Peers: func(list []string) { peers, f.told = list, append(f.told, fmt.Sprint(list)) }}))
	return f
}

// published sets the found nodes, and publishes their labels.
func (f *foundPeers) published(addresses ...string) {
	list := []schedule.Target{}
	for _, address := range addresses {
		list = append(list, schedule.Target{Address: address, Found: true})
	}
	f.Set(list)
	f.Publish()
}

// ends reports the end of a round with a peer and the name that it reported; empty: not reached.
func (f *foundPeers) ends(address, node string) {
	res := result.Result{Outcome: result.OK, Transport: result.RDMA, PeerNode: node}
	if node == "" {
		res = result.Result{Outcome: result.Failed, Transport: result.NoTransport, Reason: failure.PeerUnreachable}
	}
	f.Report(address, res)
}

// TestFoundPeers: a found peer has series after its first round, under the name that it reports.
func TestFoundPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFound(t, "x:1")
		defer f.Node.Close()
		told := func(want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, f.told); diff != "" {
				t.Error(diff)
			}
			f.told = nil
		}
		told() // no peers before the first lookup
		f.published("10.0.0.2:7", "10.0.0.3:7", "10.0.0.4:7")
		told("[x:1]")
		f.ends("10.0.0.2:7", "b")
		told("[x:1 b]")
		f.ends("10.0.0.3:7", "") // labelled by its address until it answers
		told("[x:1 b 10.0.0.3]")
		f.ends("10.0.0.3:7", "c")
		told("[x:1 b c]")
		f.ends("10.0.0.3:7", "d") // the first name stays
		f.ends("10.0.0.3:7", "")
		f.ends("x:1", "y")
		f.ends("10.0.0.9:7", "z") // the address is not a peer
		told()
		time.Sleep(2 * time.Minute) // longer than two cycles: a peer without a round gets series
		f.published("10.0.0.2:7", "10.0.0.3:7", "10.0.0.4:7")
		told("[x:1 b c 10.0.0.4]")
		f.published("10.0.0.5:7", "10.0.0.3:7") // the next day
		told("[x:1 c]")
		f.published("10.0.0.2:7", "10.0.0.3:7")
		told()
		f.Report("10.0.0.2:7", result.Result{Outcome: result.Failed, Reason: failure.Self}) // this node, at another address
		told()
		if f.Directory.Self != "10.0.0.2:7" {
			t.Errorf("this node is %q", f.Directory.Self)
		}
		want := []string{"b ok", "10.0.0.3 failed", "c ok", "c ok", "c failed", "x:1 ok"}
		if diff := cmp.Diff(want, f.results); diff != "" {
			t.Error(diff)
		}
	})
}

// TestFoundPeersAreApart: no two peers have the same label, whatever they report and in whatever order.
func TestFoundPeersAreApart(t *testing.T) {
	f := newFound(t, "x:1")
	for i, step := range []struct {
		reported [][2]string
		want     string
	}{
		{[][2]string{{"10.0.0.2:7", "10.0.0.3:7"}}, "[x:1 10.0.0.2:7]"},
		{[][2]string{{"10.0.0.2:7", "10.0.0.3:7"}, {"10.0.0.3:7", "self"}}, "[x:1 10.0.0.2:7 10.0.0.3:7]"},
		{[][2]string{{"10.0.0.4:7", "b"}, {"10.0.0.5:7", "b"}, {"10.0.0.6:7", "x:1"}},
			"[x:1 b 10.0.0.5:7 10.0.0.6:7]"},
		{[][2]string{{"10.0.0.5:7", "b"}, {"10.0.0.4:7", "b"}}, "[x:1 10.0.0.5:7 b]"},
		{[][2]string{{"10.0.0.5:7", "b"}}, "[x:1 10.0.0.5:7]"},
	} {
		var list []string
		for _, r := range step.reported {
			list = append(list, r[0])
		}
		f.published(list...)
		for _, r := range step.reported {
			f.ends(r[0], r[1])
		}
		if got := f.told[len(f.told)-1]; got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
}

// TestFoundPeersAreAsked: of two nodes behind one name, one asks the other and not itself. A silent node that joins
// does not disturb the running round.
func TestFoundPeersAreAsked(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, func(_ string, _ int, d *fakeverbs.Device) { d.Rate = 4e6 })
	_, port, _ := net.SplitHostPort(p.peer)
	own, _, _ := net.SplitHostPort(freeAddress())
	z := &zone{}
	z.set(nil, "127.0.0.1", own)
	p.a.Opts.Lookup = z.lookup
	opts := p.opts
	opts.DNS, opts.Interval, opts.Budget = []string{"peers.ns.svc:" + port}, 4*time.Second, options.Budget{Share: 1}
	opts.Listen = net.JoinHostPort(own, port)
	answeringAt(t, p.a, opts, opts.Listen)

	var mu sync.Mutex
	var told []string
	results := map[string][]result.Result{}
	prober := schedule.NewProber(p.a, opts, func(r result.Result) {
		mu.Lock()
		defer mu.Unlock()
		results[r.Peer] = append(results[r.Peer], r)
	}, quiet(options.Events{Peers: func(peers []string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprint(peers))
	}}))
	prober.Directory.Sources[0].Every = 0 // due at every refresh
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
		return len(results["b"]) > 0 && slices.ContainsFunc(results[silent], func(r result.Result) bool {
			return r.Reason == failure.PeerUnreachable // earlier rounds may be skipped while this node asks b
		})
	}
	if !within(20*time.Second, enough) {
		t.Errorf("results of %v", results)
	}
	stop()
	running.Wait()
	// Either peer may have the first result, and b is never labelled by its address.
	last, named := fmt.Sprintf("[b %s]", silent), []string{"[]", "[b]", fmt.Sprintf("[%s]", silent)}
	// On a slow machine the first round with b may take so long that its address is told first.
	if first := results["b"]; len(first) > 0 && first[0].Duration >= opts.Interval {
		named = append(named, "[127.0.0.1]", fmt.Sprintf("[127.0.0.1 %s]", silent))
	}
	for i, labels := range told {
		if !slices.Contains(append(named, last), labels) || i == len(told)-1 && labels != last {
			t.Errorf("told of %q, want %q in the end and before it some of %q", told, last, named)
			break
		}
	}
	for _, r := range results["b"] {
		if r.Outcome != result.OK || r.PeerNode != "b" {
			t.Errorf("b: %s because of %q (%s)", r.Outcome, r.Reason, r.Detail)
		}
	}
	if len(results) > 2 {
		t.Errorf("results of %v", results)
	}
	p.clean()
}

// TestPeersOfGates: all nodes of a name are peers of rings and gates, not only those that are asked.
func TestPeersOfGates(t *testing.T) {
	z := &zone{}
	d := z.directory(t, "10.0.0.9:10092")
	defer d.Node.Close()
	d.Opts.Fanout = 1
	z.set(nil, "10.0.0.2", "10.0.0.3", "10.0.0.4")
	if asked := d.Refresh(t.Context()); len(asked) != 1 {
		t.Errorf("%d are asked", len(asked))
	}
	for _, address := range []string{"10.0.0.2:10092", "10.0.0.3:10092", "10.0.0.4:10092"} {
		if name, ok := d.Node.Peer(address); !ok || name != "peers.ns.svc" {
			t.Errorf("%s: %q, %v", address, name, ok)
		}
	}
	if _, ok := d.Node.Peer("10.0.0.5:10092"); ok {
		t.Error("a stranger is a peer")
	}
}

// TestFoundPeersShowTheName: the certificate of a found peer must contain the name that was looked up, not its
// address.
func TestFoundPeersShowTheName(t *testing.T) {
	dir := t.TempDir()
	ca := certtest.NewAuthority(t)
	a, b := ca.Issue(dir, "a"), ca.Issue(dir, "b")
	opts := options.DefaultOptions()
	opts.Security = b
	peer := answeringAt(t, bareNode(t, "b"), opts, freeAddress()) // address that is not in the certificate
	for name, want := range map[string]failure.Reason{"": failure.TLS, "others.ns.svc": failure.TLS,
		"peers.ns.svc": ""} {
		var got failure.Reason
		if _, f := askHello(t, peer, schedule.Target{Address: peer, TLSName: name}.Security(a)); f != nil {
			got = f.Reason
		}
		if got != want {
			t.Errorf("as %q: %q, want %q", name, got, want)
		}
		opts := (&zone{}).options()
		opts.Security = a
		var asked result.Result
		p := schedule.NewProber(bareNode(t, "a"), opts, func(r result.Result) { asked = r }, quiet(options.Events{}))
		p.Set([]schedule.Target{{Address: peer, TLSName: name, Found: true}})
		if known, ok := p.Node.Peer(peer); !ok || known != name {
			t.Errorf("a ring or gate shows %q, %v", known, ok)
		}
		p.Report(peer, p.RunRound(t.Context(), p.NewRound(peer, false)))
		if refused := want == failure.TLS; (asked.Reason == failure.TLS) != refused || asked.PeerNode == "" != refused {
			t.Errorf("a round as %q: %q of %q", name, asked.Reason, asked.PeerNode)
		}
	}
}

// TestNodeNames: the configured name overrides the command line's, which overrides the host name.
func TestNodeNames(t *testing.T) {
	n := node.NewNode(node.Options{Name: "spark-01"})
	for _, tc := range []struct{ configured, want string }{{"", "spark-01"}, {"left", "left"}, {"", "spark-01"}} {
		n.SetName(tc.configured)
		if n.Name() != tc.want {
			t.Errorf("%q: it calls itself %q, want %q", tc.configured, n.Name(), tc.want)
		}
	}
}
