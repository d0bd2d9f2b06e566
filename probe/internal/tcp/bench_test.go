package tcp

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/transfer"
)

const benched = 256 << 20 // bytes of one transfer

// BenchmarkCopy measures the upper limit of a burst: a plain copy over one connection, into a buffer of the burst's
// size.
func BenchmarkCopy(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, 64<<20)
		for {
			for got := 0; got < benched; got += len(buf) {
				if _, err := io.ReadFull(c, buf); err != nil {
					return
				}
			}
			if _, err := c.Write(buf[:1]); err != nil {
				return
			}
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	src, done := source(1), make([]byte, 1)
	b.SetBytes(benched)
	for b.Loop() {
		for sent := 0; sent < benched; {
			n, err := c.Write(src[:1<<20])
			if err != nil {
				b.Fatal(err)
			}
			sent += n
		}
		if _, err := io.ReadFull(c, done); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBurst moves the same bytes over lanes and streams.
func BenchmarkBurst(b *testing.B) {
	for _, n := range []struct{ lanes, streams int }{{1, 1}, {2, 1}, {2, 4}, {8, 4}} {
		b.Run(fmt.Sprintf("%dx%d", n.lanes, n.streams), func(b *testing.B) {
			tg := target(b, n.lanes, n.streams, 64<<20/n.lanes)
			c, src := tg.dial(b), source(1)
			o := transfer.BurstArgs{Loads: loads(n.lanes, 1<<20, 8), Window: time.Hour, Slow: time.Minute}
			for i := range o.Loads {
				o.Loads[i].Cap = benched
			}
			moved := int64(0)
			for b.Loop() {
				r, err := c.Burst(b.Context(), src, o)
				if err != nil {
					b.Fatal(err)
				}
				for _, l := range r.Rails {
					moved += l.Bytes
				}
			}
			b.SetBytes(moved / int64(b.N))
		})
	}
}

// BenchmarkRoundTrip measures one latency sample.
func BenchmarkRoundTrip(b *testing.B) {
	c := target(b, 1, 1, 8).dial(b)
	if _, err := c.Latency(b.Context(), "rail0", 8, b.N); err != nil {
		b.Fatal(err)
	}
}
