package fakeverbs

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestRTR: RTR resolves the address as the kernel does.
func TestRTR(t *testing.T) {
	f := New(t)
	f.Add("A", Device{Name: "mlx5_0", GIDs: RoCE("192.0.2.1"), ActiveMTU: 1024})
	f.Add("B", Device{Name: "mlx5_0", GIDs: RoCE("192.0.2.2")})
	f.Add("B", Device{Name: "mlx5_1", GIDs: RoCE("198.51.100.2")})
	f.Add("B", Device{Name: "mlx5_2", GIDs: RoCE("192.0.2.3"), Knobs: Knobs{Down: true}})
	c := start(t, f, "A")
	for _, tc := range []struct {
		name, gid          string
		index, mtu, global int
		without            int
		want               string
	}{
		{"well", "::ffff:192.0.2.2", 3, 3, 1, 0, "ok"},
		{"itself", "::ffff:192.0.2.1", 3, 3, 1, 0, "ok"},
		{"another subnet", "::ffff:198.51.100.2", 3, 3, 1, 0, "rtr: errno 110"},
		{"nobody", "::ffff:192.0.2.77", 3, 3, 1, 0, "rtr: errno 110"},
		{"who is down", "::ffff:192.0.2.3", 3, 3, 1, 0, "rtr: errno 110"},
		{"IPv4 from IPv6", "::ffff:192.0.2.2", 1, 3, 1, 0, "rtr: errno 110"},
		{"an empty entry", "::ffff:192.0.2.2", 4, 3, 1, 0, "rtr: errno 22"},
		{"no entry", "::ffff:192.0.2.2", 99, 3, 1, 0, "rtr: errno 22"},
		{"a large MTU", "::ffff:192.0.2.2", 3, 4, 1, 0, "rtr: errno 22"},
		{"without a GRH", "::ffff:192.0.2.2", 3, 3, 0, 0, "rtr: errno 22"},
		{"without a PSN", "::ffff:192.0.2.2", 3, 3, 1, 1 << 12, "rtr: errno 22"},
	} {
		e := c.open("a", "mlx5_0", "192.0.2.1")
		e.want("ok", "init a - 1 3")
		if got := e.do("rtr a %s 1 2 %d %d %d %d", tc.gid, tc.index, tc.mtu, tc.global, tc.without); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
		if tc.mtu == 3 && tc.global == 1 && tc.without == 0 {
			want := "ok"
			if tc.want != "ok" {
				_, want, _ = strings.Cut(tc.want, ": ")
				want = "create_ah: " + want
			}
			if got := e.do("ah a %s %d", tc.gid, tc.index); got != want {
				t.Errorf("%s: %q, want %q", tc.name, got, want)
			}
		}
		e.want("ok", "close a -")
	}
	e := c.open("a", "mlx5_0", "192.0.2.1")
	e.want("ok", "init a - 1 3")
	f.Set("A", "mlx5_0", func(k *Knobs) { k.Down = true })
	if got := e.rtr(e, 1); got != "rtr: errno 22" { // its MTU is 4096
		t.Error(got)
	}
	e.want("rtr: errno 101", "rtr a ::ffff:192.0.2.2 1 2 3 3 1 0")
	if left := f.Left(); len(left) != 5 {
		t.Error(left)
	}
}

// TestStates: a queue pair passes through every state in order.
func TestStates(t *testing.T) {
	f := New(t)
	f.Add("A", Device{Name: "mlx5_0", GIDs: RoCE("192.0.2.1")})
	e := start(t, f, "A").open("a", "mlx5_0", "192.0.2.1")
	post := fmt.Sprintf("write a - %d %d 8 1 2", e.addr, e.rkey)
	for _, step := range [][2]string{
		{"rtr a ::ffff:192.0.2.1 1 2 3 3 1 0", "rtr: errno 22"},
		{"rts a - 1", "rts: errno 22"},
		{"init a - 2 3", "init: errno 22"},
		// The call without IBV_QP_STATE, which is 1, cannot set anything yet.
		{"init a - 1 3 1", "init: errno 22"},
		{"init a - 1 3 32", "init: errno 22"},
		{"init a - 1 3", "ok"},
		{"init a - 1 3", "ok"},
		{post, "post: errno 22"},
		{"rts a - 1", "rts: errno 22"},
		{"rtr a ::ffff:192.0.2.1 1 2 3 3 1 0", "ok"},
		{post, "post: errno 22"},
		{"rtr a ::ffff:192.0.2.1 1 2 3 3 1 0", "rtr: errno 22"},
		{"rts a - 1 65536", "rts: errno 22"},
		{"rts a - 1", "ok"},
		{"init a - 1 3", "init: errno 22"},
		{"query a -", "port 4 mtu 5 of 5 link 2 qp 3 fw 28.39.1002 gid ::ffff:192.0.2.1"},
		{"err a -", "ok"},
		{"query a -", "port 4 mtu 5 of 5 link 2 qp 6 fw 28.39.1002 gid ::ffff:192.0.2.1"},
		{post, "ok"},
		{"rts a - 1", "rts: errno 22"},
	} {
		e.want(step[1], "%s", step[0])
	}
}

