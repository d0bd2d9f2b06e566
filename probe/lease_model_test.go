package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/target"
	"github.com/railscope/railscope/probe/internal/worker"
)

// leaseModel is a holder that sends random requests to node b, and tracks what may be open there: at most what the
// last open of the current lease created.
type leaseModel struct {
	*pairOfNodes
	rand *rand.Rand
	did  []string

	held  *holder // nil: no lease is held
	asker node.WorkerSession
	mayBe string // transport that may be open; empty: none
	rkeys bool   // the asker has an end of a session that may have ended

	mu    sync.Mutex // protects ports
	ports []keyhole  // opened ports that were not checked since
}

type keyhole struct {
	port uint16
	key  [32]byte
}

// act is one action of a holder, or an event. The last ones in the list are rare.
type act struct {
	what string
	do   func(m *leaseModel)
}

// faults are faults of b's provider during an open.
var faults = map[string]func(k *fakeverbs.Knobs){
	"list":  func(k *fakeverbs.Knobs) { k.ListErrno = uint64(syscall.ENOSYS) },
	"open":  func(k *fakeverbs.Knobs) { k.OpenErrno = uint64(syscall.EACCES) },
	"mr":    func(k *fakeverbs.Knobs) { k.RegMRErrno = uint64(syscall.ENOMEM) },
	"cq":    func(k *fakeverbs.Knobs) { k.CreateCQErrno = uint64(syscall.ENOMEM) },
	"qp":    func(k *fakeverbs.Knobs) { k.CreateQPErrno = uint64(syscall.ENOMEM) },
	"rtr":   func(k *fakeverbs.Knobs) { k.RTRErrno = uint64(syscall.EINVAL) },
	"state": func(k *fakeverbs.Knobs) { k.Down = true },
}

var acts = []act{
	{"open tcp", func(m *leaseModel) { m.open(worker.TCP, byTCP) }},
	{"open rdma", func(m *leaseModel) { m.openRDMA("0") }},
	{"open rdma, and a rail that is missing", func(m *leaseModel) { m.openRDMA("0", "no such rail") }},
	{"open a missing rail only", func(m *leaseModel) { m.open("", byRDMANowhere) }},
	{"open nonsense", func(m *leaseModel) { m.request("/open", `{"transport":"ucx"}`) }},
	{"open with a fault", func(m *leaseModel) {
		names := []string{"list", "open", "mr", "cq", "qp", "rtr", "state"}
		name := names[m.rand.IntN(len(names))]
		m.note("fault " + name)
		m.fabric.Set("b", "mlx5_0", faults[name])
		m.openRDMA("0")
		m.fabric.Set("b", "mlx5_0", func(k *fakeverbs.Knobs) { *k = fakeverbs.Knobs{Rate: 200e6} })
	}},
	{"open and give up", func(m *leaseModel) { m.abandon(byTCP, byRDMA) }},
	{"two opens at once", func(m *leaseModel) {
		var both sync.WaitGroup
		for _, body := range []string{byTCP, byRDMA} {
			both.Go(func() {
				m.keep(m.held, m.held.try(context.Background(), http.MethodPost, m.held.id+"/open", body))
			})
		}
		both.Wait()
		m.mayBe = "either"
	}},
	{"verify", func(m *leaseModel) { m.request("/verify", `{"seed":1,"ranges":[{"offset":0,"length":8}]}`) }},
	{"renew", func(m *leaseModel) { m.request("/renew", "{}") }},
	{"release", func(m *leaseModel) { m.ends(func() { m.request("", `{"bytes":5}`) }) }},
	{"hang up", func(m *leaseModel) { m.ends(m.held.drop) }},
	{"be silent", func(m *leaseModel) { m.ends(func() { lapse(m.resp) }) }},
	{"last too long", func(m *leaseModel) { m.ends(func() { m.lease().LifeTimer.Reset(0) }) }},
	{"be in others' way", func(m *leaseModel) {
		m.ends(func() { m.lease().End(failure.New(failure.StageLease, failure.Busy, "others")) })
	}},
	{"end during an open", func(m *leaseModel) {
		l, body := m.lease(), []string{byTCP, byRDMA}[m.rand.IntN(2)]
		after := time.Duration(m.rand.IntN(3000)) * time.Microsecond
		m.ends(func() {
			time.AfterFunc(after, func() { l.End(nil) })
			m.keep(m.held, m.held.try(context.Background(), http.MethodPost, m.held.id+"/open", body))
			l.End(nil)
		})
	}},
	{"the worker dies", func(m *leaseModel) {
		if m.rand.IntN(4) == 0 && m.b.Worker.Restarts() < 2 && m.mayBe != "" {
			m.signal("b", unix.SIGKILL)
			m.mayBe = "either"
		}
	}},
}

