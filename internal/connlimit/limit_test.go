package connlimit

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fakeConn is a connection from an address. It is open until it is closed.
type fakeConn struct {
	net.Conn
	from   net.Addr
	closed atomic.Bool
}

func from(addr string) *fakeConn {
	return &fakeConn{from: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(addr), 4711))}
}

func (c *fakeConn) RemoteAddr() net.Addr { return c.from }
func (c *fakeConn) Close() error         { c.closed.Store(true); return nil }

// recorder returns a limit, and a function that returns its refusals so far.
func recorder(o Options) (*Limit, func() []string) {
	var mu sync.Mutex
	refused := []string{}
	o.Refused = func(reason, from string) {
		mu.Lock()
		defer mu.Unlock()
		host, _, _ := net.SplitHostPort(from)
		refused = append(refused, reason+" "+host)
	}
	return New(o), func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(refused)
	}
}

// TestPlaces: a limit without strangers closes connections beyond the limit, and reuses a place when its connection
// is closed.
func TestPlaces(t *testing.T) {
	for _, tc := range []struct {
		name  string
		limit int
		come  string // addresses in order; a - before an address closes its first open connection
		want  string // expected refusals
	}{
		{"room for all", 4, "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4", ""},
		{"full", 4, "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6",
			"connections 10.0.0.5, connections 10.0.0.6"},
		{"half for one address", 4, "10.0.0.1 10.0.0.1 10.0.0.1 10.0.0.2", "address 10.0.0.1"},
		{"a place is free again", 4, "10.0.0.1 10.0.0.1 -10.0.0.1 10.0.0.1", ""},
		{"one place", 1, "10.0.0.1 10.0.0.2 -10.0.0.1 10.0.0.2", "connections 10.0.0.2"},
		{"IPv4 within IPv6 is IPv4", 4, "10.0.0.1 ::ffff:10.0.0.1 10.0.0.1", "address 10.0.0.1"},
		{"neighbours of IPv4 are others", 4, "10.0.0.1 10.0.0.2 10.0.0.3", ""},
		{"a /64 of IPv6 is one", 4, "fd00::1 fd00::2 fd00::3 fd00:0:0:1::1", "address fd00::3"},
	} {
		l, refused := recorder(Options{Connections: tc.limit})
		open := map[string][]net.Conn{}
		for word := range strings.FieldsSeq(tc.come) {
			if addr, closes := strings.CutPrefix(word, "-"); closes {
				open[addr][0].Close()
				open[addr][0].Close() // closing twice frees one place
				open[addr] = open[addr][1:]
				continue
			}
			fake := from(word)
			c := l.Admit(fake)
			if (c == nil) != fake.closed.Load() {
				t.Errorf("%s: %s has a place: %t, closed: %t", tc.name, word, c != nil, fake.closed.Load())
			}
			if c != nil {
				open[word] = append(open[word], c)
			}
		}
		if got := strings.Join(refused(), ", "); got != tc.want {
			t.Errorf("%s: refused %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestNoAddress: there is no limit per address for a Unix socket.
func TestNoAddress(t *testing.T) {
	l, refused := recorder(Options{Connections: 4})
	for range 5 {
		l.Admit(&fakeConn{from: &net.UnixAddr{}})
	}
	if all, _ := l.Open(); all != 4 || len(refused()) != 1 {
		t.Errorf("%d open, refused %q", all, refused())
	}
}

// TestStrangersDisplaceEachOther: if all unproven places are taken, the oldest unproven connection of the address
// with the most is displaced, and never a proven one.
func TestStrangersDisplaceEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, refused := recorder(Options{Connections: 8, Strangers: 4, StrangerTime: 10 * time.Second})
		peer := from("10.0.0.9")
		Of(l.Admit(peer)).Prove()
		var flood []*fakeConn
		for range 20 {
			c := from("10.0.0.1")
			flood = append(flood, c)
			if l.Admit(c) == nil {
				t.Fatal("a new connection has no place")
			}
		}
		for i, c := range flood {
			if c.closed.Load() != (i < 16) {
				t.Errorf("connection %d closed: %t", i, c.closed.Load())
			}
		}
		other := from("10.0.0.2")
		admitted := l.Admit(other)
		for range 10 {
			l.Admit(from("10.0.0.1")) // displaces its own oldest connection
		}
		if other.closed.Load() || peer.closed.Load() {
			t.Errorf("displaced: other %t, peer %t", other.closed.Load(), peer.closed.Load())
		}
		if all, strangers := l.Open(); all != 5 || strangers != 4 {
			t.Errorf("%d open, %d unproven", all, strangers)
		}
		Of(admitted).Prove()
		if all, strangers := l.Open(); all != 5 || strangers != 3 {
			t.Errorf("after a proof: %d open, %d unproven", all, strangers)
		}
		if n := len(refused()); n != 27 {
			t.Errorf("%d refusals: %q", n, refused())
		}
		time.Sleep(10*time.Second + 1)
		synctest.Wait()
		if all, strangers := l.Open(); all != 2 || strangers != 0 || other.closed.Load() || peer.closed.Load() {
			t.Errorf("after 10 s: %d open, %d unproven", all, strangers)
		}
		if got := refused()[27:]; !slices.Equal(got, []string{"timeout 10.0.0.1", "timeout 10.0.0.1",
			"timeout 10.0.0.1"}) {
			t.Errorf("after 10 s: %q", got)
		}
	})
}

// TestProvenFull: if proven connections take all places, or all of an address, new ones are refused.
func TestProvenFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, refused := recorder(Options{Connections: 4, Strangers: 2, StrangerTime: time.Second})
		for _, addr := range []string{"10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3"} {
			Of(l.Admit(from(addr))).Prove()
		}
		for _, addr := range []string{"10.0.0.1", "10.0.0.4"} {
			if l.Admit(from(addr)) != nil {
				t.Errorf("%s has a place", addr)
			}
		}
		if want := []string{"address 10.0.0.1", "connections 10.0.0.4"}; !slices.Equal(refused(), want) {
			t.Errorf("refused %q, want %q", refused(), want)
		}
	})
}

