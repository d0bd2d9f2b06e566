package probe

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/connlimit"
	"github.com/railscope/railscope/probe/internal/auth"
	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/target"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// holder asks b for leases as no railscope does: it sends what the test wants, and renews nothing.
type holder struct {
	p      *pairOfNodes
	client *control.Client
	id     string
	key    [32]byte             // key of the lease's TCP port
	events *control.EventReader // reads the lease's stream
	drop   func()               // hangs up
}

func (p *pairOfNodes) holder() *holder {
	c, err := control.NewClient(p.peer, auth.Credentials{Security: p.opts.Security, SecretFiles: auth.NewSecretFiles()})
	if err != nil {
		p.t.Fatal(err)
	}
	h := &holder{p: p, client: c}
	p.t.Cleanup(func() {
		if h.drop != nil {
			h.drop()
		}
		h.client.Close()
	})
	return h
}

// send sends a request unchanged, with the proof that b requires.
func (h *holder) send(method, path, body string) *control.Response {
	h.p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	res, err := h.client.RoundTrip(ctx, control.Request{Stage: failure.StageLease, Method: method, Path: path,
		Body: []byte(body), Streams: path == protocol.PathLease})
	if err != nil {
		h.p.t.Fatal(err)
	}
	h.p.t.Cleanup(func() { cancel(); res.Body.Close() })
	if path == protocol.PathLease && res.StatusCode == http.StatusOK {
		h.drop = cancel
	}
	return res
}

// do sends a request and returns the answer, or its failure.
func (h *holder) do(method, path, body string) (text string, f failure.Failure) {
	h.p.t.Helper()
	res := h.send(method, path, body)
	if res.StatusCode != http.StatusOK && json.Unmarshal(res.Content, &f) != nil {
		f = failure.Failure{Reason: failure.Other, Detail: fmt.Sprintf("status %d: %s", res.StatusCode, res.Content)}
	}
	return string(res.Content), f
}

// rate returns the sum of a node's rails, in bytes per second.
func (p *pairOfNodes) rate(name string) float64 {
	p.t.Helper()
	rails, err := map[string]*node.Node{"a": p.a, "b": p.b}[name].Rails()
	if err != nil {
		p.t.Fatal(err)
	}
	return node.RailRate(rails)
}

// setBudget sets the budget for b's answers, in bytes per hour.
func (p *pairOfNodes) setBudget(bytes int64) {
	p.b.AnswerBudget.Resize(options.RailTime(bytes, p.rate("b")))
}

// answerBytes returns the bytes left in b's budget for answers.
func (p *pairOfNodes) answerBytes() float64 { return p.b.AnswerBudget.Remaining() * p.rate("b") }

// acquire acquires a lease of n bytes for a whole round, or returns why not.
func (h *holder) acquire(asker string, n int64) *failure.Failure {
	h.p.t.Helper()
	return h.acquirePart(asker, n, protocol.Measure)
}

// acquirePart acquires a lease of n bytes for a part of a round, or returns why not.
func (h *holder) acquirePart(asker string, n int64, part protocol.Part) *failure.Failure {
	h.p.t.Helper()
	res := h.send(http.MethodPost, protocol.PathLease, fmt.Sprintf(
		`{"node":%q,"instance":%q,"rail_seconds":%g,"part":%q}`, asker, asker, float64(n)/h.p.rate("b"), part))
	if res.StatusCode != http.StatusOK {
		var f failure.Failure
		if err := json.Unmarshal(res.Content, &f); err != nil {
			h.p.t.Fatal(err)
		}
		return &f
	}
	h.events = res.Events
	e, err := h.events.Next()
	if err != nil || e.Grant == nil {
		h.p.t.Fatalf("no grant: %v %v", e, err)
	}
	h.id, h.key = protocol.PathLease+"/"+e.Grant.ID, [32]byte(e.Grant.Key)
	return nil
}

