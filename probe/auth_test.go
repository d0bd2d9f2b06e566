package probe

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/certtest"
	"github.com/railscope/railscope/probe/internal/auth"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/target"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// TestSecurity: which asker is answered by which target, and the reason if it is not.
func TestSecurity(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sesame, other, empty := options.Security{TokenFile: file(t, filepath.Join(dir, "token"), "sesame\n")},
		options.Security{TokenFile: file(t, filepath.Join(dir, "other"), "mustard")},
		options.Security{TokenFile: file(t, filepath.Join(dir, "empty"), " \n")}
	ours, theirs := certtest.NewAuthority(t), certtest.NewAuthority(t)
	a, b, stranger := ours.Issue(dir, "a"), ours.Issue(dir, "b"), theirs.Issue(dir, "stranger")
	server := options.Security{CertFile: b.CertFile, KeyFile: b.KeyFile,
		TokenFile: sesame.TokenFile} // a server's certificate, and a token
	trusting := options.Security{ClientCAFile: ours.File,
		TokenFile: sesame.TokenFile} // an asker without a certificate of its own
	both := b
	both.TokenFile = sesame.TokenFile
	bothAsker := a
	bothAsker.TokenFile = sesame.TokenFile
	mistrusting := stranger
	mistrusting.ClientCAFile = ours.File
	for _, tc := range []struct {
		why      string
		answerer options.Security
		asker    options.Security
		reason   failure.Reason
		says     string
	}{
		{"one token", sesame, sesame, "", ""},
		{"another token", sesame, other, failure.Unauthorized, "both ends need the same token_file"},
		{"no token", sesame, options.Security{}, failure.Unauthorized, "both ends need the same token_file"},
		{"the asker's token is missing", sesame, options.Security{TokenFile: filepath.Join(dir, "none")}, failure.Unauthorized,
			"no such file"},
		{"the asker's token is empty", sesame, empty, failure.Unauthorized, "empty: it must hold the secret"},
		{"whoever", options.Security{Insecure: true}, options.Security{}, "", ""},
		{"the answerer proves nothing", options.Security{Insecure: true}, sesame, failure.Unauthorized,
			"this node has a token and the peer has none"},
		{"the answerer has only a certificate", b, bothAsker, failure.Unauthorized,
			"this node has a token and the peer has none"},
		{"TLS and token", server, trusting, "", ""},
		{"TLS and another token", server, options.Security{ClientCAFile: ours.File, TokenFile: other.TokenFile},
			failure.Unauthorized, "both ends"},
		{"certificates", b, a, "", ""},
		{"certificates and token", both, bothAsker, "", ""},
		{"certificates and no token", both, a, failure.Unauthorized, "both ends"},
		{"no certificate", b, options.Security{ClientCAFile: ours.File}, failure.TLS, "certificate"},
		{"a certificate of another CA", b, mistrusting, failure.TLS, "certificate"},
		{"the answerer's is of another CA", stranger, a, failure.TLS, "certificate"},
		{"the asker's certificate is missing", b,
			options.Security{ClientCAFile: ours.File, CertFile: filepath.Join(dir, "none"), KeyFile: a.KeyFile},
			failure.TLS,
			"no such file"},
		{"the asker's CA is no certificate", b, options.Security{ClientCAFile: sesame.TokenFile}, failure.TLS,
			"contains no PEM certificate"},
		{"an asker without certificates", b, sesame, failure.TLS, "set probe.tls in the configuration"},
		{"an answerer without certificates", sesame, a, failure.TLS, "does the peer have probe.tls"},
		{"only the answerer has a certificate", server, sesame, "", ""},
	} {
		t.Run(tc.why, func(t *testing.T) {
			t.Parallel()
			h, f := askHello(t, answering(t, bareNode(t, "b"), tc.answerer), tc.asker)
			switch {
			case tc.reason == "" && (f != nil || h.Node != "b"):
				t.Errorf("refused: %v, hello of %q", f, h.Node)
			case tc.reason != "" &&
				(f == nil || f.Reason != tc.reason || f.Stage != failure.StageHello || !strings.Contains(f.Detail,
					tc.says)):
				t.Errorf("got %v, want %s with %q", f, tc.reason, tc.says)
			}
		})
	}
}