// TestModel: in random sequences no limit is ever exceeded, no proven connection is closed, and no place is taken
// at the end.
func TestModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(200) {
			rng := rand.New(rand.NewPCG(seed, 0))
			o := Options{Connections: 1 + rng.IntN(12), StrangerTime: time.Minute}
			o.Strangers = rng.IntN(o.Connections/2 + 1)
			l := New(o)
			type admitted struct {
				*Conn
				fake   *fakeConn
				proven bool
			}
			var conns []*admitted
			for step := range 300 {
				switch i := rng.IntN(10); {
				case i < 6:
					fake := from(fmt.Sprintf("10.0.0.%d", rng.IntN(4)))
					if c := l.Admit(fake); c != nil {
						conns = append(conns, &admitted{Of(c), fake, o.Strangers == 0})
					}
				case len(conns) == 0:
				case i < 8:
					c := conns[rng.IntN(len(conns))]
					c.proven = c.proven || !c.fake.closed.Load()
					c.Prove()
				default:
					i := rng.IntN(len(conns))
					conns[i].Close()
					conns = slices.Delete(conns, i, i+1)
				}
				open, byAddress := 0, map[string]int{}
				for _, c := range conns {
					if c.fake.closed.Load() && c.proven {
						t.Fatalf("seed %d, step %d: a proven connection was closed", seed, step)
					}
					if !c.fake.closed.Load() {
						open++
						byAddress[c.fake.from.String()]++
					}
				}
				all, strangers := l.Open()
				if all != open || all > o.Connections || strangers > max(o.Strangers, 0) {
					t.Fatalf("seed %d, step %d: %d open of %d, %d counted, %d unproven of %d", seed, step, open,
						o.Connections, all, strangers, o.Strangers)
				}
				for addr, n := range byAddress {
					if n > max(o.Connections/2, 1) {
						t.Fatalf("seed %d, step %d: %s has %d of %d places", seed, step, addr, n, o.Connections)
					}
				}
			}
			for _, c := range conns {
				c.Close()
			}
			if all, strangers := l.Open(); all != 0 || strangers != 0 {
				t.Fatalf("seed %d: %d open, %d unproven at the end", seed, all, strangers)
			}
		}
	})
}

// TestRefusals: each refusal is counted, and a reason is reported again only after a while without it.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		r := NewRefusals(func(reason, from string) { said = append(said, reason+" "+from) }, "a", "b", "never")
		for range 100 { // an attack that lasts is reported once
			r.Count("a", "x")
			time.Sleep(Quiet / 2)
		}
		r.Count("b", "y")
		time.Sleep(Quiet + 1)
		r.Count("a", "z")
		if want := []string{"a x", "b y", "a z"}; !slices.Equal(said, want) {
			t.Errorf("reported %q, want %q", said, want)
		}
		var counts []string
		r.Each(func(reason string, n uint64) { counts = append(counts, fmt.Sprint(reason, n)) })
		if want := []string{"a101", "b1", "never0"}; !slices.Equal(counts, want) {
			t.Errorf("counted %q, want %q", counts, want)
		}
	})
}
