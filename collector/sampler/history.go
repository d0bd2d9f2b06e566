package sampler

import (
	"math"
	"slices"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/rail"
)

// RecentSeconds is the number of seconds that [Rail.Recent] covers.
const RecentSeconds = 120

// windowSeconds returns the window of rails_imbalance_ratio: 10 s, or two samples if the interval is longer than 5
// s.
func windowSeconds(interval time.Duration) int {
	return max(10, int((2*interval+time.Second-1)/time.Second))
}

// history holds the totals of a rail in one direction at each of the last seconds, which are numbered from 1.
type history struct {
	points [RecentSeconds + 2*int(MaxInterval/time.Second)]point // indexed by second modulo length
	first  int                                                   // second of the first point
	since  int                                                   // second since which the rail has always been present
	last   int                                                   // second of the last point
	peaks  peaks
	lag    lag
}

// point holds the totals of an account at one moment.
type point struct {
	bytes   uint64
	seconds float64 // time covered by samples; -1 if the rail was absent
	busy    float64 // busy part of seconds
	own     uint64  // bytes of own measurements, included in bytes
	settled bool    // own is complete: no measurement is under way or ended just now
}

func (h *history) at(second int) *point { return &h.points[second%len(h.points)] }

func (h *history) add(second int, p point) {
	if h.first == 0 {
		h.first, h.since, h.last = second, second, second-1
	}
	if second != h.last+1 {
		h.since = second
		for absent := max(h.last+1, second-len(h.points)+1); absent < second; absent++ {
			h.at(absent).seconds = -1
		}
	}
	*h.at(second) = p
	h.last = second
}

// over returns the traffic of the last seconds, or of the shorter time since the rail was absent.
func (h *history) over(seconds int) point {
	to, from := h.at(h.last), h.at(max(h.last-seconds, h.since))
	return to.since(from)
}

func (p *point) since(from *point) point {
	return point{bytes: p.bytes - from.bytes, seconds: p.seconds - from.seconds, busy: p.busy - from.busy,
		own: p.own - from.own}
}

// settledOver is like over, but covers a time that starts and ends without own measurements, so that they can be
// subtracted: the given seconds or a few more. ok is false if there is no such time.
func (h *history) settledOver(seconds int) (p point, ok bool) {
	to, start := h.at(h.last), max(h.last-seconds, h.since)
	if !to.settled {
		return point{}, false
	}
	for second := start; second >= max(h.since, h.last-RecentSeconds); second-- {
		if from := h.at(second); from.settled {
			return to.since(from), true
		}
	}
	for second := start + 1; second < h.last; second++ {
		if from := h.at(second); from.settled {
			return to.since(from), true
		}
	}
	return point{}, false
}

// real returns the bytes without those of own measurements, and whether the rail was busy with them. The bytes of
// own measurements on the wire are known to a few percent: a remainder of that size is not traffic.
func (p point) real(capacity float64) (bytes float64, busy bool) {
	if p.own == 0 {
		return float64(p.bytes), p.busy > 0
	}
	bytes = max(float64(p.bytes)-float64(p.own), 0)
	return bytes, bytes > BusyAbove*capacity*p.seconds+ownRest*float64(p.own)
}

// ownRest is the share of own measurements above which a remainder is real traffic.
const ownRest = 0.25

// rates appends the rate of each of the last seconds to list, oldest first, and returns the current rate. Rates are
// in bytes per second, NaN without samples. A second without a sample repeats the previous rate.
func (h *history) rates(list []float64, interval time.Duration, now point) ([]float64, float64) {
	var from, mark point
	rate, late := math.NaN(), time.Duration(0)
	for second := max(h.first, h.last-len(h.points)+1); second <= h.last && h.first > 0; second++ {
		p := h.at(second)
		switch took := p.seconds - mark.seconds; {
		case p.seconds < 0:
			rate = math.NaN()
		case took > 0:
			rate, late = float64(p.bytes-mark.bytes)/took, 0
			from, mark = mark, *p
		case late < interval:
			late += time.Second
		default:
			rate, from = math.NaN(), mark
		}
		if second > h.last-RecentSeconds {
			list = append(list, rate)
		}
	}
	if took := now.seconds - from.seconds; took > 0 {
		return list, float64(now.bytes-from.bytes) / took
	}
	return list, math.NaN()
}

// GPUPeaks holds the peaks of a GPU's memory in use, in bytes.
type GPUPeaks struct {
	Index         int
	Start, Minute uint64 // peak since sampling began; peak of the last 60 s
}

// gpuHistories holds the peaks of all GPUs. The sampler's mutex protects it.
type gpuHistories struct {
	list []*gpuHistory // in order of index
	busy condition     // at least one GPU computes
	n    int           // seconds added so far
}

type gpuHistory struct {
	index int
	start uint64
	last  [60]uint64 // memory in use plus 1, by second modulo length; 0 if unknown
}