// TestSecurityFollows: the next connection uses the current content of token and certificate files.
func TestSecurityFollows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	here, there := filepath.Join(dir, "here"), filepath.Join(dir, "there")
	file(t, there, "one")
	peer := answering(t, bareNode(t, "b"), options.Security{TokenFile: there})
	for i, step := range []struct {
		here, there string
		reason      failure.Reason
	}{
		{"one", "one", ""}, {"one", "two", failure.Unauthorized}, {"two", "two", ""}, {"two", "", ""},
		{"two", "one", failure.Unauthorized},
	} {
		file(t, here, step.here)
		file(t, there, step.there)
		if _, f := askHello(t, peer,
			options.Security{TokenFile: here}); (f == nil) != (step.reason == "") || f != nil &&
			f.Reason != step.reason {
			t.Errorf("step %d: %v, want %q", i, f, step.reason)
		}
	}

	old, renewed := certtest.NewAuthority(t), certtest.NewAuthority(t)
	a, b := old.Issue(dir, "a"), old.Issue(dir, "b")
	peer = answering(t, bareNode(t, "b"), b)
	if _, f := askHello(t, peer, a); f != nil {
		t.Fatal(f)
	}
	next := renewed.Issue(dir, "a") // over the files of before
	if _, f := askHello(t, peer, a); f == nil || f.Reason != failure.TLS {
		t.Errorf("with a certificate of the next CA on one end only: %v", f)
	}
	renewed.Issue(dir, "b")
	content, err := os.ReadFile(next.ClientCAFile)
	if err != nil {
		t.Fatal(err)
	}
	file(t, a.ClientCAFile, string(content))
	if _, f := askHello(t, peer, a); f != nil {
		t.Errorf("when both ends have the next CA: %v", f)
	}
}

// TestResponderWantsProof: peers that prove nothing are only answered with Insecure.
func TestResponderWantsProof(t *testing.T) {
	dir := t.TempDir()
	token, ca := file(t, filepath.Join(dir, "token"), "sesame"), certtest.NewAuthority(t)
	good := ca.Issue(dir, "b")
	with := func(s options.Security, change func(*options.Security)) options.Security { change(&s); return s }
	for _, tc := range []struct {
		why  string
		sec  options.Security
		says string // empty: it starts
	}{
		{"nothing", options.Security{}, "insecure: true"},
		{"TLS of the server alone", options.Security{CertFile: good.CertFile, KeyFile: good.KeyFile}, "insecure: true"},
		{"insecure", options.Security{Insecure: true}, ""},
		{"token", options.Security{TokenFile: token}, ""},
		{"certificates", good, ""},
		{"no such token", options.Security{TokenFile: filepath.Join(dir, "none")}, "no such file"},
		{"an empty token", options.Security{TokenFile: file(t, filepath.Join(dir, "empty"), "\n")},
			"empty: it must hold the secret"},
		{"a token as large as a disk",
			options.Security{TokenFile: file(t, filepath.Join(dir, "large"),
				strings.Repeat("x", auth.MaxSecretFile+1))},
			"more than"},
		{"no such key", with(good, func(s *options.Security) { s.KeyFile = filepath.Join(dir, "none") }), "no such file"},
		{"another's key", with(good, func(s *options.Security) {
			s.KeyFile = ca.Issue(dir, "other").KeyFile
		}), "does not match"},
		{"no such CA", with(good, func(s *options.Security) { s.ClientCAFile = filepath.Join(dir, "none") }), "no such file"},
		{"certificates and no such token", with(good, func(s *options.Security) {
			s.TokenFile = filepath.Join(dir, "none")
		}), "no such file"},
	} {
		_, err := target.NewResponder(bareNode(t, "b"), options.Options{Security: tc.sec})
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", tc.why, err, tc.says)
		}
	}
}

// strangerServer is not a railscope: it calls fn for every connection.
func strangerServer(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return l.Addr().String()
}

// says answers every request with this text.
func says(words, more string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = c.Read(make([]byte, 4096))
		_, err := c.Write([]byte(words))
		for more != "" && err == nil {
			_, err = c.Write([]byte(more))
		}
	}
}

// greets answers the first message as a target without a token, and continues with next.
func greets(then func(net.Conn)) func(*tls.Conn) {
	return func(c *tls.Conn) {
		reply, _ := json.Marshal(protocol.ProofReply{Version: protocol.ProtocolVersion})
		_, _ = c.Read(make([]byte, 4096))
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(reply), reply)
		then(c)
	}
}

