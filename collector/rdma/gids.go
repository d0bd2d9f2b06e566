package rdma

import (
	"errors"
	"slices"
	"strconv"
	"sync"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/rail"
)

// maxGIDSeries is how many entries of a GID table are exported: it may have hundreds.
const maxGIDSeries = 16

// gidHistory returns the history of a rail, which is kept when the device goes.
func (s *Source) gidHistory(rail string) *gidHistory {
	h, _ := s.histories.LoadOrStore(rail, &gidHistory{})
	return h.(*gidHistory)
}

func (p *port) readGIDs(r *collector.Reading) {
	t, labels := p.table, p.set.labels
	list, errs := p.port.GIDs()
	for _, err := range errs {
		if errors.Is(err, rail.ErrNoTable) {
			return
		}
		r.Fail(err)
	}
	r.Add(t.gids, labels, float64(len(list)))
	for _, gid := range rail.UsableGIDs(list, p.rail.LinkLayer, p.own, maxGIDSeries) {
		entry := []string{strconv.Itoa(gid.Index), gid.Type, gid.Addr.StringExpanded(), gid.Netdev}
		r.Add(t.gid, slices.Concat(labels, entry), 1)
	}
	if len(errs) > 0 {
		return
	}
	r.Add(t.gidChanges, labels, float64(p.gidHistory.update(list)))
	if p.rail.Netdev == "" || p.rail.LinkLayer == "InfiniBand" {
		return
	}
	if misbound, ok := rail.Misbound(list, p.own); ok {
		r.Add(t.misbound, labels, collector.Bool(misbound))
	}
}

// gidHistory counts the changes of a rail's GID table, also across devices that are created anew. Safe for concurrent
// use: the read of an old device that hangs may overlap with that of the new one.
type gidHistory struct {
	mu      sync.Mutex
	table   map[int]rail.GID // nil before the first update
	changes uint64
}

// update compares the table with the previous one, and returns the number of changes so far.
func (h *gidHistory) update(list []rail.GID) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.table
	h.table = make(map[int]rail.GID, len(list))
	for _, g := range list {
		h.table[g.Index] = g
		if before != nil && before[g.Index] != g {
			h.changes++
		}
	}
	for i := range before {
		if _, exists := h.table[i]; !exists {
			h.changes++
		}
	}
	return h.changes
}