// TestConnection: a write needs both ends to be connected to each other, and both keys.
func TestConnection(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(f *Fabric, a, b *end)
		want  string
	}{
		{"no such key there", func(_ *Fabric, _, b *end) { b.rkey++ }, "0:10/136"},
		{"past the end", func(_ *Fabric, _, b *end) { b.addr += size - 7 }, "0:10/136"},
		{"before the start", func(_ *Fabric, _, b *end) { b.addr-- }, "0:10/136"},
		{"its local key", func(_ *Fabric, a, b *end) { b.rkey &^= 1 << 31 }, "0:10/136"},
		{"the other end in error", func(_ *Fabric, _, b *end) { b.want("ok", "err b -") }, "0:12/129"},
		{"the other end gone", func(_ *Fabric, _, b *end) { b.want("ok", "close b -") }, "0:12/129"},
		{"the other process gone", func(_ *Fabric, _, b *end) {
			_ = b.cmd.Process.Kill()
			time.Sleep(20 * time.Millisecond)
		}, "0:12/129"},
		{"the other port down", func(f *Fabric, _, _ *end) {
			f.Set("B", "mlx5_0", func(k *Knobs) { k.Down = true })
		}, "0:12/129"},
		{"the other port blocked", func(f *Fabric, _, _ *end) {
			f.Set("B", "mlx5_0", func(k *Knobs) { k.Blocked = true })
		}, "0:12/129"},
		{"this address gone", func(f *Fabric, _, _ *end) { f.SetGIDs("A", "mlx5_0", nil) }, "0:12/129"},
		{"this address moved", func(f *Fabric, _, _ *end) {
			f.SetGIDs("A", "mlx5_0", RoCE("192.0.2.1")[1:])
		}, "0:12/129"},
		{"the other address gone", func(f *Fabric, _, _ *end) { f.SetGIDs("B", "mlx5_0", nil) }, "0:12/129"},
		{"the other speaks RoCE v1", func(f *Fabric, _, _ *end) {
			f.SetGIDs("B", "mlx5_0", RoCE("192.0.2.2")[:3])
		}, "0:12/129"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, a, b := pair(t, Knobs{})
			tc.spoil(f, a, b)
			if got, _ := a.write(b, 8, 1); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
	t.Run("another PSN", func(t *testing.T) {
		f, _, _ := pair(t, Knobs{})
		a, b := start(t, f, "A").open("c", "mlx5_0", "192.0.2.1"), start(t, f, "B").open("d", "mlx5_0", "192.0.2.2")
		a.want("ok", "init c - 1 3")
		b.want("ok", "init d - 1 3")
		if s := a.rtr(b, psnB) + b.rtr(a, psnA+1); s != "okok" {
			t.Fatal(s)
		}
		a.want("ok", "rts c - %d", psnA)
		if got, _ := a.write(b, 8, 1); got != "0:12/129" {
			t.Error(got)
		}
	})
	t.Run("no such key here", func(t *testing.T) {
		_, a, b := pair(t, Knobs{})
		a.want("ok", "write a - %d %d 8 1 2 1", b.addr, b.rkey)
		if got, _ := a.poll(1, time.Second); got != "0:4/81" {
			t.Error(got)
		}
	})
}

// TestSendQueue: a full send queue refuses posts. Unsignaled writes are reported only on failure, and free their slot
// when a later write is reported.
func TestSendQueue(t *testing.T) {
	f, a, b := pair(t, Knobs{})
	a.want("post: errno 12", "write a - %d %d 8 %d %d", b.addr, b.rkey, depth+1, signaled)
	if got, _ := a.poll(depth, time.Second); len(got) < 4*depth {
		t.Error(got)
	}
	a.want("ok", "write a - %d %d 8 %d 0", b.addr, b.rkey, depth-1)
	if got, _ := a.poll(1, 20*time.Millisecond); got != "" {
		t.Error(got)
	}
	for range 2 {
		if got, _ := a.write(b, 8, 1); got != "0:0/0" {
			t.Error(got)
		}
	}
	a.want("post: errno 22", "write a - %d %d 65 1 8", b.addr, b.rkey) // inline, and too large for it
	f.Set("B", "mlx5_0", func(k *Knobs) { k.Down = true })
	a.want("ok", "write a - %d %d 8 2 0", b.addr, b.rkey)
	if got, _ := a.poll(2, time.Second); got != "0:12/129 1:5/249" {
		t.Error(got)
	}
}

// TestEvents: events arrive when they occur.
func TestEvents(t *testing.T) {
	f, a, b := pair(t, Knobs{})
	f.Set("A", "mlx5_0", func(k *Knobs) { k.Down = true })
	f.Set("A", "mlx5_0", func(k *Knobs) { k.Down = false })
	f.SetGIDs("A", "mlx5_0", RoCE("192.0.2.1"))
	f.Raise("A", "mlx5_0", EventDeviceFatal)
	for _, want := range []string{"event 10 port 1", "event 9 port 1", "event 18 port 1", "event 8 port 1"} {
		a.want(want, "event a -")
	}
	f.Raise("B", "mlx5_0", EventPortErr)
	b.want("event 10 port 1", "event b -")
}