// mustAcquire acquires the lease.
func (h *holder) mustAcquire() {
	h.p.t.Helper()
	if f := h.acquire("c", 1<<20); f != nil {
		h.p.t.Fatal(f)
	}
}

// ended waits until the stream reports why the lease has ended.
func (h *holder) ended() failure.Failure {
	h.p.t.Helper()
	e, err := h.events.Next()
	if err != nil || e.End == nil {
		h.p.t.Fatalf("the lease ends with %v, %v", e, err)
	}
	return *e.End
}

// byRDMA opens rail 0 at b for an end of a.
const byRDMA = `{"transport":"rdma","buffer":1048576,"depth":4,"queue_pairs":1,"rails":[{"rail":"0","remote":{"name":"0","qpns":[1],"psns":[1],"gid":"::ffff:127.7.0.1","active_mtu":4096}}]}`

// byTCP lets b listen.
const byTCP = `{"transport":"tcp","buffer":1048576,"depth":4,"queue_pairs":1,"rails":[{"rail":"0"}]}`

// within reports whether a condition becomes true soon.
func within(limit time.Duration, fn func() bool) bool {
	for deadline := time.Now().Add(limit); !fn(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// lapse expires the TTL of the lease.
func lapse(r *target.Responder) {
	held(r).IdleTimer.Reset(0)
}

// held returns the only lease, or nil.
func held(r *target.Responder) *target.Lease {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	for _, l := range r.Current {
		return l
	}
	return nil
}

// TestLeaseEnds: however a lease ends, nothing of it is left behind, and the next one is granted.
func TestLeaseEnds(t *testing.T) {
	t.Parallel()
	const soon = protocol.LeaseTTL * 8 / 10 // shorter than the timeout of a silent holder
	for _, tc := range []struct {
		why  string
		end  func(p *pairOfNodes, h *holder)
		says failure.Reason // reason on the stream; empty: nothing more can be read
		soon time.Duration
	}{
		{"released", func(p *pairOfNodes, h *holder) {
			if text, f := h.do(http.MethodDelete, h.id,
				`{"bytes":5}`); f.Reason != "" || strings.TrimSpace(text) != "{}" {
				p.t.Errorf("released: %q %v", text, f)
			}
		}, failure.LeaseLost, 0},
		{"the holder hangs up", func(_ *pairOfNodes, h *holder) { h.drop() }, "", soon},
		{"the holder is silent", func(p *pairOfNodes, _ *holder) { lapse(p.resp) }, failure.LeaseLost, soon},
		{"the answerer shuts down", func(p *pairOfNodes, _ *holder) { p.stopServing() }, failure.Draining, soon},
		{"the answerer's worker is killed", func(p *pairOfNodes, h *holder) {
			p.signal("b", unix.SIGKILL)
			if _, f := h.do(http.MethodPost, h.id+"/verify", `{"ranges":[]}`); f.Reason != failure.WorkerCrashed {
				p.t.Errorf("after the worker died: %v", f)
			}
			h.drop()
		}, "", soon},
	} {
		for _, open := range []string{"", byRDMA, byTCP} {
			t.Run(fmt.Sprintf("%s, %.20s", tc.why, open), func(t *testing.T) {
				t.Parallel()
				p := newPair(t, 1, nil)
				h := p.holder()
				h.mustAcquire()
				if open != "" {
					if text, f := h.do(http.MethodPost, h.id+"/open", open); f.Reason != "" {
						t.Fatalf("open: %v %s", f, text)
					}
				} else if strings.Contains(tc.why, "killed") {
					t.Skip("there is no worker without a session")
				}
				if (len(p.fabric.Left()) > 0) != (open == byRDMA) || p.resp.Leases() != 1 {
					t.Fatalf("%d leases, open: %v", p.resp.Leases(), p.fabric.Left())
				}
				tc.end(p, h)
				if !within(tc.soon, func() bool {
					return p.resp.Leases() == 0 && p.b.Slot.Holder() == ""
				}) || len(p.fabric.Left()) > 0 {
					t.Errorf("after %v: %d leases, %q, %v", tc.soon, p.resp.Leases(), p.b.Slot.Holder(),
						p.fabric.Left())
				}
				if tc.says != "" {
					if f := h.ended(); f.Reason != tc.says {
						t.Errorf("the lease ended with %v, want %s", f, tc.says)
					}
				}
				if p.stop == nil {
					p.serve() // uses another port if a parallel test has taken it
					h.client.Close()
					h.client.Peer = p.peer
				}
				if _, f := h.do(http.MethodPost, h.id+"/renew", "{}"); f.Reason != failure.LeaseLost {
					t.Errorf("renewing it: %v", f)
				}
				p.holder().mustAcquire()
			})
		}
	}
}

// requestAlone returns a request on a connection without limits.
func requestAlone(method, path string, body io.Reader) *http.Request {
	req := httptest.NewRequest(method, path, body)
	c, _ := net.Pipe()
	limited := connlimit.Of(connlimit.New(connlimit.Options{Connections: 2}).Admit(c))
	conn := &target.Conn{Conn: limited}
	conn.TLS.Store(tls.Server(c, &tls.Config{}))
	return req.WithContext(target.WithTargetConn(req.Context(), conn))
}

// leaseAlone grants a lease without a network, so that a synctest bubble controls its time. It returns functions
// that renew the lease, and wait for its end. With moving, each renewal counts received bytes.
func leaseAlone(t *testing.T, moving bool) (renew func() failure.Reason, ended func() failure.Failure) {
	t.Helper()
	opts := options.DefaultOptions()
	opts.Security.Insecure = true
	resp, err := target.NewResponder(bareNode(t, "b"), opts)
	if err != nil {
		t.Fatal(err)
	}
	from, to := io.Pipe()
	go func() {
		body := strings.NewReader(`{"node":"c","instance":"c","rail_seconds":1e-9}`)
		resp.ServeHTTP(streamed{to, http.Header{}}, requestAlone(http.MethodPost, protocol.PathLease, body))
		to.Close()
	}()
	events := control.NewEventReader(from)
	e, err := events.Next()
	if err != nil || e.Grant == nil {
		t.Fatalf("no grant: %v %v", e, err)
	}
	renew = func() failure.Reason {
		if l := held(resp); moving && l != nil {
			l.TCPBytes.Add(1)
		}
		w := httptest.NewRecorder()
		resp.ServeHTTP(w, requestAlone(http.MethodPost, protocol.PathLease+"/"+e.Grant.ID+"/renew",
			strings.NewReader("{}")))
		var f failure.Failure
		if err := json.Unmarshal(w.Body.Bytes(), &f); err != nil {
			t.Error(err)
		}
		return f.Reason
	}
	return renew, func() failure.Failure {
		e, err := events.Next()
		if err != nil || e.End == nil {
			t.Fatalf("the lease ends with %v, %v", e, err)
		}
		if _, err := events.Lines.ReadByte(); err != io.EOF {
			t.Errorf("after the end: %v", err)
		}
		return *e.End
	}
}

// streamed is a response that is read while it is written.
type streamed struct {
	io.Writer
	header http.Header
}

func (s streamed) Header() http.Header { return s.header }

func (s streamed) WriteHeader(int) {}

// TestLeaseLasts: a lease that is renewed in time lasts; one that is not renewed ends after its TTL.
func TestLeaseLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		renew, ended := leaseAlone(t, true)
		for range 50 {
			time.Sleep(protocol.LeaseTTL - time.Millisecond)
			if why := renew(); why != "" {
				t.Fatal(why)
			}
		}
		last := time.Now()
		if f := ended(); f.Reason != failure.LeaseLost || !strings.Contains(f.Detail,
			"no request from its holder") || time.Since(last) != protocol.LeaseTTL {
			t.Errorf("after %v it ended with %v", time.Since(last), f)
		}
		if why := renew(); why != failure.LeaseLost {
			t.Errorf("renewed afterwards: %q", why)
		}
	})
}

