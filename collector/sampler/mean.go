package sampler

import (
	"time"

	"github.com/railscope/railscope/internal/rail"
)

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

func (p *physicalRate) add(r tcpReading, d int, interval time.Duration) {
	p.known, p.ok = p.known || r.hasPhysical, false
	if !r.hasPhysical {
		return
	}
	grew, took, what := p.last.advance(mark{value: r.physical[d], at: r.at, opens: r.opens}, 2*interval)
	if p.ok = what == counted; p.ok {
		p.rate, p.took = float64(grew)/took.Seconds(), took
	}
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
