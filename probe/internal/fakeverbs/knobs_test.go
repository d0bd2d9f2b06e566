package fakeverbs

import (
	"testing"
	"time"
)

// TestWriteFaults: every fault of a write has its status, the next write is flushed, and the queue pair is in an error
// state.
func TestWriteFaults(t *testing.T) {
	for _, tc := range []struct {
		name  string
		knobs Knobs
		bytes int
		want  string // status of three writes
	}{
		{"none", Knobs{}, 4096, "0:0/0 1:0/0 2:0/0"},
		{"nothing to write", Knobs{}, 0, "0:0/0 1:0/0 2:0/0"},
		{"down", Knobs{Down: true}, 8, "0:12/129 1:5/249 2:5/249"},
		{"blocked", Knobs{Blocked: true}, 8, "0:12/129 1:5/249 2:5/249"},
		{"dropped after so much", Knobs{DropAfter: 8192}, 4096, "0:0/0 1:0/0 2:12/129"},
		{"too large", Knobs{DropLarger: 1024}, 1025, "0:12/129 1:5/249 2:5/249"},
		{"not too large", Knobs{DropLarger: 1024}, 1024, "0:0/0 1:0/0 2:0/0"},
		{"every second", Knobs{FailEvery: 2, FailStatus: 11, FailVendor: 3}, 8, "0:0/0 1:11/3 2:5/249"},
		{"every third, as it is by itself", Knobs{FailEvery: 3}, 8, "0:0/0 1:0/0 2:12/0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, a, b := pair(t, Knobs{})
			f.Set("A", "mlx5_0", func(k *Knobs) { *k = tc.knobs })
			if got, _ := a.write(b, tc.bytes, 3); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// TestTime: a write takes its time on the wire, which devices may share.
func TestTime(t *testing.T) {
	f, a, b := pair(t, Knobs{Rate: 40 << 20})
	compare := func(name string, got, want time.Duration) {
		t.Helper()
		if got < want || got > want+4*time.Second {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	got, took := a.write(b, size, 4)
	if got != "0:0/0 1:0/0 2:0/0 3:0/0" {
		t.Fatal(got)
	}
	compare("4 MiB at 40 MiB/s", took, 100*time.Millisecond)
	f.Set("A", "mlx5_0", func(k *Knobs) { k.Rate, k.Latency = 0, 50*time.Millisecond })
	_, took = a.write(b, 8, 4)
	compare("latency", took, 50*time.Millisecond)
	f.Set("A", "mlx5_0", func(k *Knobs) { k.Down, k.RetryTimeout = true, 80*time.Millisecond })
	_, took = a.write(b, 8, 1)
	compare("retry", took, 80*time.Millisecond)
}

// TestSharedWire: two devices on one wire take twice as long as on separate wires.
func TestSharedWire(t *testing.T) {
	for _, tc := range []struct {
		group int
		want  time.Duration
	}{{0, 400 * time.Millisecond}, {3, 800 * time.Millisecond}} {
		f := New(t)
		knobs := Knobs{Rate: 10 << 20, Group: tc.group}
		f.Add("A", Device{Name: "mlx5_0", GIDs: RoCE("192.0.2.1"), Knobs: knobs})
		f.Add("A", Device{Name: "mlx5_1", GIDs: RoCE("192.0.2.3"), Knobs: knobs})
		f.Add("B", Device{Name: "mlx5_0", GIDs: RoCE("192.0.2.2")})
		ca, cb := start(t, f, "A"), start(t, f, "B")
		a1, a2 := ca.open("a", "mlx5_0", "192.0.2.1"), ca.open("b", "mlx5_1", "192.0.2.3")
		b1, b2 := cb.open("a", "mlx5_0", "192.0.2.2"), cb.open("b", "mlx5_0", "192.0.2.2")
		connect(a1, b1)
		connect(a2, b2)
		took := time.Duration(0)
		for try := 0; try == 0 || try < 5 && took > tc.want+300*
			time.Millisecond; try++ { // a busy machine may be late, but not always
			begin := time.Now()
			for _, e := range [][2]*end{{a1, b1}, {a2, b2}} {
				e[0].want("ok", "write %s - %d %d %d 4 %d", e[0].letter, e[1].addr, e[1].rkey, size, signaled)
			}
			for _, e := range []*end{a1, a2} {
				if got, _ := e.poll(4, 5*time.Second); got != "0:0/0 1:0/0 2:0/0 3:0/0" {
					t.Error(got)
				}
			}
			took = time.Since(begin)
			if took < tc.want {
				t.Errorf("group %d: %v, want %v", tc.group, took, tc.want)
			}
		}
		if took > tc.want+300*time.Millisecond {
			t.Errorf("group %d: never less than %v, want %v", tc.group, took, tc.want)
		}
	}
}

// TestUnderWay: a write in flight does not complete if the port goes down, or if the queue pair moves to an error
// state.
func TestUnderWay(t *testing.T) {
	f, a, b := pair(t, Knobs{Rate: 128 << 10})
	post := func(count int) {
		t.Helper()
		a.want("ok", "write a - %d %d %d %d %d", b.addr, b.rkey, size, count, signaled)
	}
	post(3) // the first one completes in 8 s
	if got, _ := a.poll(3, 20*time.Millisecond); got != "" {
		t.Error(got)
	}
	f.Set("A", "mlx5_0", func(k *Knobs) { k.Down = true })
	if got, _ := a.poll(3, 5*time.Second); got != "0:12/129 1:5/249 2:5/249" {
		t.Error("down:", got)
	}
	_, a, b = pair(t, Knobs{Rate: 128 << 10})
	post(3)
	a.want("ok", "err a -")
	got, took := a.poll(3, 5*time.Second)
	if got != "0:5/249 1:5/249 2:5/249" || took > 5*time.Second {
		t.Error("error:", got, took)
	}
	post(1)
	if got, _ := a.poll(1, 5*time.Second); got != "0:5/249" {
		t.Error("after the error:", got)
	}
	// Canceled writes do not occupy the wire.
	a, b = a.open("c", "mlx5_0", "192.0.2.1"), b.open("d", "mlx5_0", "192.0.2.2")
	connect(a, b)
	if _, took := a.write(b, 8, 1); took > 5*time.Second {
		t.Error("the wire is still taken:", took)
	}
}

// TestErrnos: calls fail with the configured errno.
func TestErrnos(t *testing.T) {
	f := New(t)
	f.Add("A", Device{Name: "mlx5_0", GIDs: RoCE("192.0.2.1")})
	f.Add("A", Device{Name: "mlx5_1", GIDs: RoCE("192.0.2.3"), Knobs: Knobs{Hidden: true}})
	c := start(t, f, "A")
	for _, tc := range []struct {
		want  string
		knobs Knobs
	}{
		{"open: errno 38", Knobs{ListErrno: 38}},
		{"open: errno 13", Knobs{OpenErrno: 13}},
		{"reg_mr: errno 12", Knobs{RegMRErrno: 12}},
		{"create_cq: errno 28", Knobs{CreateCQErrno: 28}},
		{"create_qp: errno 22", Knobs{CreateQPErrno: 22}},
		{"open: errno 2", Knobs{Hidden: true}},
	} {
		f.Set("A", "mlx5_0", func(k *Knobs) { *k = tc.knobs })
		c.want(tc.want, "open a mlx5_0 4096 %d 4", access)
		c.want("ok", "close a -")
	}
	c.want("open: errno 2", "open a mlx5_1 4096 3 4")
	start(t, f, "B").want("open: errno 2", "open a mlx5_0 4096 3 4") // node B has no devices
	f.Set("A", "mlx5_0", func(k *Knobs) { *k = Knobs{} })
	c.want("reg_mr: errno 22", "open a mlx5_0 4096 2 4") // remote write without local write
	c.want("ok", "close a -")
	if left := f.Left(); left != nil {
		t.Error(left)
	}
	for _, tc := range []struct {
		knobs Knobs
		want  [3]string
	}{
		{Knobs{InitErrno: 5}, [3]string{"init: errno 5", "rtr: errno 22", "rts: errno 22"}},
		{Knobs{RTRErrno: 110}, [3]string{"ok", "rtr: errno 110", "rts: errno 22"}},
		{Knobs{RTSErrno: 12}, [3]string{"ok", "ok", "rts: errno 12"}},
	} {
		e := c.open("a", "mlx5_0", "192.0.2.1")
		f.Set("A", "mlx5_0", func(k *Knobs) { *k = tc.knobs })
		if got := [3]string{e.do("init a - 1 3"), e.rtr(e, 1), e.do("rts a - 1")}; got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
		f.Set("A", "mlx5_0", func(k *Knobs) { *k = Knobs{} })
		e.want("ok", "close a -")
	}
}

// TestHangAndCrash: a hung call continues when the knob is reset. A crashed process leaves nothing, and its peer's
// writes time out.
func TestHangAndCrash(t *testing.T) {
	f, a, b := pair(t, Knobs{})
	hang := func(change func(k *Knobs, on bool), command string, args ...any) {
		t.Helper()
		f.Set("A", "mlx5_0", func(k *Knobs) { change(k, true) })
		a.send(command, args...)
		if got := a.answer(30 * time.Millisecond); got != "hangs" {
			t.Errorf("%s does not hang: %q", command, got)
		}
		f.Set("A", "mlx5_0", func(k *Knobs) { change(k, false) })
		if got := a.answer(5 * time.Second); got == "hangs" {
			t.Error(command, "still hangs")
		}
	}
	hang(func(k *Knobs, on bool) { k.HangOpen = on }, "open b mlx5_0 4096 3 4")
	a.want("ok", "close b -")
	hang(func(k *Knobs, on bool) { k.HangPost = on }, "write a - %d %d 8 1 2", b.addr, b.rkey)
	f.Set("A", "mlx5_0", func(k *Knobs) { k.HangPoll = true })
	if got, _ := a.poll(1, 30*time.Millisecond); got != "" {
		t.Error(got)
	}
	f.Set("A", "mlx5_0", func(k *Knobs) { k.HangPoll, k.CrashAt = false, 3 })
	if got, _ := a.poll(1, 5*time.Second); got != "0:0/0" {
		t.Error(got)
	}
	if got, _ := a.write(b, 8, 2); got != "0:0/0 1:0/0" {
		t.Error(got)
	}
	if got := a.do("write a - %d %d 8 1 2", b.addr, b.rkey); got != "" {
		t.Errorf("the third post does not crash: %q", got)
	}
	_ = a.cmd.Wait()
	if left := f.Left(); len(left) != 5 {
		t.Errorf("not only the other end's: %q", left)
	}
	if got, _ := b.write(a, 8, 1); got != "0:12/129" {
		t.Error(got)
	}
}

// TestCorrupt: only the selected write is corrupted, in one byte.
func TestCorrupt(t *testing.T) {
	f, a, b := pair(t, Knobs{})
	f.Set("A", "mlx5_0", func(k *Knobs) { k.Corrupt = 2 })
	a.want("ok", "fill a - 7")
	for _, want := range []string{"0 wrong", "1 wrong", "0 wrong"} {
		if got, _ := a.write(b, size, 1); got != "0:0/0" {
			t.Fatal(got)
		}
		b.want(want, "check b - 7")
	}
}
