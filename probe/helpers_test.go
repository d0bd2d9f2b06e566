package probe

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
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

// authority is a CA of the test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // file with its certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, key: newKey(t)}
	der := a.sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		Subject: pkix.Name{CommonName: "peers"}}, a.key)
	a.cert, _ = x509.ParseCertificate(der)
	a.file = file(t, filepath.Join(t.TempDir(), "ca.pem"), pemOf("CERTIFICATE", der))
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func pemOf(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// sign returns a certificate from a template, for a key.
func (a *authority) sign(tmpl *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	a.t.Helper()
	tmpl.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<62))
	tmpl.NotBefore, tmpl.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent := a.cert
	if parent == nil {
		parent = tmpl
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

// issue writes a certificate and its key for a node on the loopback interface.
func (a *authority) issue(dir, name string, uris ...string) options.Security {
	a.t.Helper()
	cert := &x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: []string{"peers.ns.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	for _, uri := range uris {
		u, err := url.Parse(uri)
		if err != nil {
			a.t.Fatal(err)
		}
		cert.URIs = append(cert.URIs, u)
	}
	key := newKey(a.t)
	der := a.sign(cert, key)
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return options.Security{ClientCAFile: a.file,
		CertFile: file(a.t, filepath.Join(dir, name+".pem"), pemOf("CERTIFICATE", der)),
		KeyFile:  file(a.t, filepath.Join(dir, name+".key"), pemOf("EC PRIVATE KEY", private))}
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