// TestLeaseEndsAtLast: renewals do not extend a lease beyond its maximum.
func TestLeaseEndsAtLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		granted := time.Now()
		renew, ended := leaseAlone(t, true)
		stop := make(chan struct{})
		go func() {
			for tick := time.NewTicker(time.Second); ; renew() {
				select {
				case <-tick.C:
				case <-stop:
					return
				}
			}
		}()
		defer close(stop)
		f := ended()
		if f.Reason != failure.LeaseLost || !strings.Contains(f.Detail, "the maximum of a round") ||
			time.Since(granted).
				Round(time.Second) != options.MaxTimeout {
			t.Errorf("after %v it ended with %v", time.Since(granted), f)
		}
	})
}

// TestLeaseIdle: a lease without incoming data ends, however often it is renewed.
func TestLeaseIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		granted := time.Now()
		renew, ended := leaseAlone(t, false)
		stop := make(chan struct{})
		go func() {
			for tick := time.NewTicker(time.Second); ; renew() {
				select {
				case <-tick.C:
				case <-stop:
					return
				}
			}
		}()
		defer close(stop)
		f := ended()
		if took := time.Since(granted); f.Reason != failure.LeaseLost || !strings.Contains(f.Detail,
			"nothing arrived") || took < target.IdleLease || took > target.IdleLease+time.Second {
			t.Errorf("after %v it ended with %v", took, f)
		}
	})
}

