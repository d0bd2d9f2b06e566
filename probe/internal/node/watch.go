package node

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
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
	w := newPlace(n).Worker
	defer w.Close()
	tick := time.NewTicker(watchCheck)
	defer tick.Stop()
	var devices []string                 // those that are open, or whose opening failed
	var closed atomic.Pointer[time.Time] // time at which the first of them was closed; nil: all are open
	end := func() {}
	defer func() { end() }()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		var wanted []string
		if !n.Maintenance() && !letGo() {
			wanted = watchable(n)
		}
		at := closed.Load()
		if slices.Equal(wanted, devices) && (at == nil || time.Since(*at) < watchReopen) {
			continue
		}
		end()
		closed.Store(nil)
		devices = wanted
		end = watch(ctx, w, devices, func() { closed.CompareAndSwap(nil, new(time.Now())) }, on)
	}
}

// watch watches devices, if there are any. closed is called for each that was closed, and at the end.
func watch(ctx context.Context, w *worker.Worker, devices []string, closed func(),
	on func(device string, port int, event string, count uint64)) (end func()) {
	ctx, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		if len(devices) == 0 {
			return
		}
		_ = w.Watch(ctx, devices, func(e worker.DeviceEvent) { // the next try fails in the same way, or helps
			if e.Event != "" {
				on(e.Device, e.Port, e.Event, e.Count)
			}
			if e.Closed {
				closed()
			}
		})
		closed()
	})
	return func() {
		stop()
		watching.Wait()
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
