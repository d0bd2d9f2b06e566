package probe

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/internal/worker"
)

// checkClean checks that a failure from a peer is harmless.
func checkClean(t *testing.T, f *failure.Failure) {
	t.Helper()
	if f == nil {
		return
	}
	if !f.Reason.Known() || !f.Stage.Known() || len(f.Detail) > protocol.MaxDetail+
		len("…") || !utf8.ValidString(f.Detail) || !protocol.Printable(f.Detail) || !protocol.Printable(f.Rail) || len(f.Rail) > protocol.MaxText {
		t.Errorf("a failure with stage %q, reason %q, rail %q, detail %q", f.Stage, f.Reason, f.Rail, f.Detail)
	}
}

func TestClean(t *testing.T) {
	for _, detail := range []string{"", "plain", "a\x00b\nc\x7f", strings.Repeat("ä", protocol.MaxDetail),
		strings.Repeat("\xff", 3*protocol.MaxDetail), strings.Repeat("€", protocol.MaxDetail)[1:]} {
		f := &failure.Failure{Stage: "brewing", Reason: "tea", Rail: "0\n1", Detail: detail}
		protocol.Sanitize(f, failure.StageOpen)
		checkClean(t, f)
		if f.Stage != failure.StageOpen || f.Reason != failure.Other || f.Rail != "" {
			t.Errorf("%+v", f)
		}
	}
	f := &failure.Failure{Stage: failure.StageVerify, Reason: failure.Busy, Rail: "east", Detail: "as it is"}
	protocol.Sanitize(f, failure.StageOpen)
	if *f != (failure.Failure{Stage: failure.StageVerify, Reason: failure.Busy,
		Rail: "east", Detail: "as it is"}) {
		t.Errorf("what was good is %+v", f)
	}
}

func FuzzHello(f *testing.F) {
	n := protocol.Hello{Node: "b", Instance: "i",
		Rails: []protocol.HelloRail{{Name: "0", Device: "mlx5_0", Port: 1,
			Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}}}}
	good, err := json.Marshal(n)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"node":"b","instance":"i","rails":[{"name":"0","port":-1}]}`))
	f.Add([]byte(`{"node":"b","instance":"i","rails":[{"name":"0","port":1,"capacity":1e300,"mtu":-1,"gid":"fe80::1%x"},{"name":"0"}]}`))
	f.Add([]byte(`{"node":"b","instance":"i","addresses":[{"netdev":"\u0000","prefix":"::/0"}]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var h protocol.Hello
		if json.Unmarshal(in, &h) != nil || h.Check() != nil {
			return
		}
		texts := []string{h.Node, h.Instance, h.Versions.Railscope, h.Versions.Kernel, h.Versions.RDMACore}
		for _, r := range h.Rails {
			texts = append(texts, r.Name, r.Device, r.Netdev, r.State, r.Firmware, r.Driver)
			if r.Name == "" || r.Port < 1 || r.Port > 255 || r.Rate < 0 || r.Capacity < 0 || r.Capacity > 1e15 ||
				r.MTU < 0 || r.NetdevMTU < 0 || len(r.Prefixes) > protocol.MaxAddresses {
				t.Errorf("accepted %+v", r)
			}
		}
		for _, a := range h.Addresses {
			texts = append(texts, a.Netdev)
		}
		for _, s := range texts {
			if len(s) > protocol.MaxText || !utf8.ValidString(s) || !protocol.Printable(s) {
				t.Errorf("accepted %q", s)
			}
		}
		if h.Node == "" || h.Instance == "" || len(h.Rails) > worker.MaxRails || len(h.Addresses) > protocol.MaxAddresses {
			t.Errorf("accepted %+v", h)
		}
		// Accepted values must not break the code that uses them next.
		own := node.LocalRail{Prefixes: prefixes("10.0.0.1/24 fd00::1/64")[0]}
		r := round.Pairing{Remote: h, Node: &node.Node{Opts: node.Options{Addresses: node.InterfaceAddresses}},
			Client: &control.Client{},
			Rails:  []node.LocalRail{own}}
		r.Pair()
		for _, l := range r.Routes() {
			if !own.Prefixes[0].Masked().Contains(l.Remote) && !own.Prefixes[1].Masked().Contains(l.Remote) {
				t.Errorf("led to %v", l.Remote)
			}
		}
		round.Mismatches(h.Versions, protocol.Versions{Railscope: "v1", Kernel: "6", RDMACore: "."}, r.Flows)
	})
}