func (m *leaseModel) note(what string) { m.did = append(m.did, what) }

func (m *leaseModel) fatal(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s\nafter: %s", fmt.Sprintf(format, args...), strings.Join(m.did, "; "))
}

func (m *leaseModel) lease() *target.Lease { return held(m.resp) }

// request sends a request on the lease. An empty path releases the lease.
func (m *leaseModel) request(path, body string) string {
	method := http.MethodPost
	if path == "" {
		method = http.MethodDelete
	}
	return m.held.try(context.Background(), method, m.held.id+path, body)
}

// open opens a session, after which nothing of the previous one may be left.
func (m *leaseModel) open(transport, body string) string {
	m.t.Helper()
	text := m.request("/open", body)
	m.mayBe = transport
	m.onlyWhatMayBe()
	if port := m.keep(m.held, text); port > 0 && !writesByTCP(m.t.Context(), port, m.held.key) {
		m.fatal("the port of a lease that is held does not answer")
	}
	return text
}

// keep records the TCP port of an answer; 0: none.
func (m *leaseModel) keep(h *holder, answer string) uint16 {
	var reply protocol.OpenReply
	if json.Unmarshal([]byte(answer), &reply) != nil || reply.TCPPort == 0 {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ports = append(m.ports, keyhole{reply.TCPPort, h.key})
	return reply.TCPPort
}

// openRDMA opens rails of b for an end of a, and writes if possible.
func (m *leaseModel) openRDMA(rails ...string) {
	m.t.Helper()
	own, err := m.a.Rails()
	if err != nil {
		m.fatal("%v", err)
	}
	args := worker.OpenArgs{Transport: worker.RDMA, Buffer: 1 << 20, Depth: 4, QueuePairs: 1,
		Rails: []worker.RailArg{node.RDMARail(own[0], m.a.GID(own[0], nil))}}
	opened, err := m.asker.Begin(m.t.Context(), args)
	if err != nil {
		m.fatal("the asker's own end: %v", err)
	}
	req := protocol.OpenRequest{Transport: worker.RDMA, Buffer: 1 << 20, Depth: 4, QueuePairs: 1}
	for i, name := range rails {
		r := protocol.OpenRail{Rail: name}
		if i == 0 {
			r.Remote = opened.Ends[0]
		}
		req.Rails = append(req.Rails, r)
	}
	body, err := json.Marshal(req)
	if err != nil {
		m.fatal("%v", err)
	}
	text := m.open(worker.RDMA, string(body))
	var reply protocol.OpenReply
	if json.Unmarshal([]byte(text),
		&reply) != nil || len(reply.Ends) == 0 || reply.Ends[0].Failure != nil || len(reply.Ends[0].QPNs) == 0 {
		m.rkeys = false
		return
	}
	c, err := m.asker.Current.Connect(m.t.Context(),
		worker.ConnectArgs{RetryCount: 7,
			Rails: []worker.ConnectRail{{Name: "0", Remote: reply.Ends[0], PathMTU: 4096}}})
	if err != nil || len(c) > 0 {
		m.fatal("connect: %v %v", err, c)
	}
	m.rkeys = true
	if !m.writesByRDMA() {
		m.fatal("the queue pair of a lease that is held does not take a write")
	}
}

func (m *leaseModel) writesByRDMA() bool {
	_, err := m.asker.Current.Latency(m.t.Context(), worker.LatencyArgs{Rail: "0", N: 1, Limit: time.Second})
	return err == nil
}

// abandon begins an open and hangs up, during the request or before it.
func (m *leaseModel) abandon(bodies ...string) {
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Duration(m.rand.IntN(4000))*time.Microsecond)
	defer cancel()
	m.keep(m.held, m.held.try(ctx, http.MethodPost, m.held.id+"/open", bodies[m.rand.IntN(len(bodies))]))
	m.mayBe = "either"
}