// add adds a second. known means that list has all GPUs.
func (b *gpuHistories) add(list []collector.GPUUse, known bool) {
	b.n++
	for _, h := range b.list {
		h.last[b.n%len(h.last)] = 0
	}
	// without GPUs, only the traffic decides
	b.busy = condition{met: known && len(list) == 0, known: known && len(list) == 0}
	for _, g := range list {
		b.busy.known = b.busy.known || g.BusyKnown
		b.busy.met = b.busy.met || g.BusyKnown && g.Busy
		if !g.UsedKnown {
			continue
		}
		at, found := slices.BinarySearchFunc(b.list, g.Index, func(h *gpuHistory, i int) int { return h.index - i })
		if !found {
			b.list = slices.Insert(b.list, at, &gpuHistory{index: g.Index})
		}
		h := b.list[at]
		h.start = max(h.start, g.Used)
		h.last[b.n%len(h.last)] = g.Used + 1
	}
}

func (b *gpuHistories) appendTo(to []GPUPeaks) []GPUPeaks {
	for _, h := range b.list {
		if minute := slices.Max(h.last[:]); minute > 0 {
			to = append(to, GPUPeaks{h.index, h.start, minute - 1})
		}
	}
	return to
}

// meanSeconds is the time over which [Sampler.MeanTraffic] averages.
const meanSeconds = 5

// physicalRate is the traffic of a rail's physical port in one direction: all functions and protocols.
type physicalRate struct {
	last mark
	rate float64 // bytes per second, between the last two reads
	took time.Duration
	ok   bool

	known bool // it has been read at least once
}

func (p *physicalRate) add(r rail.StatisticsReading, d int, interval time.Duration) {
	p.known, p.ok = p.known || r.HasPhysical, false
	if !r.HasPhysical {
		return
	}
	grew, took, what := p.last.advance(mark{value: r.Physical[d], at: r.At, opens: r.Generation}, 2*interval)
	p.ok = what == counted
	if p.ok {
		p.rate, p.took = float64(grew)/took.Seconds(), took
	}
}

// settledSeconds is the minimum time after own measurements until samples have all of their bytes.
const settledSeconds = 2

// noteOwnLocked notes own measurements, and reports whether the samples have all of their bytes.
func (s *Sampler) noteOwnLocked(r rail.Rail, a *account) (settled bool) {
	if s.opts.Own == nil {
		return true
	}
	own, settled := s.opts.Own(r)
	a.quiet++
	if own != a.own || !settled {
		a.own, a.quiet = own, 0
	}
	return settled && s.quietLocked(r, a)
}

// quietLocked reports whether own measurements ended long enough ago.
func (s *Sampler) quietLocked(r rail.Rail, a *account) bool {
	lag := a.lag()
	if cost := s.costs[r.Device]; cost != nil {
		lag = max(lag, cost.Interval)
	}
	return a.quiet >= settledSeconds && float64(a.quiet) > lag.Seconds()
}

// Carried returns what the rails of a device have carried, by [rail.Rail.Key]; a rail without a sample is missing.
// It reads nothing and does not block.
func (s *Sampler) Carried(device string) map[string]rail.Carried {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]rail.Carried{}
	for _, r := range s.rails {
		a := s.accounts[r.Key()]
		if r.Device != device || a == nil || a.seconds[Receive] == 0 || a.seconds[Transmit] == 0 {
			continue
		}
		c := rail.Carried{Bytes: a.bytes, Seconds: a.seconds, Settled: true, Group: a.group, Capacity: a.lastCapacity}
		if s.opts.Own != nil {
			var settled bool
			c.Own, settled = s.opts.Own(r)
			c.Settled = settled && c.Own == a.own && s.quietLocked(r, a)
		}
		all[r.Key()] = c
	}
	return all
}

// MeanTraffic returns the mean traffic of a rail over the last 5 s, or longer if its counters are updated rarely.
// This function's RDMA is included up to now. The physical port's traffic, with virtual functions and TCP, is
// included up to its last read, at most 5 s ago. ok is false if neither is known.
func (s *Sampler) MeanTraffic(r rail.Rail) (mean rail.MeanTraffic, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.accounts[r.Key()]
	if a == nil {
		return mean, false
	}
	for d := range directions {
		covered := a.history[d].over(meanSeconds + int(math.Ceil(a.lag().Seconds())))
		if fresh := a.history[d].last >= s.seconds-1; !fresh || covered.seconds < meanSeconds-1 {
			return mean, false
		}
		mean.Rate[d] = float64(covered.bytes) / covered.seconds
		mean.Over = max(mean.Over, time.Duration(covered.seconds*float64(time.Second))+a.lag())
	}
	receive, transmit := a.physical[Receive], a.physical[Transmit]
	if (receive.known || transmit.known) && !(receive.ok && transmit.ok) {
		return rail.MeanTraffic{}, false // this function's traffic alone would hide that of the others
	}
	if receive.ok && transmit.ok {
		mean.Physical = true
		mean.Port = [directions]float64{Receive: receive.rate, Transmit: transmit.rate}
		mean.Over = max(mean.Over, time.Since(receive.last.at)+receive.took)
	}
	return mean, true
}
