package probe

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/target"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// rdmaOpen returns a request to open rail 0, with replacements.
func rdmaOpen(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(byRDMA) }

// TestHostileRequests: requests that no railscope sends are refused without effect: no memory, no queue pair, and
// the worker stays alive.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, nil)
	h := p.holder()
	h.mustAcquire()
	rails := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`{"rail":"%d"}`, i))
		}
		return "[" + strings.Join(list, ",") + "]"
	}
	open := func(t string) string {
		return `{"transport":"tcp","buffer":4096,"depth":1,"queue_pairs":1,"rails":` + t + "}"
	}
	end := func(e string) string { return open(`[{"rail":"0","remote":` + e + `}]`) }
	for _, tc := range []struct {
		why, path, body string
		says            string
	}{
		{"no JSON", "/open", "x", "invalid character"},
		{"nothing", "/open", "", "unexpected end"},
		{"null", "/open", "null", "transport"},
		{"a list", "/open", "[]", "cannot unmarshal"},
		{"numbers for names", "/open", `{"transport":1}`, "cannot unmarshal"},
		{"another transport", "/open", rdmaOpen(`"rdma"`, `"ucx"`), "transport"},
		{"a terabyte", "/open", rdmaOpen("1048576", "1099511627776"), "for each of 1 rails"},
		{"more than an integer", "/open", rdmaOpen("1048576", "9223372036854775808"), "cannot unmarshal"},
		{"a negative buffer", "/open", rdmaOpen("1048576", "-1"), "for each of 1 rails"},
		{"a tiny buffer", "/open", rdmaOpen("1048576", "4095"), "for each of 1 rails"},
		{"no depth", "/open", rdmaOpen(`"depth":4`, `"depth":0`), "in flight"},
		{"much depth", "/open", rdmaOpen(`"depth":4`, `"depth":1025`), "in flight"},
		{"negative depth", "/open", rdmaOpen(`"depth":4`, `"depth":-4`), "in flight"},
		{"no queue pairs", "/open", rdmaOpen(`"queue_pairs":1`, `"queue_pairs":0`), "queue pairs"},
		{"many queue pairs", "/open", rdmaOpen(`"queue_pairs":1`, `"queue_pairs":17`), "queue pairs"},
		{"more ends than queue pairs", "/open", rdmaOpen(`[1]`, `[1,2]`), "instead of 1"},
		{"queue pairs without numbers", "/open", rdmaOpen(`"psns":[1]`, `"psns":[]`), "sequence numbers"},
		{"a number that is none", "/open", rdmaOpen(`"qpns":[1]`, `"qpns":[4294967296]`), "cannot unmarshal"},
		{"no rails", "/open", open("[]"), "0 rails"},
		{"65 rails", "/open", open(rails(65)), "65 rails"},
		{"one rail twice", "/open", open(`[{"rail":"0"},{"rail":"0"}]`), "twice"},
		{"a name that rings", "/open", open(`[{"rail":"\u0007"}]`), "not printable"},
		{"a name like a book", "/open", open(`[{"rail":"` + strings.Repeat("x", 257) + `"}]`), "too long"},
		{"an MTU like a house", "/open", end(`{"active_mtu":1048577}`), "MTU"},
		{"a negative MTU", "/open", end(`{"max_mtu":-1}`), "MTU"},
		{"an address that is none", "/open", end(`{"gid":"mallory"}`), "unable to parse IP"},
		{"more addresses than anyone has", "/open",
			open(`[{"rail":"0","prefixes":[` + strings.Repeat(`"10.0.0.1/8",`, 256) + `"10.0.0.1/8"]}]`),
			"257 addresses"},
		{"more than a message holds", "/open", `{"transport":"` + strings.Repeat("x", protocol.MaxBody) + `"}`, "too large"},
		{"verify before open", "/verify", `{"seed":1,"pass":1,"rails":[{"rail":"0","chunk":4096,"writes":[1]}]}`, "verify before open"},
	} {
		if _, f := h.do(http.MethodPost, h.id+tc.path,
			tc.body); f.Reason != failure.Protocol || !strings.Contains(f.Detail, tc.says) {
			t.Errorf("%s: %v, want %q", tc.why, f, tc.says)
		}
	}
	if left := p.fabric.Left(); len(left) > 0 || p.b.Worker.Restarts() > 0 {
		t.Fatalf("left %v, %d restarts", left, p.b.Worker.Restarts())
	}
	p.hostileVerify(h)
	for _, tc := range []struct{ why, method, path, body string }{
		{"an id of nobody's", http.MethodPost, protocol.PathLease + "/AAAA/open", byRDMA},
		{"another's lease", http.MethodDelete, protocol.PathLease + "/AAAA", "{}"},
		{"a path for an id", http.MethodPost, protocol.PathLease + "/..%2f..%2fhello/renew", "{}"},
	} {
		if _, f := h.do(tc.method, tc.path, tc.body); f.Reason != failure.LeaseLost {
			t.Errorf("%s: %v", tc.why, f)
		}
	}
	for _, path := range []string{"/", "/v2", "/v2/lease/x", "/v2/lease/x/close", "/metrics", "/debug/pprof/"} {
		if res := h.send(http.MethodGet, path, ""); res.StatusCode == http.StatusOK {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
	if _, f := h.do(http.MethodDelete, h.id, `{"bytes":-9223372036854775808}`); f.Reason != "" {
		t.Error(f)
	}
	if res := p.round(); res.Outcome != result.OK {
		t.Errorf("a round after all that: %s because of %q (%s)", res.Outcome, res.Reason, res.Detail)
	}
	if n := p.b.Worker.Restarts(); n > 0 {
		t.Errorf("b's worker was started again %d times", n)
	}
}

// hostileVerify requests to verify what does not exist or is too large.
func (p *pairOfNodes) hostileVerify(h *holder) {
	p.t.Helper()
	if _, f := h.do(http.MethodPost, h.id+"/open", byRDMA); f.Reason != "" {
		p.t.Fatal(f)
	}
	of := func(chunk, writes string) string {
		return fmt.Sprintf(`{"seed":1,"pass":1,"rails":[{"rail":"0","chunk":%s,"writes":%s}]}`, chunk, writes)
	}
	twice := `{"rail":"0","chunk":4096,"writes":[1]}`
	for body, want := range map[string]failure.Reason{
		of("0", "[1]"): failure.Other, of("-4096", "[1]"): failure.Protocol, of("1048577", "[1]"): failure.Other,
		of("4096", "[]"): failure.Other, of("4096", "[1,1]"): failure.Other,
		of("4096", "["+strings.Repeat("1,", 16)+"1]"):                          failure.Protocol,
		`{"rails":[` + twice + "," + twice + `]}`:                              failure.Protocol,
		`{"rails":[` + strings.Repeat(`{},`, 64) + `{}]}`:                      failure.Protocol,
		`{"stop":[` + strings.Repeat(`"0",`, 64) + `"0"]}`:                     failure.Protocol,
		`{"pass":-1,"rails":[` + twice + `]}`:                                  failure.Other,
		`{"pass":9223372036854775807,"rails":[` + twice + `]}`:                 failure.Other,
		`{"rails":[{"rail":"1","chunk":4096,"writes":[1]}]}`:                   failure.Other,
		`{"pass":2,"rails":[{"rail":"0","chunk":1,"writes":[1099511627777]}]}`: failure.Other,
	} {
		if text, f := h.do(http.MethodPost, h.id+"/verify", body); f.Reason != want {
			p.t.Errorf("verify %.80s: %v %s, want %q", body, f, text, want)
		}
	}
	if _, f := h.do(http.MethodPost, h.id+"/verify", `{"pass":1,"rails":[{"rail":"0","chunk":4096,"writes":[-1]}]}`); f.
		Reason != failure.Protocol {
		p.t.Errorf("verify less than nothing: %v", f)
	}
	text, f := h.do(http.MethodPost, h.id+"/verify", `{"pass":1,"rails":[{"rail":"0","chunk":4096,"writes":[1]}]}`)
	if f.Reason != "" || !strings.Contains(text, `"rail":"0"`) || !strings.Contains(text, `"reason":"timeout"`) {
		p.t.Errorf("verify what nobody wrote: %v %s", f, text)
	}
	if _, f := h.do(http.MethodPost, h.id+"/verify", `{"stop":["0","no such rail"]}`); f.Reason != "" {
		p.t.Errorf("stop: %v", f)
	}
}

// TestHostileLeaseRequests: invalid lease requests are refused.
func TestHostileLeaseRequests(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, nil)
	h := p.holder()
	for _, body := range []string{
		"", "x", "{}", `{"node":"c","instance":"i","rail_seconds":0}`, `{"node":"c","instance":"i","rail_seconds":-1}`,
		`{"node":"c","instance":"i","rail_seconds":1e300}`, `{"node":"c","instance":"i","bytes":1}`,
		`{"node":"","instance":"i","rail_seconds":1}`, `{"node":"c","instance":"","rail_seconds":1}`,
		`{"node":"c\n","instance":"i","rail_seconds":1}`,
		`{"node":"` + strings.Repeat("c", 300) + `","instance":"i","rail_seconds":1}`,
		`{"node":"` + strings.Repeat("c", protocol.MaxBody) + `"}`,
	} {
		if _, f := h.do(http.MethodPost, protocol.PathLease, body); f.Reason != failure.Protocol {
			t.Errorf("%.60s: %v", body, f)
		}
	}
	if p.resp.Leases() > 0 || p.b.Slot.Holder() != "" {
		t.Error("a lease was granted")
	}
}

