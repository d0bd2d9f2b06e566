package tcp

import (
	"bytes"
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

// TestDialFails: each lane that fails has its reason, and the last one works.
func TestDialFails(t *testing.T) {
	settle(t)
	tg := target(t, 6, 2, 1<<20)
	good := tg.Addrs()[5]
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
	want := []failure.Reason{failure.TCPRefused, failure.NoAddress, failure.NoAddress, failure.NoAddress,
		failure.TCPUnreachable, ""}
	c, failures := Dial(t.Context(), all, 2, 1<<20, secret(1))
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
	o := some(6, 1<<20)
	for i := range o.Loads {
		o.Loads[i].Rail = all[i].Rail
	}
	r, err := c.Burst(t.Context(), source(1), o)
	if err != nil || r.Rails[5].Bytes != 0 || r.Rails[0].Failure != failures[0] {
		t.Errorf("a burst over all, which one that failed ends: %+v, %v", r.Rails, err)
	}
	o.Loads = o.Loads[5:]
	r, err = c.Burst(t.Context(), source(1), o)
	if err != nil || r.Rails[0].Bytes < 1<<20 || r.Rails[0].Failure != nil {
		t.Errorf("a burst over the good one: %+v, %v", r.Rails, err)
	}
}

// TestDialByRoute: a lane without a local address uses the one that the routes choose.
func TestDialByRoute(t *testing.T) {
	settle(t)
	tg := target(t, 1, 1, 1<<20)
	c, failures := Dial(t.Context(), []Lane{{Rail: "rail0", Remote: tg.Addrs()[0]}}, 1, 1<<20, secret(1))
	defer c.Close()
	if failures[0] != nil {
		t.Fatal(failures[0])
	}
	tg.deliver(t, c, some(1, 1<<20))
}

// TestNotConnected classifies errors that are hard to provoke in a test.
func TestNotConnected(t *testing.T) {
	for err, want := range map[error]failure.Reason{
		unix.EHOSTUNREACH: failure.TCPUnreachable, unix.ENETUNREACH: failure.TCPUnreachable,
		unix.ETIMEDOUT:           failure.TCPUnreachable,
		context.DeadlineExceeded: failure.TCPUnreachable, unix.ECONNRESET: failure.TCPBroken, io.EOF: failure.TCPBroken,
		context.Canceled: failure.Canceled, unix.EADDRNOTAVAIL: failure.NoAddress,
	} {
		if got := notConnected(&net.OpError{Op: "dial", Err: err}).Reason; got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}

// TestSilentTarget: Dial ends with its context when the target sends nothing.
func TestSilentTarget(t *testing.T) {
	settle(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	_, failures := Dial(ctx, lanes([]netip.AddrPort{l.Addr().(*net.TCPAddr).AddrPort()}), 1, 4096, secret(1))
	if failures[0] == nil || failures[0].Reason != failure.Canceled {
		t.Error(failures[0])
	}
}

// TestTooMany dials with more connections than a target accepts, and with none.
func TestTooMany(t *testing.T) {
	settle(t)
	tg := target(t, 2, 1, 4096)
	for _, streams := range []int{-1, 0, MaxConns/2 + 1} {
		_, failures := Dial(t.Context(), lanes(tg.Addrs()), streams, 4096, secret(1))
		if reason := failures[1].Reason; reason != failure.Other {
			t.Errorf("%d streams: %v", streams, failures)
		}
	}
	if c, failures := Dial(t.Context(), nil, 1, 4096, secret(1)); len(failures) != 0 || len(c.Progress()) != 0 {
		t.Error("lanes where there are none")
	}
}

// TestStrangers: a connection without a proof receives only a nonce, and writes nothing.
func TestStrangers(t *testing.T) {
	settle(t)
	tg := target(t, 1, 1, 4096)
	dst := tg.memory[0]
	pattern.Fill(dst, 9, 0)
	frame := func(at uint64, n uint32, payload int) string {
		return string(frame(at, n, make([]byte, payload)))
	}
	good := func(n [nonceLen]byte) string { return string(intro(secret(1), n, newNonce(), 0, 0)) }
	after := func(frames string) func([nonceLen]byte) string {
		return func(n [nonceLen]byte) string { return good(n) + frames }
	}
	_, failures := Dial(t.Context(), lanes(tg.Addrs()), 1, 4096, secret(2))
	if failures[0] == nil || failures[0].Reason != failure.TCPBroken {
		t.Errorf("a wrong key: %v", failures[0])
	}
	proved := func(lane, stream uint32) func([nonceLen]byte) string {
		return func(n [nonceLen]byte) string {
			return string(intro(secret(1), n, newNonce(), lane, stream)) + frame(0, 8, 8)
		}
	}
	for name, tc := range map[string]struct {
		say     func(n [nonceLen]byte) string // message to the target, given its nonce
		answers bool                          // whether the target answers with a proof
	}{
		"garbage": {func([nonceLen]byte) string {
			return "GET / HTTP/1.1\r\nHost: somebody-who-is-lost.example.org\r\n\r\n" + frame(0, 64, 64)
		}, false},
		"wrong key": {func(n [nonceLen]byte) string {
			return string(intro(secret(2), n, newNonce(), 0, 0)) + frame(0, 8, 8)
		}, false},
		"another's nonce":   {func([nonceLen]byte) string { return good(newNonce()) + frame(0, 8, 8) }, false},
		"the target's role": {func(n [nonceLen]byte) string { return reflected(n) + frame(0, 8, 8) }, false},
		"another lane than proved": {func(n [nonceLen]byte) string {
			b := []byte(good(n))
			b[introLen-5]++
			return string(b) + frame(0, 8, 8)
		}, false},
		"no such lane":        {proved(1, 0), false},
		"no such stream":      {proved(0, 1), false},
		"a huge lane":         {proved(1<<32-1, 0), false},
		"a huge stream":       {proved(0, 1<<32-1), false},
		"beyond the buffer":   {after(frame(4096, 8, 8)), true},
		"across the end":      {after(frame(4089, 8, 8)), true},
		"around the integers": {after(frame(1<<64-8, 16, 16)), true},
		"nothing":             {after(frame(0, 0, 0)), true},
		"too long":            {after(frame(0, 1<<32-1, 64)), true},
		"and then garbage":    {after(frame(1<<63, 8, 8)), true},
	} {
		c, err := net.Dial("tcp", tg.Addrs()[0].String())
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(4 * time.Second))
		var hello [greetingLen]byte
		if _, err := io.ReadFull(c, hello[:]); err != nil {
			t.Fatalf("%s: no greeting: %v", name, err)
		}
		io.WriteString(c, tc.say([nonceLen]byte(hello[8:])))
		said, err := io.ReadAll(c)
		if len(said) > proofLen || len(said) > 0 && !tc.answers || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: answered %x, %v", name, said, err)
		}
		c.Close()
	}
	if at := wrong(dst, 9, 0); at >= 0 {
		t.Errorf("byte %d was written", at)
	}
	if n, exceeded := tg.Received(); n != 0 || exceeded {
		t.Errorf("%d bytes were counted, %v", n, exceeded)
	}
}

// TestRings: a connection writes only to its own part of its lane's memory.
func TestRings(t *testing.T) {
	settle(t)
	tg := target(t, 2, 3, 3*64+2) // the last two bytes are in no ring
	for name, tc := range map[string]struct {
		lane, stream uint32
		at           uint64
		n            uint32
		from         int // offset in the lane's memory; -1 if refused
	}{
		"the first":             {0, 0, 0, 8, 0},
		"the end of the first":  {0, 0, 56, 8, 56},
		"past it":               {0, 0, 57, 8, -1},
		"the next one's":        {0, 0, 64, 8, -1},
		"all of the next":       {0, 1, 0, 64, 64},
		"the last":              {1, 2, 8, 8, 136},
		"what is nobody's":      {1, 2, 64, 2, -1},
		"more than a ring":      {1, 2, 0, 65, -1},
		"before it, all around": {1, 1, 1<<64 - 8, 8, -1},
	} {
		t.Run(name, func(t *testing.T) {
			before, _ := tg.Received()
			c, err := net.Dial("tcp", tg.Addrs()[0].String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(4 * time.Second))
			if err := handshake(c, secret(1), newNonce(), tc.lane, tc.stream); err != nil {
				t.Fatal(err)
			}
			part := make([]byte, tc.n)
			pattern.Fill(part, 5, 0)
			c.Write(frame(tc.at, tc.n, part))
			_, err = io.ReadFull(c, make([]byte, ackLen))
			after, _ := tg.Received()
			if took := after - before; (err == nil) != (tc.from >= 0) || took != int64(tc.n) && took != 0 ||
				(took > 0) != (tc.from >= 0) {
				t.Fatalf("%v, %d bytes taken", err, took)
			}
			if tc.from >= 0 && wrong(tg.memory[tc.lane][tc.from:][:tc.n], 5, 0) >= 0 {
				t.Error("it is not where it belongs")
			}
		})
	}
	tg.Close()
	for lane, want := range []string{"100000011111111100000000", "000000000000000001000000"} {
		got := ""
		for at := 0; at+8 <= tg.size; at += 8 {
			got += map[bool]string{true: "0", false: "1"}[bytes.Equal(tg.memory[lane][at:at+8], make([]byte, 8))]
		}
		if got != want {
			t.Errorf("lane %d: words\n%s are written, want\n%s", lane, got, want)
		}
	}
}

// reflected returns an introduction with the proof that a target would send.
func reflected(n [nonceLen]byte) string {
	own := newNonce()
	b := intro(secret(1), n, own, 0, 0)
	copy(b[nonceLen:], proof(secret(1), targetRole, n, own, 0, 0))
	return string(b)
}

// TestCrowd: a target serves up to its limit of connections, closes the others, and serves again when there is room.
func TestCrowd(t *testing.T) {
	settle(t)
	tg := target(t, 1, MaxConns, 1<<20)
	c := tg.dial(t)
	_, failures := Dial(t.Context(), lanes(tg.Addrs()), 1, 4096, secret(1))
	if failures[0] == nil || failures[0].Reason != failure.TCPBroken {
		t.Errorf("one more: %v", failures[0])
	}
	c.Close()
	for range 100 {
		again, failures := Dial(t.Context(), lanes(tg.Addrs()), 1, 4096, secret(1))
		again.Close()
		if failures[0] == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("no room again")
}

// TestListen listens on an address of another machine.
func TestListen(t *testing.T) {
	settle(t)
	foreign := netip.MustParseAddr("192.0.2.1")
	if tg, err := Listen(t.Context(), foreign, [][]byte{make([]byte, 8)}, 1, secret(1), plenty); err == nil ||
		tg != nil {
		t.Errorf("target %v, error %v", tg, err)
	}
}
