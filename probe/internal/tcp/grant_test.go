package tcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// TestGrant: a target accepts exactly the granted bytes over all connections, then closes.
func TestGrant(t *testing.T) {
	const chunk, granted = 4096, 1<<20 + 1
	settle(t)
	tg := targetOf(t, 2, 4, 1<<16, granted)
	c := tg.dial(t)
	r, _ := c.Burst(t.Context(), source(1),
		transfer.BurstArgs{Loads: loads(2, chunk, 8), Window: time.Hour, Slow: time.Hour})
	for i, rail := range r.Rails { // one may have had all acknowledgements when the other failed
		if rail.Failure != nil && rail.Failure.Reason != failure.TCPBroken {
			t.Errorf("more than was granted, rail %d: %v", i, rail.Failure)
		}
	}
	if !r.Failed() {
		t.Error("more than was granted, and no rail failed")
	}
	n, exceeded := tg.Received()
	acked := r.Rails[0].Bytes + r.Rails[1].Bytes
	if !exceeded || n > granted || n < acked || n <= granted-8*chunk {
		t.Errorf("took %d bytes of %d (exceeded: %v), %d acknowledged", n, granted, exceeded, acked)
	}
	_, failures := Dial(t.Context(), lanes(tg.Addrs()), 1, 4096, secret(1))
	if failures[0] == nil || failures[0].Reason != failure.TCPRefused {
		t.Errorf("afterwards: %v", failures[0])
	}
	tg.Close()
	if after, _ := tg.Received(); after != n && after > granted {
		t.Errorf("%d bytes after the end, of %d", after, granted)
	}
}

// TestGrantOfOneByte: a frame that exceeds the grant is not read, and one that fits is read completely.
func TestGrantOfOneByte(t *testing.T) {
	for _, tc := range []struct {
		granted int64
		frames  []uint32
		want    int64
	}{
		{1, []uint32{4096}, 0},
		{1, []uint32{1, 1}, 1},
		{0, []uint32{1}, 0},
		{-5, []uint32{1}, 0},
		{8192, []uint32{4096, 4096, 1}, 8192},
		{8192, []uint32{4096, 4097}, 4096},
	} {
		var in []byte
		for _, n := range tc.frames {
			in = append(in, frame(0, n, make([]byte, n))...)
		}
		left := newGrant(tc.granted)
		s := &said{Reader: bytes.NewReader(in)}
		if err := receive(s, make([]byte, 8192), left); !errors.Is(err, errGrant) {
			t.Errorf("%d granted, %v: %v", tc.granted, tc.frames, err)
		}
		var acked uint64
		if a := s.answers.Bytes(); len(a) > 0 {
			acked = binary.BigEndian.Uint64(a[len(a)-ackLen:])
		}
		if left.used() != tc.want || int64(acked) != tc.want || !left.exceeded.Load() {
			t.Errorf("%d granted, %v: took %d, acknowledged %d, want %d", tc.granted, tc.frames, left.used(), acked,
				tc.want)
		}
	}
}

// TestGrantOfBrokenFrame: missing bytes of a frame do not count.
func TestGrantOfBrokenFrame(t *testing.T) {
	left := newGrant(100)
	if err := receive(&said{Reader: bytes.NewReader(frame(0, 64, make([]byte, 10)))}, make([]byte, 64),
		left); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if left.used() != 10 || left.exceeded.Load() {
		t.Errorf("took %d bytes of 10", left.used())
	}
}

// flood opens silent connections to a target as fast as it accepts them, until the returned function is called.
func flood(t *testing.T, to string, from string) (opened func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int)
	go func() {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		var held []net.Conn
		n := 0
		for ; ctx.Err() == nil; n++ {
			c, err := d.DialContext(ctx, "tcp", to)
			if err != nil {
				time.Sleep(time.Millisecond)
				continue
			}
			_ = c.(*net.TCPConn).SetLinger(0)
			// Connections are opened one after the other: the backlog depends on the kernel and the speed of this
			// machine.
			_, _ = io.ReadFull(c, make([]byte, greetingLen))
			held = append(held, c)
			if len(held) > 2*maxUnproven {
				held[0].Close()
				held = held[1:]
			}
		}
		for _, c := range held {
			c.Close()
		}
		done <- n
	}()
	stopped := false
	stop := func() int {
		if stopped {
			return 0
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() { stop() })
	return stop
}