// TestAnswerOutlastsReading: the read deadline of a request does not interrupt a slow answer.
func TestAnswerOutlastsReading(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, nil)
	h := p.holder()
	h.mustAcquire()
	if _, f := h.do(http.MethodPost, h.id+"/open", byTCP); f.Reason != "" {
		t.Fatal(f)
	}
	p.signal("b", unix.SIGSTOP)
	resumed := make(chan struct{})
	time.AfterFunc(target.RequestTime+500*time.Millisecond, func() {
		defer close(resumed)
		p.signal("b", unix.SIGCONT)
	})
	stop := make(chan struct{})
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Second):
				h.do(http.MethodPost, h.id+"/renew", "{}")
			}
		}
	}()
	if text, f := h.do(http.MethodPost, h.id+"/verify",
		`{"seed":1,"ranges":[{"offset":0,"length":8}]}`); f.Reason != "" {
		t.Errorf("%v %s", f, text)
	}
	close(stop)
	<-renewed
	<-resumed
}

// TestAnswererGoes: the target stops during a round, or between two.
func TestAnswererGoes(t *testing.T) {
	t.Parallel()
	slow := func(_ string, _ int, d *fakeverbs.Device) { d.Rate = 4e6 }
	t.Run("shuts down in the middle", func(t *testing.T) {
		t.Parallel()
		p := newPair(t, 1, slow)
		res := p.during(failure.StageSolo, p.stopServing)
		if res.Outcome != result.Skipped || res.Reason != failure.Draining {
			t.Errorf("%s because of %q: %s", res.Outcome, res.Reason, res.Detail)
		}
		p.serve()
		p.clean()
		p.fabric.Set("a", "mlx5_0", func(k *fakeverbs.Knobs) { k.Rate = 200e6 })
		if res := p.round(); res.Outcome != result.OK {
			t.Errorf("the next round: %s because of %q: %s", res.Outcome, res.Reason, res.Detail)
		}
	})
	t.Run("is cut off in the middle", func(t *testing.T) {
		t.Parallel()
		p := preparePair(t, 1, slow)
		p.opts.Security = options.Security{Insecure: true} // with a token, no proxy may be between the two ends
		p.serve()
		cut := p.through()
		start := time.Now()
		res := p.during(failure.StageSolo, cut)
		if res.Outcome != result.Failed || res.Reason != failure.PeerLost || time.Since(start) > 10*time.Second {
			t.Errorf("%s because of %q after %v: %s", res.Outcome, res.Reason, time.Since(start), res.Detail)
		}
		p.clean()
	})
}

