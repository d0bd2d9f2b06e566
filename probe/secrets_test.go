package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/probe/certtest"
	"github.com/railscope/railscope/probe/internal/auth"
	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/target"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// secretStore is a fake file system: the test decides the result of each read.
type secretStore struct {
	*auth.SecretFiles
	mu      sync.Mutex // protects all following fields, but for said
	content string
	err     error
	hang    chan struct{} // reads wait until it is closed; nil: they do not
	reads   int
	said    []string
}

func newSecretStore() *secretStore {
	s := &secretStore{SecretFiles: auth.NewSecretFiles()}
	s.Read = func(string) ([]byte, error) {
		s.mu.Lock()
		s.reads++
		hang, content, err := s.hang, s.content, s.err
		s.mu.Unlock()
		if hang != nil {
			<-hang
		}
		return []byte(content), err
	}
	s.SetObservers(func(path string, err error) { s.said = append(s.said, fmt.Sprint(path, ": ", err)) },
		func(path string, n int) { s.said = append(s.said, fmt.Sprint(path, ": weak, ", n)) })
	return s
}

// set sets the result of reads from now on.
func (s *secretStore) set(content string, err error, hang chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.content, s.err, s.hang, s.reads = content, err, hang, 0
}

// lanesEnd is long enough for idle lanes to end: none may outlive a bubble.
const lanesEnd = 2 * time.Minute

// TestSecretFileKept: a good token file that is removed, emptied, invalid or hangs keeps its last token in use, which
// is reported once. A new content applies at once, and nobody waits long for a read that hangs.
func TestSecretFileKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecretStore()
		expect := func(why string, want string, atMost time.Duration) {
			t.Helper()
			start := time.Now()
			got, err := s.Tokens("/token")
			if err != nil || strings.Join(got, " ") != want || time.Since(start) > atMost {
				t.Errorf("%s: %q, %v after %v, want %q within %v", why, got, err, time.Since(start), want, atMost)
			}
		}
		said := func(why string, want ...string) {
			t.Helper()
			if !slices.EqualFunc(s.said, want, strings.Contains) {
				t.Errorf("%s: it said %q, want %q", why, s.said, want)
			}
			s.said = nil
		}
		s.set("", os.ErrNotExist, nil)
		if _, err := s.Tokens("/token"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a file that was never there: %v", err)
		}
		said("at first")
		s.set("first token, 16+ bytes", nil, nil)
		expect("good", "first token, 16+ bytes", 0)
		said("good")
		for _, bad := range []struct {
			content, says string
			err           error
		}{
			{"", "file does not exist", os.ErrNotExist}, {" \n", "empty", nil}, {"a\nb\nc", "3 lines", nil},
			{"", "input/output error", unix.EIO},
		} {
			s.set(bad.content, bad.err, nil)
			expect(bad.says, "first token, 16+ bytes", 0)
			expect(bad.says, "first token, 16+ bytes", 0)
			said(bad.says, bad.says)
		}
		s.set("second token, 16+ bytes", nil, nil)
		expect("good again", "second token, 16+ bytes", 0)
		said("good again", "<nil>")

		// It hangs: the first to ask waits a second, the others not at all.
		hang := make(chan struct{})
		s.set("", nil, hang)
		expect("it hangs", "second token, 16+ bytes", auth.SecretReadTime)
		for range 20 {
			time.Sleep(time.Second)
			expect("it still hangs", "second token, 16+ bytes", 0)
		}
		said("it hangs", "read hangs")
		s.set("third token, 16+ bytes", nil, nil)
		expect("repaired, but the read of before is still in the kernel", "second token, 16+ bytes", 0)
		close(hang)
		synctest.Wait()
		expect("repaired", "third token, 16+ bytes", 0)
		said("repaired", "<nil>")

		// It hangs, is repaired, and the kernel never lets go of the thread.
		stuck := make(chan struct{})
		s.set("", nil, stuck)
		expect("it hangs for good", "third token, 16+ bytes", auth.SecretReadTime)
		s.set("fourth token, 16+ bytes", nil, nil)
		time.Sleep(auth.SecretRetryAfter)
		expect("repaired beside the stuck read", "fourth token, 16+ bytes", 0)

		// However long it hangs, few threads wait for it.
		s.set("", nil, stuck)
		for range 1000 {
			expect("it hangs again", "fourth token, 16+ bytes", auth.SecretReadTime)
			time.Sleep(10 * time.Second)
		}
		close(stuck)
		synctest.Wait()
		if s.reads > auth.MaxStuckReads {
			t.Errorf("%d reads hung", s.reads)
		}
		time.Sleep(lanesEnd)
	})
}

// TestSecretFileLongOutage: after ten minutes without its file system a file is read again, although the kernel never
// returns the reads of that time.
func TestSecretFileLongOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := auth.NewSecretFiles()
		stuck := make(chan struct{})
		var away atomic.Bool
		s.Read = func(string) ([]byte, error) {
			if away.Load() {
				<-stuck
			}
			return []byte(fmt.Sprint("since ", time.Now().Unix())), nil
		}
		ask := func() string {
			got, err := s.Tokens("/token")
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			return got[0]
		}
		before := ask()
		away.Store(true)
		for range 60 {
			if got := ask(); got != before {
				t.Fatalf("while it is away: %q", got)
			}
		}
		away.Store(false)
		for range 240 {
			ask()
		}
		if got := ask(); got == before {
			t.Error("repaired for 40 minutes, and still the last good value")
		}
		close(stuck)
		synctest.Wait()
		time.Sleep(lanesEnd)
	})
}

