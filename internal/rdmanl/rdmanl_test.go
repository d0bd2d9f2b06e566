package rdmanl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"
)

// The message types as rdma_netlink.h makes them, RDMA_NL_GET_TYPE(RDMA_NL_NLDEV,
// op): written out, so that the constants of the code are held against something.
const (
	typeGet     = 5<<10 + 1
	typePortGet = 5<<10 + 5
	typeStatGet = 5<<10 + 17
)

// kernel is a fake RDMA core: one answer per expected request, in order. It is
// as low as the bytes of a message's payload.
type kernel struct {
	t     *testing.T
	mu    sync.Mutex
	steps []step
	dials int
}

// step is a request that must come and what the kernel says to it.
type step struct {
	typ     netlink.HeaderType
	flags   netlink.HeaderFlags
	request []byte
	answer  [][]byte // payloads; several are a multi-part answer
	errno   int
}

func (k *kernel) client() *Client {
	return newClient(time.Second, func() (*netlink.Conn, error) {
		k.dials++
		return netlink.NewConn(&socket{Func: k.serve}, nltest.PID), nil
	})
}

func (k *kernel) serve(requests []netlink.Message) ([]netlink.Message, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(requests) != 1 || len(k.steps) == 0 {
		k.t.Errorf("%d requests, %d expected to come yet: %v", len(requests), len(k.steps), requests)
		return nil, unix.EPROTO
	}
	s, req := k.steps[0], requests[0]
	k.steps = k.steps[1:]
	type header struct {
		Type  netlink.HeaderType
		Flags netlink.HeaderFlags
		Data  []byte
	}
	if diff := cmp.Diff(header{s.typ, s.flags, s.request}, header{req.Header.Type, req.Header.Flags, req.Data}); diff != "" {
		k.t.Errorf("request: %s", diff)
	}
	if s.errno != 0 {
		h := req.Header
		h.Type, h.Flags, h.Length = netlink.Error, 0, 36
		data := binary.NativeEndian.AppendUint32(nil, uint32(-int32(s.errno))) // struct nlmsgerr: the errno and the header it is about
		return []netlink.Message{{Header: h, Data: append(data, make([]byte, 16)...)}}, nil
	}
	var out []netlink.Message
	for _, data := range s.answer {
		h := req.Header
		h.Length = uint32(16 + len(data))
		out = append(out, netlink.Message{Header: h, Data: data})
	}
	if s.flags&netlink.Dump != 0 { // a dump is multi-part, with an end of its own
		out = append(out, netlink.Message{Header: netlink.Header{Sequence: req.Header.Sequence, PID: req.Header.PID, Length: 20}, Data: make([]byte, 4)})
		if len(out) == 1 {
			out[0].Header.Type, out[0].Header.Flags = netlink.Done, netlink.Multi
			return out, nil
		}
		return nltest.Multipart(out)
	}
	return out, nil
}

// done fails the test when the kernel still waits for a request.
func (k *kernel) done() {
	k.t.Helper()
	if len(k.steps) > 0 {
		k.t.Errorf("requests that never came: %+v", k.steps)
	}
}

// socket is nltest's with a deadline, which Client sets and nltest does not have.
type socket struct {
	nltest.Func
	replies []netlink.Message
	err     error
}

func (s *socket) Close() error                     { return nil }
func (s *socket) SetDeadline(time.Time) error      { return nil }
func (s *socket) SetReadDeadline(time.Time) error  { return nil }
func (s *socket) SetWriteDeadline(time.Time) error { return nil }
func (s *socket) Send(m netlink.Message) error {
	s.replies, s.err = s.Func([]netlink.Message{m})
	return nil
}
func (s *socket) SendMessages([]netlink.Message) error { return errors.ErrUnsupported }
func (s *socket) Receive() ([]netlink.Message, error) {
	if s.err != nil {
		return nil, os.NewSyscallError("recvmsg", s.err)
	}
	out := s.replies
	s.replies = nil
	return out, nil
}

func (s *socket) ReceiveIter() iter.Seq2[netlink.Message, error] {
	return func(yield func(netlink.Message, error) bool) {
		replies, err := s.Receive()
		if err != nil {
			yield(netlink.Message{}, err)
			return
		}
		for _, m := range replies {
			if !yield(m, nil) {
				return
			}
		}
	}
}

