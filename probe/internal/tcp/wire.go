// Package tcp moves a striped transfer over TCP, for rails on which RDMA cannot
// be had and for comparison where it can: the asker writes into the target's
// scratch buffer over one lane per rail, and a write completes when the target
// says that all of it is in its buffer.
//
// On the wire an asker says a preamble, once per connection, and then frames of
// an offset, a length and as many bytes. The target answers the preamble and
// each frame with the number of bytes it has received on the connection so far.
// All numbers are big-endian. A target that is told anything else closes the
// connection and says nothing.
package tcp

import (
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"io"
)

// The wire format. What an asker may send at most is a constant, so that a
// target knows its costs.
const (
	magic       = "rail"
	version     = 1
	preambleLen = 4 + 4 + 32 + 4 + 4 // magic, version, key; lane, stream: for who looks at packets
	provenLen   = 4 + 4 + 32         // what the target insists on
	headLen     = 8 + 4              // offset, length
	ackLen      = 8                  // bytes received so far

	// MaxChunk is the most bytes of one frame.
	MaxChunk = 16 << 20
	// MaxConns is the most connections to one target: lanes times streams.
	MaxConns = 256
)

var errFrame = errors.New("a frame outside the buffer, of no bytes or of too many")

func preamble(key [32]byte, lane, stream int) []byte {
	b := append(make([]byte, 0, preambleLen), magic...)
	b = binary.BigEndian.AppendUint32(b, version)
	b = append(b, key[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(lane))
	return binary.BigEndian.AppendUint32(b, uint32(stream))
}

// greet reads a preamble, and answers it if its key is right.
func greet(rw io.ReadWriter, key [32]byte) error {
	var got [preambleLen]byte
	if _, err := io.ReadFull(rw, got[:]); err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(got[:provenLen], preamble(key, 0, 0)[:provenLen]) != 1 {
		return errors.New("a wrong preamble")
	}
	_, err := rw.Write(make([]byte, ackLen))
	return err
}

// receive reads frames into buf and answers them, until one is wrong or rw
// fails. It always returns an error: io.EOF when rw ends between two frames.
func receive(rw io.ReadWriter, buf []byte) error {
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
		if _, err := io.ReadFull(rw, part); err != nil {
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