// TestLeaseIsCounted: the budget is charged what the holder reports or what arrived, whichever is more.
func TestLeaseIsCounted(t *testing.T) {
	t.Parallel()
	const granted, mib, kib = 100 << 20, 1 << 20, 1 << 10
	for _, tc := range []struct {
		why        string
		came, says int64
		cost       int64
	}{
		{"an honest holder", 0, 30 << 20, 30 << 20},
		{"one that wrote with headers", 31 << 20, 30 << 20, 30 << 20},
		{"one that says nothing", 65 << 20, 0, 50 << 20},
		{"one that wrote more than it may", 900 << 20, 0, granted},
		{"one that says more than it may", 0, 1 << 60, granted},
		{"one that says it gave some back", 0, -5, granted},
	} {
		t.Run(tc.why, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, 1, nil)
			p.setBudget(granted) // refills by 28 KiB per second
			h := p.holder()
			if f := h.acquire("c", granted); f != nil {
				t.Fatal(f)
			}
			p.count("b", 0, "port_rcv_data", tc.came)
			_, f := h.do(http.MethodDelete, h.id, fmt.Sprintf(`{"bytes":%d}`, tc.says))
			ended := f.Reason == failure.LeaseLost && tc.came > granted // the guard saw the bytes first
			if f.Reason != "" && !ended || ended && !within(10*time.Second, func() bool { return p.answerBytes() < mib }) {
				t.Fatal(f)
			}
			if cost := granted - int64(p.answerBytes()); cost > tc.cost+kib || cost < tc.cost-mib {
				t.Errorf("it cost %d KiB, want %d", cost/kib, tc.cost/kib)
			}
		})
	}
}

