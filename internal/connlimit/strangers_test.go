package connlimit

import (
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// dataConn is a connection from an address on which data has always arrived.
type dataConn struct{ *fakeConn }

func (c dataConn) Read(b []byte) (int, error) {
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	return len(b), nil
}

func data(addr string) dataConn { return dataConn{from(addr)} }

// TestWork: whatever strangers send, the server works for one of them at a time, and for all together no more than
// their share of the time; those that wait get their turn in order, unless they are closed.
func TestWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const share, limit, cost, stay = 0.1, 8, time.Millisecond, 10 * time.Second
		l := New(Options{Connections: 64, Strangers: limit, StrangerTime: time.Hour, Work: share})
		start := time.Now()
		var worked atomic.Int64 // nanoseconds
		var busy atomic.Bool
		flood := func() {
			for time.Since(start) < stay {
				c := l.Admit(data("10.0.0.1"))
				if c == nil {
					time.Sleep(cost)
					continue
				}
				if _, err := c.Read(make([]byte, 1)); err == nil {
					if busy.Swap(true) {
						t.Error("two work at once")
					}
					time.Sleep(cost)
					worked.Add(int64(cost))
					busy.Store(false)
				}
				c.Close()
				time.Sleep(cost) // they come many times as fast as they are served
			}
		}
		for range 4 * limit {
			go flood()
		}
		time.Sleep(stay / 2)
		peer := l.Admit(data("10.0.0.2"))
		before := time.Now()
		_, err := peer.Read(make([]byte, 1))
		if waited := time.Since(before); err != nil || waited > (limit+1)*time.Duration(float64(cost)/share) {
			t.Errorf("a peer waited %v: %v", waited, err)
		}
		peer.Close()
		time.Sleep(stay)
		all, most := time.Duration(worked.Load()), workBurst+time.Duration(share*float64(stay))+limit*cost
		if all > most || all < most/2 {
			t.Errorf("%v of %v worked, want %v", all, stay, most)
		}
	})
}

// TestWorkOfPeers: what a connection worked does not count when it is proven: peers never wait for each other.
func TestWorkOfPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Connections: 64, Strangers: 8, StrangerTime: time.Hour, Work: 0.1})
		start := time.Now()
		for range 1000 {
			c := l.Admit(data("10.0.0.1"))
			for range 2 {
				if _, err := c.Read(make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Millisecond)
			}
			Of(c).Prove()
			c.Close()
		}
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("1000 peers took %v, of which they worked 2 s", took)
		}
		idle := l.Admit(data("10.0.0.1"))
		if _, err := idle.Read(make([]byte, 1)); err != nil { // it has the turn and keeps it
			t.Fatal(err)
		}
		before := time.Now()
		next := l.Admit(data("10.0.0.2"))
		_, err := next.Read(make([]byte, 1))
		if waited := time.Since(before); err != nil || waited > 20*workTurn {
			t.Errorf("the next waited %v for one that waits for something else: %v", waited, err)
		}
		time.Sleep(time.Minute)
	})
}

// TestTurnsStay: a flood does not displace what waits for its turn, but what sends nothing; a connection of an address
// that has fewer displaces one of the flood.
func TestTurnsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Connections: 64, Strangers: 4, StrangerTime: time.Hour, Work: 0.1})
		var conns []dataConn
		admit := func(addr string, sends bool) bool {
			conns = append(conns, data(addr))
			c := l.Admit(conns[len(conns)-1])
			if c == nil {
				return false
			}
			if sends {
				go func() { _, _ = c.Read(make([]byte, 1)) }()
				synctest.Wait()
			}
			return true
		}
		for i := range 4 {
			admit("10.0.0.1", i < 3)
		}
		for i, addr := range []string{"10.0.0.1", "10.0.0.1", "10.0.0.2"} { // the last displaces one of the flood
			if got := admit(addr, true); got != (i != 1) {
				t.Errorf("connection %d of %s has a place: %t", i, addr, got)
			}
		}
		var closed []bool
		for _, c := range conns {
			closed = append(closed, c.closed.Load())
		}
		if want := []bool{true, false, false, true, false, true, false}; !slices.Equal(closed, want) {
			t.Errorf("closed %v, want %v", closed, want)
		}
		time.Sleep(patience)
		if !admit("10.0.0.1", false) {
			t.Error("a turn is waited for without end")
		}
		for _, c := range slices.Clone(l.open) {
			c.Close()
		}
		time.Sleep(time.Minute)
	})
}

// TestKnownStay: strangers displace each other before a connection of an address that was proven lately; of such an
// address, only a few are protected.
func TestKnownStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Connections: 64, Strangers: 8, StrangerTime: time.Hour})
		Of(l.Admit(from("10.0.0.1"))).Prove()
		var known []*fakeConn
		for range 6 {
			known = append(known, from("10.0.0.1"))
			l.Admit(known[len(known)-1])
		}
		for i := range 200 { // each from another address
			addr := netip.AddrFrom4([4]byte{10, 0, 1, byte(i)})
			l.Admit(from(addr.String()))
		}
		for i, c := range known {
			if c.closed.Load() != (i < 2) {
				t.Errorf("connection %d of the known address, closed: %t", i, c.closed.Load())
			}
		}
		time.Sleep(2 * knownTime)
		l.Admit(from("10.0.2.1"))
		if !known[2].closed.Load() {
			t.Error("known for ever")
		}
		for i := range maxKnown + 9 {
			l.mu.Lock()
			l.rememberLocked(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 32))
			l.mu.Unlock()
			time.Sleep(time.Millisecond)
		}
		if len(l.known) != maxKnown {
			t.Errorf("%d addresses are known", len(l.known))
		}
		for _, c := range l.open {
			defer c.Close()
		}
	})
}
