package sampler

import (
	"math"
	"slices"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/rail"
)

// RecentSeconds is how many seconds [Rail.Recent] holds.
const RecentSeconds = 120

// windowSeconds is the window of rails_imbalance_ratio: 10 s, or two samples if the interval is longer than 5 s.
func windowSeconds(interval time.Duration) int {
	return max(10, int((2*interval+time.Second-1)/time.Second))
}

// history is what a rail carried in one direction up to each of the last seconds, which count from 1.
type history struct {
	points [RecentSeconds + 2*int(MaxInterval/time.Second)]point // by second modulo length
	first  int                                                   // second of the first point ever
	since  int                                                   // second since which the rail has not been absent
	last   int                                                   // second of the last point
}

// point is what an account had counted at one moment.
type point struct {
	bytes   uint64
	seconds float64 // covered by samples; -1 if the rail was absent
	busy    float64 // of these, busy
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

// over returns what the rail carried in the last seconds, as far back as it was not absent.
func (h *history) over(seconds int) point {
	to, from := h.at(h.last), h.at(max(h.last-seconds, h.since))
	return point{to.bytes - from.bytes, to.seconds - from.seconds, to.busy - from.busy}
}

// rates appends the rate of each of the last seconds to list, oldest first, and returns the rate now, in bytes per
// second; NaN without samples. A second between two samples repeats the rate before it.
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

// GPUPeaks is the peak of a GPU's memory in use, in bytes.
type GPUPeaks struct {
	Index         int
	Start, Minute uint64 // since sampling began; in the last 60 s
}

// gpuHistories has the peaks of all GPUs. The sampler's mutex protects it.
type gpuHistories struct {
	list []*gpuHistory // in order of index
	busy condition     // whether any GPU computes
	n    int           // seconds added
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
	b.busy = condition{met: known && len(list) == 0, known: known && len(list) == 0} // without GPUs, traffic decides
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

// physicalRate is the traffic of a rail's physical port in one direction: of all functions and protocols.
type physicalRate struct {
	last mark
	rate float64 // bytes per second, between the last two reads
	took time.Duration
	ok   bool

	known bool // it was read once
}

func (p *physicalRate) add(r rail.StatisticsReading, d int, interval time.Duration) {
	p.known, p.ok = p.known || r.HasPhysical, false
	if !r.HasPhysical {
		return
	}
	grew, took, what := p.last.advance(mark{value: r.Physical[d], at: r.At, opens: r.Generation}, 2*interval)
	if p.ok = what == counted; p.ok {
		p.rate, p.took = float64(grew)/took.Seconds(), took
	}
}

// settledSeconds is how long own measurements must be over until samples have all of their bytes: counters of bnxt move
// once a second.
const settledSeconds = 2

func (s *Sampler) noteOwnLocked(r rail.Rail, a *account) {
	if s.opts.Own == nil {
		return
	}
	own, settled := s.opts.Own(r)
	if a.quiet++; own != a.own || !settled {
		a.own, a.quiet = own, 0
	}
}

// Carried returns what the rails of a device have carried, by [rail.Rail.Key]; one without a sample is absent. It reads
// nothing and does not block.
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
			lag := s.costs[device].Interval.Seconds()
			c.Settled = settled && c.Own == a.own && a.quiet >= settledSeconds && float64(a.quiet) > lag
		}
		all[r.Key()] = c
	}
	return all
}

// MeanTraffic returns what a rail has carried on average over the last 5 s: this function's RDMA up to now, and the
// physical port's, with virtual functions and TCP, up to its last read, which was less than 5 s ago. ok is false if
// neither is known for the last seconds.
func (s *Sampler) MeanTraffic(r rail.Rail) (mean rail.MeanTraffic, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.accounts[r.Key()]
	if a == nil {
		return mean, false
	}
	for d := range directions {
		covered := a.history[d].over(meanSeconds)
		if fresh := a.history[d].last >= s.seconds-1; !fresh || covered.seconds < meanSeconds-1 {
			return mean, false
		}
		mean.Rate[d] = float64(covered.bytes) / covered.seconds
		mean.Over = max(mean.Over, time.Duration(covered.seconds*float64(time.Second)))
	}
	receive, transmit := a.physical[Receive], a.physical[Transmit]
	if (receive.known || transmit.known) && !(receive.ok && transmit.ok) {
		return rail.MeanTraffic{}, false // this function alone would not show the others
	}
	if receive.ok && transmit.ok {
		mean.Physical = true
		mean.Port = [directions]float64{Receive: receive.rate, Transmit: transmit.rate}
		mean.Over = max(mean.Over, time.Since(receive.last.at)+receive.took)
	}
	return mean, true
}
