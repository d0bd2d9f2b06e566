package probe

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/railscope/railscope/probe/internal/auth"
	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/target"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// protocol1 answers like a railscope of protocol 1: with a token it refuses all requests, without one it does not
// know the paths of version 2.
func protocol1(token bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case token:
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w,
				`{"stage":"hello","reason":"unauthorized","detail":"the token is not this node's: both ends need `+
					`the same token_file"}`)
		case req.Method == http.MethodGet && req.URL.Path == protocol.PathHelloV1:
			_, _ = io.WriteString(w,
				`{"node":"b","instance":"x","versions":{"railscope":"0.0.9"},"rails":[],"addresses":[]}`)
		default:
			http.NotFound(w, req)
		}
	})
}

// TestOtherVersions: a peer with another protocol version is skipped with its own reason. A server that is not a
// railscope fails.
func TestOtherVersions(t *testing.T) {
	t.Parallel()
	sesame := withToken(t, "sesame")
	answer := func(status int, text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
		})
	}
	for _, tc := range []struct {
		why     string
		handler http.Handler
		sec     options.Security
		outcome result.Outcome
		reason  failure.Reason
		says    string
	}{
		{"protocol 1 with a token", protocol1(true), sesame, result.Skipped, failure.PeerVersion,
			"peer speaks protocol version 1, this node 4: upgrade railscope on the peer"},
		{"protocol 1 with a token, asked without", protocol1(true), options.Security{}, result.Skipped, failure.PeerVersion,
			"version 1"},
		{"protocol 1 without a token", protocol1(false), options.Security{}, result.Skipped, failure.PeerVersion,
			"peer speaks protocol version 1 (railscope 0.0.9), this node 4"},
		{"protocol 1 without a token, asked with one", protocol1(false), sesame, result.Skipped, failure.PeerVersion,
			"version 1"},
		{"protocol 2", http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set(protocol.HeaderProtocol, "2")
			answer(400, `{"stage":"hello","reason":"protocol","detail":"peer speaks protocol version 2, this node 4"}`).
				ServeHTTP(w, req)
		}), sesame, result.Skipped, failure.PeerVersion, "peer speaks protocol version 2, this node 4: upgrade railscope on the peer"},
		{"protocol 3", answer(200, `{"version":3}`), sesame, result.Skipped, failure.PeerVersion,
			"peer speaks protocol version 3, this node 4: upgrade railscope on the peer"},
		{"protocol 5", answer(200, `{"version":5,"later":true}`), sesame, result.Skipped, failure.PeerVersion,
			"peer speaks protocol version 5, this node 4: upgrade railscope on this node"},
		{"a page that is not there", http.NotFoundHandler(), sesame, result.Failed, failure.Protocol,
			"is that railscope's probe port?"},
		{"a page for those who are known", answer(401, "who are you"), sesame, result.Failed, failure.Unauthorized,
			"who are you"},
		{"a refusal of this version", http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set(protocol.HeaderProtocol, "4")
			protocol1(true).ServeHTTP(w, req)
		}), sesame, result.Failed, failure.Unauthorized, "both ends need the same token_file"},
	} {
		for over, start := range map[string]func(http.Handler) *httptest.Server{"TCP": httptest.NewServer,
			"TLS": httptest.NewTLSServer} {
			t.Run(tc.why+" over "+over, func(t *testing.T) {
				t.Parallel()
				srv := start(tc.handler)
				srv.Config.ErrorLog = log.New(io.Discard, "", 0)
				defer srv.Close()
				_, peer, _ := strings.Cut(srv.URL, "://")
				res := Bench(t.Context(), bareNode(t, "a"), optionsWith(tc.sec), peer, func(result.Progress) {})
				if res.Outcome != tc.outcome || res.Reason != tc.reason || !strings.Contains(res.Detail, tc.says) {
					t.Errorf("%s because of %q: %s", res.Outcome, res.Reason, res.Detail)
				}
			})
		}
	}
}

// TestProtocol1ConnectionGone: a peer of protocol 1 is recognized even if its connection closes between the two
// requests.
func TestProtocol1ConnectionGone(t *testing.T) {
	t.Parallel()
	var gone atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == protocol.PathHelloV1 && !gone.Swap(true) {
			panic(http.ErrAbortHandler)
		}
		protocol1(false).ServeHTTP(w, req)
	}))
	defer srv.Close()
	peer := strings.TrimPrefix(srv.URL, "http://")
	res := Bench(t.Context(), bareNode(t, "a"), optionsWith(options.Security{}), peer, func(result.Progress) {})
	if res.Outcome != result.Skipped || res.Reason != failure.PeerVersion || !gone.Load() {
		t.Errorf("%s because of %q: %s", res.Outcome, res.Reason, res.Detail)
	}
}

