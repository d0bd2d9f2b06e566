package finding

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

// How often a fault must be seen before it is a finding, and not be seen before it is none: noise neither raises nor
// clears one.
const (
	raiseAfter = 2 // examinations that found it, in a row but for clearAfter-1
	clearAfter = 3 // examinations that did not, in a row
)

// MaxRaised is how many findings are shown and have a series; the others are counted.
const MaxRaised = 256

// Raised is a finding that stands.
type Raised struct {
	Finding
	Since time.Time `json:"since"` // start of the examination that found it first
	// Silenced is the reason for which an operator silenced it; empty: not silenced. It is shown, and nothing else.
	Silenced string `json:"silenced,omitempty"`
}

// Silence hides findings that an operator knows of.
type Silence struct {
	Check   string
	Subject string // empty: any
	Reason  string
	Until   time.Time
}

// Covers reports whether it hides a finding now.
func (s Silence) Covers(f Finding, now time.Time) bool {
	return s.Check == f.Check && (s.Subject == "" || s.Subject == f.Subject) && now.Before(s.Until)
}

// Store raises what examinations find again and again. Every surface of a running railscope shows its list. What
// examines is a source of its own, such as the node, or a peer that is probed: each has its own examinations, at its
// own pace. Safe for concurrent use.
type Store struct {
	changed func(raised, cleared []Raised)

	mu       sync.Mutex // protects all following fields
	sources  map[string]*examinations
	silences []Silence
	shown    map[key]Raised // the last list, without what is silenced
}

type key struct{ check, subject string }

type examinations struct {
	last  time.Time
	found map[key]*candidate
}

type candidate struct {
	Finding
	since        time.Time
	seen, unseen int
	raised       bool
}

// NewStore returns an empty store. changed, which may be nil, is called after each update that changed the list,
// without what is silenced; calls do not overlap, and it must not call the store.
func NewStore(changed func(raised, cleared []Raised)) *Store {
	return &Store{changed: changed, sources: map[string]*examinations{}, shown: map[key]Raised{}}
}

// Update records what one examination found. An examination that is not later than the source's last one is ignored.
func (s *Store) Update(source string, at time.Time, found []Finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.sources[source]
	if e == nil {
		e = &examinations{found: map[key]*candidate{}}
		s.sources[source] = e
	}
	if !at.After(e.last) {
		return
	}
	e.last = at
	e.add(at, found)
	s.reportLocked(at)
}

func (e *examinations) add(at time.Time, found []Finding) {
	now := map[key]bool{}
	for _, f := range found {
		k := key{f.Check, f.Subject}
		if now[k] { // found twice
			if c := e.found[k]; f.Severity.Compare(c.Severity) < 0 {
				c.Finding = f
			}
			continue
		}
		now[k] = true
		c := e.found[k]
		if c == nil {
			c = &candidate{since: at}
			e.found[k] = c
		}
		c.Finding, c.seen, c.unseen = f, c.seen+1, 0
		c.raised = c.raised || c.seen >= raiseAfter
	}
	maps.DeleteFunc(e.found, func(k key, c *candidate) bool {
		if !now[k] {
			c.unseen++
		}
		return c.unseen >= clearAfter
	})
}

// Keep drops the sources for which keep returns false, such as peers that are no longer probed. last is when the
// source's last examination began.
func (s *Store) Keep(keep func(source string, last time.Time) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.sources)
	maps.DeleteFunc(s.sources, func(source string, e *examinations) bool { return !keep(source, e.last) })
	if len(s.sources) < before {
		s.reportLocked(time.Now())
	}
}

// SetSilences replaces the silences.
func (s *Store) SetSilences(list []Silence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silences = list
	s.reportLocked(time.Now())
}

// List returns what stands, the worst first, what is silenced last, and how many more than MaxRaised do.
func (s *Store) List(now time.Time) (list []Raised, more int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list = slices.SortedFunc(maps.Values(s.listLocked(now)), compareRaised)
	most := min(len(list), MaxRaised)
	return list[:most:most], len(list) - most
}

func compareRaised(a, b Raised) int {
	return cmp.Or(cmp.Compare(min(len(a.Silenced), 1), min(len(b.Silenced), 1)), a.Compare(b.Finding))
}

// listLocked joins what the sources found: of one check and subject the worst, since the earliest.
func (s *Store) listLocked(now time.Time) map[key]Raised {
	list := map[key]Raised{}
	for _, source := range slices.Sorted(maps.Keys(s.sources)) {
		for k, c := range s.sources[source].found {
			if !c.raised {
				continue
			}
			r, other := Raised{c.Finding, c.since, s.silencedLocked(c.Finding, now)}, list[k]
			if other.Check != "" && other.Severity.Compare(r.Severity) <= 0 {
				r.Finding = other.Finding
			}
			if other.Check != "" && other.Since.Before(r.Since) {
				r.Since = other.Since
			}
			list[k] = r
		}
	}
	return list
}

func (s *Store) silencedLocked(f Finding, now time.Time) string {
	for _, one := range s.silences {
		if one.Covers(f, now) {
			return one.Reason
		}
	}
	return ""
}

// reportLocked calls changed with the difference to the last list.
func (s *Store) reportLocked(now time.Time) {
	list := s.listLocked(now)
	maps.DeleteFunc(list, func(_ key, r Raised) bool { return r.Silenced != "" })
	raised, cleared := missing(list, s.shown), missing(s.shown, list)
	s.shown = list
	if s.changed != nil && len(raised)+len(cleared) > 0 {
		s.changed(raised, cleared)
	}
}

// missing returns what the first list has and the second has not, the worst first.
func missing(list, from map[key]Raised) (out []Raised) {
	for k, r := range list {
		if _, ok := from[k]; !ok {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, compareRaised)
	return out
}
