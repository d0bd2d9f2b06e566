package probe

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"time"
)

// ring is the order of all nodes on one day, by which each knows whom to ask.
type ring []place

type place struct {
	key     [sha256.Size]byte
	address string // host:port
}

func (p place) compare(q place) int { return bytes.Compare(p.key[:], q.key[:]) }

// newRing orders nodes by a hash of the day in UTC and their address, which must be alike on every node.
func newRing(addresses []string, now time.Time) ring {
	r := make(ring, 0, len(addresses))
	for _, address := range addresses {
		r = append(r, placeOf(address, now))
	}
	slices.SortFunc(r, place.compare)
	return slices.Compact(r)
}

func placeOf(address string, now time.Time) place {
	return place{sha256.Sum256([]byte(now.UTC().Format(time.DateOnly) + "\n" + address)), address}
}

// after returns the n nodes that follow a node, which need not be in the ring. Every node asks those that follow it, so
// each is asked by as many as it asks, by others each day, and one that joins or leaves makes at most 2 × n new pairs.
func (r ring) after(self string, now time.Time, n int) []string {
	at, found := slices.BinarySearchFunc(r, placeOf(self, now), place.compare)
	others := len(r)
	if found {
		at++
		others--
	}
	var next []string
	for i := range min(n, others) {
		next = append(next, r[(at+i)%len(r)].address)
	}
	return next
}
