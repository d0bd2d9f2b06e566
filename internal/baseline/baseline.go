// Package baseline keeps the solo goodput of each rail to each peer over the last day and the last week, so that a
// rail can be compared with its own past. The week survives a restart.
package baseline

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/stats"
)

const (
	day   = int64(24 * time.Hour / time.Second)
	gap   = day / 250 // minimum time between two figures of a day, once there are enough for a median
	least = 5         // minimum number of figures for a median
	week  = 7         // days that are kept, including today

	saveEvery = time.Hour
	settled   = int64(time.Hour / time.Second) // time without a clock jump before anything expires
	maxPeers  = 64                             // limit of saved peers
	maxRails  = 16                             // limit of saved rails per peer
	maxText   = 300
	maxRate   = 1e15 // bytes per second
)

// Past is the earlier goodput of a rail. Figures are in bytes per second, 0 if unknown.
type Past struct {
	Median float64   // median of the last 24 hours; after a restart, of today or yesterday
	Best   float64   // the best daily median of the last week
	On     time.Time // day of Best, UTC
	Latest float64   // the better of the last two figures
}

// State is saved across restarts: peer → rail → daily medians.
type State map[string]map[string]Days

// Keeper keeps the figures. Safe for concurrent use.
type Keeper struct {
	save func(State)

	mu     sync.Mutex // protects all following fields
	series map[key]*series
	saved  time.Time
	latest int64 // Unix time of the last observation
	jumped int64 // first observation after the start, or after the clock jumped by more than a day
}

type key struct{ peer, rail string }

type series struct {
	expected float64  // expected goodput at the latest observation; 0: not known, as after a restart
	figures  []figure // figures of the last day, oldest first, evenly spread
	last     float64  // latest figure, which may not be in figures; 0: none
	days     Days
	past     Past // last returned value
}

type figure struct {
	at    int64 // Unix time, seconds
	value float64
}

// New returns a keeper with the state of an earlier process. It passes its state to save at most once an hour; save
// must not block, and may be nil.
func New(s State, save func(State)) *Keeper {
	k := &Keeper{save: save, series: map[key]*series{}}
	for peer, rails := range s {
		for rail, days := range rails {
			k.series[key{peer, rail}] = &series{days: slices.Clone(days)}
		}
	}
	return k
}

// Observe adds a figure, which must be above 0, and returns the past before it; only the median includes the
// figure. expected is the rail's expected goodput, 0 if unknown. If it decreases, as after a planned change of the
// link, the past is forgotten.
func (k *Keeper) Observe(peer, rail string, at time.Time, value, expected float64) (p Past) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.series[key{peer, rail}]
	if s == nil {
		s = &series{}
		k.series[key{peer, rail}] = s
	}
	if expected < s.expected && expected > 0 {
		*s = series{}
	}
	if expected > 0 {
		s.expected = expected
	}
	expire := k.clockSettled(at)
	if expire {
		s.expire(at)
	}
	if s.last > 0 {
		p.Latest = max(s.last, value)
	}
	p.Best, p.On = s.best()
	s.add(at, value)
	p.Median = s.median(at)
	s.past = p
	k.saveLocked(at, expire)
	return p
}

// clockSettled reports whether old and future data may be dropped: not within an hour of a start or a clock jump. A
// node whose real-time clock has no power starts in the past until NTP sets it.
func (k *Keeper) clockSettled(at time.Time) bool {
	now := at.Unix()
	if k.latest == 0 || now-k.latest > day || k.latest-now > day {
		k.jumped = now
	}
	k.latest = now
	return now-k.jumped >= settled || k.jumped-now > settled
}

// Last returns the last result of Observe for a rail and a current peer; nil: none.
func (k *Keeper) Last(peer, rail string) *Past {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.series[key{peer, rail}]
	if s == nil || s.past == (Past{}) {
		return nil
	}
	p := s.past
	return &p
}

// Compare returns the past before a figure that is not kept, such as that of a manual round; nil if nothing is
// known about the rail and the peer.
func (k *Keeper) Compare(peer, rail string, at time.Time, value float64) *Past {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.series[key{peer, rail}]
	if s == nil || len(s.days) == 0 {
		return nil
	}
	p := Past{Median: s.median(at), Latest: value}
	p.Best, p.On = s.best()
	return &p
}

// best returns the best daily median, and its day.
func (s *series) best() (median float64, on time.Time) {
	for _, d := range s.days {
		if d.Median > median {
			median, on = d.Median, time.Unix(d.Number*day, 0).UTC()
		}
	}
	return median, on
}

// Forget forgets the past of a rail with all peers.
func (k *Keeper) Forget(rail string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.series, func(of key, _ *series) bool { return of.rail == rail })
	if k.save != nil {
		k.save(k.stateLocked())
	}
}

// SetPeers forgets the figures of peers that are no longer probed, but not their daily medians: a node probes
// different peers each day.
func (k *Keeper) SetPeers(peers []string) {
	asked := map[string]bool{}
	for _, peer := range peers {
		asked[peer] = true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.series, func(of key, s *series) bool {
		if !asked[of.peer] {
			s.figures, s.last, s.past = nil, 0, Past{}
		}
		return len(s.figures) == 0 && len(s.days) == 0
	})
}

