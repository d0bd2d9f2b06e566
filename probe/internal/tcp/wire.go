// Package tcp moves a striped transfer over TCP, for rails on which RDMA cannot
// be had and for comparison where it can: the asker writes into the target's
// scratch buffer over one lane per rail, and a write completes when the target
// says that all of it is in its buffer.
//
// On the wire the target speaks first, and both ends prove that they hold the
// lease's key without sending it:
//
//	target  magic, version, nonce
//	asker   nonce, proof, lane, stream
//	target  proof
//	asker   frames: offset, length, as many bytes
//	target  for each frame the number of bytes received on the connection so far
//
// A proof is an HMAC-SHA256 by the key over the role of its sender, both nonces,
// lane and stream. All numbers are big-endian. A target that is told anything
// else closes the connection.
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
)

// The wire format. What an asker may send at most is a constant, so that a
// target knows its costs.
const (
	magic       = "rail"
	version     = 2
	nonceLen    = 32
	proofLen    = sha256.Size
	greetingLen = 4 + 4 + nonceLen            // magic, version, nonce
	introLen    = nonceLen + proofLen + 4 + 4 // nonce, proof; lane, stream
	headLen     = 8 + 4                       // offset, length
	ackLen      = 8                           // bytes received so far

	// MaxChunk is the most bytes of one frame.
	MaxChunk = 16 << 20
	// MaxConns is the most connections to one target: lanes times streams.
	MaxConns = 256
)

// The roles in a proof: one end's proof is never the other's.
const (
	askerRole  = "railscope data port 2, asker"
	targetRole = "railscope data port 2, target"
)

var (
	errFrame = errors.New("a frame outside the buffer, of no bytes or of too many")
	errGrant = errors.New("more bytes than were granted")
)

// nonce is a fresh random number.
func nonce() (n [nonceLen]byte) {
	_, _ = rand.Read(n[:]) // never fails (crypto/rand)
	return n
}

// proof shows that its sender holds the key, in this role, on this connection.
func proof(key [32]byte, role string, target, asker [nonceLen]byte, lane, stream uint32) []byte {
	h := hmac.New(sha256.New, key[:])
	h.Write([]byte(role)) // hash.Hash never fails
	h.Write(target[:])
	h.Write(asker[:])
	h.Write(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, lane), stream))
	return h.Sum(nil)
}

// greeting is what a target says first.
func greeting(n [nonceLen]byte) []byte {
	b := append(make([]byte, 0, greetingLen), magic...)
	b = binary.BigEndian.AppendUint32(b, version)
	return append(b, n[:]...)
}

// intro is an asker's answer to a greeting with this nonce.
func intro(key [32]byte, target, asker [nonceLen]byte, lane, stream uint32) []byte {
	b := append(make([]byte, 0, introLen), asker[:]...)
	b = append(b, proof(key, askerRole, target, asker, lane, stream)...)
	b = binary.BigEndian.AppendUint32(b, lane)
	return binary.BigEndian.AppendUint32(b, stream)
}

// greet greets an asker with a nonce, and proves the target to it when the asker
// has proved itself and admit has room for it.
func greet(rw io.ReadWriter, key [32]byte, n [nonceLen]byte, admit func() bool) error {
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
		return errors.New("a wrong proof")
	}
	if !admit() {
		return errors.New("too many connections")
	}
	_, err := rw.Write(proof(key, targetRole, n, asker, lane, stream))
	return err
}

// introduce answers a target's greeting, and checks the target's own proof. It
// sends nothing to anyone who does not speak as a target does.
func introduce(rw io.ReadWriter, key [32]byte, own [nonceLen]byte, lane, stream uint32) error {
	var got [greetingLen]byte
	if _, err := io.ReadFull(rw, got[:]); err != nil {
		return fmt.Errorf("no greeting: %w", err)
	}
	target := [nonceLen]byte(got[greetingLen-nonceLen:])
	if !bytes.Equal(got[:], greeting(target)) {
		return fmt.Errorf("it does not greet as railscope's data port of version %d does: nothing was sent", version)
	}
	if _, err := rw.Write(intro(key, target, own, lane, stream)); err != nil {
		return err
	}
	var theirs [proofLen]byte
	if _, err := io.ReadFull(rw, theirs[:]); err != nil {
		return fmt.Errorf("no proof that it holds the lease's key: %w", err)
	}
	if !hmac.Equal(theirs[:], proof(key, targetRole, target, own, lane, stream)) {
		return errors.New("it does not hold the lease's key")
	}
	return nil
}

// receive reads frames into buf and answers them, until one is wrong, rw fails
// or the grant is used up. It always returns an error: io.EOF when rw ends
// between two frames.
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
		part, err := place(buf, head)
		if err != nil {
			return err
		}
		if !left.take(int64(len(part))) {
			return errGrant
		}
		if n, err := io.ReadFull(rw, part); err != nil {
			left.giveBack(int64(len(part) - n))
			return err
		}
		total += uint64(len(part))
		binary.BigEndian.PutUint64(ack[:], total)
		if _, err := rw.Write(ack[:]); err != nil {
			return err
		}
	}
}

// place returns the part of buf that a frame's payload is for.
func place(buf []byte, head [headLen]byte) ([]byte, error) {
	at, n := binary.BigEndian.Uint64(head[:8]), uint64(binary.BigEndian.Uint32(head[8:]))
	size := uint64(len(buf))
	if n == 0 || n > MaxChunk || n > size || at > size-n {
		return nil, errFrame
	}
	return buf[at : at+n : at+n], nil
}
