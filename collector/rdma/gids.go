package rdma

import (
	"errors"
	"slices"
	"strconv"
	"sync"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/rail"
)

// maxGIDSeries is how many entries of a GID table are exported: it may have
// hundreds.
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
	own := remember(g.own)
	for _, gid := range rail.UsableGIDs(list, g.rail.LinkLayer, own, maxGIDSeries) {
		labels := append(slices.Clone(g.labels), strconv.Itoa(gid.Index), gid.Type, gid.Addr.StringExpanded(),
			gid.Netdev)
		r.Add(g.rows.gid, labels, 1)
	}
	if len(errs) > 0 {
		return
	}
	r.Add(g.rows.gidChanges, g.labels, float64(g.history.update(list)))
	if g.rail.Netdev == "" || g.rail.LinkLayer == "InfiniBand" {
		return
	}
	if misbound, ok := rail.Misbound(list, own); ok {
		r.Add(g.rows.misbound, g.labels, collector.Bool(misbound))
	}
}

// remember asks once for each interface: entries of a table have few.
func remember(own func(netdev string) bool) func(netdev string) bool {
	known := map[string]bool{}
	return func(netdev string) bool {
		is, asked := known[netdev]
		if !asked {
			is = own(netdev)
			known[netdev] = is
		}
		return is
	}
}

// gidHistory counts the changes of a rail's GID table over the lives of its
// device. Safe for concurrent use: a life that hangs may overlap with the next.
type gidHistory struct {
	mu      sync.Mutex
	known   bool
	table   map[int]rail.GID
	changes uint64
}

// update enters the table as it is now, and returns the changes so far.
func (h *gidHistory) update(list []rail.GID) uint64 {
	now := make(map[int]rail.GID, len(list))
	for _, g := range list {
		now[g.Index] = g
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known {
		for i, g := range now {
			if h.table[i] != g {
				h.changes++
			}
		}
		for i := range h.table {
			if _, still := now[i]; !still {
				h.changes++
			}
		}
	}
	h.known, h.table = true, now
	return h.changes
}
