package rdmanl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/nlattr"
)

// Constants of rdma_netlink.h, written out as in kernel_test.go.
const (
	typeSysGet   = 5<<10 + 6
	typeResQPGet = 5<<10 + 10
)

func u8(typ uint16, v uint8) []byte { return attr(typ, v) }

// entry returns a queue pair as fill_res_qp_entry lays it out for an RC queue pair.
func entry(port, lqpn uint32, typ, state uint8, owner []byte) []byte {
	var bound []byte
	if port != 0 {
		bound = u32(3, port)
	}
	return attr(20|nested, cat(bound, u32(21, lqpn), u32(22, 77), u32(23, 1), u32(24, 2), u8(25, 0), u8(26, typ),
		u8(27, state), u32(85, 9), owner)...)
}

func table(entries ...[]byte) []byte { return attr(19|nested, cat(entries...)...) }

func resQPGet(index uint32, answer ...[]byte) step {
	return step{typ: typeResQPGet, flags: netlink.Request | netlink.Dump, request: u32(1, index), answer: answer}
}

func TestQueuePairs(t *testing.T) {
	first := cat(handle(2, "mlx5_1"), table(
		entry(1, 0, 1, 3, str(29, "ib_core")),
		entry(1, 285, 2, 3, u32(28, 4711)),
		entry(0, 286, 2, 0, u32(28, 4711)),
	))
	second := cat(handle(2, "mlx5_1"), table(
		entry(2, 287, 255, 9, nil), // an unknown state; its thread has ended
		attr(99, 1),                // attributes that a later kernel may add
		attr(20, cat(u32(21, 288), u64(200, 1), u8(27, 6), u8(26, 4), u32(28, 12))...),
	))
	k := &kernel{t: t, steps: []step{listing(handle(0, "mlx5_0"), handle(2, "mlx5_1")), resQPGet(2, first, second),
		listing(handle(0, "mlx5_0")), resQPGet(0)}}
	c := k.client()
	var got []QP
	err := c.QueuePairs("mlx5_1", QPLimits{}, func(qp QP) { got = append(got, qp) })
	want := []QP{
		{Port: 1, State: 3, Kernel: true},
		{Port: 1, State: 3, PID: 4711, Connected: true},
		{State: 0, PID: 4711, Connected: true},
		{Port: 2, State: 9},
		{State: 6, PID: 12},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	var states []string
	for _, qp := range got {
		states = append(states, qp.State.String())
	}
	if got := fmt.Sprint(states); got != "[rts rts reset state9 err]" {
		t.Errorf("states %s", got)
	}
	if err := c.QueuePairs("mlx5_0", QPLimits{}, func(QP) {
		t.Error("a device without queue pairs has one")
	}); err != nil {
		t.Error(err)
	}
	k.done()
}

// TestQueuePairsErrors: each failure has its own error, and differs from a device without queue pairs. The next
// request starts again.
func TestQueuePairsErrors(t *testing.T) {
	list := listing(handle(0, "d"))
	good := entry(1, 5, 2, 3, u32(28, 1))
	for _, tt := range []struct {
		name  string
		steps []step
		limit int
		want  error
		text  string
		seen  int
	}{
		{"kernel before 4.17",
			[]step{list, {typ: typeResQPGet, flags: netlink.Request | netlink.Dump, request: u32(1, 0),
				errno: int(unix.EINVAL)}}, 0, unix.EINVAL, "invalid argument", 0},
		{"no such device", []step{listing(handle(0, "e"))}, 0, unix.ENODEV, "no such device", 0},
		{"another device by now", []step{list, resQPGet(0, cat(handle(0, "e"), table(good)))}, 0, unix.ENODEV,
			"no such device", 0},
		{"an entry cut off", []step{list, resQPGet(0, cat(handle(0, "d"), table(good, attr(20, 0xff, 0, 21, 0))))}, 0,
			nlattr.ErrSize, "wrong size", 1},
		{"a table cut off", []step{list, resQPGet(0, cat(handle(0, "d"), table(good, []byte{0xff, 0, 20, 0})))}, 0,
			nlattr.ErrSize, "wrong size", 1},
		{"as many as allowed", []step{list, resQPGet(0, cat(handle(0, "d"), table(good, good)))}, 2, nil, "", 2},
		{"more than allowed", []step{list, resQPGet(0, cat(handle(0, "d"), table(good, good, good)))}, 2, ErrCut,
			"the dump was cut short: more than 2 queue pairs", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			again := []step{listing(handle(5, "d")), resQPGet(5, cat(handle(5, "d"), table(good)))}
			k := &kernel{t: t, steps: append(slices.Clone(tt.steps), again...)}
			c := k.client()
			seen := 0
			err := c.QueuePairs("d", QPLimits{Pairs: tt.limit}, func(QP) { seen++ })
			if !errors.Is(err, tt.want) || seen != tt.seen || err != nil && !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%d queue pairs, %v; want %d, %v", seen, err, tt.seen, tt.want)
			}
			if err != nil && !strings.HasPrefix(err.Error(), "RDMA netlink command 10 for d: ") {
				t.Errorf("message %q", err)
			}
			if err := c.QueuePairs("d", QPLimits{}, func(QP) {}); err != nil {
				t.Errorf("the next question: %v", err)
			}
			k.done()
		})
	}
}

