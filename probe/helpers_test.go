package probe

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/auth"
	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/target"
	"github.com/railscope/railscope/probe/options"
)

// bareNode returns a node without rails, for tests of the control channel.
func bareNode(t *testing.T, name string) *node.Node {
	t.Helper()
	n := node.NewNode(node.Options{Version: "1.2.3", Sysfs: t.TempDir(),
		Rails:  func() ([]rail.Rail, error) { return nil, nil },
		Worker: []string{os.Args[0]}, Env: []string{"RAILSCOPE_TEST_WORKER=1", "RAILSCOPE_LIBIBVERBS=/nonexistent"},
		Server:    func(s *http.Server) { s.ErrorLog = log.New(io.Discard, "", 0) },
		Log:       func(line string) { t.Logf("worker of %s: %s", name, line) },
		Addresses: func() (map[string][]netip.Prefix, error) { return nil, nil }})
	if raceEnabled { // handshakes take ten times as long
		n.StrangersWork = 0.5
	}
	n.SetName(name)
	t.Cleanup(n.Close)
	return n
}

// answering starts a node's responder until the test ends, and returns its address.
func answering(t *testing.T, n *node.Node, sec options.Security) string {
	t.Helper()
	opts := options.DefaultOptions()
	opts.Security = sec
	return answeringAt(t, n, opts, "127.0.0.1:0")
}

func answeringAt(t *testing.T, n *node.Node, opts options.Options, address string) string {
	t.Helper()
	r, err := target.NewResponder(n, opts)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(serve(t, r, l, target.RequestTime))
	return l.Addr().String()
}

// serve serves until stop is called.
func serve(t *testing.T, r *target.Responder, l net.Listener, strangerTime time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	server := target.NewServer(r.Node, strangerTime, func() *target.Responder { return r })
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	return func() {
		cancel()
		running.Wait()
		l.Close()
		if err := <-served; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		server.Shutdown()
	}
}

// askHello asks a peer for its hello.
func askHello(t *testing.T, peer string, sec options.Security) (protocol.Hello, *failure.Failure) {
	t.Helper()
	c, err := control.NewClient(peer, auth.Credentials{Security: sec, SecretFiles: auth.NewSecretFiles()})
	if err != nil {
		return protocol.Hello{}, asFailure(t, err)
	}
	defer c.Close()
	h, err := c.Hello(t.Context())
	return h, asFailure(t, err)
}

// asFailure returns the failure of an error of the client.
func asFailure(t *testing.T, err error) *failure.Failure {
	t.Helper()
	if err == nil {
		return nil
	}
	f, ok := errors.AsType[*failure.Failure](err)
	if !ok {
		t.Fatalf("an error without a reason: %v", err)
	}
	return f
}

// file writes a file.
func file(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// quiet returns events in which every callback is set.
func quiet(e options.Events) options.Events {
	if e.Answering == nil {
		e.Answering = func(net.Addr) {}
	}
	if e.Stopped == nil {
		e.Stopped = func(error) {}
	}
	if e.Peers == nil {
		e.Peers = func([]string) {}
	}
	if e.Resolved == nil {
		e.Resolved = func(string, int, error) {}
	}
	if e.SecretFile == nil {
		e.SecretFile = func(string, error) {}
	}
	if e.WeakToken == nil {
		e.WeakToken = func(string, int) {}
	}
	return e
}
