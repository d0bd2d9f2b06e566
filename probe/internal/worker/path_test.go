//go:build cgo

package worker

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// TestConnectAtOnce: rails whose peers do not answer ARP wait for it at the same time, and each has its own failure.
func TestConnectAtOnce(t *testing.T) {
	const rails, delay = 16, 500 * time.Millisecond
	f := fakeverbs.New(t)
	args, connect := OpenArgs{Transport: RDMA, Buffer: transfer.Page, Depth: 2, QueuePairs: 1},
		ConnectArgs{RetryCount: 6}
	for i := range rails {
		name, device := fmt.Sprint(i), fmt.Sprintf("mlx5_%d", i)
		f.Add("a", fakeverbs.Device{Name: device, GIDs: fakeverbs.RoCE(fmt.Sprintf("10.0.%d.1", i)),
			Knobs: fakeverbs.Knobs{RTRDelay: delay}})
		args.Rails = append(args.Rails, RailArg{Name: name, Device: device, Port: 1, GIDIndex: 3, NUMANode: i % 2})
		connect.Rails = append(connect.Rails, ConnectRail{Name: name, PathMTU: 4096, InFlight: time.Second,
			Remote: End{QPNs: []uint32{1}, PSNs: []uint32{1}, GID: netip.MustParseAddr(fmt.Sprintf("::ffff:10.0.%d.2", i))}})
	}
	w, _ := newWorker(t, "worker", f.Env("a")...)
	s, _ := open(t, w, args)
	start := time.Now()
	c, err := s.Connect(t.Context(), connect)
	if err != nil || len(c.Failures) != rails {
		t.Fatal(err, c.Failures)
	}
	for i, got := range c.Failures {
		if got.Rail != fmt.Sprint(i) || got.Reason != failure.RTRUnreachable {
			t.Errorf("failure %d: %+v", i, got)
		}
	}
	if took := time.Since(start); took > rails*delay/2 {
		t.Errorf("%d rails connected in %v, one after the other would take %v", rails, took, rails*delay)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if left := f.Left(); left != nil || w.Restarts() > 0 {
		t.Errorf("left open %v, %d restarts", left, w.Restarts())
	}
}
