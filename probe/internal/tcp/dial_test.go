package tcp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/pattern"
)

// TestDialFails: each lane says why it cannot be had, and the last one works.
func TestDialFails(t *testing.T) {
	settle(t)
	tg, dst := target(t, 1, 1<<20)
	good := tg.Addrs()[0]
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := l.Addr().(*net.TCPAddr).AddrPort()
	l.Close()
	all := []Lane{
		{Rail: "refused", Local: home(1), Remote: refused},
		{Rail: "address", Local: netip.MustParseAddr("192.0.2.1"), Remote: good},
		{Rail: "family", Local: netip.MustParseAddr("::1"), Remote: good},
		{Rail: "nothing", Local: home(1)},
		{Rail: "unreachable", Local: home(1), Remote: netip.MustParseAddrPort("127.255.255.255:1")},
		{Rail: "good", Local: home(1), Netdev: "no such device", Remote: good},
	}
	want := []failure.Reason{failure.TCPRefused, failure.NoAddress, failure.NoAddress, failure.NoAddress, failure.TCPUnreachable, ""}
	c, failures := Dial(t.Context(), all, 2, secret(1))
	defer c.Close()
	for i, f := range failures {
		switch {
		case f == nil && want[i] == "":
		case f == nil || f.Reason != want[i] || f.Rail != all[i].Rail || f.Stage != failure.StageConnect:
			t.Errorf("%s: %v, want %q", all[i].Rail, f, want[i])
		default:
			t.Log(f)
		}
	}
	r := deliver(t, c, dst, 1, Options{Total: 1 << 20, Chunk: 64 << 10, Depth: 4})
	if r.Lanes[5].Bytes != 1<<20 || r.Lanes[0].Err != failures[0] {
		t.Errorf("%+v", r.Lanes)
	}
}

// TestDialByRoute: a lane without an address of its own leaves by whichever the
// routes say.
func TestDialByRoute(t *testing.T) {
	settle(t)
	tg, dst := target(t, 1, 1<<20)
	c, failures := Dial(t.Context(), []Lane{{Rail: "control", Remote: tg.Addrs()[0]}}, 1, secret(1))
	defer c.Close()
	if failures[0] != nil {
		t.Fatal(failures[0])
	}
	deliver(t, c, dst, 1, Options{Total: 1 << 20, Chunk: 64 << 10, Depth: 4})
}

// TestWhyNot names errors that are hard to come by here.
func TestWhyNot(t *testing.T) {
	for err, want := range map[error]failure.Reason{
		unix.EHOSTUNREACH: failure.TCPUnreachable, unix.ENETUNREACH: failure.TCPUnreachable, unix.ETIMEDOUT: failure.TCPUnreachable,
		context.DeadlineExceeded: failure.TCPUnreachable, unix.ECONNRESET: failure.TCPBroken, io.EOF: failure.TCPBroken,
		context.Canceled: failure.Canceled, unix.EADDRNOTAVAIL: failure.NoAddress,
	} {
		if got := whyNot(Lane{}, &net.OpError{Op: "dial", Err: err}).Reason; got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}

// TestSilentTarget accepts and says nothing: Dial ends when its context does.
func TestSilentTarget(t *testing.T) {
	settle(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	_, failures := Dial(ctx, lanes([]netip.AddrPort{l.Addr().(*net.TCPAddr).AddrPort()}), 1, secret(1))
	if failures[0] == nil || failures[0].Reason != failure.Canceled {
		t.Error(failures[0])
	}
}

// TestTooMany asks for more connections than a target takes, and for none.
func TestTooMany(t *testing.T) {
	settle(t)
	tg, _ := target(t, 2, 4096)
	for _, streams := range []int{-1, 0, MaxConns/2 + 1} {
		_, failures := Dial(t.Context(), lanes(tg.Addrs()), streams, secret(1))
		if reason := failures[1].Reason; reason != failure.Other {
			t.Errorf("%d streams: %v", streams, failures)
		}
	}
	if c, failures := Dial(t.Context(), nil, 1, secret(1)); len(failures) != 0 || len(c.Progress()) != 0 {
		t.Error("lanes where there are none")
	}
}

// TestStrangers: who does not say the preamble is told nothing, and moves
// nothing.
func TestStrangers(t *testing.T) {
	settle(t)
	tg, dst := target(t, 1, 4096)
	pattern.Fill(dst, 9, 0)
	frame := func(at uint64, n uint32, payload int) string {
		return string(frame(at, n, make([]byte, payload)))
	}
	good := string(preamble(secret(1), 0, 0))
	_, failures := Dial(t.Context(), lanes(tg.Addrs()), 1, secret(2))
	if failures[0] == nil || failures[0].Reason != failure.TCPBroken {
		t.Errorf("a wrong key: %v", failures[0])
	}
	for name, tc := range map[string]struct {
		say     string
		answers int // acknowledgements before the end
	}{
		"garbage":             {"GET / HTTP/1.1\r\nHost: somebody-who-is-lost.example.org\r\n\r\n", 0},
		"wrong key":           {string(preamble(secret(2), 0, 0)) + frame(0, 8, 8), 0},
		"wrong version":       {good[:7] + "\x02" + good[8:] + frame(0, 8, 8), 0},
		"beyond the buffer":   {good + frame(4096, 8, 8), 1},
		"across the end":      {good + frame(4089, 8, 8), 1},
		"around the integers": {good + frame(1<<64-8, 16, 16), 1},
		"nothing":             {good + frame(0, 0, 0), 1},
		"too long":            {good + frame(0, 1<<32-1, 64), 1},
		"and then garbage":    {good + frame(1<<63, 8, 8), 1},
	} {
		c, err := net.Dial("tcp", tg.Addrs()[0].String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, tc.say)
		c.SetDeadline(time.Now().Add(4 * time.Second))
		said, err := io.ReadAll(c)
		if len(said) > tc.answers*ackLen || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: answered %x, %v", name, said, err)
		}
		c.Close()
	}
	if at := pattern.Check(dst, 9, 0); at >= 0 {
		t.Errorf("byte %d was written", at)
	}
}

// TestCrowd: a target serves as many connections as it may, closes the others,
// and serves again when there is room.
func TestCrowd(t *testing.T) {
	settle(t)
	tg, _ := target(t, 1, 4096)
	c := dial(t, tg.Addrs(), MaxConns)
	_, failures := Dial(t.Context(), lanes(tg.Addrs()), 1, secret(1))
	if failures[0] == nil || failures[0].Reason != failure.TCPBroken {
		t.Errorf("one more: %v", failures[0])
	}
	c.Close()
	for range 100 {
		again, failures := Dial(t.Context(), lanes(tg.Addrs()), 1, secret(1))
		again.Close()
		if failures[0] == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("no room again")
}

// TestListen on addresses of which one is not this machine's.
func TestListen(t *testing.T) {
	settle(t)
	foreign := netip.MustParseAddr("192.0.2.1")
	tg, err := Listen(t.Context(), []netip.Addr{foreign, home(1)}, make([]byte, 8), secret(1))
	if err == nil || tg == nil {
		t.Fatalf("target %v, error %v", tg, err)
	}
	defer tg.Close()
	if a := tg.Addrs(); a[0].IsValid() || a[1].Addr() != home(1) || a[1].Port() == 0 {
		t.Errorf("listens on %v", a)
	}
	for _, addrs := range [][]netip.Addr{{foreign}, {}} {
		if tg, err := Listen(t.Context(), addrs, make([]byte, 8), secret(1)); err == nil || tg != nil {
			t.Errorf("%v: target %v, error %v", addrs, tg, err)
		}
	}
}
