package probe

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/railscope/railscope/internal/secret"
)

// Every message of the control channel carries an HMAC under a key that both ends derive from the token:
// docs/adr/0021-control-channel.md.
const (
	protocolName = "railscope probe 3" // part of every key
	nonceSize    = 32
	keySize      = sha256.Size

	headerProof    = "Railscope-Proof"    // of a request or an answer
	headerProtocol = "Railscope-Protocol" // of every answer: the version of the protocol
	digestOfStream = "stream"             // takes the digest's place where lines follow, each with its own proof
)

// tokens are the secrets of a token file.
type tokens []string

// binding is what both ends of one connection put into its keys, each as it sees it: with a relay they differ.
type binding struct {
	asker, target []byte         // nonces
	address       netip.AddrPort // dialled by the asker, and at which the target was reached
	tls           []byte         // exported keying material; empty without TLS
}

// session is the keys of one connection, and the number of its requests.
type session struct {
	token   string // that the keys are derived from
	request []byte // key of the asker's messages
	answer  []byte // key of the target's messages
	data    []byte // that the keys of leases are derived from
	count   uint64 // requests so far
}

func newNonce() []byte {
	b := make([]byte, nonceSize)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	return b
}

// plainAddress is an address as both ends of a connection write it: IPv4 as IPv4, without the zone of one host.
func plainAddress(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// session derives the keys of a connection from one token.
func (b binding) session(token string) (*session, error) {
	prk, err := hkdf.Extract(sha256.New, []byte(token), append(append([]byte{}, b.asker...), b.target...))
	if err != nil {
		return nil, fmt.Errorf("derive the session key: %w", err)
	}
	s := &session{token: token}
	for _, k := range []struct {
		key     *[]byte
		purpose string
	}{{&s.request, "asker to target"}, {&s.answer, "target to asker"}, {&s.data, "data"}} {
		info := fields(protocolName, k.purpose, "asker", "target", plainAddress(b.address).String(), string(b.tls))
		if *k.key, err = hkdf.Expand(sha256.New, prk, string(info), keySize); err != nil {
			return nil, fmt.Errorf("derive the session key: %w", err)
		}
	}
	return s, nil
}

// dataKey is the key of a lease's TCP port. Both ends derive it, it is never sent.
func (s *session) dataKey(lease string) (key [keySize]byte) {
	b, err := hkdf.Expand(sha256.New, s.data, string(fields("lease", lease)), keySize)
	if err != nil {
		panic(err) // only for more than 255 times the size of the hash
	}
	copy(key[:], b)
	return key
}

// fields joins values so that no two lists of values give the same bytes.
func fields(values ...string) []byte {
	var out []byte
	for _, v := range values {
		out = binary.BigEndian.AppendUint64(out, uint64(len(v)))
		out = append(out, v...)
	}
	return out
}

func mac(key []byte, values ...string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(fields(values...))
	return h.Sum(nil)
}

// digest is how a body goes into a proof.
func digest(body []byte) string {
	d := sha256.Sum256(body)
	return hex.EncodeToString(d[:])
}

// proof is the header of one message.
type proof struct {
	count  uint64   // of the request on its connection, from 1
	digest string   // of the body
	macs   [][]byte // one, but for the first request, which has one for each token of the asker
}

func (p proof) String() string {
	parts := []string{strconv.FormatUint(p.count, 10), p.digest}
	for _, m := range p.macs {
		parts = append(parts, hex.EncodeToString(m))
	}
	return strings.Join(parts, " ")
}

var errNoProof = errors.New("malformed or missing " + headerProof + " header")

// parseProof reads the header. It accepts only what String writes.
func parseProof(s string) (proof, error) {
	var p proof
	parts := strings.Split(s, " ")
	if len(s) > 256 || len(parts) < 3 || len(parts) > 2+secret.MaxTokens {
		return p, errNoProof
	}
	var err error
	p.count, err = strconv.ParseUint(parts[0], 10, 63)
	p.digest = parts[1]
	valid := err == nil && p.count > 0 && (p.digest == digestOfStream || isDigest(p.digest))
	for _, part := range parts[2:] {
		mac, err := hex.DecodeString(part)
		valid = valid && err == nil && isDigest(part)
		p.macs = append(p.macs, mac)
	}
	if !valid || p.String() != s {
		return proof{}, errNoProof
	}
	return p, nil
}

func isDigest(s string) bool {
	return len(s) == 2*sha256.Size && strings.Trim(s, "0123456789abcdef") == ""
}

func (s *session) ofRequest(method, path string, count uint64, digest string) []byte {
	return mac(s.request, "request", method, path, strconv.FormatUint(count, 10), digest)
}

func (s *session) ofAnswer(method, path string, count uint64, status int, digest string) []byte {
	return mac(s.answer, "answer", method, path, strconv.FormatUint(count, 10), strconv.Itoa(status), digest)
}

// ofEvent is the MAC of one line of a streamed answer; lines count from 1.
func (s *session) ofEvent(path string, count, line uint64, event []byte) []byte {
	return mac(s.answer, "event", path, strconv.FormatUint(count, 10), strconv.FormatUint(line, 10), string(event))
}
