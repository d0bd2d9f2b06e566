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
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"
)

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
				{typ: typePortGet, flags: netlink.Request, request: question(3, 1), answer: [][]byte{tt.answer},
					errno: tt.errno},
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
		attr(84, 1, 2, 3), // attributes that a later kernel may add
		attr(81, cat(u64(83, 9), u32(90, 1),
			str(82, "rp_cnp_handled"))...), // the value first, an unknown attribute between, no flag
	))
	k := &kernel{t: t, steps: []step{listing(handle(0, "mlx5_0")), statGet(0, 1, answer),
		statGet(0, 2, cat(handle(0, "mlx5_0"), u32(3, 2)))}}
	c := k.client()
	defer c.Close()
	got, err := c.HWCounters([]Counter{{"kept", 1}}, "mlx5_0", 1)
	want := []Counter{{"kept", 1}, {"np_cnp_sent", 1<<40 + 7}, {"out_of_sequence", 0}, {"rx_write_requests", 1<<64 - 1},
		{"rp_cnp_handled", 9}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	// The second request needs neither a socket nor a listing; a port without counters is not an error.
	if got, err := c.HWCounters(nil, "mlx5_0", 2); len(got) != 0 || err != nil {
		t.Error(got, err)
	}
	if k.dials != 1 {
		t.Errorf("%d sockets, want 1", k.dials)
	}
	k.done()
}

// A recreated device has another index. Its old index may belong to another device now, whose counters must not be
// taken for ours.
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

// TestErrors: each way in which a request can fail has its errors for errors.Is. The next request starts again,
// because a late answer must not be taken for its answer.
func TestErrors(t *testing.T) {
	list := listing(handle(0, "mlx5_0"))
	for _, tt := range []struct {
		name  string
		steps []step
		want  error // nil: any
		text  string
	}{
		{"driver without counters",
			[]step{list, {typ: typeStatGet, flags: netlink.Request, request: question(0, 1),
				errno: int(unix.EOPNOTSUPP)}}, unix.EOPNOTSUPP, "operation not supported"},
		{"kernel before 5.3",
			[]step{list, {typ: typeStatGet, flags: netlink.Request, request: question(0, 1), errno: int(unix.EINVAL)}},
			unix.EINVAL, "invalid argument"},
		{"no such device", []step{listing(handle(0, "mlx5_3"))}, unix.ENODEV, "no such device"},
		{"no devices", []step{listing()}, unix.ENODEV, "no such device"},
		{"no listing", []step{{typ: typeGet, flags: netlink.Request | netlink.Dump, request: []byte{},
			errno: int(unix.EPERM)}}, unix.EPERM, "operation not permitted"},
		{"listing cut off", []step{listing(attr(1, 1, 2))}, nil, "attribute"},
		{"listing of rubbish", []step{listing([]byte{0xff, 0xff, 1, 0})}, nil, "attribute"},
		{"value cut off", []step{list,
			statGet(0, 1, cat(handle(0, "mlx5_0"), counters(attr(81, cat(str(82, "n"), u32(83, 1))...))))}, nil,
			"attribute"},
		{"entry cut off", []step{list, statGet(0, 1, cat(handle(0, "mlx5_0"), counters(attr(81, 0xff, 0, 82, 0))))},
			nil, "attribute"},
		{"list cut off", []step{list, statGet(0, 1, cat(handle(0, "mlx5_0"), counters([]byte{0xff, 0, 81, 0})))}, nil,
			"attribute"},
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
			if text := err.Error(); !strings.HasPrefix(text,
				"RDMA netlink command 17 for mlx5_0/1: ") || !strings.Contains(text, tt.text) {
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

// A kernel that does not answer delays a request by the timeout, no longer.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(time.Second, func() (*netlink.Conn, error) { return netlink.NewConn(&deaf{}, nltest.PID), nil })
		start := time.Now()
		_, err := c.PortNetdev("mlx5_0", 1)
		if took := time.Since(start); !errors.Is(err, os.ErrDeadlineExceeded) || took != time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// deaf is a socket that receives nothing.
type deaf struct {
	socket
	deadline time.Time
}

func (d *deaf) SetDeadline(t time.Time) error { d.deadline = t; return nil }
func (d *deaf) Send(netlink.Message) error    { return nil }
func (d *deaf) Receive() ([]netlink.Message, error) {
	time.Sleep(time.Until(d.deadline))
	return nil, os.ErrDeadlineExceeded
}
func (d *deaf) ReceiveIter() iter.Seq2[netlink.Message, error] {
	return func(yield func(netlink.Message, error) bool) {
		_, err := d.Receive()
		yield(netlink.Message{}, err)
	}
}

func TestMaxCounters(t *testing.T) {
	// The payload of one attribute is at most 64 KiB, so this many counters need two lists.
	var half []byte
	for i := range MaxCounters / 2 {
		half = append(half, counter(fmt.Sprintf("c%d", i), uint64(i))...)
	}
	full := cat(handle(0, "d"), counters(half), counters(half))
	k := &kernel{t: t, steps: []step{listing(handle(0, "d")), statGet(0, 1, full),
		statGet(0, 1, cat(full, counters(counter("more", 1))))}}
	c := k.client()
	if got, err := c.HWCounters(nil, "d", 1); len(got) != MaxCounters || err != nil {
		t.Errorf("%d counters, %v", len(got), err)
	}
	got, err := c.HWCounters(nil, "d", 1)
	if want := "RDMA netlink command 17 for d/1: more than 1024 counters in one answer"; err == nil || err.Error() !=
		want || len(got) > MaxCounters {
		t.Errorf("%d counters, %v; want %s", len(got), err, want)
	}
	k.done()
}

// Concurrent requests; each must get its own answer.
func TestManyAskers(t *testing.T) {
	c := newClient(time.Second, func() (*netlink.Conn, error) {
		return netlink.NewConn(&socket{Func: func(req []netlink.Message) ([]netlink.Message, error) {
			h := req[0].Header
			if h.Type == typeGet {
				return nltest.Multipart([]netlink.Message{{Header: h, Data: handle(0, "d")},
					{Header: h, Data: make([]byte, 4)}})
			}
			port := binary.NativeEndian.Uint32(req[0].Data[12:])
			h.Length = 0
			return []netlink.Message{{Header: h, Data: cat(handle(0, "d"), counters(counter("port", uint64(port))))}},
				nil
		}}, nltest.PID), nil
	})
	var wg sync.WaitGroup
	for port := range 8 {
		wg.Go(func() {
			for range 50 {
				if got, err := c.HWCounters(nil, "d",
					port); err != nil || len(got) != 1 || got[0].Value != uint64(port) {
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
		got, err := decodeCounters(nil, data)
		if len(got) > MaxCounters || len(got)*4 > len(data) {
			t.Fatalf("%d counters of %d bytes, %v", len(got), len(data), err)
		}
		isAbout(data, "mlx5_0")
		if err != nil {
			return
		}
		// Encoding the decoded counters again and decoding them gives the same result.
		var again [][]byte
		for _, n := range got {
			if strings.ContainsRune(n.Name, 0) {
				return
			}
			again = append(again, counter(n.Name, n.Value))
		}
		if all := cat(again...); len(all) < 1<<16-4 {
			second, err := decodeCounters(nil, counters(all))
			if diff := cmp.Diff(got, second); diff != "" || err != nil {
				t.Fatal(err, diff)
			}
		}
	})
}
