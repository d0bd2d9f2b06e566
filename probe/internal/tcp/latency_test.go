package tcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/railscope/railscope/probe/internal/failure"
)

// TestLatency also checks TCP_INFO.
func TestLatency(t *testing.T) {
	settle(t)
	tg := target(t, 2, 2, 1<<20)
	c := tg.dial(t)
	for lane := range 2 {
		samples, err := c.Latency(t.Context(), fmt.Sprint("rail", lane), 8, 200)
		if err != nil || len(samples) != 200 || slices.Min(samples) <= 0 {
			t.Errorf("%d samples, %v", len(samples), err)
		}
		slices.Sort(samples)
		t.Logf("median %v, p99 %v", samples[100], samples[198])
	}
	info := c.Info()
	c.Close()
	for i, l := range c.lanes {
		if l.info.PathMTU <= 0 || l.info.RTT <= 0 {
			t.Errorf("lane %d: %+v", i, l.info)
		}
	}
	if after := c.Info(); info.PathMTU <= 0 || after.PathMTU != info.PathMTU {
		t.Errorf("closed: %+v, was %+v", after, info)
	}
	if _, err := c.Latency(t.Context(), "rail2", 8, 1); reason(err) != failure.Other {
		t.Errorf("a lane that does not exist: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c = tg.dial(t)
	if s, err := c.Latency(ctx, "rail0", 8, 1<<30); !errors.As(err, new(*failure.Failure)) || len(s) == 1<<30 {
		t.Errorf("canceled: %v", err)
	}
}
