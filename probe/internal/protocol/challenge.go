package protocol

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/railscope/railscope/internal/secret"
)

// Alphanumeric are the characters of IDs.
const Alphanumeric = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Every connection of the control channel is TLS 1.3, and begins with a proof of the token by each end:
// docs/adr/0021-control-channel.md.
const (
	// ProtocolVersion is the version of the control channel. Later versions of railscope add optional fields to its
	// messages and keep the number.
	ProtocolVersion = 4

	HeaderProtocol = "Railscope-Protocol" // header of every answer, with the version

	ProofSize = sha256.Size
	// MaxProof limits the message of a stranger and its answer, in bytes. It leaves room for later fields.
	MaxProof = 4 << 10
)

// ProofRequest begins every connection.
type ProofRequest struct {
	Version int      `json:"version"`
	Nonce   []byte   `json:"nonce,omitempty"` // required by protocols 2 and 3, without use
	Proofs  [][]byte `json:"macs,omitempty"`  // one for each token of the asker
}

// ProofReply is the only message that a target sends to anyone.
type ProofReply struct {
	Version int    `json:"version"`
	Proof   []byte `json:"mac,omitempty"` // with the asker's token that this node has; empty: it requires none
	// Address is where the asker reached this node; sent after the asker has proved the token.
	Address netip.AddrPort `json:"address,omitzero"`
}

// Check returns what is wrong with the message.
func (p *ProofRequest) Check() error {
	if p.Version < 1 || p.Version == ProtocolVersion && len(p.Proofs) > MaxTokens {
		return fmt.Errorf("version %d with %d proofs", p.Version, len(p.Proofs))
	}
	return nil
}

// Check returns what is wrong with the message.
func (p *ProofReply) Check() error {
	if p.Version < 1 || p.Version == ProtocolVersion && len(p.Proof) != 0 && len(p.Proof) != ProofSize {
		return fmt.Errorf("version %d with a proof of %d bytes", p.Version, len(p.Proof))
	}
	return nil
}

// PlainAddress is an address as both ends of a connection write it: IPv4 as IPv4, without the zone of one host.
func PlainAddress(a net.Addr) netip.AddrPort {
	p, _ := netip.ParseAddrPort(a.String())
	return netip.AddrPortFrom(p.Addr().Unmap().WithZone(""), p.Port())
}

// LeaseTTL is the lifetime of a lease after the last request of its holder.
const LeaseTTL = 10 * time.Second

// MaxTokens is how many tokens a file may have.
const MaxTokens = secret.MaxTokens
