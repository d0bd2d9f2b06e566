// Package tcp moves a striped transfer over TCP, for rails without RDMA and for comparison. The asker writes into the
// target's buffer over one lane per rail, and a write completes when the target reports that its buffer has all of it.
//
// The target sends first, and both ends prove that they hold the lease's key without sending it:
//
//	target  magic, version, nonce
//	asker   nonce, proof, lane, stream
//	target  proof
//	asker   frames: offset, length, as many bytes
//	target  for each frame the number of bytes received on the connection so far
//
// A proof is an HMAC-SHA256 with the key over the role of its sender, both nonces, lane and stream. All numbers are
// big-endian. A target closes the connection on anything else.
package tcp

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/railscope/railscope/probe/internal/transfer"
)

// The wire format. The limits on an asker's input are constants, which bound the target's costs.
const (
	magic       = "rail"
	version     = 3
	nonceLen    = 32
	proofLen    = sha256.Size
	greetingLen = 4 + 4 + nonceLen            // magic, version, nonce
	introLen    = nonceLen + proofLen + 4 + 4 // nonce, proof; lane, stream
	headLen     = 8 + 4                       // offset, length
	ackLen      = 8                           // bytes received so far

	// MaxConns is the maximum number of connections to one target: lanes × streams.
	MaxConns = 256
)

// Roles in a proof: one end's proof is never valid as the other's.
const (
	askerRole  = "railscope data port 3, asker"
	targetRole = "railscope data port 3, target"
)

var (
	errFrame = errors.New("a frame outside the buffer, empty or too long")
	errGrant = errors.New("more bytes than were granted")
)

// newNonce returns a fresh random number.
func newNonce() (n [nonceLen]byte) {
	_, _ = rand.Read(n[:]) // never fails (crypto/rand)
	return n
}

// proof returns a proof that its sender holds the key, in this role, on this connection.
func proof(key [32]byte, role string, target, asker [nonceLen]byte, lane, stream uint32) []byte {
	h := hmac.New(sha256.New, key[:])
	h.Write([]byte(role)) // hash.Hash never fails
	h.Write(target[:])
	h.Write(asker[:])
	h.Write(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, lane), stream))
	return h.Sum(nil)
}

// greeting returns the first message of a target.
func greeting(n [nonceLen]byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte(magic), version), n[:]...)
}

// intro returns an asker's response to a greeting with this nonce.
func intro(key [32]byte, target, asker [nonceLen]byte, lane, stream uint32) []byte {
	b := append(asker[:], proof(key, askerRole, target, asker, lane, stream)...)
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, lane), stream)
}

// serveHandshake greets an asker with a nonce. After the asker's proof, and if admit accepts it, it sends the target's
// own proof.
func serveHandshake(rw io.ReadWriter, key [32]byte, n [nonceLen]byte, admit func(lane, stream uint32) bool) error {
	if _, err := rw.Write(greeting(n)); err != nil {
		return err
	}
	var got [introLen]byte
	if _, err := io.ReadFull(rw, got[:]); err != nil {
		return err
	}
	asker := [nonceLen]byte(got[:nonceLen])
	lane, stream := binary.BigEndian.Uint32(got[introLen-8:]), binary.BigEndian.Uint32(got[introLen-4:])
	if !hmac.Equal(got[nonceLen:nonceLen+proofLen], proof(key, askerRole, n, asker, lane, stream)) {
		return errors.New("invalid proof")
	}
	if !admit(lane, stream) {
		return errors.New("too many connections")
	}
	_, err := rw.Write(proof(key, targetRole, n, asker, lane, stream))
	return err
}

// handshake answers a target's greeting, and checks the target's own proof. It sends nothing to a peer that does not
// greet as a target.
func handshake(rw io.ReadWriter, key [32]byte, own [nonceLen]byte, lane, stream uint32) error {
	var got [greetingLen]byte
	if _, err := io.ReadFull(rw, got[:]); err != nil {
		return fmt.Errorf("no greeting: %w", err)
	}
	target := [nonceLen]byte(got[greetingLen-nonceLen:])
	if !bytes.Equal(got[:], greeting(target)) {
		return fmt.Errorf("not a railscope data port of version %d: nothing was sent", version)
	}
	if _, err := rw.Write(intro(key, target, own, lane, stream)); err != nil {
		return err
	}
	var theirs [proofLen]byte
	if _, err := io.ReadFull(rw, theirs[:]); err != nil {
		return fmt.Errorf("no proof of the lease's key: %w", err)
	}
	if !hmac.Equal(theirs[:], proof(key, targetRole, target, own, lane, stream)) {
		return errors.New("the target does not hold the lease's key")
	}
	return nil
}

// receive reads frames into the memory of a connection and acknowledges them, until one is invalid, rw fails or the
// grant is exhausted. The error is io.EOF if rw ends between two frames.
func receive(rw io.ReadWriter, buf []byte, left *grant) error {
	var (
		head  [headLen]byte
		ack   [ackLen]byte
		total uint64
	)
	for {
		if _, err := io.ReadFull(rw, head[:]); err != nil {
			return err
		}
		part, err := payload(buf, head)
		if err != nil {
			return err
		}
		if !left.reserve(int64(len(part))) {
			return errGrant
		}
		if n, err := io.ReadFull(rw, part); err != nil {
			left.release(int64(len(part) - n))
			return err
		}
		total += uint64(len(part))
		binary.BigEndian.PutUint64(ack[:], total)
		if _, err := rw.Write(ack[:]); err != nil {
			return err
		}
	}
}

// payload returns the part of buf that a frame writes.
func payload(buf []byte, head [headLen]byte) ([]byte, error) {
	at, n := binary.BigEndian.Uint64(head[:8]), uint64(binary.BigEndian.Uint32(head[8:]))
	size := uint64(len(buf))
	if n == 0 || n > transfer.MaxChunk || n > size || at > size-n {
		return nil, errFrame
	}
	return buf[at : at+n : at+n], nil
}
