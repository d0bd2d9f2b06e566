package probe

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/options"
)

// nodeWithFacts returns a node that reports facts.
func nodeWithFacts(t *testing.T, gather func(context.Context) ([]byte, error)) *node.Node {
	t.Helper()
	n := bareNode(t, "b")
	n.Facts.Gather = gather
	return n
}

// TestFetchFacts: facts arrive unchanged, and the error says why they are missing.
func TestFetchFacts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sesame, other := options.Security{TokenFile: file(t, filepath.Join(dir, "token"), "sesame")},
		options.Security{TokenFile: file(t, filepath.Join(dir, "other"), "mustard")}
	says := func(s string, err error) func(context.Context) ([]byte, error) {
		return func(context.Context) ([]byte, error) { return []byte(s), err }
	}
	for _, tc := range []struct {
		why             string
		gather          func(context.Context) ([]byte, error)
		answerer, asker options.Security
		want            string
		reason          failure.Reason
		says            string
	}{
		{"facts", says(`{"version":1}`, nil), sesame, sesame, `{"version":1}`, "", ""},
		{"as much as there may be", says(`"`+strings.Repeat("x", protocol.MaxBody-2)+`"`, nil), sesame, sesame,
			`"` + strings.Repeat("x", protocol.MaxBody-2) + `"`, "", ""},
		{"too much", says(`"`+strings.Repeat("x", protocol.MaxBody-1)+`"`, nil), sesame, sesame, "", failure.Other,
			"1048577 bytes of facts"},
		{"not JSON", says("<html>", nil), sesame, sesame, "", failure.Protocol, "not JSON"},
		{"it cannot", says("", errors.New("disk on fire")), sesame, sesame, "", failure.Other, "disk on fire"},
		{"another token", says("{}", nil), sesame, other, "", failure.Unauthorized,
			"both ends need the same token_file"},
		{"a peer that answers anyone", says("{}", nil), options.Security{Insecure: true}, sesame, "", failure.Unauthorized,
			"give both ends a token_file"},
	} {
		t.Run(tc.why, func(t *testing.T) {
			t.Parallel()
			node, data, err := FetchFacts(t.Context(), answering(t, nodeWithFacts(t, tc.gather), tc.answerer), tc.asker)
			if string(data) != tc.want || data != nil && node != "b" {
				t.Errorf("%q told %.40q, want %.40q", node, data, tc.want)
			}
			if f := asFailure(t, err); f == nil && tc.reason != "" || f != nil &&
				(f.Reason != tc.reason || !strings.Contains(f.Detail, tc.says)) {
				t.Errorf("got %v, want %s with %q", f, tc.reason, tc.says)
			}
		})
	}
	t.Run("too old", func(t *testing.T) {
		_, _, err := FetchFacts(t.Context(), answering(t, bareNode(t, "b"), sesame), sesame)
		if !errors.Is(err, ErrNoFacts) || !strings.Contains(err.Error(), "version 1.2.3") {
			t.Errorf("%v", err)
		}
	})
	t.Run("nobody there", func(t *testing.T) {
		_, _, err := FetchFacts(t.Context(), freeAddress(), sesame)
		if f := asFailure(t, err); f.Reason != failure.PeerUnreachable {
			t.Errorf("%v", f)
		}
	})
	t.Run("something else there", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}
		go func() { _ = srv.Serve(l) }()
		defer srv.Close()
		_, _, err = FetchFacts(t.Context(), l.Addr().String(), sesame)
		if f := asFailure(t, err); f.Reason != failure.Protocol {
			t.Errorf("%v", f)
		}
	})
}

// TestFactsShared: one gathering runs at a time, and its result, also an error, is kept for a while.
func TestFactsShared(t *testing.T) {
	for _, fails := range []error{nil, errors.New("no")} {
		synctest.Test(t, func(t *testing.T) {
			var made, running atomic.Int32
			f := &node.Facts{Lock: make(chan struct{}, 1), Gather: func(ctx context.Context) ([]byte, error) {
				if running.Add(1) > 1 {
					t.Error("two gatherings at once")
				}
				defer running.Add(-1)
				if d, ok := ctx.Deadline(); !ok || time.Until(d) > node.FactsTime {
					t.Error("a gathering without an end")
				}
				time.Sleep(time.Second)
				if ctx.Err() != nil {
					t.Error("who hung up took the others' facts along")
				}
				return []byte{byte(made.Add(1))}, fails
			}}
			ask := func(ctx context.Context, want byte) {
				if data, err := f.Get(ctx); len(data) != 1 || data[0] != want || !errors.Is(err, fails) {
					t.Errorf("%v %v, want %d", data, err, want)
				}
			}
			var askers sync.WaitGroup
			hasty, hangUp := context.WithTimeout(t.Context(), time.Second/2)
			defer hangUp()
			askers.Go(func() { ask(hasty, 1) })
			synctest.Wait()
			if _, err := f.Get(hasty); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("who waits and hangs up: %v", err)
			}
			for range 50 {
				askers.Go(func() { ask(t.Context(), 1) })
			}
			askers.Wait()
			time.Sleep(node.FactsCacheTime - time.Millisecond)
			ask(t.Context(), 1)
			time.Sleep(time.Millisecond)
			ask(t.Context(), 2)
		})
	}
}