// Attributes by hand, as the kernel lays them out: length, type, payload, padded
// to four bytes.

func attr(typ uint16, payload ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(payload)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = append(b, payload...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func u32(typ uint16, v uint32) []byte { return attr(typ, binary.NativeEndian.AppendUint32(nil, v)...) }
func u64(typ uint16, v uint64) []byte { return attr(typ, binary.NativeEndian.AppendUint64(nil, v)...) }
func str(typ uint16, s string) []byte { return attr(typ, append([]byte(s), 0)...) }
func cat(parts ...[]byte) []byte      { return slices.Concat(parts...) }

const nested = 0x8000 // NLA_F_NESTED, which newer kernels set and older do not

// The attribute numbers of enum rdma_nldev_attr, written out like the types.
func handle(index uint32, name string) []byte { return cat(u32(1, index), str(2, name)) }
func question(index, port uint32) []byte      { return cat(u32(1, index), u32(3, port)) }
func counter(name string, v uint64) []byte {
	return attr(81|nested, cat(str(82, name), u64(83, v))...)
}
func counters(list ...[]byte) []byte { return attr(80|nested, cat(list...)...) }

// listing is the dump of devices that precedes the first question.
func listing(devices ...[]byte) step {
	return step{typ: typeGet, flags: netlink.Request | netlink.Dump, request: []byte{}, answer: devices}
}

func statGet(index, port uint32, answer ...[]byte) step {
	return step{typ: typeStatGet, flags: netlink.Request, request: question(index, port), answer: answer}
}

func TestPortNetdev(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer []byte
		errno  int
		want   string
		fails  error
	}{
		{"a netdev", cat(handle(3, "mlx5_1"), u32(3, 1), u32(50, 7), str(51, "ens1f1np1")), 0, "ens1f1np1", nil},
		{"none", cat(handle(3, "mlx5_1"), u32(3, 1)), 0, "", os.ErrNotExist},
		{"refused", nil, int(unix.EOPNOTSUPP), "", unix.EOPNOTSUPP},
		{"no such port", nil, int(unix.EINVAL), "", unix.EINVAL},
		{"another device", cat(handle(3, "mlx5_7"), str(51, "ens9")), 0, "", unix.ENODEV},
		{"no device named", str(51, "ens9"), 0, "", unix.ENODEV},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := &kernel{t: t, steps: []step{
				listing(handle(0, "mlx5_0"), handle(3, "mlx5_1")),
				{typ: typePortGet, flags: netlink.Request, request: question(3, 1), answer: [][]byte{tt.answer}, errno: tt.errno},
			}}
			got, err := k.client().PortNetdev("mlx5_1", 1)
			if got != tt.want || !errors.Is(err, tt.fails) {
				t.Errorf("got %q, %v; want %q, %v", got, err, tt.want, tt.fails)
			}
			k.done()
		})
	}
}

