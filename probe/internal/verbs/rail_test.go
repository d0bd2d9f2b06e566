//go:build cgo

package verbs

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// TestOpenRailFails: the error names the step that failed, and nothing stays open.
func TestOpenRailFails(t *testing.T) {
	const nomem, acces, perm, noent, nodev = uint64(syscall.ENOMEM), uint64(syscall.EACCES), uint64(syscall.EPERM),
		uint64(syscall.ENOENT), uint64(syscall.ENODEV)
	good := Spec{Device: "mlx5_0", Port: 1, GIDIndex: 3, QueuePairs: 4, Depth: 8}
	with := func(change func(*Spec)) Spec { s := good; change(&s); return s }
	for _, tc := range []struct {
		name  string
		knobs fakeverbs.Knobs
		spec  Spec
		want  failure.Reason
		says  string
	}{
		{"nothing", fakeverbs.Knobs{}, good, "", ""},
		{"no uverbs", fakeverbs.Knobs{ListErrno: uint64(syscall.ENOSYS)}, good, failure.NoUverbs, "list devices"},
		{"hidden", fakeverbs.Knobs{Hidden: true}, good, failure.NoProvider, "libibverbs does not list it"},
		{"EACCES", fakeverbs.Knobs{OpenErrno: acces}, good, failure.DevPerm, "open device"},
		{"EPERM", fakeverbs.Knobs{OpenErrno: perm}, good, failure.DevPerm, "open device"},
		{"ENOENT", fakeverbs.Knobs{OpenErrno: noent}, good, failure.DevPerm, "open device"},
		{"ENODEV", fakeverbs.Knobs{OpenErrno: nodev}, good, failure.DevPerm, "open device"},
		{"CQ", fakeverbs.Knobs{CreateCQErrno: nomem}, good, failure.Memlock, "create CQ"},
		{"QP", fakeverbs.Knobs{CreateQPErrno: nomem}, good, failure.Memlock, "create QP"},
		{"INIT", fakeverbs.Knobs{InitErrno: uint64(syscall.EINVAL)}, good, failure.Other, "INIT"},
		{"INIT, device gone", fakeverbs.Knobs{InitErrno: uint64(syscall.EIO)}, good, failure.DeviceFatal, "INIT"},
		{"GID", fakeverbs.Knobs{}, with(func(s *Spec) { s.GIDIndex = 99 }), failure.NoGID, "query GID"},
		{"port", fakeverbs.Knobs{}, with(func(s *Spec) { s.Port = 2 }), failure.Other, "query port"},
		{"port 0", fakeverbs.Knobs{}, with(func(s *Spec) { s.Port = 0 }), failure.Other, "out of range"},
		{"queue pairs", fakeverbs.Knobs{}, with(func(s *Spec) {
			s.QueuePairs = 17
		}), failure.Other, "out of range"},
		{"depth", fakeverbs.Knobs{}, with(func(s *Spec) { s.Depth = 1025 }), failure.Other, "out of range"},
		{"a long name", fakeverbs.Knobs{}, with(func(s *Spec) {
			s.Device = strings.Repeat("m", 64)
		}), failure.Other, "out of range"},
		{"another name", fakeverbs.Knobs{}, with(func(s *Spec) { s.Device = "mlx5_1" }), failure.NoProvider, "mlx5_1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := fakeverbs.New(t)
			f.Add("A", fakeverbs.Device{Name: "mlx5_0", GIDs: fakeverbs.RoCE("192.0.2.1"), Knobs: tc.knobs})
			f.Use(t, "A")
			r, err := fake(t).OpenRail(tc.spec)
			if got := reason(err); got != tc.want || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v; want %q with %q", err, tc.want, tc.says)
			}
			if err == nil {
				r.Close()
			}
			if left := f.Left(); left != nil {
				t.Errorf("left open: %q", left)
			}
		})
	}
}

