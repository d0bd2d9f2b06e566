package fakeverbs

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/sysfs"
)

const remoteRead = 4

// reading returns two connected endpoints: a reads, from regions and queue pairs with this access.
func reading(t *testing.T, processes, local, region, queuePair int) (f *Fabric, a, b *end) {
	t.Helper()
	f = New(t)
	nodes := []string{"A", "B"}[:processes]
	f.Add(nodes[0], Device{Name: "mlx5_0", GIDs: RoCE("192.0.2.1")})
	f.Add(nodes[processes-1], Device{Name: "mlx5_1", GIDs: RoCE("192.0.2.2")})
	ca := start(t, f, nodes[0])
	cb := ca
	if processes == 2 {
		cb = start(t, f, nodes[1])
	}
	a, b = ca.openWith("a", "mlx5_0", "192.0.2.1", local), cb.openWith("b", "mlx5_1", "192.0.2.2", region)
	a.want("ok", "init a - 1 0")
	b.want("ok", "init b - 1 %d", queuePair)
	if s := a.rtr(b, psnB) + b.rtr(a, psnA); s != "okok" {
		t.Fatal(s)
	}
	a.want("ok", "rts a - %d", psnA)
	b.want("ok", "rts b - %d", psnB)
	return f, a, b
}

// read posts reads, like write.
func (e *end) read(from *end, bytes, count int) (string, time.Duration) {
	e.t.Helper()
	begin := time.Now()
	if s := e.do("read %s - %d %d %d %d %d", e.letter, from.addr, from.rkey, bytes, count, signaled); s != "ok" {
		return s, 0
	}
	got, _ := e.poll(count, 5*time.Second)
	return got, time.Since(begin)
}

// TestReadArrives: read bytes arrive, from another process and from the same one, and the ports count them in the
// direction of the data.
func TestReadArrives(t *testing.T) {
	for _, processes := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d processes", processes), func(t *testing.T) {
			f, a, b := reading(t, processes, 1, remoteRead, remoteRead)
			b.want("ok", "fill b - 7")
			if got, _ := a.read(b, size, 1); got != "0:0/0" {
				t.Fatal(got)
			}
			a.want("0 wrong", "check a - 7")
			b.want("0 wrong", "check b - 7")
			for _, c := range []struct{ node, device, file string }{{"A", "mlx5_0", "port_rcv_data"},
				{[]string{"A", "B"}[processes-1], "mlx5_1", "port_xmit_data"}} {
				port := filepath.Join(f.Sysfs(c.node), "class/infiniband", c.device, "ports/1/counters")
				if v, err := sysfs.ReadUint(port, c.file); err != nil || v != size/4096*(4096+58)/4 {
					t.Errorf("%s: %d, %v", c.file, v, err)
				}
			}
		})
	}
}

// TestReadFaults: every fault of a read has its status.
func TestReadFaults(t *testing.T) {
	for _, tc := range []struct {
		name                     string
		local, region, queuePair int
		knobs                    Knobs
		want                     string // status of two reads
		wrong                    int    // wrong bytes after the first one
	}{
		{"none", 1, remoteRead, remoteRead, Knobs{}, "0:0/0 1:0/0", 0},
		{"region without remote read", 1, 3, remoteRead, Knobs{}, "0:10/136 1:5/249", size},
		{"queue pair without remote read", 1, remoteRead, 2, Knobs{}, "0:9/138 1:5/249", size},
		{"no local write", 0, remoteRead, remoteRead, Knobs{}, "0:4/81 1:5/249", size},
		{"blocked", 1, remoteRead, remoteRead, Knobs{Blocked: true}, "0:12/129 1:5/249", size},
		{"one wrong byte", 1, remoteRead, remoteRead, Knobs{Corrupt: 2}, "0:0/0 1:0/0", 1},
		{"no bytes", 1, remoteRead, remoteRead, Knobs{Lose: 1, Corrupt: 2}, "0:0/0 1:0/0", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, a, b := reading(t, 2, tc.local, tc.region, tc.queuePair)
			f.Set("A", "mlx5_0", func(k *Knobs) { *k = tc.knobs })
			b.want("ok", "fill b - 7")
			if got, _ := a.read(b, size, 2); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
			a.want(fmt.Sprintf("%d wrong", tc.wrong), "check a - 7")
		})
	}
	f, a, b := reading(t, 2, 1, remoteRead, remoteRead)
	f.Set("A", "mlx5_0", func(k *Knobs) { k.Lose = 1 })
	b.want("ok", "fill b - 7")
	if got, _ := a.read(b, size, 1); got != "0:0/0" {
		t.Error(got)
	}
	a.want(fmt.Sprintf("%d wrong", size), "check a - 7")
}

// TestReadTime: reads occupy the wire of the end that sends. A client's queue pair may have one open read.
func TestReadTime(t *testing.T) {
	f, a, b := reading(t, 2, 1, remoteRead, remoteRead)
	for _, tc := range []struct {
		name, node, device string
		knobs              Knobs
		least, most        time.Duration
	}{
		{"the peer's rate", "B", "mlx5_1", Knobs{Rate: 40 << 20}, 100 * time.Millisecond, 4 * time.Second},
		{"our rate", "A", "mlx5_0", Knobs{Rate: 256 << 10}, 0, 8 * time.Second},
		{"one at a time", "A", "mlx5_0", Knobs{Latency: 50 * time.Millisecond}, 200 * time.Millisecond, 4 * time.Second},
	} {
		f.Set("A", "mlx5_0", func(k *Knobs) { *k = Knobs{} })
		f.Set("B", "mlx5_1", func(k *Knobs) { *k = Knobs{} })
		f.Set(tc.node, tc.device, func(k *Knobs) { *k = tc.knobs })
		if got, took := a.read(b, size, 4); got != "0:0/0 1:0/0 2:0/0 3:0/0" || took < tc.least || took > tc.most {
			t.Errorf("%s: %q in %v", tc.name, got, took)
		}
	}
	// Reads that wait for their turn are flushed, too.
	f.Set("A", "mlx5_0", func(k *Knobs) { k.Latency = time.Hour })
	a.want("ok", "read a - %d %d 8 3 %d", b.addr, b.rkey, signaled)
	a.want("ok", "err a -")
	if got, took := a.poll(3, 5*time.Second); got != "0:5/249 1:5/249 2:5/249" {
		t.Errorf("error: %q in %v", got, took)
	}
}
