package node

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/options"
)

// Reservation keeps a node for measurements that somebody waits for, a benchmark or a ring: meanwhile its schedule
// starts no round, and only the holder gets a lease. It ends on request or by timeout. Peers may keep a node
// reserved for at most half of the time. Safe for concurrent use.
type Reservation struct {
	mu    sync.Mutex // protects all following fields
	key   string     // key of the holder; empty: none
	what  string     // activity of the holder, for people
	until time.Time

	used    time.Duration // twice the time that peers have reserved, minus the time that has passed
	counted time.Time     // time at which used was computed
}

// Durations of reservations after the holder's last request, and the limit for peers.
const (
	RingReserved  = protocol.LeaseTTL // reservation by a ring, which renews it
	AskerReserved = time.Second       // reservation for an asker that was denied a lease, and asks again
	MaxReserved   = 2 * options.MaxTimeout
)

// ReservedHere is the key of this node among the holders.
const ReservedHere = "this node"

// Take reserves the node for d from now, or returns what the present holder does.
func (r *Reservation) Take(key, what string, d time.Duration) (other string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	other = r.againstLocked(key, now)
	if other != "" {
		return other, false
	}
	if key != ReservedHere {
		r.used = max(r.used-now.Sub(r.counted), 0)
		r.counted = now
		more := d
		if r.key == key {
			more = now.Add(d).Sub(latest(r.until, now))
		}
		more = max(more, 0)
		if r.used+2*more > MaxReserved {
			return "reserved too often by peers", false
		}
		r.used += 2 * more
	}
	r.key, r.what, r.until = key, what, latest(now.Add(d), r.until)
	return "", true
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// End ends the holder's reservation.
func (r *Reservation) End(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.key != key {
		return
	}
	if left := time.Until(r.until); key != ReservedHere && left > 0 {
		r.used = max(r.used-2*left, 0)
	}
	r.key, r.until = "", time.Time{}
}

// Holds reports whether the holder has this key.
func (r *Reservation) Holds(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.key == key && time.Now().Before(r.until)
}

// Against returns what the holder does, unless the holder has this key; empty: not reserved.
func (r *Reservation) Against(key string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.againstLocked(key, time.Now())
}

func (r *Reservation) againstLocked(key string, now time.Time) string {
	if r.key == "" || r.key == key || !now.Before(r.until) {
		return ""
	}
	return r.what
}

// Known holds the peers of a node by address: what is known of them is the name that their certificates must contain;
// empty: their host. It is set by the schedule, and read by rings and gates. Nil: there are none yet.
type Known struct {
	Asked  atomic.Pointer[map[string]string] // those that the prober asks
	Listed atomic.Pointer[map[string]string] // all nodes of names and files, whether they are asked or not
}

// Peer returns the name that the certificate of a peer at an address must contain. ok is false if this node has no such
// peer.
func (k *Known) Peer(address string) (tlsName string, ok bool) {
	for _, list := range []*map[string]string{k.Asked.Load(), k.Listed.Load()} {
		if list != nil && !ok {
			tlsName, ok = (*list)[address]
		}
	}
	return tlsName, ok
}
