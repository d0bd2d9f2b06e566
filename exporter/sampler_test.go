package exporter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/sampler"
	"github.com/railscope/railscope/exporter/internal/exportertest"
	exportersampler "github.com/railscope/railscope/exporter/sampler"
	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/internal/sysfstest"
)

// tallied is a tally that saw these utilisations for 125 ms each.
func tallied(list ...float64) (t sampler.Tally) {
	t.Utilization = exportersampler.NewHistogram()
	for _, u := range list {
		t.Samples++
		t.Utilization.Observe(u)
		if u > sampler.BusyAbove {
			t.Busy += 0.125
		}
		if u > sampler.SaturatedAbove {
			t.Saturated += 0.125
		}
	}
	return t
}

// peaks returns peaks of both directions: rate over 100 ms, and 9/10 of it over 1 s, a minute earlier.
func peaks(rate float64) (list [2][sampler.PeakWindows]sampler.Peak) {
	at := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	for d := range list {
		list[d] = [sampler.PeakWindows]sampler.Peak{{Rate: 0.9 * rate, At: at.Add(-time.Minute)}, {Rate: rate, At: at}}
	}
	return list
}

// sampled fills a snapshot with values of three rails.
func sampled(snap *sampler.Snapshot) {
	*snap = sampler.Snapshot{
		Rails: []sampler.Rail{
			{Name: "2", Tally: [2]sampler.Tally{tallied(0, 0, 0.3, 0.97),
				tallied(0.0005, 0.02, 1.7)}, TCPKnown: true, TCP: [2]uint64{5e9, 7}, Peaks: peaks(46.3e9),
				Lag: [2]sampler.Lag{{}, {Rate: 5e9, Equals: 46e9}}},
			{Name: "10", Tally: [2]sampler.Tally{tallied(0.5), tallied(1)}},
			{Name: `e"ast`},
		},
		Devices: []sampler.Device{
			{Name: "mlx5_10", Interval: 200 * time.Millisecond, Samples: 2, Overruns: 3,
				Reading: time.Second, Stuck: time.Minute},
			{Name: "mlx5_11", Interval: 100 * time.Millisecond,
				Err: &sysfs.Error{Path: "x", Reason: sysfs.ReasonVanished, Err: os.ErrNotExist}},
			{Name: "mlx5_12", Interval: 100 * time.Millisecond, Err: fmt.Errorf("rail 3: %w", rail.ErrUncounted)},
			{Name: "mlx5_2", Interval: 100 * time.Millisecond, Samples: 7, Reading: 5 * time.Millisecond},
		},
		Dropped: [3]uint64{1, 2, 4},
		Sets: [2]sampler.Set{{Known: true, Active: 2, Busy: 12.5, Imbalanced: 2.5, Imbalance: 0.25, Balanced: true,
			Roles: map[string]float64{rail.Compute: 0.25, "storage": 0}},
			{Known: true, Busy: 3}},
		GPUs: []sampler.GPUPeaks{{Index: 0, Start: 80 << 30, Minute: 40 << 30}, {Index: 3, Start: 1, Minute: 1}},
	}
	snap.Fallback[sampler.SingleRail] = sampler.Suspicion{Known: true, Suspected: true}
}

// TestSamplerGolden compares the whole exposition of a sampler.
func TestSamplerGolden(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		s := exportertest.Scraper(t, exportersampler.NewSource(sampled))
		exportertest.Text(t, s)
		got := exportertest.Text(t, s)
		compareGolden(t, "testdata/sampler.prom", got)
		compareClientGolang(t, s)
		problems, err := promlint.New(bytes.NewReader(got)).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("promlint: %v %v", problems, err)
		}
	})
}

