package tcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

// said is a connection on which everything has been said already.
type said struct {
	io.Reader
	answers bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) { return s.answers.Write(p) }

// secret returns a key, the same for the same byte.
func secret(b byte) [32]byte { return [32]byte{0: b, 31: b} }

// frame returns a frame on the wire.
func frame(at uint64, n uint32, payload []byte) []byte {
	b := binary.BigEndian.AppendUint64(nil, at)
	b = binary.BigEndian.AppendUint32(b, n)
	return append(b, payload...)
}

// TestReceive puts two frames where they belong, and answers when they are
// there.
func TestReceive(t *testing.T) {
	buf := make([]byte, 8)
	s := &said{Reader: bytes.NewReader(append(frame(6, 2, []byte("zz")), frame(0, 3, []byte("abc"))...))}
	if err := receive(s, buf); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if string(buf) != "abc\x00\x00\x00zz" {
		t.Errorf("%q", buf)
	}
	if want := []byte{7: 2, 15: 5}; !bytes.Equal(s.answers.Bytes(), want) {
		t.Errorf("answered %x, want %x", s.answers.Bytes(), want)
	}
}

// FuzzTarget says anything to a target. Nothing is written beside its buffer,
// what it answers is no more than what it was sent, and only who knows the key
// is answered at all.
func FuzzTarget(f *testing.F) {
	key := secret(1)
	good := preamble(key, 0, 0)
	f.Add(good, uint16(64))
	f.Add(append(bytes.Clone(good), frame(0, 8, make([]byte, 8))...), uint16(8))
	f.Add(append(bytes.Clone(good), frame(60, 8, make([]byte, 8))...), uint16(64))
	f.Add(append(bytes.Clone(good), frame(1<<64-4, 8, make([]byte, 8))...), uint16(64))
	f.Add(append(bytes.Clone(good), frame(0, 1<<32-1, make([]byte, 8))...), uint16(64))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint16(0))
	f.Fuzz(func(t *testing.T, data []byte, size uint16) {
		const guard = 64
		all := bytes.Repeat([]byte{0xa5}, int(size)+2*guard)
		buf := all[guard : guard+int(size)] // its capacity reaches into the guard
		s := &said{Reader: bytes.NewReader(data)}
		greeted := greet(s, key) == nil
		if known := len(data) >= preambleLen && bytes.Equal(data[:provenLen], good[:provenLen]); greeted != known {
			t.Fatalf("greeted: %v, knows the key: %v", greeted, known)
		}
		if !greeted {
			if s.answers.Len() > 0 {
				t.Fatalf("a stranger was told %x", s.answers.Bytes())
			}
			return
		}
		if receive(s, buf) == nil {
			t.Fatal("no error at the end")
		}
		untouched := bytes.Repeat([]byte{0xa5}, guard)
		if !bytes.Equal(all[:guard], untouched) || !bytes.Equal(all[guard+int(size):], untouched) {
			t.Fatal("written beside the buffer")
		}
		sent, last := uint64(len(data)-preambleLen), uint64(0)
		for a := s.answers.Bytes()[ackLen:]; len(a) > 0; a = a[ackLen:] {
			total := binary.BigEndian.Uint64(a)
			if sent -= headLen; total <= last || total-last > uint64(size) || total-last > sent {
				t.Fatalf("answered %d after %d, of at most %d", total, last, sent)
			}
			sent, last = sent-(total-last), total
		}
	})
}
