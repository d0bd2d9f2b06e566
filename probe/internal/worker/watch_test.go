//go:build cgo

package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/probe/internal/fakeverbs"
)

// watched is a running watch, and the events that it received.
type watched struct {
	t      *testing.T
	stop   context.CancelFunc
	ended  chan error
	mu     sync.Mutex
	events map[DeviceEvent]uint64
}

func watchDevices(t *testing.T, w *Worker, devices ...string) *watched {
	ctx, stop := context.WithCancel(t.Context())
	got := &watched{t: t, stop: stop, ended: make(chan error, 1), events: map[DeviceEvent]uint64{}}
	go func() {
		got.ended <- w.Watch(ctx, devices, func(e DeviceEvent) {
			got.mu.Lock()
			defer got.mu.Unlock()
			n := e.Count
			e.Count = 0
			got.events[e] += n
		})
	}()
	return got
}

// until waits until the events are as wanted.
func (w *watched) until(want map[DeviceEvent]uint64) {
	w.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		w.mu.Lock()
		diff := cmp.Diff(want, w.events)
		w.mu.Unlock()
		if diff == "" {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("-want +got:\n%s", diff)
		}
	}
}

// ready waits until events of a device are received: those that are raised while it is being opened are lost.
func (w *watched) ready(f *fakeverbs.Fabric, device string) {
	w.t.Helper()
	e := DeviceEvent{Device: device, Port: 1, Event: "gid_changed"}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		f.Raise("a", device, fakeverbs.EventGIDChange)
		w.mu.Lock()
		n := w.events[e]
		delete(w.events, e)
		w.mu.Unlock()
		if n > 0 {
			break
		}
		if time.Now().After(deadline) {
			w.t.Fatal("no event is received")
		}
	}
	time.Sleep(5 * watchPause) // the last ones
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.events, e)
}

// end waits for the end of the watch.
func (w *watched) end() error {
	w.t.Helper()
	select {
	case err := <-w.ended:
		return err
	case <-time.After(20 * time.Second):
		w.t.Fatal("the watch does not end")
		return nil
	}
}

// onlyContexts waits until n contexts of the fabric are open, and nothing else is.
func onlyContexts(t *testing.T, f *fakeverbs.Fabric, n int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		left := f.Left()
		others := slices.ContainsFunc(left, func(one string) bool { return !strings.Contains(one, ": context ") })
		if len(left) == n && !others {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%q are open, want %d contexts", left, n)
		}
	}
}

// TestWatch: events of several devices are received and counted, a device that failed is closed while the others stay,
// and nothing is open after the end.
func TestWatch(t *testing.T) {
	f := fakeverbs.New(t)
	for _, device := range []string{"mlx5_0", "mlx5_1"} {
		f.Add("a", fakeverbs.Device{Name: device, GIDs: fakeverbs.RoCE("10.0.0.1")})
	}
	w, _ := newWorker(t, "worker", f.Env("a")...)
	got := watchDevices(t, w, "mlx5_0", "mlx5_1", "mlx5_2")
	onlyContexts(t, f, 2)
	want := map[DeviceEvent]uint64{{Device: "mlx5_2", Closed: true}: 0}
	got.until(want)
	got.ready(f, "mlx5_0")
	got.ready(f, "mlx5_1")
	f.Raise("a", "mlx5_0", fakeverbs.EventPortErr)
	f.Raise("a", "mlx5_1", fakeverbs.EventPortActive)
	f.Raise("a", "mlx5_1", fakeverbs.EventQPAccess) // A queue pair is none of ours.
	want[DeviceEvent{Device: "mlx5_0", Port: 1, Event: "port_error"}] = 1
	want[DeviceEvent{Device: "mlx5_1", Port: 1, Event: "port_active"}] = 1
	got.until(want)
	for range 500 {
		f.Raise("a", "mlx5_0", fakeverbs.EventPortActive)
	}
	want[DeviceEvent{Device: "mlx5_0", Port: 1, Event: "port_active"}] = 500
	got.until(want)
	f.Raise("a", "mlx5_0", fakeverbs.EventDeviceFatal)
	want[DeviceEvent{Device: "mlx5_0", Event: "device_fatal"}] = 1
	want[DeviceEvent{Device: "mlx5_0", Closed: true}] = 0
	got.until(want)
	onlyContexts(t, f, 1)
	got.stop()
	if err := got.end(); err != nil {
		t.Error(err)
	}
	onlyContexts(t, f, 0)
	if n := w.Restarts(); n != 0 {
		t.Errorf("%d restarts", n)
	}
}

// TestWatchEnds: when no device is left the watch ends, and a process that was killed is an error.
func TestWatchEnds(t *testing.T) {
	f := fakeverbs.New(t)
	f.Add("a", fakeverbs.Device{Name: "mlx5_0", GIDs: fakeverbs.RoCE("10.0.0.1")})
	w, _ := newWorker(t, "worker", f.Env("a")...)
	got := watchDevices(t, w, "mlx5_0")
	onlyContexts(t, f, 1)
	got.ready(f, "mlx5_0")
	f.Raise("a", "mlx5_0", fakeverbs.EventDeviceFatal)
	if err := got.end(); err != nil {
		t.Error(err)
	}
	onlyContexts(t, f, 0)
	got = watchDevices(t, w, "mlx5_0")
	onlyContexts(t, f, 1)
	w.mu.Lock()
	p := w.proc
	w.mu.Unlock()
	_ = p.cmd.Process.Kill()
	if err := got.end(); err == nil || w.Restarts() != 1 {
		t.Errorf("killed: %v, %d restarts", err, w.Restarts())
	}
}

// TestWatchRemoved: a device is closed when the kernel announces its removal, also one that hangs while others are
// removed, and all are without announcements.
func TestWatchRemoved(t *testing.T) {
	f := fakeverbs.New(t)
	for i := range 4 {
		f.Add("a", fakeverbs.Device{Name: fmt.Sprint("mlx5_", i), GIDs: fakeverbs.RoCE("10.0.0.1")})
	}
	f.Set("a", "mlx5_3", func(k *fakeverbs.Knobs) { k.HangOpen = true })
	f.Use(t, "a")
	removed, deaf, ended := make(chan string), make(chan error), make(chan error, 1)
	var v verbsLibrary
	go func() {
		ended <- v.watch(os.Getenv("RAILSCOPE_LIBIBVERBS"), []string{"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"}, removed, deaf,
			func(DeviceEvent) {})
	}()
	onlyContexts(t, f, 3)
	removed <- "uverbs9"
	removed <- "uverbs1"
	onlyContexts(t, f, 2)
	deaf <- errors.New("no announcements")
	onlyContexts(t, f, 0)
	f.Set("a", "mlx5_3", func(k *fakeverbs.Knobs) { k.HangOpen = false })
	select {
	case err := <-ended:
		if err == nil {
			t.Error("no error")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
	onlyContexts(t, f, 0)
}
