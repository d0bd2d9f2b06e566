package probe

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/result"
)

// addBond gives a node a bond of two interfaces with this speed in Mb/s.
func addBond(t *testing.T, n *node.Node, name, speed string, addresses ...string) {
	t.Helper()
	write := func(path, text string) {
		path = filepath.Join(n.Opts.Sysfs, "class/net", path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(name+"/bonding/slaves", name+"a "+name+"b")
	for _, member := range []string{name + "a", name + "b"} {
		write(name+"/lower_"+member+"/ifindex", "1") // link to the interface in sysfs
		write(member+"/speed", speed)
		write(member+"/statistics/tx_bytes", "1000")
	}
	before := n.Opts.Addresses
	n.Opts.Addresses = func() (map[string][]netip.Prefix, error) {
		all, err := before()
		for _, a := range addresses {
			all[name] = append(all[name], netip.MustParsePrefix(a))
		}
		return all, err
	}
}

// TestBond: TCP over a bond with two addresses is measured once per number of streams, at the speed of its members,
// to an address that is not this node's. A bond that does not reach the peer is not measured, and the failure says
// why.
func TestBond(t *testing.T) {
	t.Parallel()
	p := preparePair(t, 1, nil)
	addBond(t, p.a, "bond0", "200000", "127.9.0.1/24", "127.9.1.1/24")
	addBond(t, p.a, "bond1", "-1", "127.10.0.1/24")
	addBond(t, p.b, "bond0", "100000", "127.9.0.2/24", "127.9.1.2/24")
	p.serve()
	res := p.bench(result.Extra{Kind: result.Bond})
	var streams []int
	for _, m := range res.Extras {
		if m.Kind != result.Bond || m.Failure != nil || m.TCP == nil {
			t.Fatalf("%+v: %v", m, m.Failure)
		}
		streams = append(streams, m.TCP.Streams)
		if m.TCP.BytesPerSecond <= 0 || len(m.TCP.Rails) != 2 || m.TCP.Rails[0].Rail != "bond0a" ||
			m.TCP.Rails[0].Counted == nil {
			t.Errorf("%+v", m.TCP)
		}
		t.Logf("%d streams: %.1f Gb/s", m.TCP.Streams, m.TCP.BytesPerSecond/125e6)
	}
	if !slices.Equal(streams, []int{1, 4}) {
		t.Errorf("streams %v", streams)
	}
	if got := p.a.Speed([]string{"bond0a", "bond0b"}); got != 50e9 {
		t.Errorf("400 Gb/s together, not %v B/s", got)
	}
	if got := p.a.Speed([]string{"bond0a", "bond1a"}); got != 0 {
		t.Errorf("one has no link: %v B/s", got)
	}
}

// TestBondApart: a bond without an address in a subnet of the peer is reported.
func TestBondApart(t *testing.T) {
	t.Parallel()
	p := preparePair(t, 1, nil)
	addBond(t, p.a, "bond0", "200000", "127.9.0.1/24")
	addBond(t, p.b, "bond0", "200000", "127.9.0.1/24") // a's own address
	p.serve()
	res := p.bench(result.Extra{Kind: result.Bond})
	if len(res.Extras) != 1 || res.Extras[0].Failure == nil || res.Extras[0].Failure.Reason != failure.NoAddress {
		t.Errorf("%+v", res.Extras)
	}
}