// TestSecretFileConcurrent: concurrent requests that read a slow file are all answered.
func TestSecretFileConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := auth.NewSecretFiles()
		s.Read = func(string) ([]byte, error) { time.Sleep(time.Millisecond); return []byte("sesame"), nil }
		var askers sync.WaitGroup
		for range 50 {
			askers.Go(func() {
				if got, err := s.Tokens("/token"); err != nil || len(got) != 1 {
					t.Errorf("%q, %v", got, err)
				}
			})
		}
		askers.Wait()
		time.Sleep(lanesEnd)
	})
}

// TestWeakToken: a token of less than 16 bytes causes a warning, once for each content, and no error.
func TestWeakToken(t *testing.T) {
	t.Parallel()
	s := newSecretStore()
	for _, step := range []struct {
		content string
		again   bool
		want    []string
	}{
		{"sesame", false, []string{"/token: weak, 6"}},
		{"sesame", false, nil},
		{"sesame", true, []string{"/token: weak, 6"}},
		{"0123456789abcdef\n", false, nil},
		{"0123456789abcdef\n0123456789abcde\n", false, []string{"/token: weak, 15"}},
		{"sesame", false, []string{"/token: weak, 6"}},
	} {
		if step.again {
			s.ResetWarnings()
		}
		s.set(step.content, nil, nil)
		s.said = nil
		if _, err := s.Tokens("/token"); err != nil || !slices.Equal(s.said, step.want) {
			t.Errorf("%q: %q, %v, want %q", step.content, s.said, err, step.want)
		}
	}
}

// TestServiceReportsFiles: the service reports faults of token files.
func TestServiceReportsFiles(t *testing.T) {
	t.Parallel()
	sec := withToken(t, "sesame")
	weak, fault := make(chan int, 4), make(chan error, 4)
	s := NewService(bareNode(t, "b"), func(result.Result) {}, quiet(options.Events{
		WeakToken:  func(_ string, n int) { weak <- n },
		SecretFile: func(_ string, err error) { fault <- err }}))
	defer s.Close()
	opts := optionsWith(sec)
	opts.Listen = freeAddress()
	if err := s.Apply(t.Context(), &opts); err != nil {
		t.Fatal(err)
	}
	if n := <-weak; n != 6 {
		t.Errorf("weak: %d", n)
	}
	if err := os.Remove(sec.TokenFile); err != nil {
		t.Fatal(err)
	}
	dialWire(t, opts.Listen, "sesame")
	if err := <-fault; !errors.Is(err, os.ErrNotExist) {
		t.Errorf("gone: %v", err)
	}
	file(t, sec.TokenFile, "sesame")
	dialWire(t, opts.Listen, "sesame")
	if err := <-fault; err != nil {
		t.Errorf("there again: %v", err)
	}
}

// TestPipeForToken: a pipe instead of a token or certificate file is refused at once.
func TestPipeForToken(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	good := certtest.NewAuthority(t).Issue(t.TempDir(), "b")
	for _, sec := range []options.Security{{TokenFile: pipe}, {ClientCAFile: pipe, CertFile: good.CertFile,
		KeyFile: good.KeyFile},
		{ClientCAFile: good.ClientCAFile, CertFile: pipe, KeyFile: good.KeyFile},
		{ClientCAFile: good.ClientCAFile, CertFile: good.CertFile, KeyFile: "/dev/zero"}} {
		start := time.Now()
		_, err := target.NewResponder(bareNode(t, "b"), options.Options{Security: sec})
		if err == nil || !strings.Contains(err.Error(), "not a regular file") || time.Since(start) > 5*time.Second {
			t.Errorf("%+v: %v after %v", sec, err, time.Since(start))
		}
	}
}

// TestTokenRotation: in each step of a token change every node can ask every other, whichever step each has reached.
func TestTokenRotation(t *testing.T) {
	t.Parallel()
	const a, b = "the token of before", "the token from now on"
	steps := []string{a, a + "\n" + b + "\n", b + "\n" + a + "\n", b + "\n"}
	for i, here := range steps {
		for j, there := range steps {
			_, f := askHello(t, answering(t, bareNode(t, "b"), withToken(t, there)), withToken(t, here))
			if far := i-j > 2 || j-i > 2; far != (f != nil) || f != nil && f.Reason != failure.Unauthorized {
				t.Errorf("from step %d to step %d: %v", i, j, f)
			}
		}
	}
}

// TestTokenChange: sessions of a token that is no longer in the file end at their next request; an asker with the new
// token continues with that.
func TestTokenChange(t *testing.T) {
	t.Parallel()
	const before, next = "the token of before", "the token from now on"
	sec := withToken(t, before+"\n"+next)
	peer := answering(t, bareNode(t, "b"), sec)
	c, err := control.NewClient(peer, auth.Credentials{Security: withToken(t, before+"\n"+next),
		SecretFiles: auth.NewSecretFiles()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w := dialWire(t, peer, before)
	for range 2 {
		if _, err := c.Hello(context.Background()); err != nil {
			t.Fatal(err)
		}
		if res, text := w.ask("GET", protocol.PathNode, ""); res.StatusCode != 200 {
			t.Fatalf("%s, %s", res.Status, text)
		}
	}
	file(t, sec.TokenFile, next)
	if _, err := c.Hello(context.Background()); err != nil || len(c.Conns) != 2 {
		t.Errorf("with both tokens, over %d connections: %v", len(c.Conns), err)
	}
	if res, text := w.ask("GET", protocol.PathNode, ""); res.StatusCode != 401 || !res.Close {
		t.Errorf("with the token of before: %s, %s", res.Status, text)
	}
}