// saveLocked saves once an hour, after it dropped expired data, including that of peers that are no longer probed.
func (k *Keeper) saveLocked(at time.Time, expire bool) {
	if at.Sub(k.saved) < saveEvery && !at.Before(k.saved) {
		return
	}
	if expire {
		maps.DeleteFunc(k.series, func(_ key, s *series) bool {
			s.expire(at)
			return len(s.figures) == 0 && len(s.days) == 0
		})
	}
	if k.save == nil {
		k.saved = at
		return
	}
	if s := k.stateLocked(); len(s) > 0 {
		k.saved = at
		k.save(s)
	}
}

// stateLocked returns the daily medians of the peers that were measured last, up to the limit.
func (k *Keeper) stateLocked() State {
	s, latest := State{}, map[string]int64{}
	for of, one := range k.series {
		if len(one.days) > 0 {
			latest[of.peer] = max(latest[of.peer], one.days[len(one.days)-1].Number)
		}
	}
	peers := slices.SortedFunc(maps.Keys(latest), func(a, b string) int {
		return cmp.Or(cmp.Compare(latest[b], latest[a]), cmp.Compare(a, b))
	})
	for _, peer := range peers[:min(len(peers), maxPeers)] {
		s[peer] = map[string]Days{}
	}
	for of, one := range k.series {
		if rails := s[of.peer]; rails != nil && len(one.days) > 0 && len(rails) < maxRails {
			rails[of.rail] = slices.Clone(one.days)
		}
	}
	return s
}

// add adds a figure, unless the last one is too recent, and updates today's median.
func (s *series) add(t time.Time, v float64) {
	now, n := t.Unix(), len(s.figures)
	s.last = v
	if n >= least && now-s.figures[n-1].at < gap {
		return
	}
	s.figures = append(s.figures, figure{now, v})
	today := now / day
	var values []float64
	for _, f := range s.figures {
		if f.at/day == today {
			values = append(values, f.value)
		}
	}
	if len(values) < least {
		return
	}
	d := Day{Number: today, Median: stats.Median(values), Figures: len(values)}
	byNumber := func(o Day, n int64) int { return cmp.Compare(o.Number, n) }
	switch i, known := slices.BinarySearchFunc(s.days, today, byNumber); {
	case !known:
		s.days = slices.Insert(s.days, i, d) // later days exist if the clock was wrong
		s.days = s.days[max(0, len(s.days)-week):]
	case s.days[i].Figures <= d.Figures: // there were more figures before a restart
		s.days[i] = d
	}
}

// expire drops figures older than a day and days older than a week. If the clock was set back, it drops data in the
// future.
func (s *series) expire(t time.Time) {
	now := t.Unix()
	s.figures = slices.DeleteFunc(s.figures, func(f figure) bool { return f.at < now-day || f.at > now })
	s.days = slices.DeleteFunc(s.days, func(d Day) bool { return d.Number <= now/day-week || d.Number > now/day })
}

// median returns the median of the last 24 hours. With too few figures, it returns that of today or yesterday; 0:
// unknown.
func (s *series) median(t time.Time) float64 {
	if n := len(s.days); len(s.figures) < least && n > 0 && s.days[n-1].Number >= t.Unix()/day-1 {
		return s.days[n-1].Median
	}
	if len(s.figures) < least {
		return 0
	}
	values := make([]float64, len(s.figures))
	for i, f := range s.figures {
		values[i] = f.value
	}
	return stats.Median(values)
}

// Day is the median of one day.
type Day struct {
	Number  int64 // days since 1970-01-01, UTC
	Median  float64
	Figures int // number of figures in the median
}

// Days are the medians of some days, oldest first. Their text is short because a file may have a thousand.
type Days []Day

// MarshalText implements [encoding.TextMarshaler]: "20780 4.9e+10 48, …".
func (d Days) MarshalText() ([]byte, error) {
	var parts []string
	for _, one := range d {
		parts = append(parts, fmt.Sprint(one.Number, " ", strconv.FormatFloat(one.Median, 'g', 6, 64), " ",
			one.Figures))
	}
	return []byte(strings.Join(parts, ", ")), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Days) UnmarshalText(b []byte) error {
	*d = nil
	if len(b) > maxText {
		return errors.New("too many days")
	}
	for part := range strings.SplitSeq(string(b), ", ") {
		words := strings.Split(part, " ")
		if len(words) != 3 {
			return fmt.Errorf("invalid day %.40q", part)
		}
		number, err := strconv.ParseInt(words[0], 10, 32)
		value, errValue := strconv.ParseFloat(words[1], 64)
		figures, errFigures := strconv.ParseUint(words[2], 10, 16)
		if err = errors.Join(err, errValue, errFigures); err != nil {
			return err
		}
		if ordered := len(*d) == 0 || number > (*d)[len(*d)-1].Number; !ordered || !(value > 0 && value < maxRate) ||
			math.IsNaN(value) || len(*d) == week {
			return fmt.Errorf("invalid day %.40q", part)
		}
		*d = append(*d, Day{number, value, int(figures)})
	}
	return nil
}

// Check validates a state that was read from a file.
func (s State) Check() error {
	if len(s) > maxPeers {
		return fmt.Errorf("%d peers; at most %d are allowed", len(s), maxPeers)
	}
	for peer, rails := range s {
		if len(peer) > maxText || len(rails) > maxRails {
			return fmt.Errorf("peer %.40q: a name that is too long, or %d rails", peer, len(rails))
		}
		for rail := range rails {
			if len(rail) > maxText {
				return fmt.Errorf("peer %.40q: rail %.40q: the name is too long", peer, rail)
			}
		}
	}
	return nil
}
