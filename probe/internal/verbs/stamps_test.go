//go:build cgo

package verbs

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// TestStamps: the adapter's part of each sample is at least the device's latency, and never more than the whole sample.
func TestStamps(t *testing.T) {
	const samples, delay = 50, 2 * time.Millisecond
	for _, op := range []transfer.Op{transfer.Write, transfer.Read} {
		t.Run(string(op), func(t *testing.T) {
			e := connectedBy(t, Spec{Op: op, QueuePairs: 1, Depth: 8, Stamps: true}, 4096,
				fakeverbs.Knobs{Stamps: true, Latency: delay})
			all, adapter, err := e.run.Latency(e.rails[0], 8, samples, 10*time.Second)
			if err != nil || len(all) != samples || len(adapter) != samples {
				t.Fatalf("%v, %v, %v", all, adapter, err)
			}
			for i := range all {
				if adapter[i] > all[i] || adapter[i] < 0 {
					t.Errorf("the adapter had %v of %v", adapter[i], all[i])
				}
			}
			e.fabric.Set("A", "mlx5_0", func(k *fakeverbs.Knobs) { k.Latency = 0 })
			most, part, err := e.run.Latency(e.rails[0], 8, 1000, 10*time.Second)
			for i := range most {
				if err != nil || part[i] > most[i] || part[i] < 0 {
					t.Fatalf("the adapter had %v of %v, %v", part[i], most[i], err)
				}
			}
			slices.Sort(adapter) // a busy machine may interrupt the thread while it reads a clock
			if median := adapter[samples/2]; median < delay*9/10 || median > delay*11/10 {
				t.Errorf("the adapter had %v, want %v", median, delay)
			}
			if _, err := e.run.Burst(e.rails, transfer.BurstArgs{Loads: e.loads(4096, 1), Slow: time.Second,
				Deadline: time.Second}); reason(err) != failure.Other {
				t.Errorf("a burst over a rail with stamps: %v", err)
			}
			e.fabric.Set("A", "mlx5_0", func(k *fakeverbs.Knobs) { k.Blocked = true })
			all, adapter, err = e.run.Latency(e.rails[0], 8, samples, time.Second)
			if reason(err) != failure.RetryExceeded || !strings.Contains(err.Error(), "vendor error 0x81") ||
				len(all) != 0 ||
				len(adapter) != 0 {
				t.Errorf("blocked: %v, %v, %v", all, adapter, err)
			}
		})
	}
}

// TestNoStamps: a device without timestamps is refused at open, one with another clock when it stamps.
func TestNoStamps(t *testing.T) {
	f := fakeverbs.New(t)
	f.Add("A", fakeverbs.Device{Name: "mlx5_0", GIDs: fakeverbs.RoCE("192.0.2.1")})
	f.Use(t, "A")
	spec := Spec{Device: "mlx5_0", Port: 1, GIDIndex: 3, QueuePairs: 1, Depth: 1, Stamps: true}
	if _, err := fake(t).OpenRail(spec); reason(err) != failure.NoTimestamps {
		t.Error(err)
	}
	if left := f.Left(); left != nil {
		t.Error("left open:", left)
	}
	e := connectedBy(t, Spec{QueuePairs: 1, Depth: 1, Stamps: true}, 4096,
		fakeverbs.Knobs{Stamps: true, OtherClock: true})
	all, adapter, err := e.run.Latency(e.rails[0], 8, 10, time.Second)
	if reason(err) != failure.NoTimestamps || len(all) != 0 || len(adapter) != 0 {
		t.Errorf("%v, %v, %v", all, adapter, err)
	}
}
