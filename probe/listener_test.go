package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// fakeNet allows one listener per address, and none on addresses that others use.
type fakeNet struct {
	mu    sync.Mutex
	taken map[string]bool
	open  map[string]*fakeListener
	tries []time.Duration // when somebody tried to listen
	start time.Time
}

type fakeListener struct {
	net     *fakeNet
	address string
	conns   chan net.Conn
	fail    chan error
	once    sync.Once
	closed  chan struct{}
}

func newFakeNet() *fakeNet {
	return &fakeNet{taken: map[string]bool{}, open: map[string]*fakeListener{}, start: time.Now()}
}

func (n *fakeNet) listen(address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tries = append(n.tries, time.Since(n.start))
	if n.taken[address] || n.open[address] != nil {
		return nil, fmt.Errorf("listen tcp %s: bind: %w", address, unix.EADDRINUSE)
	}
	l := &fakeListener{net: n, address: address, conns: make(chan net.Conn), fail: make(chan error),
		closed: make(chan struct{})}
	n.open[address] = l
	return l, nil
}

func (n *fakeNet) take(address string, taken bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.taken[address] = taken
}

// listening returns the open listener and its address.
func (n *fakeNet) listening() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []string
	for address := range n.open {
		list = append(list, address)
	}
	return strings.Join(list, " ")
}

func (l *fakeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case err := <-l.fail:
		return nil, err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *fakeListener) Close() error {
	l.once.Do(func() {
		l.net.mu.Lock()
		defer l.net.mu.Unlock()
		delete(l.net.open, l.address)
		close(l.closed)
	})
	return nil
}

func (l *fakeListener) Addr() net.Addr { return &net.UnixAddr{Name: l.address, Net: "fake"} }

// told are the events of a service, in order.
type told struct {
	mu   sync.Mutex
	said []string
}

func (e *told) say(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.said = append(e.said, what)
}

func (e *told) all() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.said, ", ")
}

// newListeningService is a service on a fake network, and its events.
func newListeningService(t *testing.T) (*Service, *fakeNet, *told) {
	e, n := &told{}, newFakeNet()
	s := NewService(node.NewNode(node.Options{Name: "a", Worker: []string{"/nonexistent"}}), func(result.Result) {}, quiet(options.Events{
		Answering: func(a net.Addr) { e.say("answering " + a.String()) },
		Stopped:   func(err error) { e.say("stopped: " + err.Error()) }}))
	s.listen = n.listen
	t.Cleanup(s.Close)
	return s, n, e
}

func answeringOptions(listen, name string) *options.Options {
	opts := options.DefaultOptions()
	opts.Listen, opts.Name, opts.Security.Insecure = listen, name, true
	return &opts
}

// TestPortTaken: an address that another program uses stops nothing. It is retried at least every 30 s.
func TestPortTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n, e := newListeningService(t)
		n.take("x:1", true)
		change, err := s.Prepare(answeringOptions("x:1", "a"), true)
		if err != nil {
			t.Fatal(err)
		}
		change.Commit(t.Context())
		if st := s.Stats(); st.Up || !st.Running {
			t.Errorf("up: %t, running: %t", st.Up, st.Running)
		}
		time.Sleep(10 * time.Minute)
		n.mu.Lock()
		for i := range n.tries[1:] {
			if gap := n.tries[i+1] - n.tries[i]; gap > lastRetry || i > 6 && gap < lastRetry {
				t.Errorf("try %d came %v after the one before", i+1, gap)
			}
		}
		n.mu.Unlock()
		n.take("x:1", false)
		time.Sleep(lastRetry)
		synctest.Wait()
		if !s.Stats().Up {
			t.Error("not up although the address is free")
		}
		if want := "stopped: listen tcp x:1: bind: address already in use, answering x:1"; e.all() != want {
			t.Errorf("told %q, want %q", e.all(), want)
		}
		s.Close()
		if n.listening() != "" || s.Stats().Running {
			t.Errorf("after the end: %q, %+v", n.listening(), s.Stats())
		}
	})
}

// TestListenerDies: a listener that fails is opened again; temporary errors do not affect it.
func TestListenerDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n, e := newListeningService(t)
		if err := s.Apply(t.Context(), answeringOptions("x:1", "a")); err != nil {
			t.Fatal(err)
		}
		l := n.open["x:1"]
		for range 5 {
			l.fail <- &net.OpError{Op: "accept", Err: unix.EMFILE}
		}
		synctest.Wait()
		if n.open["x:1"] != l || !s.Stats().Up {
			t.Error("an error that passes closed the listener")
		}
		l.fail <- errors.New("the end")
		synctest.Wait()
		if s.Stats().Up {
			t.Error("up without a listener")
		}
		time.Sleep(firstRetry)
		synctest.Wait()
		if !s.Stats().Up || n.open["x:1"] == l {
			t.Error("not opened again")
		}
		if want := "answering x:1, stopped: the end, answering x:1"; e.all() != want {
			t.Errorf("told %q, want %q", e.all(), want)
		}
		s.Close()
	})
}