func FuzzOpenRequest(f *testing.F) {
	f.Add([]byte(byRDMA))
	f.Add([]byte(byTCP))
	f.Add([]byte(`{"transport":"tcp","buffer":4096,"depth":1,"queue_pairs":64,"rails":[{"rail":"0","remote":{"qpns":[1,2],"psns":[1]}},{"rail":"0"}]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var o protocol.OpenRequest
		if json.Unmarshal(in, &o) != nil || o.Check() != nil {
			return
		}
		if o.Buffer < 4096 || o.Buffer*int64(len(o.Rails)) > worker.MaxMemory || o.Depth < 1 || o.Depth > 1024 ||
			o.QueuePairs < 1 || o.QueuePairs > worker.MaxQueuePairs || len(o.Rails) < 1 ||
			len(o.Rails) > worker.MaxRails ||
			o.Transport != worker.RDMA && o.Transport != worker.TCP {
			t.Errorf("accepted %+v", o)
		}
		seen := map[string]bool{}
		for _, r := range o.Rails {
			if seen[r.Rail] || len(r.Rail) > protocol.MaxText || !protocol.Printable(r.Rail) ||
				len(r.Remote.QPNs) > o.QueuePairs ||
				len(r.Remote.PSNs) != len(r.Remote.QPNs) || r.Remote.ActiveMTU < 0 || r.Remote.ActiveMTU > 1<<
				20 || len(r.Prefixes) > protocol.MaxAddresses {
				t.Errorf("accepted %+v", r)
			}
			seen[r.Rail] = true
		}
	})
}

// TestOpenReplyPort: a target cannot direct an asker to a system port.
func TestOpenReplyPort(t *testing.T) {
	req := protocol.OpenRequest{Transport: worker.TCP, Rails: make([]protocol.OpenRail, 1)}
	for port, ok := range map[uint16]bool{0: false, 1: false, 22: false, 1023: false, 1024: true, 65535: true} {
		reply := protocol.OpenReply{Ends: make([]worker.End, 1), TCPPort: port}
		if err := reply.Check(&req); (err == nil) != ok {
			t.Errorf("port %d: %v", port, err)
		}
	}
}

func FuzzOpenReply(f *testing.F) {
	f.Add([]byte(`{"ends":[{"qpns":[1],"psns":[1]},{"failure":{"stage":"open","reason":"dev_perm","detail":"x"}}]}`),
		true)
	f.Add([]byte(`{"ends":[{},{}],"tcp_port":1}`), false)
	f.Add([]byte(`{"ends":[{},{}],"tcp_port":40000}`), false)
	f.Add([]byte(`{"ends":[{"qpns":[1,2],"psns":[1,2]},{"failure":{"stage":"\n","reason":"?","detail":"\u0000\ud800"}}]}`), true)
	f.Fuzz(func(t *testing.T, in []byte, rdma bool) {
		req := protocol.OpenRequest{Transport: worker.TCP, QueuePairs: 1, Rails: make([]protocol.OpenRail, 2)}
		if rdma {
			req.Transport = worker.RDMA
		}
		var o protocol.OpenReply
		if json.Unmarshal(in, &o) != nil || o.Check(&req) != nil {
			return
		}
		if len(o.Ends) != 2 || !rdma && o.TCPPort < 1024 {
			t.Errorf("accepted %+v", o)
		}
		for _, e := range o.Ends {
			if len(e.QPNs) > 1 || len(e.PSNs) != len(e.QPNs) || e.ActiveMTU < 0 || e.MaxMTU < 0 || rdma &&
				e.Failure == nil && len(e.QPNs) == 0 {
				t.Errorf("accepted %+v", e)
			}
			checkClean(t, e.Failure)
		}
	})
}

func FuzzLeaseEvent(f *testing.F) {
	f.Add([]byte(`{"grant":{"id":"ABC234","key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","ttl":10000000000}}` +
		"\n"))
	f.Add([]byte(`{"end":{"stage":"lease","reason":"busy","rail":"0","detail":"x"}}` + "\n"))
	f.Add([]byte(`{"grant":{"id":"../../x","key":"","ttl":-1},"end":{"reason":"\n"}}` + "\n"))
	f.Add(bytes.Repeat([]byte("x"), control.MaxLine+9))
	f.Fuzz(func(t *testing.T, in []byte) {
		e, err := control.NewEventReader(bytes.NewReader(in)).Next()
		if err != nil {
			return
		}
		if g := e.Grant; g != nil &&
			(len(g.Key) != 32 || g.TTL < 1e9 || g.TTL > protocol.MaxTTL || g.ID == "" || strings.Trim(g.ID,
				"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") != "") {
			t.Errorf("accepted %+v", g)
		}
		checkClean(t, e.End)
	})
}