// TestStrangers: whatever listens on a peer's port, the round ends soon and with a reason, and memory stays bounded.
func TestStrangers(t *testing.T) {
	t.Parallel()
	const ok = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
	elsewhere := "http://" + strangerServer(t, func(net.Conn) { t.Error("the asker followed a redirect") }) + "/v1/hello"
	for _, tc := range []struct {
		why, peer string
		reason    failure.Reason
		says      string
	}{
		{"nobody", freeAddress(), failure.PeerUnreachable,
			"refused: is railscope serve running there, with this port in probe.listen of its configuration?"},
		{"no such name", "no-such-host.invalid:1", failure.PeerUnreachable, "check the name and port"},
		{"no port", "127.0.0.1:none", failure.PeerUnreachable, "invalid port"},
		{"an address that goes nowhere", "[100::1]:1", failure.PeerUnreachable,
			"is the peer up, and its port open to this node?"},
		{"hangs up", strangerServer(t, func(net.Conn) {}), failure.PeerUnreachable,
			"closed the connection without an answer"},
		{"another web server", strangerServer(t, says("HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot found", "")),
			failure.Protocol, "is that railscope's probe port?"},
		{"a web server's page", strangerServer(t, says(ok+"<html>", "")), failure.Protocol, "is not railscope's"},
		{"JSON of something else", strangerServer(t, says(ok+`{"status":"up"}`, "")), failure.Protocol, "invalid answer"},
		{"a login page", strangerServer(t, says("HTTP/1.1 302 Found\r\nLocation: "+elsewhere+"\r\nContent-Length: 0\r\n\r\n",
			"")), failure.Protocol, "302"},
		{"SSH", strangerServer(t, says("SSH-2.0-OpenSSH_9.2\r\n", "")), failure.Protocol, "is that railscope's probe port?"},
		{"garbage without end", strangerServer(t, says("\x00\x01\x02", strings.Repeat("\x00garbage", 512))), failure.Protocol,
			"is that railscope's probe port?"},
		{"headers without end", strangerServer(t, says("HTTP/1.1 200 OK\r\n", "X-More: "+strings.Repeat("x", 4000)+"\r\n")),
			failure.Protocol, "exceeded"},
		{"a body without end", strangerServer(t, says(ok, strings.Repeat(" ", 4096))), failure.Protocol, "more than"},
		{"a million rails", strangerServer(t,
			says(ok+`{"node":"b","instance":"x","rails":[`+strings.Repeat(`{"name":"0"},`, 1_000_000)+`]}`, "")),
			failure.Protocol, "more than"},
		{"a hundred rails", strangerTLS(t,
			greets(says(ok+`{"node":"b","instance":"x","rails":[`+strings.Repeat(`{"name":"0"},`, 100)+`{}]}`, ""))),
			failure.Protocol, "101 rails"},
		{"a node without end", strangerTLS(t, greets(says(ok, strings.Repeat(" ", 4096)))), failure.Protocol,
			"more than 1048576"},
		{"a reason to be skipped",
			strangerServer(t, says("HTTP/1.1 409 Conflict\r\n\r\n"+`{"stage":"hello","reason":"draining"}`, "")),
			failure.Protocol, "invalid answer"},
		{"a refusal of its own making",
			strangerServer(t, says("HTTP/1.1 409 Conflict\r\n\r\n"+`{"stage":"x","reason":"y\nz","detail":"\u0000`+
				strings.Repeat("d", 3000)+`"}`, "")), failure.Protocol, "invalid answer"},
	} {
		t.Run(tc.why, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			n := bareNode(t, "a")
			res := Bench(t.Context(), n, options.DefaultOptions(), tc.peer, func(result.Progress) {})
			if res.Outcome != result.Failed || res.Transport != result.NoTransport || res.Reason != tc.reason ||
				!strings.Contains(res.Detail, tc.says) || len(res.Detail) > protocol.MaxDetail+8 {
				t.Errorf("%s because of %q: %q, want %q: %q", res.Outcome, res.Reason, res.Detail, tc.reason, tc.says)
			}
			if len(res.Failures) != 1 || res.Failures[0].Stage != failure.StageHello {
				t.Errorf("failures %v", res.Failures)
			}
			if took := time.Since(start); took > 12*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// TestStrangerIsSilent: a peer that accepts and stays silent costs no more than the round's timeout.
func TestStrangerIsSilent(t *testing.T) {
	t.Parallel()
	peer := strangerServer(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)); _, _ = c.Read(make([]byte, 1)) })
	opts := options.DefaultOptions()
	opts.Timeout = time.Second
	start := time.Now()
	res := Bench(t.Context(), bareNode(t, "a"), opts, peer, func(result.Progress) {})
	if res.Outcome != result.Failed || res.Reason != failure.PeerUnreachable || !strings.Contains(res.Detail,
		"is the peer up") || time.Since(start) > 10*time.Second {
		t.Errorf("%s because of %q (%s) after %v", res.Outcome, res.Reason, res.Detail, time.Since(start))
	}
}

// TestStrangersLearnNothing: without the token, a client learns only that there is one, and keeps no connection.
func TestStrangersLearnNothing(t *testing.T) {
	t.Parallel()
	token := file(t, filepath.Join(t.TempDir(), "token"), "sesame")
	peer, client := answering(t, bareNode(t, "railnode"), options.Security{TokenFile: token}), insecureHTTP(t)
	for _, content := range []string{"sesame", "", "(none)"} {
		file(t, token, content)
		if content == "(none)" {
			if err := os.Remove(token); err != nil {
				t.Fatal(err)
			}
		}
		for _, header := range []string{"", "Bearer sesame"} {
			for _, path := range []string{protocol.PathNode, protocol.PathFacts, protocol.PathLease, "/v2/prove",
				protocol.PathLease + "/x/open", "/",
				"/metrics", protocol.PathHello} {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+peer+path,
					strings.NewReader(`{"version":4}`))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Authorization", header)
				res, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(res.Body)
				res.Body.Close()
				text := string(body)
				if err != nil || res.StatusCode != http.StatusUnauthorized || !res.Close || !strings.Contains(text,
					"both ends need the same token_file") ||
					strings.Contains(text, filepath.Dir(token)) || strings.Contains(text,
					"railnode") || strings.Contains(text, "1.2.3") {
					t.Errorf("%s with %q: %d, close %t, %s", path, header, res.StatusCode, res.Close, text)
				}
			}
		}
	}
}