func TestHWCounters(t *testing.T) {
	answer := cat(handle(0, "mlx5_0"), u32(3, 1), str(99, "of a later kernel"), counters(
		counter("np_cnp_sent", 1<<40+7), counter("out_of_sequence", 0), counter("rx_write_requests", 1<<64-1),
		attr(84, 1, 2, 3), // what a later kernel may put beside the entries
		attr(81, cat(u64(83, 9), u32(90, 1), str(82, "rp_cnp_handled"))...), // value first, an unknown one between, no flag
	))
	k := &kernel{t: t, steps: []step{listing(handle(0, "mlx5_0")), statGet(0, 1, answer), statGet(0, 2, cat(handle(0, "mlx5_0"), u32(3, 2)))}}
	c := k.client()
	defer c.Close()
	got, err := c.HWCounters([]Counter{{"kept", 1}}, "mlx5_0", 1)
	want := []Counter{{"kept", 1}, {"np_cnp_sent", 1<<40 + 7}, {"out_of_sequence", 0}, {"rx_write_requests", 1<<64 - 1}, {"rp_cnp_handled", 9}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	// The second question needs neither a socket nor a listing; a port without
	// counters is no error.
	if got, err := c.HWCounters(nil, "mlx5_0", 2); len(got) != 0 || err != nil {
		t.Error(got, err)
	}
	if k.dials != 1 {
		t.Errorf("%d sockets, want 1", k.dials)
	}
	k.done()
}

// A device that was removed and made anew has another index. Its old one may
// be another device's by now, whose counters must not pass for ours.
func TestIndexPassesOn(t *testing.T) {
	k := &kernel{t: t, steps: []step{
		listing(handle(0, "mlx5_0"), handle(1, "mlx5_1")),
		statGet(1, 1, cat(handle(1, "mlx5_1"), counters(counter("n", 1)))),
		statGet(1, 1, cat(handle(1, "mlx5_8"), counters(counter("n", 2)))),
		listing(handle(0, "mlx5_0"), handle(1, "mlx5_8"), handle(9, "mlx5_1")),
		statGet(9, 1, cat(handle(9, "mlx5_1"), counters(counter("n", 3)))),
	}}
	c := k.client()
	type answer struct {
		Counters []Counter
		Gone     bool
	}
	var got []answer
	for range 3 {
		list, err := c.HWCounters(nil, "mlx5_1", 1)
		got = append(got, answer{list, errors.Is(err, unix.ENODEV)})
		if err != nil && !errors.Is(err, unix.ENODEV) {
			t.Error(err)
		}
	}
	want := []answer{{[]Counter{{"n", 1}}, false}, {nil, true}, {[]Counter{{"n", 3}}, false}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	k.done()
}

// TestErrors holds, for each way a question can fail, what errors.Is finds, and
// that the next question begins anew: a late answer must not be taken for its.
func TestErrors(t *testing.T) {
	list := listing(handle(0, "mlx5_0"))
	for _, tt := range []struct {
		name  string
		steps []step
		want  error // nil: any
		text  string
	}{
		{"driver without counters", []step{list, {typ: typeStatGet, flags: netlink.Request, request: question(0, 1), errno: int(unix.EOPNOTSUPP)}}, unix.EOPNOTSUPP, "operation not supported"},
		{"kernel before 5.3", []step{list, {typ: typeStatGet, flags: netlink.Request, request: question(0, 1), errno: int(unix.EINVAL)}}, unix.EINVAL, "invalid argument"},
		{"no such device", []step{listing(handle(0, "mlx5_3"))}, unix.ENODEV, "no such device"},
		{"no devices", []step{listing()}, unix.ENODEV, "no such device"},
		{"no listing", []step{{typ: typeGet, flags: netlink.Request | netlink.Dump, request: []byte{}, errno: int(unix.EPERM)}}, unix.EPERM, "operation not permitted"},
		{"listing cut off", []step{listing(attr(1, 1, 2))}, nil, "attribute"},
		{"listing of rubbish", []step{listing([]byte{0xff, 0xff, 1, 0})}, nil, "attribute"},
		{"value cut off", []step{list, statGet(0, 1, cat(handle(0, "mlx5_0"), counters(attr(81, cat(str(82, "n"), u32(83, 1))...))))}, nil, "attribute"},
		{"entry cut off", []step{list, statGet(0, 1, cat(handle(0, "mlx5_0"), counters(attr(81, 0xff, 0, 82, 0))))}, nil, "attribute"},
		{"list cut off", []step{list, statGet(0, 1, cat(handle(0, "mlx5_0"), counters([]byte{0xff, 0, 81, 0})))}, nil, "attribute"},
		{"answer cut off", []step{list, statGet(0, 1, []byte{0xff, 0, 2, 0})}, unix.ENODEV, "no such device"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			well := cat(handle(5, "mlx5_0"), counters(counter("n", 4)))
			k := &kernel{t: t, steps: append(slices.Clone(tt.steps), listing(handle(5, "mlx5_0")), statGet(5, 1, well))}
			c := k.client()
			_, err := c.HWCounters(nil, "mlx5_0", 1)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Fatalf("got %v, want %v", err, tt.want)
			}
			if text := err.Error(); !strings.HasPrefix(text, "RDMA netlink command 17 for mlx5_0/1: ") || !strings.Contains(text, tt.text) {
				t.Errorf("message %q", text)
			}
			got, err := c.HWCounters(nil, "mlx5_0", 1)
			if diff := cmp.Diff([]Counter{{"n", 4}}, got); diff != "" || err != nil {
				t.Errorf("the next question: %v %s", err, diff)
			}
			if k.dials != 2 {
				t.Errorf("%d sockets, want a fresh one after the failure", k.dials)
			}
			k.done()
		})
	}
}