// ends ends the lease, and checks what is left once it is no longer counted.
func (m *leaseModel) ends(by func()) {
	m.t.Helper()
	by()
	m.held.drop()
	m.held, m.mayBe = nil, ""
	if !within(20*time.Second, func() bool { return m.resp.Leases() == 0 }) {
		m.fatal("the lease does not end")
	}
	m.onlyWhatMayBe()
	if holder := m.b.Slot.Holder(); holder != "" && !within(time.Second, func() bool {
		return m.b.Slot.Holder() == ""
	}) {
		m.fatal("the place is taken: %s", holder)
	}
}

// onlyWhatMayBe fails if anything is open at b that should not be.
func (m *leaseModel) onlyWhatMayBe() {
	m.t.Helper()
	if m.mayBe != worker.RDMA && m.mayBe != "either" {
		left := slices.DeleteFunc(m.fabric.Left(), func(s string) bool { return !strings.HasPrefix(s, "b/") })
		if len(left) > 0 {
			m.fatal("left: %v", left)
		}
		if m.rkeys && m.writesByRDMA() {
			m.fatal("the old rkey still takes a write")
		}
		m.rkeys = false
	}
	if listening := m.listening("b"); len(listening) > 0 && m.mayBe != worker.TCP && m.mayBe != "either" {
		m.fatal("the worker listens on port %v", listening)
	}
	for _, p := range m.ports {
		if writesByTCP(m.t.Context(), p.port, p.key) {
			m.fatal("the old key still writes to port %d", p.port)
		}
	}
	m.ports = nil
}

// try sends a request and returns the answer, or an error.
func (h *holder) try(ctx context.Context, method, path, body string) string {
	res, err := h.client.RoundTrip(ctx, control.Request{Stage: failure.StageLease, Method: method, Path: path,
		Body: []byte(body), Streams: false})
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	return string(res.Content)
}

// TestLeaseModel: for any order of requests and failures of the worker, while no lease is counted the worker holds
// no queue pair, region or listener, and neither an old key nor an old rkey writes. While one is held, only what it
// opened last exists.
func TestLeaseModel(t *testing.T) {
	t.Parallel()
	seeds := []uint64{1, 2, 3, 4}
	if s := os.Getenv("RAILSCOPE_TEST_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = []uint64{seed}
	}
	const leases, most = 12, 8 // most is the limit of requests per lease
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			p := newPair(t, 1, nil)
			m := &leaseModel{pairOfNodes: p, rand: rand.New(rand.NewPCG(seed, 11)),
				asker: node.WorkerSession{Node: p.a, Worker: p.a.Worker}}
			for range leases {
				m.held = p.holder()
				m.note("TAKE")
				if f := m.held.acquire("c", 1<<20); f != nil {
					m.fatal("%v", f)
				}
				for range m.rand.IntN(most) {
					if m.held != nil {
						a := acts[m.rand.IntN(len(acts))]
						if m.rand.IntN(2) == 0 {
							a = acts[m.rand.IntN(8)] // an open, because only opens leave anything behind
						}
						m.note(a.what)
						a.do(m)
					}
				}
				if m.held != nil {
					m.note("release at last")
					m.ends(func() { m.request("", "{}") })
				}
			}
			if err := m.asker.End(); err != nil {
				t.Error(err)
			}
			if left := p.fabric.Left(); len(left) > 0 {
				m.fatal("left at the end: %v", left)
			}
			t.Log(strings.Join(m.did, "; "))
		})
	}
}
