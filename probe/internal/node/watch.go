package node

import (
	"context"
	"slices"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/worker"
)

const (
	watchCheck  = time.Second // time between two looks at what may stay open
	watchReopen = time.Minute // time after which a device that was closed is opened again
)

// WatchDevices keeps the devices of the rails open in a process of their own, and calls on for each of their
// asynchronous events, until ctx is done. Nothing is open during maintenance and while letGo returns true: an open
// device keeps its driver from being unloaded.
func WatchDevices(ctx context.Context, n *Node, letGo func() bool, on func(device string, port int, event string,
	count uint64)) {
	if n.Opts.Simulation != nil {
		return
	}
	w := newPlace(&n.Opts).Worker
	defer w.Close()
	wanted := func() []string {
		if n.Maintenance() || letGo() {
			return nil
		}
		return watchable(n)
	}
	tick := time.NewTicker(watchCheck)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if devices := wanted(); len(devices) > 0 {
			watchWhile(ctx, w, devices, tick.C, func() bool { return slices.Equal(wanted(), devices) }, on)
		}
	}
}

// watchable returns the devices of the rails, sorted.
func watchable(n *Node) (devices []string) {
	rails, _ := n.Opts.Rails() // devices that cannot be examined are left out
	for _, r := range rails {
		if r.LinkLayer != rail.IWARP {
			devices = append(devices, r.Device)
		}
	}
	slices.Sort(devices)
	return slices.Compact(devices)
}

// watchWhile watches devices while valid returns true, which it asks at each tick. It ends a minute after the first
// device was closed, or all were.
func watchWhile(ctx context.Context, w *worker.Worker, devices []string, tick <-chan time.Time, valid func() bool,
	on func(device string, port int, event string, count uint64)) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended, closed := make(chan struct{}), make(chan struct{}, len(devices))
	go func() {
		defer close(ended)
		_ = w.Watch(ctx, devices, func(e worker.DeviceEvent) { // the next try fails in the same way, or helps
			if e.Event != "" {
				on(e.Device, e.Port, e.Event, e.Count)
			}
			if e.Closed {
				closed <- struct{}{}
			}
		})
	}()
	var reopen <-chan time.Time
	for {
		select {
		case <-tick:
			if !valid() {
				stop()
			}
		case <-closed:
			if reopen == nil {
				reopen = time.After(watchReopen)
			}
		case <-reopen:
			stop()
		case <-ended:
			for ctx.Err() == nil && valid() { // it failed: the next try is not at once
				select {
				case <-tick:
				case <-reopen:
					return
				case <-ctx.Done():
				}
				if reopen == nil {
					reopen = time.After(watchReopen)
				}
			}
			return
		}
	}
}
