package tcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

// said is a connection with fixed input.
type said struct {
	io.Reader
	answers bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) { return s.answers.Write(p) }

// secret returns a key made of one byte.
func secret(b byte) [32]byte { return [32]byte{0: b, 31: b} }

// frame returns a frame in wire format.
func frame(at uint64, n uint32, payload []byte) []byte {
	b := binary.BigEndian.AppendUint64(nil, at)
	b = binary.BigEndian.AppendUint32(b, n)
	return append(b, payload...)
}

// TestReceive writes two frames to their offsets, and acknowledges each.
func TestReceive(t *testing.T) {
	buf := make([]byte, 8)
	s := &said{Reader: bytes.NewReader(append(frame(6, 2, []byte("zz")), frame(0, 3, []byte("abc"))...))}
	if err := receive(s, buf, newGrant(5)); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if string(buf) != "abc\x00\x00\x00zz" {
		t.Errorf("%q", buf)
	}
	if want := []byte{7: 2, 15: 5}; !bytes.Equal(s.answers.Bytes(), want) {
		t.Errorf("answered %x, want %x", s.answers.Bytes(), want)
	}
}

// FuzzTarget: for any input, nothing is written outside the buffer or beyond the grant, acknowledgements never exceed
// the bytes sent, and a stranger receives only a greeting.
func FuzzTarget(f *testing.F) {
	key, own, theirs := secret(1), [nonceLen]byte{1}, [nonceLen]byte{2}
	good := intro(key, own, theirs, 0, 0)
	f.Add(good, uint16(64), uint16(64))
	f.Add(append(bytes.Clone(good), frame(0, 8, make([]byte, 8))...), uint16(8), uint16(8))
	f.Add(append(bytes.Clone(good), frame(0, 8, make([]byte, 8))...), uint16(8), uint16(7))
	f.Add(append(bytes.Clone(good), frame(60, 8, make([]byte, 8))...), uint16(64), uint16(64))
	f.Add(append(bytes.Clone(good), frame(1<<64-4, 8, make([]byte, 8))...), uint16(64), uint16(64))
	f.Add(append(bytes.Clone(good), frame(0, 1<<32-1, make([]byte, 8))...), uint16(64), uint16(64))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint16(0), uint16(0))
	f.Fuzz(func(t *testing.T, data []byte, size, granted uint16) {
		const guard = 64
		all := bytes.Repeat([]byte{0xa5}, int(size)+2*guard)
		buf := all[guard : guard+int(size)] // its capacity reaches into the guard
		s := &said{Reader: bytes.NewReader(data)}
		greeted := serveHandshake(s, key, own, func(uint32, uint32) bool { return true }) == nil
		known := len(data) >= introLen && bytes.Equal(data[:introLen], intro(key, own, [nonceLen]byte(data[:nonceLen]),
			binary.BigEndian.Uint32(data[introLen-8:]), binary.BigEndian.Uint32(data[introLen-4:])))
		if greeted != known {
			t.Fatalf("greeted: %v, knows the key: %v", greeted, known)
		}
		answers := s.answers.Bytes()[greetingLen:]
		if !greeted {
			if len(answers) > 0 {
				t.Fatalf("a stranger was told %x", answers)
			}
			return
		}
		left := newGrant(int64(granted))
		if receive(s, buf, left) == nil {
			t.Fatal("no error at the end")
		}
		untouched := bytes.Repeat([]byte{0xa5}, guard)
		if !bytes.Equal(all[:guard], untouched) || !bytes.Equal(all[guard+int(size):], untouched) {
			t.Fatal("written beside the buffer")
		}
		sent, last := uint64(len(data)-introLen), uint64(0)
		for a := s.answers.Bytes()[greetingLen+proofLen:]; len(a) > 0; a = a[ackLen:] {
			total := binary.BigEndian.Uint64(a)
			sent -= headLen
			if total <= last || total-last > uint64(size) || total-last > sent {
				t.Fatalf("answered %d after %d, of at most %d", total, last, sent)
			}
			sent, last = sent-(total-last), total
		}
		if n := left.used(); n > int64(granted) || n < int64(last) {
			t.Fatalf("%d bytes taken, %d acknowledged, of %d", n, last, granted)
		}
	})
}

// FuzzAsker: for any response of a target, the asker sends nothing without a valid greeting, then a nonce and a proof.
// Without the key it does not accept the target.
func FuzzAsker(f *testing.F) {
	key, own := secret(1), [nonceLen]byte{2}
	good := greeting([nonceLen]byte{1})
	f.Add(good)
	f.Add(append(bytes.Clone(good), proof(key, targetRole, [nonceLen]byte{1}, own, 0, 0)...))
	f.Add(append(bytes.Clone(good), proof(key, askerRole, [nonceLen]byte{1}, own, 0, 0)...)) // its own proof, reflected
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n400 Bad Request"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &said{Reader: bytes.NewReader(data)}
		err := handshake(s, key, own, 0, 0)
		greets := len(data) >= greetingLen && bytes.Equal(data[:8], good[:8])
		switch n := s.answers.Len(); {
		case !greets && n > 0:
			t.Fatalf("sent %d bytes to one that is no target", n)
		case greets && n != introLen:
			t.Fatalf("sent %d bytes, want %d", n, introLen)
		}
		if bytes.Contains(s.answers.Bytes(), key[:]) {
			t.Fatal("sent the key")
		}
		proved := greets && len(data) >= greetingLen+proofLen &&
			bytes.Equal(data[greetingLen:greetingLen+proofLen],
				proof(key, targetRole, [nonceLen]byte(data[8:greetingLen]), own, 0, 0))
		if (err == nil) != proved {
			t.Fatalf("%v, proved: %v", err, proved)
		}
	})
}
