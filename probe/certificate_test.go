package probe

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/railscope/railscope/probe/certtest"
	"github.com/railscope/railscope/probe/internal/auth"
	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/failure"
)

// TestCertificateChange: a connection ends at its next request once its authority is no longer accepted.
func TestCertificateChange(t *testing.T) {
	t.Parallel()
	dir, old := t.TempDir(), certtest.NewAuthority(t)
	a, b := old.Issue(dir, "a"), old.Issue(dir, "b")
	a.ClientCAFile = file(t, filepath.Join(dir, "ca of a"), read(t, old.File)) // the asker's own file stays
	peer := answering(t, bareNode(t, "b"), b)
	c, err := control.NewClient(peer, auth.Credentials{Security: a, SecretFiles: auth.NewSecretFiles()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 2 {
		if _, err := c.Hello(context.Background()); err != nil || len(c.Conns) != 1 {
			t.Fatalf("over %d connections: %v", len(c.Conns), err)
		}
	}
	file(t, old.File, read(t, certtest.NewAuthority(t).File))
	_, err = c.Hello(context.Background())
	if f := asFailure(t, err); f == nil || f.Reason != failure.Unauthorized || !strings.Contains(f.Detail,
		"does not accept this node's certificate") || len(c.Conns) != 1 {
		t.Errorf("on the connection of before: %v, over %d connections", f, len(c.Conns))
	}
	if _, f := askHello(t, peer, a); f == nil || f.Reason != failure.TLS {
		t.Errorf("on the next one: %v", f)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestClientAllowedNames: only peers whose certificates have an allowed name are answered.
func TestClientAllowedNames(t *testing.T) {
	t.Parallel()
	dir, ca := t.TempDir(), certtest.NewAuthority(t)
	b := ca.Issue(dir, "b")
	for _, tc := range []struct {
		why     string
		allowed []string
		ok      bool
	}{
		{"any", nil, true},
		{"its DNS name", []string{"peers.ns.svc"}, true},
		{"in other letters", []string{"Peers.NS.svc"}, true},
		{"one label for any", []string{"other", "*.ns.svc"}, true},
		{"two labels for any", []string{"*.svc"}, false},
		{"a name that ends so", []string{"ers.ns.svc", "ns.svc", ".ns.svc"}, false},
		{"its URI", []string{"spiffe://example.com/railscope"}, true},
		{"another URI", []string{"spiffe://example.com/other", "spiffe://example.com/", "*.com/railscope"}, false},
		{"its common name", []string{"a"}, false},
		{"its address", []string{"127.0.0.1"}, false},
	} {
		t.Run(tc.why, func(t *testing.T) {
			t.Parallel()
			answerer := b
			answerer.ClientAllowedNames = tc.allowed
			_, f := askHello(t, answering(t, bareNode(t, "b"), answerer),
				ca.Issue(t.TempDir(), "a", "spiffe://example.com/railscope"))
			if tc.ok != (f == nil) || f != nil && (f.Reason != failure.Unauthorized || !strings.Contains(f.Detail,
				"client_allowed_names")) {
				t.Errorf("%v", f)
			}
		})
	}
}

// TestAddressFamilies: both ends see the same address, over IPv6 and over IPv4 to a dual-stack socket.
func TestAddressFamilies(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("no IPv6 here: %v", err)
	}
	l.Close()
	sec := withToken(t, secretToken)
	_, port, _ := net.SplitHostPort(answeringAt(t, bareNode(t, "b"), optionsWith(sec), ":0"))
	for _, host := range []string{"127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1", "localhost"} {
		if _, f := askHello(t, net.JoinHostPort(host, port), sec); f != nil {
			t.Errorf("%s: %v", host, f)
		}
	}
}
