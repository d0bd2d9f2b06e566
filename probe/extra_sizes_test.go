package probe

import (
	"slices"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/result"
)

// TestSizes: each size has a goodput over all rails and the time of one transfer, at least that on the wires. All
// transfers fit into the reservation.
func TestSizes(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, nil)
	sizes := []int{8 << 10, 64 << 10, 1 << 20, 4 << 20}
	for _, read := range []bool{false, true} {
		res := p.bench(result.Extra{Kind: result.Sweep, Values: sizes, Read: read})
		var got []int
		for _, m := range res.Extras {
			if m.Failure != nil || m.Transfer == nil || len(m.Flows) != 2 {
				t.Fatalf("%d bytes, read %v: %+v, %v", m.Size, read, m.Flows, m.Failure)
			}
			got = append(got, int(m.Size))
			for _, f := range m.Flows {
				if f.Goodput == nil && (f.Failure == nil || f.Failure.Reason != failure.Disturbed) ||
					(f.Op == result.Read) != read ||
					f.Goodput != nil && f.Counted == nil {
					t.Errorf("%d bytes over rail %s: %+v", m.Size, f.Rail, f)
				}
			}
			// A busy machine makes any size slower, and none faster than two wires of 200e6 bytes per second.
			least := time.Duration(0.8 * float64(m.Size) / 400e6 * float64(time.Second))
			if took := m.Transfer.Quantile(0.5); m.Size > 64<<10 && took < least {
				t.Errorf("%d bytes take %v, on the wires at least %v", m.Size, took, least)
			}
		}
		if !slices.Equal(got, sizes) || res.Outcome != result.OK {
			t.Errorf("sizes %v, %s %s", got, res.Outcome, res.Detail)
		}
	}
	p.clean()
}

// TestPart: transfers are split into equal parts of messages that fit.
func TestPart(t *testing.T) {
	for _, tc := range []struct {
		size        int64
		rails       int
		chunk       int64
		count       int
		description string
	}{
		{64 << 10, 2, 32 << 10, 1, "one message per rail"},
		{64 << 20, 2, 1 << 20, 32, "messages of the most"},
		{64 << 20, 8, 1 << 20, 8, "eight rails"},
		{10 << 20, 3, 873814, 4, "three rails: rounded up"},
		{4 << 10, 8, 4 << 10, 1, "no less than a page"},
	} {
		if chunk, count := round.Part(tc.size, tc.rails, 1<<20); chunk != tc.chunk || count != tc.count {
			t.Errorf("%s: %d × %d, want %d × %d", tc.description, count, chunk, tc.count, tc.chunk)
		}
	}
}

// TestSomeRails: the burst uses the named rails, and an unknown name fails.
func TestSomeRails(t *testing.T) {
	t.Parallel()
	p := newPair(t, 3, nil)
	res := p.bench(result.Extra{Kind: result.Rails, Rails: []string{"0", "2"}},
		result.Extra{Kind: result.Sweep, Values: []int{65536}, Rails: []string{"7"}})
	equalBursts(t, res, result.Rails, "write 0, write 2")
	equalBursts(t, res, result.Sweep, string(failure.NoDevice))
	p.clean()
}

// TestMessages: each size has times, written and read over each rail, and over TCP.
func TestMessages(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, nil)
	res := p.bench(result.Extra{Kind: result.Messages, Values: []int{4096}}, result.Extra{Kind: result.TCPTime,
		Values: []int{8, 4096}})
	var got []string
	for _, m := range res.Extras {
		if m.Failure != nil {
			t.Fatal(m.Kind, m.Failure)
		}
		for _, f := range m.Flows {
			if f.Latency == nil || len(f.Latency.Samples) != p.opts.LatencySamples || f.Failure != nil {
				t.Errorf("%s of %d over rail %s: %+v", m.Kind, m.Size, f.Rail, f)
			}
			got = append(got, string(f.Op)+f.Rail)
		}
	}
	if want := []string{"write0", "write1", "read0", "read1", "0", "1", "0", "1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	p.clean()
}

// TestOneTCP: one connection over the first rail alone is measured if there are several rails. Otherwise the
// baseline has that figure.
func TestOneTCP(t *testing.T) {
	t.Parallel()
	for rails, want := range map[int]int{1: 0, 2: 1} {
		p := newPair(t, rails, nil)
		list := p.bench(result.Extra{Kind: result.OneTCP}).Extras
		if len(list) != want {
			t.Errorf("%d rails: %d figures, want %d", rails, len(list), want)
		}
		for _, m := range list {
			if m.Failure != nil || m.TCP.Streams != 1 || m.TCP.BytesPerSecond <= 0 || len(m.TCP.Rails) != 1 ||
				m.TCP.Rails[0].Rail != "0" || m.Flows[0].Rail != "0" {
				t.Errorf("%+v: %v", m.TCP, m.Failure)
			}
		}
		p.clean()
	}
}

// TestTCPStreams: TCP over all rails is measured with each number of connections, without RDMA flows.
func TestTCPStreams(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, nil)
	list := p.bench(result.Extra{Kind: result.TCPStreams, Values: []int{2, 8}}).Extras
	var got []int
	for _, m := range list {
		got = append(got, m.TCP.Streams)
		if m.Failure != nil || m.TCP.BytesPerSecond <= 0 || len(m.TCP.Rails) != 2 || len(m.Flows) > 0 {
			t.Errorf("%+v: %v", m.TCP, m.Failure)
		}
	}
	if !slices.Equal(got, []int{2, 8}) {
		t.Errorf("connections: %v", got)
	}
	p.clean()
}

// TestChosenOrder: the rails that an extra names are measured once each, in rail order.
func TestChosenOrder(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, nil)
	res := p.bench(result.Extra{Kind: result.Rails, Rails: []string{"1", "0", "1"}})
	equalBursts(t, res, result.Rails, "write 0, write 1")
	p.clean()
}

// TestPages: pages of each size are read over one rail and over all, and moved over TCP.
func TestPages(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, nil)
	res := p.bench(result.Extra{Kind: result.KVCache, Values: []int{2048, 18432, 32 << 10}})
	var flows, sizes []int
	for _, m := range res.Extras {
		n := len(m.Flows)
		if m.TCP != nil {
			n = -1
		}
		flows, sizes = append(flows, n), append(sizes, int(m.Size))
		if m.Failure != nil || m.TCP != nil && m.TCP.BytesPerSecond <= 0 {
			t.Errorf("%d bytes: %+v", m.Size, m)
		}
		for _, f := range m.Flows {
			if f.Op != result.Read || f.Goodput == nil && (f.Failure == nil || f.Failure.Reason != failure.Disturbed) {
				t.Errorf("%d bytes: %+v", m.Size, f)
			}
		}
	}
	if !slices.Equal(flows, []int{1, 2, 1, 2, 1, 2, -1, -1, -1}) ||
		!slices.Equal(sizes, []int{2048, 2048, 18432, 18432, 32768, 32768, 2048, 18432, 32768}) ||
		res.Outcome != result.OK {
		t.Errorf("%v of %v: %s", flows, sizes, res.Outcome)
	}
	p.clean()
}