func TestDevices(t *testing.T) {
	k := &kernel{t: t, steps: []step{listing(handle(3, "mlx5_9"), handle(0, "mlx5_1")), listing()}}
	c := k.client()
	for _, want := range [][]string{{"mlx5_9", "mlx5_1"}, nil} {
		got, err := c.Devices()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Error(err, diff)
		}
	}
	k.done()
}

func TestSharedDevices(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer []byte
		errno  unix.Errno
		want   bool
		fails  bool
	}{
		{"shared", u8(66, 1), 0, true, false},
		{"exclusive", cat(u8(66, 0), u8(99, 1)), 0, false, false},
		{"a kernel that does not say", u8(99, 0), 0, true, false},
		{"a kernel before 5.2", nil, unix.EINVAL, true, false},
		{"refused", nil, unix.EPERM, false, true},
	} {
		k := &kernel{t: t, steps: []step{{typ: typeSysGet, flags: netlink.Request, request: []byte{},
			answer: [][]byte{tt.answer}, errno: int(tt.errno)}}}
		if got, err := k.client().SharedDevices(); got != tt.want || (err != nil) != tt.fails {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
		k.done()
	}
}

// many is a kernel whose device d has any number of queue pairs, in datagrams of the kernel's size. It is faked at
// the level of datagrams, which are generated when they are read.
type many struct {
	socket
	left  int
	pids  uint32
	reply uint32 // sequence number of the answer
	stuck bool   // send nothing after the first datagram
	sent  int
	peek  func()
}

func (m *many) Send(req netlink.Message) error {
	m.reply = req.Header.Sequence
	if req.Header.Type == typeGet {
		m.Func = func([]netlink.Message) ([]netlink.Message, error) {
			return nltest.Multipart([]netlink.Message{{Header: req.Header, Data: handle(0, "d")},
				{Header: req.Header, Data: make([]byte, 4)}})
		}
		return m.socket.Send(req)
	}
	m.replies = nil
	return nil
}

func (m *many) ReceiveIter() iter.Seq2[netlink.Message, error] {
	if m.replies != nil {
		return m.socket.ReceiveIter()
	}
	return func(yield func(netlink.Message, error) bool) {
		if m.closed {
			yield(netlink.Message{}, os.ErrClosed)
			return
		}
		if m.stuck && m.sent > 0 {
			yield(netlink.Message{}, os.ErrDeadlineExceeded)
			return
		}
		data, typ := make([]byte, 0, receiveSize), uint16(typeResQPGet)
		if m.left == 0 {
			typ, data = uint16(netlink.Done), append(data, 0, 0, 0, 0)
		} else {
			data = append(data, handle(0, "d")...)
			start := len(data)
			data = append(data, 0, 0, 19, 0x80)
			for ; m.left > 0 && len(data) < receiveSize-300; m.left-- {
				data = append(data, entry(1, uint32(m.left), 2, 3, u32(28, uint32(m.left)%m.pids+1))...)
			}
			binary.NativeEndian.PutUint16(data[start:], uint16(len(data)-start))
		}
		raw := binary.NativeEndian.AppendUint32(make([]byte, 0, len(data)+16), uint32(len(data)+16))
		raw = binary.NativeEndian.AppendUint16(raw, typ)
		raw = binary.NativeEndian.AppendUint16(raw, uint16(netlink.Multi))
		raw = binary.NativeEndian.AppendUint32(raw, m.reply)
		raw = append(append(raw, 0, 0, 0, 0), data...)
		m.sent++
		if m.peek != nil {
			m.peek()
		}
		var msg netlink.Message
		err := msg.UnmarshalBinary(raw)
		yield(msg, err)
	}
}

