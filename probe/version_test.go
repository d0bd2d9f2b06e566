package probe

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/railscope/railscope/probe/internal/failure"
)

// protocol1 answers as a railscope of protocol 1: with a token it refuses everything, without one it does not know the
// paths of version 2.
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
		case req.Method == http.MethodGet && req.URL.Path == pathHelloV1:
			_, _ = io.WriteString(w,
				`{"node":"b","instance":"x","versions":{"railscope":"0.0.9"},"rails":[],"addresses":[]}`)
		default:
			http.NotFound(w, req)
		}
	})
}

// TestOtherVersions: a peer with another protocol version is skipped with its own reason; something that is not a
// railscope is not.
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
		sec     Security
		outcome Outcome
		reason  failure.Reason
		says    string
	}{
		{"protocol 1 with a token", protocol1(true), sesame, Skipped, failure.PeerVersion,
			"peer speaks protocol version 1, this node 3: upgrade railscope on the peer"},
		{"protocol 1 with a token, asked without", protocol1(true), Security{}, Skipped, failure.PeerVersion,
			"version 1"},
		{"protocol 1 without a token", protocol1(false), Security{}, Skipped, failure.PeerVersion,
			"peer speaks protocol version 1 (railscope 0.0.9), this node 3"},
		{"protocol 1 without a token, asked with one", protocol1(false), sesame, Skipped, failure.PeerVersion,
			"version 1"},
		{"protocol 2", http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set(headerProtocol, "2")
			answer(400, `{"stage":"hello","reason":"protocol","detail":"peer speaks protocol version 2, this node 3"}`).
				ServeHTTP(w, req)
		}), sesame, Skipped, failure.PeerVersion, "peer speaks protocol version 2, this node 3: upgrade railscope on the peer"},
		{"protocol 4", answer(200, `{"version":4,"later":true}`), sesame, Skipped, failure.PeerVersion,
			"peer speaks protocol version 4, this node 3: upgrade railscope on this node"},
		{"a page that is not there", http.NotFoundHandler(), sesame, Failed, failure.Protocol,
			"is that railscope's probe port?"},
		{"a page for those who are known", answer(401, "who are you"), sesame, Failed, failure.Unauthorized,
			"who are you"},
		{"a refusal of this version", http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set(headerProtocol, "3")
			protocol1(true).ServeHTTP(w, req)
		}), sesame, Failed, failure.Unauthorized, "both ends need the same token_file"},
	} {
		t.Run(tc.why, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(tc.handler)
			defer srv.Close()
			res := Bench(t.Context(), bareNode(t, "a"), optionsWith(tc.sec), strings.TrimPrefix(srv.URL, "http://"),
				func(Progress) {})
			if res.Outcome != tc.outcome || res.Reason != tc.reason || !strings.Contains(res.Detail, tc.says) {
				t.Errorf("%s because of %q: %s", res.Outcome, res.Reason, res.Detail)
			}
		})
	}
}

// TestProtocol1ConnectionGone: a peer of protocol 1 is recognised also if its connection closes between the two
// requests.
func TestProtocol1ConnectionGone(t *testing.T) {
	t.Parallel()
	var gone atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == pathHelloV1 && !gone.Swap(true) {
			panic(http.ErrAbortHandler)
		}
		protocol1(false).ServeHTTP(w, req)
	}))
	defer srv.Close()
	peer := strings.TrimPrefix(srv.URL, "http://")
	res := Bench(t.Context(), bareNode(t, "a"), optionsWith(Security{}), peer, func(Progress) {})
	if res.Outcome != Skipped || res.Reason != failure.PeerVersion || !gone.Load() {
		t.Errorf("%s because of %q: %s", res.Outcome, res.Reason, res.Detail)
	}
}

// TestProtocol1Refused: an asker of protocol 1 gets the version as the reason, whatever its request contains and this
// node requires.
func TestProtocol1Refused(t *testing.T) {
	t.Parallel()
	sesame := withToken(t, "sesame")
	for _, sec := range []Security{sesame, {Insecure: true}} {
		peer := answering(t, bareNode(t, "railnode"), sec)
		for _, proof := range []string{"", "Bearer sesame", "Bearer mustard"} {
			for _, path := range []string{"/v1/hello", "/v1/facts", "/v1/lease", "/v1/lease/x/open", "/v1"} {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+peer+path,
					strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Authorization", proof)
				res, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				var f failure.Failure
				err = json.NewDecoder(res.Body).Decode(&f)
				res.Body.Close()
				if err != nil || res.StatusCode != http.StatusGone || !res.Close || f.Reason != failure.Protocol ||
					f.Stage != failure.StageHello ||
					!strings.Contains(f.Detail,
						"peer speaks protocol version 3, this node 1: install the peer's version of railscope") {
					t.Errorf("%s with %q: %s, %v, %v", path, proof, res.Status, f, err)
				}
			}
		}
	}
	// No credential is read: the answer is the same where there is none that can be.
	file(t, sesame.TokenFile, "")
	files := newSecretFiles()
	files.read = func(path string) ([]byte, error) { t.Errorf("%s was read", filepath.Base(path)); return nil, nil }
	n := bareNode(t, "b")
	n.secrets = files
	r := &Responder{node: n, creds: credentials{sesame, files}}
	w := httptest.NewRecorder()
	r.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/hello", nil))
	if w.Code != http.StatusGone {
		t.Errorf("%d", w.Code)
	}
}

// TestUnknownFields: both ends ignore fields of later versions.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	peer := answering(t, bareNode(t, "b"), Security{Insecure: true})
	for path, body := range map[string]string{
		pathHello: strings.Replace(challengeFor(t, peer), "{", `{"later":{"a":[1]},`, 1),
		pathLease: `{"later":1,"node":"c","instance":"c","rail_seconds":1e-9}`,
	} {
		res, err := http.Post("http://"+peer+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
	e, err := newEventReader(strings.NewReader(`{"later":1,"event":{"later":2,"grant":{"later":3,"id":"A","key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","ttl":10000000000}}}`+
		"\n"), nil, pathLease).next()
	if err != nil || e.Grant == nil {
		t.Errorf("%+v, %v", e, err)
	}
}
