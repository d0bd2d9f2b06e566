package probe

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
)

// someBinding is that of both ends of a connection.
func someBinding() binding {
	return binding{asker: bytes.Repeat([]byte{1}, nonceSize), target: bytes.Repeat([]byte{2}, nonceSize),
		address: netip.MustParseAddrPort("10.0.0.2:10092"), tls: []byte("exported")}
}

func mustSession(t testing.TB, b binding, token string) *session {
	t.Helper()
	s, err := b.session(token)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSessionKeys: if anything differs between the two ends, all keys do; and no two keys of one session are equal.
func TestSessionKeys(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, tc := range []struct {
		why    string
		token  string
		change func(*binding)
	}{
		{"as it is", "sesame", func(*binding) {}},
		{"another token", "sesamf", func(*binding) {}},
		{"another nonce of the asker", "sesame", func(b *binding) { b.asker[31]++ }},
		{"another nonce of the target", "sesame", func(b *binding) { b.target[0]++ }},
		{"nonces the other way round", "sesame", func(b *binding) { b.asker, b.target = b.target, b.asker }},
		{"another address", "sesame", func(b *binding) { b.address = netip.MustParseAddrPort("10.0.0.3:10092") }},
		{"another port", "sesame", func(b *binding) { b.address = netip.MustParseAddrPort("10.0.0.2:10093") }},
		{"another TLS session", "sesame", func(b *binding) { b.tls = []byte("Exported") }},
		{"no TLS", "sesame", func(b *binding) { b.tls = nil }},
	} {
		b := someBinding()
		tc.change(&b)
		s := mustSession(t, b, tc.token)
		lease, other := s.dataKey("A"), s.dataKey("B")
		for what, key := range map[string][]byte{"request": s.request, "answer": s.answer, "data": s.data,
			"lease A": lease[:], "lease B": other[:]} {
			if was, twice := seen[string(key)]; twice || len(key) != keySize {
				t.Errorf("%s: key %q is that of %s", tc.why, what, was)
			}
			seen[string(key)] = tc.why + ", " + what
		}
	}
	for _, same := range [][2]string{{"[::ffff:10.0.0.2]:1", "10.0.0.2:1"}, {"[fe80::1%eth0]:1", "[fe80::1%eth7]:1"},
		{"[fe80::1%eth0]:1", "[fe80::1]:1"}} {
		a, b := someBinding(), someBinding()
		a.address, b.address = netip.MustParseAddrPort(same[0]), netip.MustParseAddrPort(same[1])
		if x, y := mustSession(t, a, "sesame"), mustSession(t, b, "sesame"); !bytes.Equal(x.request, y.request) {
			t.Errorf("%s and %s are the same address, and have different keys", same[0], same[1])
		}
	}
}

// TestMACsDiffer: no message can replace another: not with another method, path, count, status, body or direction, nor
// with fields joined differently.
func TestMACsDiffer(t *testing.T) {
	t.Parallel()
	s := mustSession(t, someBinding(), "sesame")
	seen := map[string]int{}
	for i, mac := range [][]byte{
		s.ofRequest("GET", "/v2/node", 1, "d"), s.ofRequest("POST", "/v2/node", 1, "d"),
		s.ofRequest("GET", "/v2/nodf", 1, "d"),
		s.ofRequest("GET", "/v2/node", 2, "d"), s.ofRequest("GET", "/v2/node", 1, "e"),
		s.ofRequest("GE", "T/v2/node", 1, "d"), s.ofRequest("GET", "/v2/node1", 1, "d"),
		s.ofAnswer("GET", "/v2/node", 1, 200, "d"), s.ofAnswer("GET", "/v2/node", 1, 409, "d"),
		s.ofAnswer("GET", "/v2/node", 2, 200, "d"),
		s.ofAnswer("GET", "/v2/node", 1, 200, "e"), s.ofAnswer("GET", "/v2/node", 12, 0, "d"),
		s.ofAnswer("GET", "/v2/facts", 1, 200, "d"),
		s.ofEvent("/v2/lease", 1, 1, []byte("d")), s.ofEvent("/v2/lease", 1, 2, []byte("d")),
		s.ofEvent("/v2/lease", 2, 1, []byte("d")),
		s.ofEvent("/v2/lease", 1, 1, []byte("e")), s.ofEvent("/v2/lease", 1, 11, []byte("")),
		s.ofEvent("/v2/lease", 11, 1, []byte("")),
	} {
		if was, twice := seen[string(mac)]; twice {
			t.Errorf("message %d has the MAC of message %d", i, was)
		}
		seen[string(mac)] = i
	}
}

func FuzzProof(f *testing.F) {
	mac := strings.Repeat("0a", 32)
	f.Add("1 " + mac + " " + mac)
	f.Add("9223372036854775807 stream " + mac)
	f.Add("1 " + mac + " " + mac + " " + mac)
	f.Add("01 " + mac + " " + mac)
	f.Add("-1  " + strings.ToUpper(mac) + " " + mac)
	f.Add("18446744073709551616 " + mac + " " + mac)
	f.Fuzz(func(t *testing.T, in string) {
		p, err := parseProof(in)
		if err != nil {
			return
		}
		if p.String() != in || p.count == 0 || len(p.macs) < 1 || len(p.macs) > maxTokens || len(in) > 256 {
			t.Errorf("accepted %q as %+v", in, p)
		}
		for _, mac := range p.macs {
			if len(mac) != keySize {
				t.Errorf("a MAC of %d bytes: %s", len(mac), hex.EncodeToString(mac))
			}
		}
	})
}

func FuzzChallenge(f *testing.F) {
	f.Add([]byte(`{"version":2,"nonce":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","address":"10.0.0.2:10092","proof":"token"}`))
	f.Add([]byte(`{"version":3,"later":{"a":[1]}}`))
	f.Add([]byte(`{"version":-1,"nonce":"AA==","address":"","proof":"none"}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var ask challengeRequest
		if json.Unmarshal(in,
			&ask) == nil && ask.check() == nil &&
			(ask.Version < 1 || len(ask.Nonce) != nonceSize || len(ask.Address) > maxText) {
			t.Errorf("accepted %+v", ask)
		}
		var reply challengeReply
		if json.Unmarshal(in, &reply) == nil && reply.check() == nil && (reply.Version < 1 ||
			reply.Version == protocolVersion && (len(reply.Nonce) != nonceSize || reply.Proof != proofToken &&
				reply.Proof != proofNone)) {
			t.Errorf("accepted %+v", reply)
		}
	})
}
