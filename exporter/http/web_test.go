package http

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/railscope/railscope/internal/connlimit"
)

// hashOf returns the hash of a password at the lowest cost.
func hashOf(t *testing.T, password string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return string(hash)
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// guarded returns a handler protected by a file of --web.config.file.
func guarded(t *testing.T, file string) http.Handler {
	t.Helper()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("inside"))
	})}
	refused := func(string) {}
	if err := (&webFile{path: file}).protect(server, slog.New(slog.DiscardHandler), refused); err != nil {
		t.Fatal(err)
	}
	return server.Handler
}

// TestWebFile: the file decides which users get a response, which headers it has, and how often; a change applies
// at once.
func TestWebFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "web.yml")
	users := "basic_auth_users: {prometheus: '" + hashOf(t, "right") + "', other: '" + hashOf(t, "another") + "'}\n"
	writeFile(t, file, users)
	handler := guarded(t, file)
	for _, tc := range []struct {
		name, text, user, password string // text: content of the file; empty: unchanged
		code                       int
	}{
		{"the right one", "", "prometheus", "right", 200},
		{"again", "", "prometheus", "right", 200},
		{"a wrong one", "", "prometheus", "wrong", 401},
		{"another's", "", "prometheus", "another", 401},
		{"an unknown user", "", "nobody", "fakepassword", 401},
		{"no login", "", "", "", 401},
		{"the other", "", "other", "another", 200},
		{"a changed hash", "basic_auth_users: {prometheus: '" + hashOf(t, "new") + "'}\n", "prometheus", "right", 401},
		{"the new one", "", "prometheus", "new", 200},
		{"a user that was removed", "", "other", "another", 401},
		{"a sixth wrong one of this address", "", "prometheus", "", 429},
		{"the right one is known", "", "prometheus", "new", 200},
		{"a broken file", "basic_auth_users: [", "prometheus", "new", 500},
		{"an unknown key", "basic_auth: {}", "prometheus", "new", 500},
		{"no users", "http_server_config: {headers: {X-Frame-Options: deny}}", "", "", 200},
		{"empty", " ", "", "", 200},
	} {
		if tc.text != "" {
			writeFile(t, file, tc.text)
		}
		r := httptest.NewRequest("GET", "/metrics", nil)
		if tc.user != "" {
			r.SetBasicAuth(tc.user, tc.password)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != tc.code || (w.Body.String() == "inside") != (tc.code == 200) {
			t.Errorf("%s: %d %s, want %d", tc.name, w.Code, w.Body, tc.code)
		}
		if asks := w.Header().Get("WWW-Authenticate") != ""; asks != (tc.code == 401) {
			t.Errorf("%s: WWW-Authenticate: %v", tc.name, asks)
		}
		if got := w.Header().Get("X-Frame-Options"); (got == "deny") != (tc.name == "no users") {
			t.Errorf("%s: header %q", tc.name, got)
		}
	}
	writeFile(t, file, "rate_limit: {interval: 1h, burst: 2}")
	limited, codes := guarded(t, file), ""
	for range 3 {
		w := httptest.NewRecorder()
		limited.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		codes += fmt.Sprint(w.Code, " ")
	}
	if codes != "200 200 429 " {
		t.Error("rate_limit:", codes)
	}
}

// TestGuesses: strangers who guess passwords cost a bounded number of checks. They never delay a user who logged in
// before, and only briefly one who logs in for the first time.
func TestGuesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cost = 100 * time.Millisecond
		l, checks := newLogins(), 0
		l.compare = func(hash, password []byte) error {
			checks++
			time.Sleep(cost)
			if string(hash) != "hash of "+string(password) {
				return bcrypt.ErrMismatchedHashAndPassword
			}
			return nil
		}
		scrape := func(from, user string, within time.Duration) {
			t.Helper()
			start := time.Now()
			if got := l.check(from, user, "right", "hash of right"); got != loginRight {
				t.Errorf("%s is %v", user, got)
			}
			if took := time.Since(start); took > within {
				t.Errorf("%s waited %v", user, took)
			}
		}
		scrape("192.0.2.1:1000", "prometheus", cost)
		ctx, stop := context.WithCancel(t.Context())
		var guesses sync.WaitGroup
		for i := range 200 {
			from := fmt.Sprintf("198.51.100.%d:%d", i%2, 2000+i)
			user := []string{"prometheus", "nobody"}[i/2%2]
			hash := map[string]string{"prometheus": "hash of right"}[user]
			guesses.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					if l.check(from, user, fmt.Sprint("guess ", i, n), hash) == loginRight {
						t.Error("a guess was right")
					}
					time.Sleep(time.Second)
				}
			})
		}
		synctest.Wait()
		scrape("192.0.2.1:1000", "prometheus", 0)
		scrape("192.0.2.3:1000", "second", 4*cost)
		time.Sleep(10 * time.Minute)
		scrape("192.0.2.1:1001", "prometheus", 0)
		scrape("192.0.2.2:1000", "prometheus", 0) // from another address
		scrape("192.0.2.4:1000", "third", 4*cost)
		stop()
		guesses.Wait()
		if most := 3 + 2*(failedLogins+int(10*time.Minute/failedEvery)+1); checks > most || checks < most/2 {
			t.Errorf("%d checks in 10 min, want at most %d", checks, most)
		}
		for i := range 2 * maxStrangers {
			l.stranger(connlimit.Place(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&0xff, i&0xff)))
		}
		if len(l.strangers) != maxStrangers || l.order.Len() != maxStrangers || len(l.right) != 3 {
			t.Errorf("%d addresses, %d users are kept", len(l.strangers), len(l.right))
		}
	})
}

// TestNoHTTP2: clients that offer HTTP/2 get HTTP/1.1, also after a change of the file.
func TestNoHTTP2(t *testing.T) {
	dir := t.TempDir()
	certificate(t, dir)
	file := filepath.Join(dir, "web.yml")
	writeFile(t, file, "tls_server_config: {cert_file: web.crt, key_file: web.key}\nhttp_server_config: {http2: true}\n")
	server := newHTTPServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	if err := (&webFile{path: file}).protect(server, slog.New(slog.DiscardHandler), func(string) {}); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = serveOn(l, server, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() { server.Close() })
	for _, offer := range [][]string{{"h2"}, {"h2", "http/1.1"}, nil} {
		c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: offer})
		if err != nil {
			if len(offer) == 1 { // the client speaks only HTTP/2
				continue
			}
			t.Fatal(err)
		}
		if got := c.ConnectionState().NegotiatedProtocol; got == "h2" {
			t.Errorf("offered %v, it chose %q", offer, got)
		}
		c.Close()
	}
	client := http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	resp, err := client.Get("https://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.ProtoMajor != 1 || resp.StatusCode != http.StatusNotFound {
		t.Error(resp.Proto, resp.Status)
	}
	writeFile(t, file, "{}")
	client.CloseIdleConnections()
	if resp, err := client.Get("https://" + l.Addr().String()); err == nil {
		resp.Body.Close()
		t.Error("without TLS in the file it was answered")
	}
	writeFile(t, file, strings.Repeat("# a long file\n", maxWebFile/10))
	if _, err := (&webFile{path: file}).read(); err == nil {
		t.Error("a file of any size is read")
	}
}

// certificate writes web.crt and web.key.
func certificate(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"web.crt": {Type: "CERTIFICATE", Bytes: cert},
		"web.key": {Type: "PRIVATE KEY", Bytes: private}} {
		writeFile(t, filepath.Join(dir, name), string(pem.EncodeToMemory(block)))
	}
}