func TestDialFails(t *testing.T) {
	dials := 0
	c := newClient(time.Second, func() (*netlink.Conn, error) { dials++; return nil, unix.EPROTONOSUPPORT })
	for range 2 {
		if _, err := c.PortNetdev("mlx5_0", 1); !errors.Is(err, unix.EPROTONOSUPPORT) {
			t.Error(err)
		}
	}
	if dials != 2 {
		t.Errorf("%d dials, want one for each question", dials)
	}
	c.Close()
}

func TestMaxCounters(t *testing.T) {
	// As the payload of one attribute is at most 64 KiB, so many counters take
	// two lists.
	var half []byte
	for i := range MaxCounters / 2 {
		half = append(half, counter(fmt.Sprintf("c%d", i), uint64(i))...)
	}
	full := cat(handle(0, "d"), counters(half), counters(half))
	k := &kernel{t: t, steps: []step{listing(handle(0, "d")), statGet(0, 1, full), statGet(0, 1, cat(full, counters(counter("more", 1))))}}
	c := k.client()
	if got, err := c.HWCounters(nil, "d", 1); len(got) != MaxCounters || err != nil {
		t.Errorf("%d counters, %v", len(got), err)
	}
	got, err := c.HWCounters(nil, "d", 1)
	if want := "RDMA netlink command 17 for d/1: more than 1024 counters in one answer"; err == nil || err.Error() != want || len(got) > MaxCounters {
		t.Errorf("%d counters, %v; want %s", len(got), err, want)
	}
	k.done()
}

// Several ask at once; each must get the answer to its own question.
func TestManyAskers(t *testing.T) {
	c := newClient(time.Second, func() (*netlink.Conn, error) {
		return netlink.NewConn(&socket{Func: func(req []netlink.Message) ([]netlink.Message, error) {
			h := req[0].Header
			if h.Type == typeGet {
				return nltest.Multipart([]netlink.Message{{Header: h, Data: handle(0, "d")}, {Header: h, Data: make([]byte, 4)}})
			}
			port := binary.NativeEndian.Uint32(req[0].Data[12:])
			h.Length = 0
			return []netlink.Message{{Header: h, Data: cat(handle(0, "d"), counters(counter("port", uint64(port))))}}, nil
		}}, nltest.PID), nil
	})
	var wg sync.WaitGroup
	for port := range 8 {
		wg.Go(func() {
			for range 50 {
				if got, err := c.HWCounters(nil, "d", port); err != nil || len(got) != 1 || got[0].Value != uint64(port) {
					t.Error(port, got, err)
				}
				if port == 0 {
					c.Close()
				}
			}
		})
	}
	wg.Wait()
}

func FuzzDecodeCounters(f *testing.F) {
	f.Add(cat(handle(0, "mlx5_0"), counters(counter("np_cnp_sent", 1), counter("rp_cnp_handled", 1<<40))))
	f.Add(counters(attr(81, 0xff, 0, 82, 0)))
	f.Add(counters(attr(81, cat(str(82, "n"), u32(83, 1))...)))
	f.Add([]byte{0xff, 0xff, 80, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		ad, err := netlink.NewAttributeDecoder(data)
		if err != nil {
			return
		}
		got, err := decodeCounters(nil, ad)
		if len(got) > MaxCounters || len(got)*4 > len(data) {
			t.Fatalf("%d counters of %d bytes, %v", len(got), len(data), err)
		}
		names(data, "mlx5_0")
		if err != nil {
			return
		}
		// What was understood, said again, is understood alike.
		var again [][]byte
		for _, n := range got {
			if strings.ContainsRune(n.Name, 0) {
				return
			}
			again = append(again, counter(n.Name, n.Value))
		}
		if all := cat(again...); len(all) < 1<<16-4 {
			ad, err := netlink.NewAttributeDecoder(counters(all))
			if err != nil {
				t.Fatal(err)
			}
			second, err := decodeCounters(nil, ad)
			if diff := cmp.Diff(got, second); diff != "" || err != nil {
				t.Fatal(err, diff)
			}
		}
	})
}
