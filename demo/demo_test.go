package demo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// start makes a demo in a temporary directory, and runs it until the test ends. In a synctest bubble it uses the
// bubble's time.
func start(t *testing.T, opts Options) *Demo {
	t.Helper()
	d, err := New(t.TempDir(), opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		d.Close()
	})
	return d
}

// readCounter reads one counter as a collector does.
func readCounter(t *testing.T, elem ...string) uint64 {
	t.Helper()
	v, err := sysfs.ReadUint(elem...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// carried returns the bytes that a rail of a node has sent so far, by RDMA and by its interface.
func (n *Node) carried(t *testing.T, r int) (rdma, tcp uint64) {
	return 4 * readCounter(t, n.portDir(r), "counters/port_xmit_data"),
		readCounter(t, n.netdevDir(r), "statistics/tx_bytes")
}

// during returns the bytes that all rails of both nodes sent during wait of the bubble's time, read after the
// demo's writes.
func (d *Demo) during(t *testing.T, wait time.Duration) (rdma, tcp [Nodes][Rails]uint64) {
	t.Helper()
	for _, sign := range []uint64{^uint64(0), 1} {
		synctest.Wait()
		for i, n := range d.Nodes {
			for r := range Rails {
				a, b := n.carried(t, r)
				rdma[i][r] += sign * a
				tcp[i][r] += sign * b
			}
		}
		if sign != 1 {
			time.Sleep(wait)
		}
	}
	return rdma, tcp
}

// TestJob: the job uses both rails equally in both directions, in bursts that do not fill a rail. One end receives
// what the other sends, and counters only increase.
func TestJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := start(t, Options{})
		capacity := Rate * 125e6
		var busy, samples int
		var last [Nodes][Rails]uint64
		for range 300 {
			rdma, tcp := d.during(t, 100*time.Millisecond)
			for i, n := range d.Nodes {
				for r := range Rails {
					use := float64(rdma[i][r]) / 0.1 / capacity
					if use > 0.95 || tcp[i][r] > 0 {
						t.Errorf("node %d rail %d: %.2f of its capacity by RDMA, %d bytes by TCP", i, r, use, tcp[i][r])
					}
					samples++
					if use > 0.01 {
						busy++
					}
					now, _ := n.carried(t, r)
					if now < last[i][r] {
						t.Errorf("node %d rail %d went from %d to %d", i, r, last[i][r], now)
					}
					last[i][r] = now
				}
			}
		}
		if part := float64(busy) / float64(samples); part < 0.8 || part > 0.95 {
			t.Errorf("rails are busy for %.2f of the time", part)
		}
		for r := range Rails {
			for i, n := range d.Nodes {
				sent, received := readCounter(t, n.portDir(r), "counters/port_xmit_data"),
					readCounter(t, d.Nodes[1-i].portDir(r), "counters/port_rcv_data")
				if sent != received {
					t.Errorf("node %d sent %d words over rail %d, the other received %d", i, sent, r, received)
				}
			}
		}
		a, b := float64(last[0][0]-initialBytes), float64(last[0][1]-initialBytes)
		if a < 0.97*b || b < 0.97*a {
			t.Errorf("the rails carried %.0f and %.0f bytes", a, b)
		}
		for _, name := range []string{"np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled"} {
			marked, packets := readCounter(t, d.Nodes[0].portDir(0), "hw_counters", name),
				readCounter(t, d.Nodes[0].portDir(0), "counters/port_rcv_packets")-initialBytes/rocePayload
			if part := float64(marked) / float64(packets); part == 0 || part > 0.005 {
				t.Errorf("%s: %d of %d packets", name, marked, packets)
			}
		}
	})
}

// TestPause: the job pauses when a round begins, and continues.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := start(t, Options{})
		time.Sleep(5*time.Second + 300*time.Millisecond) // in the middle of a step
		d.advance(roundPause)
		if rdma, _ := d.during(t, roundPause-2*interval); rdma != [Nodes][Rails]uint64{} {
			t.Errorf("it sent %v", rdma)
		}
		if rdma, _ := d.during(t, time.Second); rdma[0][0] == 0 || rdma[1][1] == 0 {
			t.Errorf("it did not come back: %v", rdma)
		}
	})
}

