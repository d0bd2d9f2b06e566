package rdmanl

import (
	"encoding/binary"
	"errors"
	"iter"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"
)

// Message types as rdma_netlink.h defines them, RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, op). They are written out so that
// the code's constants are checked.
const (
	typeGet     = 5<<10 + 1
	typePortGet = 5<<10 + 5
	typeStatGet = 5<<10 + 17
)

// kernel is a fake RDMA core: one answer per expected request, in order. It is faked at the level of message
// payloads.
type kernel struct {
	t     *testing.T
	mu    sync.Mutex
	steps []step
	dials int
}

// step is an expected request and the kernel's answer.
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
	if diff := cmp.Diff(header{s.typ, s.flags, s.request},
		header{req.Header.Type, req.Header.Flags, req.Data}); diff != "" {
		k.t.Errorf("request: %s", diff)
	}
	if s.errno != 0 {
		h := req.Header
		h.Type, h.Flags, h.Length = netlink.Error, 0, 36
		data := binary.NativeEndian.AppendUint32(nil,
			uint32(-int32(s.errno))) // struct nlmsgerr: the errno and the header it is about
		return []netlink.Message{{Header: h, Data: append(data, make([]byte, 16)...)}}, nil
	}
	var out []netlink.Message
	for _, data := range s.answer {
		h := req.Header
		h.Length = uint32(16 + len(data))
		out = append(out, netlink.Message{Header: h, Data: data})
	}
	if s.flags&netlink.Dump != 0 { // a dump is multi-part, with its own end message
		out = append(out, netlink.Message{Header: netlink.Header{Sequence: req.Header.Sequence, PID: req.Header.PID,
			Length: 20}, Data: make([]byte, 4)})
		if len(out) == 1 {
			out[0].Header.Type, out[0].Header.Flags = netlink.Done, netlink.Multi
			return out, nil
		}
		return nltest.Multipart(out)
	}
	return out, nil
}

// done fails the test if the kernel still expects a request.
func (k *kernel) done() {
	k.t.Helper()
	if len(k.steps) > 0 {
		k.t.Errorf("requests that never came: %+v", k.steps)
	}
}

// socket is nltest's socket with a deadline, which Client sets and nltest lacks.
type socket struct {
	nltest.Func
	replies []netlink.Message
	closed  bool
	err     error
}

func (s *socket) Close() error                     { s.closed = true; return nil }
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

// Attributes, written as the kernel lays them out: length, type, payload, padded to four bytes.

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

const nested = 0x8000 // NLA_F_NESTED, which newer kernels set and older ones do not

// Attribute numbers of enum rdma_nldev_attr, written out like the types.
func handle(index uint32, name string) []byte { return cat(u32(1, index), str(2, name)) }
func question(index, port uint32) []byte      { return cat(u32(1, index), u32(3, port)) }
func counter(name string, v uint64) []byte {
	return attr(81|nested, cat(str(82, name), u64(83, v))...)
}
func counters(list ...[]byte) []byte { return attr(80|nested, cat(list...)...) }

// listing is the dump of devices that precedes the first request.
func listing(devices ...[]byte) step {
	return step{typ: typeGet, flags: netlink.Request | netlink.Dump, request: []byte{}, answer: devices}
}

func statGet(index, port uint32, answer ...[]byte) step {
	return step{typ: typeStatGet, flags: netlink.Request, request: question(index, port), answer: answer}
}
