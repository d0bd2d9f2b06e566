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

// gidTable is the GID table of a port, which is read as facts.
type gidTable struct {
	rows    *table
	rail    rail.Rail
	labels  []string
	table   *rail.GIDTable
	own     func(netdev string) bool
	history *gidHistory
	facts   collector.Facts
}

func newGIDTable(s *Source, r rail.Rail, labels []string) gidTable {
	return gidTable{rows: s.table, rail: r, labels: labels, table: rail.NewGIDTable(r.Dir, r.Port),
		own: rail.Own(s.sysfs, r.Netdev), history: s.history(r.Name)}
}

func (g *gidTable) read(r *collector.Reading) { g.facts.Read(r, func() { g.readFacts(r) }) }

func (g *gidTable) readFacts(r *collector.Reading) {
	list, errs := g.table.Read()
	for _, err := range errs {
		if errors.Is(err, rail.ErrNoTable) {
			return
		}
		r.Fail(err)
	}
	r.Add(g.rows.gids, g.labels, float64(len(list)))
	for _, gid := range rail.UsableGIDs(list, g.rail.LinkLayer, g.own, maxGIDSeries) {
		entry := []string{strconv.Itoa(gid.Index), gid.Type, gid.Addr.StringExpanded(), gid.Netdev}
		r.Add(g.rows.gid, slices.Concat(g.labels, entry), 1)
	}
	if len(errs) > 0 {
		return
	}
	r.Add(g.rows.gidChanges, g.labels, float64(g.history.update(list)))
	if g.rail.Netdev == "" || g.rail.LinkLayer == "InfiniBand" {
		return
	}
	if misbound, ok := rail.Misbound(list, g.own); ok {
		r.Add(g.rows.misbound, g.labels, collector.Bool(misbound))
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
