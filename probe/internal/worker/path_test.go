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

// TestConnectAtOnce: rails whose peers do not answer ARP wait concurrently, and each has its own failure.
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
			Remote: End{QPNs: []uint32{1}, PSNs: []uint32{1},
				GID: netip.MustParseAddr(fmt.Sprintf("::ffff:10.0.%d.2", i))}})
	}
	w, _ := newWorker(t, "worker", f.Env("a")...)
	s, _ := open(t, w, args)
	start := time.Now()
	c, err := s.Connect(t.Context(), connect)
	if err != nil || len(c) != rails {
		t.Fatal(err, c)
	}
	for i, got := range c {
		if got.Rail != fmt.Sprint(i) || got.Reason != failure.RTRUnreachable {
			t.Errorf("failure %d: %+v", i, got)
		}
	}
	if took := time.Since(start); took > rails*delay/2 {
		t.Errorf("%d rails connected in %v, one after the other would take %v", rails, took, rails*delay)
	}
	if _, err := s.Close(); err != nil {
		t.Error(err)
	}
	if left := f.Left(); left != nil || w.Restarts() > 0 {
		t.Errorf("left open %v, %d restarts", left, w.Restarts())
	}
}

// TestAckDelay: the timeout for an acknowledgement follows the delay of the peer's device, up to 1 s.
func TestAckDelay(t *testing.T) {
	for delay, want := range map[uint64]int{0: minTimeout, 14: 14, 16: 16, 31: maxTimeout} {
		f := fakeverbs.New(t)
		var ends []End
		var sessions []*Session
		for i, node := range []string{"a", "b"} {
			f.Add(node, fakeverbs.Device{Name: "mlx5_0", GIDs: fakeverbs.RoCE(fmt.Sprintf("10.0.0.%d", i+1)),
				Knobs: fakeverbs.Knobs{AckDelay: delay * uint64(i)}})
			w, _ := newWorker(t, "worker", f.Env(node)...)
			s, o := open(t, w, openArgs(i+1))
			ends, sessions = append(ends, o.Ends[0]), append(sessions, s)
		}
		for i, s := range sessions {
			c, err := s.Connect(t.Context(), ConnectArgs{RetryCount: 6, ServiceLevel: 5, Rails: []ConnectRail{
				{Name: "0", Remote: ends[1-i], PathMTU: 4096, InFlight: time.Millisecond}}})
			if err != nil || len(c) > 0 {
				t.Fatal(err, c)
			}
		}
		asker, target := f.QueuePairs("a", "mlx5_0")[0], f.QueuePairs("b", "mlx5_0")[0]
		if asker.Timeout != want || target.Timeout != minTimeout || asker.ServiceLevel != 5 {
			t.Errorf("delay %d: timeout %d, want %d; of the target %d; service level %d", delay, asker.Timeout, want,
				target.Timeout, asker.ServiceLevel)
		}
	}
}
