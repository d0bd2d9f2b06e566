package finding

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

// Number of examinations that raise or clear a finding, so that noise does neither.
const (
	raiseAfter = 2 // examinations that found it, with at most clearAfter-1 in between that did not
	clearAfter = 3 // consecutive examinations that did not find it
)

// KeepUnjudged is how long a finding stays that no examination could confirm or clear.
const KeepUnjudged = 24 * time.Hour

// MaxRaised is the number of findings that are shown and have a series; further ones are only counted.
const MaxRaised = 256

// Raised is an active finding.
type Raised struct {
	Finding
	// Silenced is the operator's reason for a silence; empty: not silenced. A silenced finding is only shown.
	Silenced string `json:"silenced,omitempty"`
}

// Silence hides findings that an operator knows about.
type Silence struct {
	Check   string
	Subject string // empty: any
	Reason  string
	Until   time.Time
}

// Covers reports whether the silence hides a finding now.
func (s Silence) Covers(f Finding, now time.Time) bool {
	return s.Check == f.Check && (s.Subject == "" || s.Subject == f.Subject) && now.Before(s.Until)
}

// Store raises findings that repeated examinations find. All outputs of a running railscope use its list. Each
// source, such as the node or a probed peer, has its own examinations at its own pace. Safe for concurrent use.
type Store struct {
	changed func(raised, cleared []Raised)

	mu       sync.Mutex // protects all following fields
	sources  map[string]*examinations
	silences []Silence
	shown    map[key]Raised // last list, without silenced findings
}

type key struct{ check, subject string }

type examinations struct {
	last  time.Time
	found map[key]*candidate
}

type candidate struct {
	Finding
	seen, unseen int // consecutive examinations with and without it
	raised       bool
}

// found notes that an examination, or another reading, found it.
func (c *candidate) found(f Finding, at time.Time) {
	f.Since, f.Seen, f.Recovering = c.Since, at, false
	c.Finding, c.seen, c.unseen = f, c.seen+1, 0
	c.raised = c.raised || c.seen >= raiseAfter
}

// NewStore returns an empty store. changed may be nil. It is called after each update that changed the list,
// without silenced findings. Calls do not overlap, and it must not call the store.
func NewStore(changed func(raised, cleared []Raised)) *Store {
	return &Store{changed: changed, sources: map[string]*examinations{}, shown: map[key]Raised{}}
}

// Update records the findings of one examination. An examination that is not later than the source's last one is
// ignored.
func (s *Store) Update(source string, at time.Time, found []Finding) {
	s.UpdateJudged(source, at, found, func(Finding) bool { return true })
}

// UpdateJudged is like Update for an examination that could not judge everything: findings for which judged returns
// false are unchanged, for [KeepUnjudged]. An unmeasured state is neither good nor bad.
func (s *Store) UpdateJudged(source string, at time.Time, found []Finding, judged func(Finding) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.sourceLocked(source)
	if !at.After(e.last) {
		return
	}
	e.last = at
	now := e.add(at, found)
	maps.DeleteFunc(e.found, func(k key, c *candidate) bool {
		if !now[k] && judged(c.Finding) {
			c.unseen++
			c.Recovering = c.raised
		}
		return c.unseen >= clearAfter || at.Sub(c.Seen) >= KeepUnjudged
	})
	s.reportLocked(at)
}

// Reread records the findings of another reading of some checks, which is not a full examination. It raises
// findings that were found before, so that a stable fact is raised at once, and findings that it contradicts
// recover. judged reports which findings the reading could have made.
func (s *Store) Reread(source string, at time.Time, found []Finding, judged func(Finding) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.sourceLocked(source)
	now := e.add(at, found)
	maps.DeleteFunc(e.found, func(k key, c *candidate) bool {
		contradicted := !now[k] && judged(c.Finding)
		c.Recovering = c.raised && (c.Recovering || contradicted)
		return contradicted && !c.raised
	})
	s.reportLocked(at)
}

func (s *Store) sourceLocked(source string) *examinations {
	if s.sources[source] == nil {
		s.sources[source] = &examinations{found: map[key]*candidate{}}
	}
	return s.sources[source]
}

// add adds findings, the worst for each check and subject, and returns their keys.
func (e *examinations) add(at time.Time, found []Finding) map[key]bool {
	now := map[key]bool{}
	for _, f := range slices.SortedStableFunc(slices.Values(found), Finding.Compare) {
		k := key{f.Check, f.Subject}
		if now[k] {
			continue
		}
		now[k] = true
		if e.found[k] == nil {
			e.found[k] = &candidate{Finding: Finding{Since: at}}
		}
		e.found[k].found(f, at)
	}
	return now
}

// Stands reports whether a source has raised a finding with this one's check and subject.
func (s *Store) Stands(source string, f Finding) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.sources[source]
	if e == nil {
		return false
	}
	c := e.found[key{f.Check, f.Subject}]
	return c != nil && c.raised
}

// Keep drops the sources for which keep returns false, such as peers that are no longer probed. last is the start
// of the source's last examination.
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

// List returns the active findings, the worst first and silenced ones last, and the number of findings beyond
// MaxRaised.
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

// listLocked merges the findings of the sources: for each check and subject the worst, preferably one that does not
// recover, with the earliest start. Consequences of other findings, silenced or not, are omitted.
func (s *Store) listLocked(now time.Time) map[key]Raised {
	list := map[key]Raised{}
	for _, source := range slices.Sorted(maps.Keys(s.sources)) {
		for k, c := range s.sources[source].found {
			if !c.raised {
				continue
			}
			r, other := Raised{c.Finding, s.silencedLocked(c.Finding, now)}, list[k]
			if other.Check != "" {
				if other.Compare(r.Finding) <= 0 {
					r.Finding, other.Finding = other.Finding, r.Finding
				}
				if other.Since.Before(r.Since) {
					r.Since = other.Since
				}
				if other.Seen.After(r.Seen) {
					r.Seen = other.Seen
				}
			}
			list[k] = r
		}
	}
	var all []Finding
	for _, r := range list {
		all = append(all, r.Finding)
	}
	maps.DeleteFunc(list, func(_ key, r Raised) bool { return explained(r.Finding, all) })
	return list
}

func (s *Store) silencedLocked(f Finding, now time.Time) string {
	for _, silence := range s.silences {
		if silence.Covers(f, now) {
			return silence.Reason
		}
	}
	return ""
}

// reportLocked calls changed with the difference from the last list.
func (s *Store) reportLocked(now time.Time) {
	list := s.listLocked(now)
	maps.DeleteFunc(list, func(_ key, r Raised) bool { return r.Silenced != "" })
	raised, cleared := missing(list, s.shown), missing(s.shown, list)
	s.shown = list
	if s.changed != nil && len(raised)+len(cleared) > 0 {
		s.changed(raised, cleared)
	}
}

// missing returns the findings of list that are not in from, the worst first.
func missing(list, from map[key]Raised) (out []Raised) {
	for k, r := range list {
		if _, ok := from[k]; !ok {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, compareRaised)
	return out
}