func (m *many) client() *Client {
	return newClient(time.Second, func() (*netlink.Conn, error) { return netlink.NewConn(m, nltest.PID), nil })
}

// TestQueuePairsMemory: a dump is never held in memory. What is reachable during it is far below the size of the dump,
// which is 7 MiB.
func TestQueuePairsMemory(t *testing.T) {
	const qps = 100_000
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	reachable := func() uint64 {
		runtime.GC()
		metrics.Read(heap)
		return heap[0].Value.Uint64()
	}
	before, most := reachable(), uint64(0)
	m := &many{left: qps, pids: 64}
	m.peek = func() {
		if m.sent%16 == 0 {
			most = max(most, reachable())
		}
	}
	seen := 0
	if err := m.client().QueuePairs("d", QPLimits{}, func(QP) { seen++ }); err != nil || seen != qps {
		t.Fatalf("%d queue pairs, %v", seen, err)
	}
	grown := float64(most-min(most, before)) / (1 << 20)
	t.Logf("%d queue pairs in %d datagrams, %.2f MiB reachable", qps, m.sent, grown)
	if grown > 1 {
		t.Errorf("%.2f MiB of the dump were reachable", grown)
	}
}

// TestQueuePairsStuck: a kernel that stops in the middle of a dump causes another error than one that never
// answers.
func TestQueuePairsStuck(t *testing.T) {
	m := &many{left: 10_000, pids: 4, stuck: true}
	seen := 0
	err := m.client().QueuePairs("d", QPLimits{Time: time.Second}, func(QP) { seen++ })
	if !errors.Is(err, ErrCut) || !errors.Is(err, os.ErrDeadlineExceeded) || seen == 0 || !strings.Contains(err.Error(),
		fmt.Sprintf("after %d queue pairs", seen)) {
		t.Errorf("%d queue pairs, %v", seen, err)
	}
}

// TestQueuePairsCutReadsNoMore: a dump that exceeds the limit is not read further.
func TestQueuePairsCutReadsNoMore(t *testing.T) {
	m := &many{left: 1 << 20, pids: 4}
	err := m.client().QueuePairs("d", QPLimits{Pairs: 10}, func(QP) {})
	if !errors.Is(err, ErrCut) || !m.closed {
		t.Errorf("%v, the socket closed: %v", err, m.closed)
	}
	if m.sent != 1 {
		t.Errorf("%d datagrams were read, want 1", m.sent)
	}
}

func FuzzDecodeQueuePairs(f *testing.F) {
	f.Add(cat(handle(0, "d"), table(entry(1, 5, 2, 3, u32(28, 1)), entry(0, 6, 2, 0, str(29, "ib_core")))))
	f.Add(table(attr(20, 0xff, 0, 21, 0)))
	f.Add(table(attr(20|nested, u8(27, 6)...), attr(20, u64(28, 1)...)))
	f.Add([]byte{0xff, 0xff, 19, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		n := 0
		err := decodeQueuePairs(data, func(qp QP) error {
			n++
			_ = qp.State.String()
			return nil
		})
		if n*4 > len(data) {
			t.Fatalf("%d queue pairs of %d bytes, %v", n, len(data), err)
		}
		// The library's own decoder must agree on the layout of the message.
		ad, libErr := netlink.NewAttributeDecoder(data)
		if libErr != nil {
			if err == nil && len(data) > 0 {
				var walked error
				nlattr.Last(data, 0, &walked)
				if walked == nil {
					t.Fatalf("the library refuses it (%v), we do not", libErr)
				}
			}
			return
		}
		for ad.Next() {
			_ = ad.Type()
		}
	})
}

func BenchmarkQueuePairs(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		m := &many{left: 100_000, pids: 64}
		if err := m.client().QueuePairs("d", QPLimits{}, func(QP) {}); err != nil {
			b.Fatal(err)
		}
	}
}