// TestSamplerFaults: a device that cannot be sampled is a fault. A rail without a byte counter is not a fault.
func TestSamplerFaults(t *testing.T) {
	err := exportersampler.NewSource(sampled).Read(func(collector.Sample) {})
	var got []string
	for _, f := range collector.Faults(err) {
		got = append(got, fmt.Sprint(f.Device, " ", f.Reason, " ", f.Expected))
	}
	if diff := cmp.Diff([]string{"mlx5_10 timeout false", "mlx5_11 vanished false", "mlx5_12 unsupported true"},
		got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	err = exportersampler.NewSource(func(*sampler.Snapshot) {}).Read(func(collector.Sample) {
		t.Error("a sample of nothing")
	})
	if !errors.Is(err, collector.ErrAbsent) {
		t.Errorf("of a machine with nothing to sample: %v", err)
	}
}

// TestSamplerCapacityUnknown: until a capacity is known, nothing is exported about how busy the rails are, not even
// 0.
func TestSamplerCapacityUnknown(t *testing.T) {
	snap := sampler.Snapshot{Rails: []sampler.Rail{{Name: "0"}}}
	said := func() (of []string) {
		if err := exportersampler.NewSource(func(s *sampler.Snapshot) { *s = snap }).Read(func(s collector.Sample) {
			if strings.Contains(s.Metric.Name, "busy_seconds") || strings.HasPrefix(s.Metric.Name, "rails_") {
				of = append(of, s.Metric.Name+" "+s.Labels[0])
			}
		}); err != nil {
			t.Fatal(err)
		}
		return of
	}
	if got := said(); got != nil {
		t.Errorf("without a capacity: %v", got)
	}
	snap.Sets[sampler.Transmit].Busy = 3 // the capacity was known before
	want := []string{"rails_busy_seconds_total transmit", "rails_imbalanced_seconds_total transmit"}
	if diff := cmp.Diff(want, said()); diff != "" {
		t.Errorf("of a capacity that was known (-want +got):\n%s", diff)
	}
}

// TestSamplerNative: the protobuf format has both kinds of buckets.
func TestSamplerNative(t *testing.T) {
	s := exportertest.Scraper(t, exportersampler.NewSource(sampled))
	format := expfmt.NewFormat(expfmt.TypeProtoDelim)
	b, err := s.Exposition(format, false)
	if err != nil {
		t.Fatal(err)
	}
	dec := expfmt.NewDecoder(bytes.NewReader(b), format)
	for {
		var f dto.MetricFamily
		if err := dec.Decode(&f); err != nil {
			t.Fatal("no such family: ", err)
		}
		if f.GetName() != "railscope_rail_utilization_ratio" {
			continue
		}
		if len(f.GetMetric()) != 4 {
			t.Errorf("%d series, want 4: the third rail has no samples", len(f.GetMetric()))
		}
		for _, m := range f.GetMetric() {
			h := m.GetHistogram()
			native, at, last := h.GetZeroCount(), 0, int64(0)
			for _, span := range h.GetPositiveSpan() {
				for range span.GetLength() {
					last += h.GetPositiveDelta()[at]
					native += uint64(last)
					at++
				}
			}
			if native != h.GetSampleCount() || h.GetSchema() != 3 || len(h.GetBucket()) != 8 {
				t.Errorf("%v: %d in native buckets of %d, schema %d, %d classic ones", m.GetLabel(), native,
					h.GetSampleCount(), h.GetSchema(), len(h.GetBucket()))
			}
			series := m.GetLabel()[0].GetValue() + " " + m.GetLabel()[1].GetValue()
			zero := map[string]uint64{"receive 2": 2, "transmit 2": 1}[series] // 0.0005 is below the threshold
			if h.GetZeroCount() != zero || h.GetZeroThreshold() != 1./1024 {
				t.Errorf("%s: %d in the zero bucket up to %v, want %d", series, h.GetZeroCount(), h.GetZeroThreshold(), zero)
			}
		}
		return
	}
}

// TestTwoServers: two servers that scrape at different intervals each see the same totals as if they were alone.
func TestTwoServers(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		sys := t.TempDir()
		if err := sysfstest.WriteMlx5(sys, 2); err != nil {
			t.Fatal(err)
		}
		finder := rail.NewFinder(sys, rail.Options{}, nil, time.Second)
		smp := sampler.New(sampler.Options{Sysfs: sys, Rails: finder.Rails, Interval: sampler.DefaultInterval,
			Histogram: exportersampler.NewHistogram,
			Alarm:     sampler.RuntimeAlarm})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			smp.Run(ctx)
		}()
		s := exportertest.Scraper(t, exportersampler.NewSource(smp.Snapshot))
		series := func() (lines []string) {
			synctest.Wait()
			for line := range strings.Lines(string(exportertest.Text(t, s))) {
				if strings.HasPrefix(line, "railscope_rail_") || strings.HasPrefix(line, "railscope_rails_") {
					lines = append(lines, line)
				}
			}
			return lines
		}
		counter, err := os.OpenFile(filepath.Join(sys, "class/infiniband/mlx5_0/ports/1/counters/port_xmit_data"),
			os.O_WRONLY, 0) // the sampler keeps it open
		if err != nil {
			t.Fatal(err)
		}
		defer counter.Close()
		time.Sleep(50 * time.Millisecond) // write and scrape between ticks
		var first, second []string
		for i := range 120 { // seconds, with a burst of 200 ms at full rate in the 40th
			for tenth := range 10 {
				if i == 40 && tenth < 2 {
					if _, err := counter.WriteAt(fmt.Appendf(nil, "%d", 1014+int64(tenth+1)*5e9/4),
						0); err != nil { // 400 Gb/s
						t.Fatal(err)
					}
				}
				time.Sleep(100 * time.Millisecond)
			}
			if i%15 == 14 {
				first = series()
			}
			if i == 59 || i == 119 {
				second = series()
				if diff := cmp.Diff(first, second); diff != "" {
					t.Errorf("they do not see the same: %s", diff)
				}
			}
		}
		text := strings.Join(second, "")
		for _, want := range []string{
			`railscope_rail_busy_seconds_total{direction="transmit",rail="0"} 0.2`,
			`railscope_rail_saturated_seconds_total{direction="transmit",rail="0"} 0.2`,
			`railscope_rails_busy_seconds_total{direction="transmit"} 0.2`,
			`railscope_rails_imbalanced_seconds_total{direction="transmit"} 0.2`,
			`railscope_rail_busy_seconds_total{direction="transmit",rail="1"} 0`,
		} {
			if !strings.Contains(text, want+"\n") {
				t.Errorf("a burst of 200 ms between scrapes of 60 s: no %s in\n%s", want, text)
			}
		}
		cancel()
		<-ended
	})
}
