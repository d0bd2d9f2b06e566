package sampler

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/rail"
)

// tcpEvery is the time between two reads of TCP traffic: mlx5's firmware collects all statistics for each read.
const tcpEvery = 5 * time.Second

type tcpRate struct {
	exact  bool   // the driver counts RDMA separately, and total is valid
	total  uint64 // bytes since the start
	failed int    // consecutive failed reads
	// Since the last read, in bytes per second.
	known          bool
	least          float64 // lower bound of TCP
	rdma           float64 // upper bound of RDMA
	bytes, packets mark    // values of the last read
}

// tcpReader reads the TCP traffic of one rail. It implements [collector.Device].
type tcpReader struct {
	s    *Sampler
	rail rail.Rail
	id   int // unique
	last tcpReading

	stats *rail.Statistics // for hardware

	// For a software device.
	port *rail.Port
}

type tcpReading struct {
	rail.StatisticsReading                    // for a software device, Stack has all bytes
	rdma                   [directions]uint64 // RDMA packets of a software device
	mtu                    uint64             // MTU of a software device, else 0
}

// watchTCP reads the TCP traffic of all rails until ctx is done, in lanes: ethtool waits for a lock of the driver.
func (s *Sampler) watchTCP(ctx context.Context) {
	var ids atomic.Int64
	readers := collector.NewSet(time.Second, rail.Rail.String, func(r rail.Rail) *tcpReader {
		return &tcpReader{s: s, rail: r, id: int(ids.Add(1))}
	})
	defer readers.Close()
	s.every(ctx, max(tcpEvery, 2*s.opts.Interval), func() {
		s.mu.Lock()
		rails := slices.Clone(s.rails)
		s.mu.Unlock()
		answered, _ := readers.Read(rails, nil) // a rail with a fault is unknown
		readings := map[rail.Rail]tcpReading{}
		for _, r := range answered {
			readings[r.rail] = r.last
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, r := range rails {
			a := s.accounts[r.Key()]
			for d := range directions {
				a.tcp[d].add(readings[r], d)
				a.physical[d].add(readings[r].StatisticsReading, d, max(tcpEvery, 2*s.opts.Interval))
			}
		}
		s.suspectLocked()
	})
}

func (t *tcpRate) add(r tcpReading, d int) {
	t.known = false
	if !r.HasStack { // the next read covers both intervals
		t.failed++
		if t.failed >= streakReads {
			t.exact = false
		}
		return
	}
	t.failed = 0
	const most = 12 * tcpEvery
	grew, took, what := t.bytes.advance(mark{value: r.Stack[d], at: r.At, opens: r.Generation}, most)
	t.exact = r.mtu == 0
	if t.exact {
		if what == counted {
			t.total += grew
			t.known, t.least, t.rdma = true, float64(grew)/took.Seconds(), 0 // the samples have the RDMA traffic
		}
		return
	}
	packets, _, also := t.packets.advance(mark{value: r.rdma[d], at: r.At, opens: r.Generation}, most)
	if what != counted || also != counted {
		return
	}
	// bytes that the interface counts for an RDMA packet above its MTU: Ethernet header and VLAN tag
	const frameExtra = 18
	rdma := float64(packets) * float64(r.mtu+frameExtra)
	t.known, t.rdma = true, min(rdma, float64(grew))/took.Seconds()
	t.least = max(0, float64(grew)-rdma) / took.Seconds()
}

func (r *tcpReader) Read(*collector.Reading) {
	const maxOpens = 1 << 20 // limit of the opens of one reader
	r.last = tcpReading{}
	switch {
	case r.rail.Netdev == "":
	case r.rail.Software:
		r.last = r.readSoftware()
	case r.s.ioctl != nil:
		if r.stats == nil {
			r.stats = rail.NewStatistics(r.s.opts.Sysfs, r.rail.Netdev, r.s.ioctl)
		}
		r.last.StatisticsReading, _ = r.stats.Read() // partial results are used; the error is not
		r.last.HasPhysical = r.last.HasPhysical && r.rail.LinkLayer == "Ethernet"
	}
	r.last.Generation += r.id * maxOpens
}

func (r *tcpReader) Close() {
	if r.stats != nil {
		r.stats.Close()
	}
	if r.port != nil {
		r.port.Close()
	}
}

// readSoftware reads an upper bound of a software device's RDMA traffic: all bytes of its interface, and its RDMA
// packets of at most one MTU each. All bytes above that bound were TCP. siw counts no packets and stays unknown.
// Bytes are read first, so that RDMA between the reads lowers the bound of TCP.
func (r *tcpReader) readSoftware() (reading tcpReading) {
	if r.port == nil {
		r.port = rail.NewPort(r.s.opts.Sysfs, r.rail, r.s.open)
	}
	reading.At = time.Now()
	for d := range rail.Directions {
		bytes, generation, err := r.port.Bytes(d)
		if err != nil || !r.port.BytesShared() {
			return tcpReading{}
		}
		packets, opens, err := r.port.SoftwarePackets(d)
		if err != nil {
			return tcpReading{}
		}
		reading.Stack[d], reading.rdma[d] = bytes, packets
		reading.Generation += generation + opens
	}
	mtu, _, err := r.port.MTU()
	reading.mtu, reading.HasStack = uint64(mtu), err == nil
	return reading
}
