package sampler

import (
	"fmt"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfstest"
)

// tenRails returns ten devices of a synthetic tree of mlx5 ports, which the test samples itself.
func tenRails(tb testing.TB) (s *Sampler, devices []*device) {
	tb.Helper()
	sys := tb.TempDir()
	if err := sysfstest.WriteMlx5(sys, 10); err != nil {
		tb.Fatal(err)
	}
	finder := rail.NewFinder(sys, rail.Options{}, nil, time.Second)
	rails, err := finder.Rails()
	if err != nil || len(rails) != 10 {
		tb.Fatal(len(rails), err)
	}
	s = New(Options{Sysfs: sys, Rails: finder.Rails, Interval: MinInterval})
	s.epoch = time.Now()
	for _, r := range rails {
		d := s.newDeviceLocked([]rail.Rail{r})
		d.ports[0].account.capacity = 400 * gigabit
		s.devices[r.ID] = d
		tb.Cleanup(d.close)
		d.sample(time.Now()) // opens the files
		devices = append(devices, d)
	}
	return s, devices
}

// TestTickAllocates: a tick that reads real files does not allocate.
func TestTickAllocates(t *testing.T) {
	_, devices := tenRails(t)
	if n := testing.AllocsPerRun(100, func() {
		for _, d := range devices {
			d.sample(time.Now())
		}
	}); n != 0 {
		t.Errorf("%v allocations a tick", n)
	}
	for _, d := range devices {
		if c := d.cost; c.Samples < 200 || c.Err != nil {
			t.Fatalf("it was not sampled: %+v", c)
		}
	}
}

// BenchmarkTick measures one tick of ten rails: twenty reads and their samples.
func BenchmarkTick(b *testing.B) {
	_, devices := tenRails(b)
	b.ReportAllocs()
	for b.Loop() {
		for _, d := range devices {
			d.sample(time.Now())
		}
	}
}

// BenchmarkObserve measures the processing of one reading, without the read.
func BenchmarkObserve(b *testing.B) {
	a := &account{}
	a.capacity = 400 * gigabit
	b.ReportAllocs()
	n := uint64(0)
	for b.Loop() {
		n += 77777
		a.observe(Transmit, sample{grew: n % 5e9, took: DefaultInterval})
	}
}

// BenchmarkSnapshot measures what a scrape copies for eight rails.
func BenchmarkSnapshot(b *testing.B) {
	m := newMachine()
	for i := range 8 {
		m.mlx5(fmt.Sprintf("mlx5_%d", i), 400, [directions]func(time.Duration) float64{idle, idle})
	}
	s := m.sampler(DefaultInterval, Options{})
	s.updateDevices()
	var snap Snapshot
	b.ReportAllocs()
	for b.Loop() {
		s.Snapshot(&snap)
	}
}