// during runs a round and calls do as soon as bytes of a stage move.
func (p *pairOfNodes) during(stage failure.Stage, do func()) result.Result {
	p.t.Helper()
	done := make(chan struct{})
	var begun bool
	res := Bench(p.t.Context(), p.a, p.opts, p.peer, func(g result.Progress) {
		if !begun && g.Stage == stage && g.Done > 0 {
			begun = true
			go func() { defer close(done); do() }()
		}
	})
	if !begun {
		p.t.Fatalf("the round did not come to %s: %s because of %q (%s)", stage, res.Outcome, res.Reason, res.Detail)
	}
	<-done
	return res
}

// through routes the control channel through a proxy. cut breaks its connections, which both ends see.
func (p *pairOfNodes) through() (cut func()) {
	p.t.Helper()
	to := p.peer
	broken := make(chan struct{})
	p.peer = strangerServer(p.t, func(c net.Conn) {
		up, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer up.Close()
		for _, way := range [][2]net.Conn{{c, up}, {up, c}} {
			go func() {
				defer way[1].Close()
				buf := make([]byte, 4096)
				for {
					n, err := way[0].Read(buf)
					if _, werr := way[1].Write(buf[:n]); err != nil || werr != nil {
						return
					}
				}
			}()
		}
		<-broken
	})
	p.t.Cleanup(func() {
		select {
		case <-broken:
		default:
			close(broken)
		}
	})
	return func() { close(broken) }
}