// TestRefusedChangeChangesNothing: options that cannot be applied leave everything unchanged, listener and responder
// included.
func TestRefusedChangeChangesNothing(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		s, n, e := newListeningService(t)
		old := answeringOptions("0.0.0.0:1", "old")
		old.Budget = options.Budget{Share: 0.001}
		if err := s.Apply(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		l, responder := n.open["0.0.0.0:1"], s.responder.Load()
		for name, tc := range map[string]struct {
			opts  options.Options
			taken string
		}{
			"another address, taken":       {options.Options{Listen: "x:2", Security: options.Security{Insecure: true}}, "x:2"},
			"no security":                  {options.Options{Listen: "0.0.0.0:1"}, ""},
			"another address, no security": {options.Options{Listen: "x:3"}, ""},
			"a token file that is not": {options.Options{Listen: "0.0.0.0:1",
				Security: options.Security{TokenFile: "/nonexistent/token"}}, ""},
		} {
			n.take(tc.taken, true)
			tc.opts.Name, tc.opts.Budget = "new", options.Budget{Share: 0.1}
			if err := s.Apply(t.Context(), &tc.opts); err == nil {
				t.Errorf("%s: it was applied", name)
			}
			if got := n.listening(); got != "0.0.0.0:1" || n.open["0.0.0.0:1"] != l {
				t.Errorf("%s: listening on %q", name, got)
			}
			if s.responder.Load() != responder || s.node.Name() != "old" || !s.Stats().Up ||
				s.Stats().BudgetSeconds > 4 {
				t.Errorf("%s: %q, %+v", name, s.node.Name(), s.Stats())
			}
		}
		if want := "answering 0.0.0.0:1"; e.all() != want {
			t.Errorf("told %q, want %q", e.all(), want)
		}
		s.Close()
	})
}

// TestSamePortElsewhere: the same port on another address is opened after the current listener, which occupies it, is
// closed; after an error that is opened again.
func TestSamePortElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n, _ := newListeningService(t)
		conflict := func(address string) (net.Listener, error) {
			n.mu.Lock()
			held := len(n.open) > 0
			n.mu.Unlock()
			if held {
				return nil, unix.EADDRINUSE
			}
			return n.listen(address)
		}
		s.listen = conflict
		if err := s.Apply(t.Context(), answeringOptions("0.0.0.0:1", "a")); err != nil {
			t.Fatal(err)
		}
		n.take("10.0.0.1:1", true)
		if err := s.Apply(t.Context(),
			answeringOptions("10.0.0.1:1", "a")); err == nil || n.listening() != "0.0.0.0:1" || !s.Stats().Up {
			t.Errorf("a taken one: %v, listening on %q, %+v", err, n.listening(), s.Stats())
		}
		n.take("10.0.0.1:1", false)
		if err := s.Apply(t.Context(),
			answeringOptions("10.0.0.1:1", "a")); err != nil || n.listening() != "10.0.0.1:1" || !s.Stats().Up {
			t.Errorf("a free one: %v, listening on %q", err, n.listening())
		}
		s.Close()
	})
}

// TestReloadKeepsThePort: during repeated reloads, no connection is refused and no request is lost.
func TestReloadKeepsThePort(t *testing.T) {
	t.Parallel()
	s := NewService(bareNode(t, "a"), func(result.Result) {}, quiet(options.Events{}))
	t.Cleanup(s.Close)
	opts := answeringOptions(freeAddress(), "a")
	if err := s.Apply(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	done, asked := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { asked <- n }()
		for ; ; n++ {
			select {
			case <-done:
				return
			default:
			}
			c, err := tls.Dial("tcp", opts.Listen, &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(c, "GET /v2/node HTTP/1.0\r\n\r\n")
			if text, err := io.ReadAll(c); err != nil || !strings.Contains(string(text), "200 OK") {
				t.Errorf("%v %.100q", err, text)
			}
			c.Close()
		}
	}()
	for i := range 20 {
		next := *opts
		next.Name = fmt.Sprint("a", i)
		if err := s.Apply(context.Background(), &next); err != nil {
			t.Error(err)
		}
		if h, f := askHello(t, opts.Listen, opts.Security); f != nil || h.Node != next.Name {
			t.Errorf("change %d: %q, %v", i, h.Node, f)
		}
	}
	close(done)
	t.Log(<-asked, "connections meanwhile")
}

// TestReloadKeepsConnections: a connection outlives a reload, and each of its requests is answered by the options that
// apply then: without a token, none is answered from the moment that one is required.
func TestReloadKeepsConnections(t *testing.T) {
	t.Parallel()
	s := NewService(bareNode(t, "a"), func(result.Result) {}, quiet(options.Events{}))
	t.Cleanup(s.Close)
	opts := answeringOptions(freeAddress(), "before")
	apply := func() {
		t.Helper()
		next := *opts
		if err := s.Apply(t.Context(), &next); err != nil {
			t.Fatal(err)
		}
	}
	apply()
	w := connectWire(t, opts.Listen)
	for _, name := range []string{"before", "after"} {
		opts.Name = name
		apply()
		if res, text := w.ask("GET", protocol.PathNode, ""); res.StatusCode != 200 || !strings.Contains(string(text), name) {
			t.Errorf("%s: %s, %s", name, res.Status, text)
		}
	}
	opts.Security = withToken(t, secretToken)
	apply()
	if res, text := w.ask("GET", protocol.PathNode, ""); res.StatusCode != 401 || !res.Close {
		t.Errorf("a token is required: %s, %s", res.Status, text)
	}
}
