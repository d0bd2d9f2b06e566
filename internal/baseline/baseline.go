// Package baseline keeps what each rail carried alone to each peer, over the last day and the last week, so that a rail
// can be compared with its own past. A restart forgets nothing of the week.
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
)

const (
	day   = int64(24 * time.Hour / time.Second)
	gap   = day / 250 // between two figures of a day, once there are enough for a median
	least = 5         // figures for a median
	week  = 7         // days that are remembered, today included

	saveEvery = time.Hour
	settled   = int64(time.Hour / time.Second) // that the clock runs without a jump, before anything is expired
	maxPeers  = 64                             // that are saved
	maxRails  = 16                             // of each
	maxText   = 300
	maxRate   = 1e15 // bytes per second
)

// Past is what a rail carried before. Figures are in bytes per second, 0 where unknown.
type Past struct {
	Median float64   // of the last 24 hours; after a restart, of today or yesterday
	Best   float64   // the best daily median of the last week
	On     time.Time // the day of the best, UTC
	Latest float64   // the better of the last two figures
}

// State is what outlives the process: peer → rail → daily medians.
type State map[string]map[string]Days

// Keeper keeps the figures. Safe for concurrent use.
type Keeper struct {
	save func(State)

	mu     sync.Mutex // protects all following fields
	series map[key]*series
	saved  time.Time
	latest int64 // Unix time of the last observation
	jumped int64 // that of the first one after the clock jumped by more than a day, or after the start
}

type key struct{ peer, rail string }

type series struct {
	expected float64  // when the latest was observed; 0: not known, as after a restart
	figures  []figure // of the last day, oldest first, spread evenly
	last     float64  // the latest, also if it is not in figures; 0: none
	days     Days
	past     Past // as last returned
}

type figure struct {
	at    int64 // Unix time, seconds
	value float64
}

// New returns a keeper that starts from the state of an earlier process, and passes its own to save, at most once an
// hour; save must not block, and may be nil.
func New(s State, save func(State)) *Keeper {
	k := &Keeper{save: save, series: map[key]*series{}}
	for peer, rails := range s {
		for rail, days := range rails {
			k.series[key{peer, rail}] = &series{days: slices.Clone(days)}
		}
	}
	return k
}

// Observe adds a figure, which is more than 0, and returns what was before it; its median includes the figure. expected
// is what the rail should carry, 0 if nothing is known: once that falls, as after a planned change of the link, the
// past is forgotten.
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
	for _, d := range s.days {
		if d.Median > p.Best {
			p.Best, p.On = d.Median, time.Unix(d.Number*day, 0).UTC()
		}
	}
	s.add(at, value)
	p.Median = s.median(at)
	s.past = p
	k.saveLocked(at, expire)
	return p
}

// clockSettled reports whether what is old or in the future by the clock may be dropped: not within an hour of a start
// or a jump. A node whose real-time clock has no power starts in the past, until NTP sets it.
func (k *Keeper) clockSettled(at time.Time) bool {
	now := at.Unix()
	if k.latest == 0 || now-k.latest > day || k.latest-now > day {
		k.jumped = now
	}
	k.latest = now
	return now-k.jumped >= settled || k.jumped-now > settled
}

// Last returns what Observe did last of a rail and a peer that is asked; nil: nothing.
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

// Forget forgets the past of a rail with all peers.
func (k *Keeper) Forget(rail string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.series, func(of key, _ *series) bool { return of.rail == rail })
	if k.save != nil {
		k.save(k.stateLocked())
	}
}

// SetPeers forgets the figures of peers that are not asked any more, but not their daily medians: a node asks others
// each day.
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

// saveLocked saves once an hour. Before, it drops what has expired, also of peers that are not asked any more.
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

// stateLocked returns the daily medians of the peers that were measured last, as many as are saved.
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
	d := Day{Number: today, Median: median(values), Figures: len(values)}
	byNumber := func(o Day, n int64) int { return cmp.Compare(o.Number, n) }
	switch i, known := slices.BinarySearchFunc(s.days, today, byNumber); {
	case !known:
		s.days = slices.Insert(s.days, i, d) // there may be later ones, of a wrong clock
		s.days = s.days[max(0, len(s.days)-week):]
	case s.days[i].Figures <= d.Figures: // before a restart there were more
		s.days[i] = d
	}
}

// expire drops figures older than a day and days older than a week, and what is in the future after the clock was set
// back.
func (s *series) expire(t time.Time) {
	now := t.Unix()
	s.figures = slices.DeleteFunc(s.figures, func(f figure) bool { return f.at < now-day || f.at > now })
	s.days = slices.DeleteFunc(s.days, func(d Day) bool { return d.Number <= now/day-week || d.Number > now/day })
}

// median returns that of the last 24 hours, or while there are too few figures, of today or yesterday; 0: unknown.
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
	return median(values)
}

func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// Day is the median of one day.
type Day struct {
	Number  int64 // days since 1970-01-01, UTC
	Median  float64
	Figures int // that it is of
}

// Days are medians of some days, oldest first. Their text is short, because there may be a thousand in a file.
type Days []Day

// MarshalText implements [encoding.TextMarshaler]: "20780 4.9e+10 48, …".
func (d Days) MarshalText() ([]byte, error) {
	var parts []string
	for _, one := range d {
		parts = append(parts, fmt.Sprint(one.Number, " ", strconv.FormatFloat(one.Median, 'g', 6, 64), " ", one.Figures))
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
