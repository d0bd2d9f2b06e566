// Package auth proves that both ends of a connection hold the token, and reads the files of secrets.
package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"fmt"

	"github.com/railscope/railscope/probe/internal/protocol"
)

// The roles of the two ends of a connection. Each proves the token under its own label.
const (
	RoleAsker  = "asker"
	RoleTarget = "target"
)

// Tokens are the secrets of a token file.
type Tokens []string

// Prove returns the HMAC by which one end of a TLS connection proves a token. It is of no use on another connection,
// nor to the other end.
func Prove(state *tls.ConnectionState, role, token string) ([]byte, error) {
	material, err := state.ExportKeyingMaterial("EXPORTER-railscope-probe-4-"+role, nil, protocol.ProofSize)
	if err != nil {
		return nil, fmt.Errorf("export keying material of the TLS connection: %w", err)
	}
	h := hmac.New(sha256.New, []byte(token))
	h.Write(material)
	return h.Sum(nil), nil
}

// Match returns the token that the asker has proved, and this end's proof of it; empty if it has proved none.
func (t Tokens) Match(state *tls.ConnectionState, proofs [][]byte) (token string, proof []byte) {
	for _, own := range t {
		want, err := Prove(state, RoleAsker, own)
		for _, got := range proofs {
			if err == nil && hmac.Equal(want, got) {
				proof, err = Prove(state, RoleTarget, own)
				if err != nil {
					return "", nil
				}
				return own, proof
			}
		}
	}
	return "", nil
}

// Contains compares all tokens in constant time.
func (t Tokens) Contains(token string) bool {
	found := false
	for _, other := range t {
		if hmac.Equal([]byte(other), []byte(token)) {
			found = true
		}
	}
	return found
}