// TestCheck: a node without devices is not an error, one without ib_uverbs is.
func TestCheck(t *testing.T) {
	f := fakeverbs.New(t)
	f.Use(t, "A")
	l := fake(t)
	if err := l.Check(); err != nil {
		t.Errorf("no devices: %v", err)
	}
	f.Add("A", fakeverbs.Device{Name: "mlx5_0"})
	if err := l.Check(); err != nil {
		t.Error(err)
	}
	if !strings.HasSuffix(l.File(), "libfakeverbs.so") {
		t.Errorf("loaded from %q", l.File())
	}
	f.Set("A", "mlx5_0", func(k *fakeverbs.Knobs) { k.ListErrno = uint64(syscall.ENOSYS) })
	if err := l.Check(); reason(err) != failure.NoUverbs {
		t.Errorf("without ib_uverbs: %v", err)
	}
}

// TestInfo reads the attributes of a port.
func TestInfo(t *testing.T) {
	f := fakeverbs.New(t)
	f.Add("A", fakeverbs.Device{Name: "mlx5_0", GIDs: fakeverbs.RoCE("192.0.2.1"), ActiveMTU: 1024})
	f.Add("A", fakeverbs.Device{Name: "ib0", InfiniBand: true, GIDs: fakeverbs.RoCE("192.0.2.2"),
		Knobs: fakeverbs.Knobs{Down: true}})
	f.Use(t, "A")
	l := fake(t)
	for _, tc := range []struct {
		device string
		want   Info
	}{
		{"mlx5_0", Info{State: PortActive, End: transfer.End{ActiveMTU: 1024, MaxMTU: 4096}}},
		{"ib0", Info{State: 1, End: transfer.End{ActiveMTU: 4096, MaxMTU: 4096}}},
	} {
		r, err := l.OpenRail(Spec{Device: tc.device, Port: 1, GIDIndex: 3, QueuePairs: 3, Depth: 1})
		if err != nil {
			t.Fatal(err)
		}
		got := r.Info()
		if got.State != tc.want.State || got.ActiveMTU != tc.want.ActiveMTU || got.MaxMTU != tc.want.MaxMTU {
			t.Errorf("%s: %+v", tc.device, got)
		}
		if !got.GID.Is4In6() || got.GID.Unmap().As4()[0] != 192 {
			t.Errorf("%s: %+v", tc.device, got)
		}
		slices.Sort(got.PSNs)
		slices.Sort(got.QPNs)
		if len(slices.Compact(got.QPNs)) != 3 || len(slices.Compact(got.PSNs)) != 3 || got.PSNs[2] >= 1<<24 {
			t.Errorf("%s: %+v", tc.device, got)
		}
		r.Close()
	}
}