// TestFlood: connections without a proof neither block nor disturb the asker, and their number is bounded.
func TestFlood(t *testing.T) {
	settle(t)
	tg := target(t, 1, 4, 1<<20)
	to := tg.Addrs()[0]
	stops := []func() int{flood(t, to.String(), "127.0.2.1"), flood(t, to.String(), "127.0.2.2"),
		flood(t, to.String(), "127.0.2.3")}
	waitFor(t, func() bool { _, unproven := tg.limit.Open(); return unproven > maxUnproven/2 })
	for i := range 5 {
		c := tg.dial(t)
		tg.deliver(t, c, some(1, 4<<20))
		if all, unproven := tg.limit.Open(); unproven > maxUnproven || all-unproven > 4*(i+1) {
			t.Errorf("%d unproven and %d proven connections", unproven, all-unproven)
		}
	}
	for _, stop := range stops {
		t.Logf("%d connections", stop())
	}
}

func waitFor(t *testing.T, fn func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !fn(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come true")
		}
	}
}

// TestSilentAsker: a connection without a proof is closed after a timeout, even one that sends its bytes one by one.
func TestSilentAsker(t *testing.T) {
	settle(t)
	tg, err := listen(t.Context(), netip.Addr{}, [][]byte{make([]byte, 8)}, 1, secret(1), plenty, 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tg.Close)
	for name, say := range map[string]func(net.Conn){
		"silent": func(net.Conn) {},
		"slow": func(c net.Conn) {
			for _, err := c.Write([]byte{0}); err == nil; _, err = c.Write([]byte{0}) {
				time.Sleep(5 * time.Millisecond)
			}
		},
	} {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", tg.Port()))
		if err != nil {
			t.Fatal(err)
		}
		late := time.AfterFunc(5*time.Second, func() { c.Close() })
		go say(c)
		if _, err := io.Copy(io.Discard, c); errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: it is not closed", name)
		}
		late.Stop()
		c.Close()
	}
}

// TestLyingTarget: a port that is not the lease's target gets nothing from an asker, or a nonce and a proof that no
// other port accepts.
func TestLyingTarget(t *testing.T) {
	settle(t)
	tg := target(t, 1, 1, 4096)
	for name, say := range map[string][]byte{
		"silent until asked": nil,
		"a web server":       []byte("HTTP/1.1 400 Bad Request\r\nContent-Length: 11\r\n\r\nBad Request"),
		"SSH":                []byte("SSH-2.0-OpenSSH_9.6 and so on, to fill up forty bytes\r\n"),
		"an older railscope": append([]byte("rail\x00\x00\x00\x01"), make([]byte, nonceLen)...),
		"a target":           greeting(newNonce()),
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan []byte, handshakeTries)
		go func() {
			defer close(got)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write(say)
				_ = c.(*net.TCPConn).CloseWrite()
				b, _ := io.ReadAll(c)
				c.Close()
				got <- b
			}
		}()
		at := lanes(tg.Addrs())
		at[0].Remote = l.Addr().(*net.TCPAddr).AddrPort()
		_, failures := Dial(t.Context(), at, 1, 4096, secret(1))
		l.Close()
		if failures[0] == nil || failures[0].Reason != failure.TCPBroken {
			t.Errorf("%s: %v", name, failures[0])
		}
		for b := range got {
			if want := map[bool]int{true: introLen}[name == "a target"]; len(b) != want {
				t.Errorf("%s: it was sent %d bytes, want %d", name, len(b), want)
			}
		}
	}
}
