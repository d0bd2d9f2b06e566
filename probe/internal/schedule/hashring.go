package schedule

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"time"
)

// Ring is the order of all nodes on one day, from which each node derives its peers.
type Ring []place

type place struct {
	key     [sha256.Size]byte
	address string // host:port
}

func (p place) compare(q place) int { return bytes.Compare(p.key[:], q.key[:]) }

// NewRing orders nodes by a hash of the UTC day and their address. All nodes must spell the addresses alike.
func NewRing(addresses []string, now time.Time) Ring {
	r := make(Ring, 0, len(addresses))
	for _, address := range addresses {
		r = append(r, placeOf(address, now))
	}
	slices.SortFunc(r, place.compare)
	return slices.Compact(r)
}

func placeOf(address string, now time.Time) place {
	return place{sha256.Sum256([]byte(now.UTC().Format(time.DateOnly) + "\n" + address)), address}
}

// After returns the n nodes that follow a node, which need not be in the ring. Each node asks and is asked by n
// others, which change every day. A node that joins or leaves makes at most 2 × n new pairs.
func (r Ring) After(self string, now time.Time, n int) []string {
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