// TestConnectFails: RTR and RTS fail.
func TestConnectFails(t *testing.T) {
	errno := func(e syscall.Errno) fakeverbs.Knobs { return fakeverbs.Knobs{RTRErrno: uint64(e)} }
	same := func(*transfer.End, *Attr) {}
	for _, tc := range []struct {
		name   string
		knobs  fakeverbs.Knobs
		change func(*transfer.End, *Attr)
		want   failure.Reason
		says   string
	}{
		{"nothing", fakeverbs.Knobs{}, same, "", ""},
		{"EINVAL", errno(syscall.EINVAL), same, failure.RTREinval, "RTR"},
		{"ETIMEDOUT", errno(syscall.ETIMEDOUT), same, failure.RTRUnreachable, "RTR"},
		{"EHOSTUNREACH", errno(syscall.EHOSTUNREACH), same, failure.RTRUnreachable, "RTR"},
		{"ENETUNREACH", errno(syscall.ENETUNREACH), same, failure.RTRNoRoute, "RTR"},
		{"ENODEV", errno(syscall.ENODEV), same, failure.RTRNoRoute, "RTR"},
		{"EIO", errno(syscall.EIO), same, failure.DeviceFatal, "RTR"},
		{"RTS", fakeverbs.Knobs{RTSErrno: uint64(syscall.EINVAL)}, same, failure.Other,
			"RTS: invalid argument (errno 22)"},
		{"MTU", fakeverbs.Knobs{}, func(_ *transfer.End, a *Attr) { a.PathMTU = 4096 }, failure.RTREinval, "MTU"},
		{"nobody has that GID", fakeverbs.Knobs{}, func(r *transfer.End, _ *Attr) { r.GID = r.GID.Next() },
			failure.RTRUnreachable, "ARP"},
		{"one queue pair", fakeverbs.Knobs{}, func(r *transfer.End, _ *Attr) { r.QPNs = r.QPNs[:1] }, failure.Other,
			"another number"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := fakeverbs.New(t)
			f.Add("A", fakeverbs.Device{Name: "mlx5_0", GIDs: fakeverbs.RoCE("192.0.2.1"), ActiveMTU: 2048,
				Knobs: tc.knobs})
			f.Add("A", fakeverbs.Device{Name: "mlx5_1", GIDs: fakeverbs.RoCE("192.0.2.2")})
			f.Use(t, "A")
			l := fake(t)
			r := must(l.OpenRail(Spec{Device: "mlx5_0", Port: 1, GIDIndex: 3, QueuePairs: 2, Depth: 8}))
			defer r.Close()
			peer := must(l.OpenRail(Spec{Device: "mlx5_1", Port: 1, GIDIndex: 3, QueuePairs: 2, Depth: 8}))
			defer peer.Close()
			to, a := peer.Info().End, attr()
			a.PathMTU = 2048
			tc.change(&to, &a)
			err := r.Connect(to, a)
			if got := reason(err); got != tc.want || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v; want %q with %q", err, tc.want, tc.says)
			}
		})
	}
}

// TestRegister registers one buffer on two devices.
func TestRegister(t *testing.T) {
	f := fakeverbs.New(t)
	f.Add("A", fakeverbs.Device{Name: "mlx5_0", GIDs: fakeverbs.RoCE("192.0.2.1")})
	f.Add("A", fakeverbs.Device{Name: "mlx5_1", GIDs: fakeverbs.RoCE("192.0.2.2"),
		Knobs: fakeverbs.Knobs{RegMRErrno: uint64(syscall.ENOMEM)}})
	f.Use(t, "A")
	l, b := fake(t), buffer(t, 4096)
	defer b.Close()
	r := must(l.OpenRail(Spec{Device: "mlx5_0", Port: 1, GIDIndex: 3, QueuePairs: 1, Depth: 1, Target: true}))
	refuses := must(l.OpenRail(Spec{Device: "mlx5_1", Port: 1, GIDIndex: 3, QueuePairs: 1, Depth: 1}))
	defer refuses.Close()
	if err := r.Register(AreaOf(b.Bytes())); err != nil || r.Info().Addr == 0 || r.Info().RKey == 0 ||
		r.Info().Size != 4096 {
		t.Errorf("%+v, %v", r.Info(), err)
	}
	if err := r.Register(AreaOf(b.Bytes())); err == nil {
		t.Error("registered twice")
	}
	if err := refuses.Register(AreaOf(b.Bytes())); reason(err) != failure.Memlock || !strings.Contains(err.Error(),
		"LimitMEMLOCK=infinity") {
		t.Errorf("%v", err)
	}
	r.Close()
	if err := r.Register(AreaOf(b.Bytes())); err == nil {
		t.Error("registered on a closed rail")
	}
	if err := refuses.Register(AreaOf(nil)); err == nil {
		t.Error("registered nothing")
	}
	if err := r.Expect(); err == nil {
		t.Error("a closed rail expects writes")
	}
	r.Stop() // does nothing
	if err := r.Connect(transfer.End{}, attr()); err == nil {
		t.Error("connected a closed rail")
	}
}
