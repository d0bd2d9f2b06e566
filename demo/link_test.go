package demo

import (
	"bytes"
	"errors"
	"io"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/internal/nvml"
)

// TestShaped: bytes pass unchanged at the link's rate, which includes headers; TCP has its share of it. Idle time
// is not saved up, and both ends count the same.
func TestShaped(t *testing.T) {
	for transport, part := range map[int]float64{byRDMA: 1, byTCP: tcpPart} {
		synctest.Test(t, func(t *testing.T) {
			l := &link{rate: 100e6}
			data := bytes.Repeat([]byte("railscope"), 1<<20)
			var out bytes.Buffer
			pieces := 0
			s := &shaped{link: l, from: 1, transport: transport, to: &out, before: func() { pieces++ }}
			for range 3 {
				time.Sleep(time.Hour) // idle time is not saved up
				out.Reset()
				start, before := time.Now(), l.ports[1].sent[transport]
				if n, err := s.Write(data); n != len(data) || err != nil || !bytes.Equal(out.Bytes(), data) {
					t.Fatalf("%d bytes, %v", n, err)
				}
				sent := l.ports[1].sent[transport]
				wire := float64(sent.bytes - before.bytes)
				if took, want := time.Since(start).Seconds(), wire/(part*l.rate); math.Abs(took-want) > 1e-3 {
					t.Errorf("transport %d: %v B on the wire took %v s, want %v", transport, wire, took, want)
				}
				if over := wire/float64(len(data)) - 1; over < 0.005 || over > 0.02 {
					t.Errorf("transport %d: headers are %.4f of the payload", transport, over)
				}
			}
			if l.ports[0].received != l.ports[1].sent || l.ports[0].sent != [2]traffic{} || pieces != 3*
				((len(data)+piece-1)/piece) {
				t.Errorf("%+v, %d pieces", l.ports, pieces)
			}
		})
	}
}

// TestShapedLate: a sender that was delayed catches up; one that had nothing to send does not.
func TestShapedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &link{rate: 100e6}
		held := &hold{every: 20, by: 8 * time.Millisecond}
		start := time.Now()
		if _, err := (&shaped{link: l, to: held, before: func() {}}).Write(make([]byte, 20e6)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start).Seconds(); took < 0.2 || took > 0.22 || held.times < 10 {
			t.Errorf("20 MB at 100 MB/s took %v s, held up %d times", took, held.times)
		}
		start = time.Now()
		for range 10 {
			time.Sleep(15 * time.Millisecond)
			if _, err := (&shaped{link: l, to: io.Discard, before: func() {}}).Write(make([]byte, 1e6)); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start).Seconds(); took < 0.25 {
			t.Errorf("10 MB at 100 MB/s with 150 ms of silence took %v s", took)
		}
	})
}

// hold delays every n-th write.
type hold struct {
	every, n, times int
	by              time.Duration
}

func (h *hold) Write(p []byte) (int, error) {
	h.n++
	if h.n%h.every == 0 {
		h.times++
		time.Sleep(h.by)
	}
	return len(p), nil
}

// TestShapedShares: two connections share one link's rate.
func TestShapedShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &link{rate: 100e6}
		start := time.Now()
		done := make(chan error)
		for range 2 {
			go func() {
				_, err := (&shaped{link: l, to: io.Discard, before: func() {}}).Write(make([]byte, 50e6))
				done <- err
			}()
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(start).Seconds(); took < 1 || took > 1.03 {
			t.Errorf("100 MB at 100 MB/s took %v s", took)
		}
	})
}

// TestShapedEnds: a broken connection ends the write, which returns the number of bytes that had passed.
func TestShapedEnds(t *testing.T) {
	l, broken := &link{rate: 1e12}, errors.New("broken")
	s := &shaped{link: l, to: &breaks{after: piece + 7, err: broken}, before: func() {}}
	if n, err := s.Write(make([]byte, 4*piece)); n != piece+7 || !errors.Is(err, broken) {
		t.Errorf("%d, %v", n, err)
	}
}

type breaks struct {
	after int
	err   error
}

func (b *breaks) Write(p []byte) (int, error) {
	if len(p) > b.after {
		return b.after, b.err
	}
	b.after -= len(p)
	return len(p), nil
}

// TestGPUs: the memory of GPUs adds up at every moment, varies, and increases for a checkpoint. GPUs are always
// busy, as the alerts for suspected faults require.
func TestGPUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := start(t, Options{})
		lib := d.Nodes[1].NVML()
		n, err := lib.Count()
		if err != nil || n != gpusPerNode || lib.Open() != nil {
			t.Fatal(n, err)
		}
		if _, err := lib.GPU(n); err == nil {
			t.Error("there is one GPU too many")
		}
		g, err := lib.GPU(0)
		if err != nil {
			t.Fatal(err)
		}
		var least, most, peak uint64 = gpuTotal, 0, 0
		for at := 100 * time.Millisecond; at < 2*time.Minute; at += 100 * time.Millisecond {
			time.Sleep(100 * time.Millisecond)
			m, err := g.Memory()
			if err != nil || m.Used+m.Free+m.Reserved != m.Total || m.Total != gpuTotal {
				t.Fatalf("%+v %v", m, err)
			}
			switch {
			case at > checkpointInterval && at%checkpointInterval < checkpointTime:
				peak = max(peak, m.Used)
			case at > startTime:
				least, most = min(least, m.Used), max(most, m.Used)
			}
			load, err := g.Numbers(nvml.QueryUtilization)
			if err != nil || load[0] < 30 || load[0] > 100 {
				t.Fatalf("utilisation %v %v", load, err)
			}
		}
		if most-least < 8*gib || peak < most+5*gib {
			t.Errorf("%d to %d GiB, %d for a checkpoint", least/gib, most/gib, peak/gib)
		}
		if _, err := g.Numbers("nvmlDeviceFly"); err == nil {
			t.Error("it answers what it was never asked before")
		}
	})
}

// TestGPUsEverySecond: a reader with an interval of 1 s, such as the sampler, sees nearly all values within
// seconds. With a step of 1 s it would always see the same moment.
func TestGPUsEverySecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := start(t, Options{}).Nodes[0].NVML().GPU(0)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(startTime)
		var most, seen uint64
		for i := range 200 { // 20 s, without a checkpoint
			m, err := g.Memory()
			if err != nil {
				t.Fatal(err)
			}
			most = max(most, m.Used)
			if i%10 == 0 {
				seen = max(seen, m.Used)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if most > seen+gib {
			t.Errorf("it holds up to %d bytes, of which %d are seen", most, seen)
		}
	})
}