// count adds bytes to a rail's counter.
func (p *pairOfNodes) count(node string, i int, counter string, bytes int64) {
	p.t.Helper()
	path := filepath.Join(p.fabric.Sysfs(node), fmt.Sprintf("class/infiniband/mlx5_%d/ports/1/counters", i), counter)
	was, err := os.ReadFile(path)
	if err != nil {
		p.t.Fatal(err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(was)), 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	file(p.t, path, fmt.Sprintf("%020d\n", n+bytes/4))
}

// TestLeaseDenied: each denial has its reason and costs nothing.
func TestLeaseDenied(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, nil)
	first := p.holder()
	deny := func(why string, want failure.Reason, asker string, bytes int64, says string) {
		t.Helper()
		before := p.answerBytes()
		f := p.holder().acquire(asker, bytes)
		if f == nil || f.Reason != want || !strings.Contains(f.Detail, says) {
			t.Errorf("%s: %v, want %s: %s", why, f, want, says)
		}
		if after := p.answerBytes(); after < before {
			t.Errorf("%s: it cost %.0f bytes", why, before-after)
		}
	}
	deny("itself", failure.Self, p.b.Instance, 1, "this node")
	hour := int64(options.DefaultOptions().Budget.Share * 3600 * p.rate("b"))
	deny("more than 1/8 of the budget", failure.Budget, "c", hour/8+1e6, "at most 2.25s to one lease")
	deny("more than there is", failure.Budget, "c", int64((options.MaxTimeout.Seconds()-1)*p.rate("b")),
		"raise budget on the peer to 133")
	deny("longer than any round", failure.Protocol, "c", 1<<62, "malformed")
	first.mustAcquire()
	deny("another's", failure.Busy, "d", 1, "answering c")
	if res := p.scheduled(p.a); res.Outcome != result.Skipped || res.Reason != failure.Busy || len(res.Failures) != 0 ||
		res.Transport != result.NoTransport {
		t.Errorf("a round meanwhile: %s because of %q, %v", res.Outcome, res.Reason, res.Failures)
	}
	if _, f := first.do(http.MethodDelete, first.id, `{"bytes":0}`); f.Reason != "" {
		t.Error(f)
	}
	p.resp.Mu.Lock()
	p.resp.QuietUntil = time.Now().Add(time.Minute)
	p.resp.Mu.Unlock()
	deny("after other traffic", failure.Cooldown, "c", 1, "retry in 1m0s")
	p.resp.Mu.Lock()
	p.resp.QuietUntil, p.resp.Draining = time.Time{}, true
	p.resp.Mu.Unlock()
	deny("shutting down", failure.Draining, "c", 1, "shutting down")
}

// TestLeaseForMany: one of many simultaneous requests gets the lease. Requests in sequence never find it taken.
func TestLeaseForMany(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, nil)
	var granted, busy int
	var mu sync.Mutex
	var askers sync.WaitGroup
	for i := range 20 {
		h := p.holder()
		askers.Go(func() {
			f := h.acquire(fmt.Sprint("asker ", i), 1)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case f == nil:
				granted++
			case f.Reason == failure.Busy:
				busy++
			default:
				t.Error(f)
			}
		})
	}
	askers.Wait()
	if granted != 1 || busy != 19 {
		t.Errorf("%d granted, %d busy", granted, busy)
	}
	p.stopServing()
	p.serve()
	for i := range 30 {
		h := p.holder()
		if f := h.acquire("c", 1); f != nil {
			t.Fatalf("lease %d: %v", i, f)
		}
		if _, f := h.do(http.MethodDelete, h.id, "{}"); f.Reason != "" {
			t.Fatal(f)
		}
		h.drop()
		h.client.Close() // an address may use half of the connections
	}
}

// TestAskersMeet: if two nodes ask a third at once, one is served, and the other is skipped, not failed.
func TestAskersMeet(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, func(_ string, _ int, d *fakeverbs.Device) { d.Rate = 5e6 })
	p.fabric.Add("c", device("a", 7, nil))
	c := p.node("c", 0)
	results := make(chan result.Result, 2)
	for _, n := range []*node.Node{p.a, c} {
		go func() { results <- p.scheduled(n) }()
	}
	count := map[result.Outcome]int{}
	for range 2 {
		res := <-results
		count[res.Outcome]++
		if res.Outcome == result.Skipped && (res.Reason != failure.Busy || !strings.Contains(res.Detail,
			"the peer is answering")) {
			t.Errorf("skipped because of %q: %s", res.Reason, res.Detail)
		}
	}
	if count[result.Skipped] != 1 || count[result.Failed] != 0 {
		t.Errorf("outcomes %v", count)
	}
	p.clean()
}