// TestProtocol1Refused: an asker of protocol 1 gets the version as the reason, whatever its request contains and
// this node requires.
func TestProtocol1Refused(t *testing.T) {
	t.Parallel()
	sesame, client := withToken(t, "sesame"), insecureHTTP(t)
	for _, sec := range []options.Security{sesame, {Insecure: true}} {
		peer := answering(t, bareNode(t, "railnode"), sec)
		for _, proof := range []string{"", "Bearer sesame", "Bearer mustard"} {
			for _, path := range []string{"/v1/hello", "/v1/facts", "/v1/lease", "/v1/lease/x/open", "/v1"} {
				for _, scheme := range []string{"http://", "https://"} {
					req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, scheme+peer+path,
						strings.NewReader("{}"))
					if err != nil {
						t.Fatal(err)
					}
					req.Header.Set("Authorization", proof)
					res, err := client.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					var f failure.Failure
					err = json.NewDecoder(res.Body).Decode(&f)
					res.Body.Close()
					if err != nil || res.StatusCode != http.StatusGone || !res.Close || f.Reason != failure.Protocol ||
						f.Stage != failure.StageHello || !strings.Contains(f.Detail,
						"peer speaks protocol version 4, this node 1: install the peer's version of railscope") {
						t.Errorf("%s with %q: %s, %v, %v", path, proof, res.Status, f, err)
					}
				}
			}
		}
	}
	// No credential is read: the answer is the same without a valid one.
	file(t, sesame.TokenFile, "")
	files := auth.NewSecretFiles()
	files.Read = func(path string) ([]byte, error) { t.Errorf("%s was read", filepath.Base(path)); return nil, nil }
	n := bareNode(t, "b")
	n.Secrets = files
	r := &target.Responder{Node: n, Creds: auth.Credentials{Security: sesame, SecretFiles: files}}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/hello", nil))
	if w.Code != http.StatusGone {
		t.Errorf("%d", w.Code)
	}
}

// TestProtocol3Refused: an asker of protocol 2 or 3, in the clear or over TLS, gets the version as the reason to
// skip its round. No credential is read, and nothing else is answered.
func TestProtocol3Refused(t *testing.T) {
	t.Parallel()
	n, client := bareNode(t, "railnode"), insecureHTTP(t)
	sec := withToken(t, "sesame")
	peer := answering(t, n, sec)
	n.Secrets.Read = func(path string) ([]byte, error) { t.Errorf("%s was read", filepath.Base(path)); return nil, nil }
	const nonce = `"nonce":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","address":"10.0.0.2:10092"`
	for url, tc := range map[string]struct {
		body, says string
		status     int
	}{
		"http://" + peer + protocol.PathHello:  {`{"version":3,` + nonce + `}`, `{"version":4}`, http.StatusOK},
		"https://" + peer + protocol.PathHello: {`{"version":2,` + nonce + `}`, `{"version":4}`, http.StatusOK},
		"http://" + peer + "/v2/prove":         {`{}`, "only over TLS (protocol version 4)", http.StatusUnauthorized},
		"http://" + peer + protocol.PathLease:  {`{}`, "only over TLS (protocol version 4)", http.StatusUnauthorized},
	} {
		res, err := client.Post(url, "application/json", strings.NewReader(tc.body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != tc.status || !res.Close || !strings.Contains(string(text), tc.says) ||
			res.Header.Get(protocol.HeaderProtocol) != "4" || strings.Contains(string(text), "railnode") {
			t.Errorf("%s: %s, %s, %v", url, res.Status, text, err)
		}
	}
}

// TestUnknownFields: both ends ignore fields of later versions.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	peer := answering(t, bareNode(t, "b"), options.Security{Insecure: true})
	for path, body := range map[string]string{
		protocol.PathHello: `{"later":{"a":[1]},"version":4}`,
		protocol.PathLease: `{"later":1,"node":"c","instance":"c","rail_seconds":1e-9}`,
	} {
		res, err := insecureHTTP(t).Post("https://"+peer+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
	e, err := control.NewEventReader(strings.NewReader(`{"later":2,"grant":{"later":3,"id":"A","key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","ttl":10000000000}}` +
		"\n")).Next()
	if err != nil || e.Grant == nil {
		t.Errorf("%+v, %v", e, err)
	}
}