// TestFaults: each fault is visible in the right counters.
func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := start(t, Options{Degrade: map[int]float64{1: 0.3}})
		rdma, _ := d.during(t, 20*time.Second)
		for i := range Nodes {
			if part := float64(rdma[i][1]) / float64(rdma[i][0]); part < 0.28 || part > 0.32 {
				t.Errorf("degraded: rail 1 of node %d carries %.3f of rail 0", i, part)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		d := start(t, Options{Fallback: true})
		rdma, tcp := d.during(t, 20*time.Second)
		if rdma != [Nodes][Rails]uint64{} || tcp[0][0] < 1e8 || tcp[1][1] < 1e8 {
			t.Errorf("fallback: %v by RDMA, %v by TCP", rdma, tcp)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		d := start(t, Options{Fail: map[int]bool{0: true}, FailAfter: 10 * time.Second})
		rdma, _ := d.during(t, 9*time.Second)
		if rdma[0][0] == 0 || rdma[1][0] == 0 {
			t.Errorf("it failed too early: %v", rdma)
		}
		time.Sleep(1100 * time.Millisecond)
		rdma, _ = d.during(t, 10*time.Second)
		if rdma[0][0] > 0 || rdma[1][0] > 0 || rdma[0][1] == 0 || rdma[1][1] == 0 {
			t.Errorf("rail 0 has failed: %v", rdma)
		}
		for i, want := range []string{"1: DOWN 2: Polling 0 down 3", "4: ACTIVE 5: LinkUp 1 up 2"} {
			n := d.Nodes[i]
			var got []string
			for _, path := range []string{filepath.Join(n.portDir(0), "state"),
				filepath.Join(n.portDir(0), "phys_state"),
				filepath.Join(n.netdevDir(0), "carrier"), filepath.Join(n.netdevDir(0), "operstate"),
				filepath.Join(n.netdevDir(0), "carrier_changes")} {
				s, err := sysfs.ReadString(path)
				if err != nil {
					t.Error(err)
				}
				got = append(got, s)
			}
			if strings.Join(got, " ") != want {
				t.Errorf("node %d says %q, want %q", i, got, want)
			}
		}
	})
}

// TestTree: readers of real nodes find two healthy rails, and read every file.
func TestTree(t *testing.T) {
	parent := t.TempDir()
	d, err := New(parent, Options{Degrade: map[int]float64{1: 0.3}})
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range d.Nodes {
		rails, err := rail.NewFinder(n.Sysfs, rail.Options{}, nil, time.Minute).Rails()
		if err != nil || len(rails) != Rails {
			t.Fatalf("%v, %v", rails, err)
		}
		var got []string
		for _, r := range rails {
			s, err := rail.NewPort(n.Sysfs, r, nil).Status()
			if err != nil {
				t.Fatal(err)
			}
			choice := rail.ChooseGID(s.GIDs, r.LinkLayer, rail.Own(n.Sysfs, r.Netdev))
			got = append(got, fmt.Sprint(r.Name, r.Device, r.Netdev, r.PCIAddress, r.Driver, r.HCAType, s.State,
				rail.Capacities([]rail.Limits{s.Limits})[0], s.NetdevMTU, r.ActiveMTU(s.NetdevMTU),
				choice.GID.Addr.Unmap(), choice.Reason))
		}
		var want []string
		for r := range Rails {
			want = append(want, fmt.Sprint(r, "demo", r, "demonet", r, "0000:", (r+1)*10,
				":00.0mlx5_demosimulated: shaped loopback TCP4: ACTIVE", 2.5*125e6, 9000, 4096, "127.18.", r, ".", i+1,
				"RoCE v2, IPv4, on the rail's own interface"))
		}
		normal := func(list []string) (out []string) {
			for _, s := range list {
				out = append(out, strings.ReplaceAll(s, " ", ""))
			}
			return out
		}
		if diff := cmp.Diff(normal(want), normal(got)); diff != "" {
			t.Errorf("node %d (-want +got):\n%s", i, diff)
		}
	}
	d.Close()
	d.advance(0) // late: the machine was busy
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

// TestNewFails: New returns an error if it cannot write files, and leaves none behind.
func TestNewFails(t *testing.T) {
	if _, err := New("/no/such/directory", Options{}); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(),
		"TMPDIR") {
		t.Error(err)
	}
}

// TestOptions: valid options are parsed; others return an error.
func TestOptions(t *testing.T) {
	for text, want := range map[string]string{
		"rail1=0.3": "1 0.3 <nil>", "0=0.99": "0 0.99 <nil>", "rail1": `0 0 invalid value "rail1"`,
		"rail2=0.3": `0 0 unknown rail "rail2": the demo has rail0 to rail1`,
		"rail0=1":   `0 0 "1" must be the part of rail0's rate`, "rail0=0": `0 0 "0" must be`,
		"rail0=NaN": `0 0 "NaN" must be`, "rail0=x": `0 0 "x" must be`, "=0.3": `0 0 unknown rail ""`,
		"rail-1=0.5": `0 0 unknown rail`, "rail+1=0.5": `0 0 unknown rail "rail+1"`,
	} {
		r, part, err := ParseDegrade(text)
		if got := fmt.Sprint(r, part, err); !strings.HasPrefix(got,
			strings.TrimSuffix(want, " <nil>")) || strings.HasSuffix(want, "<nil>") != (err == nil) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	for _, tc := range []struct {
		opts Options
		want string
	}{
		{Options{}, ""},
		{Options{Fail: map[int]bool{0: true}, Degrade: map[int]float64{1: 0.5}, Fallback: true}, ""},
		{Options{Fail: map[int]bool{0: true, 1: true}}, "leave one"},
		{Options{Fail: map[int]bool{0: true}, Degrade: map[int]float64{0: 0.5}}, "cannot both"},
	} {
		if err := tc.opts.Check(); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(),
			tc.want) {
			t.Errorf("%+v: %v", tc.opts, err)
		}
	}
}
