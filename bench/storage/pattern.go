package storage

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// pattern is what is written: random bytes that no compression shortens, with a stamp in each block that names its part
// and place, so that no two blocks are equal and a misplaced one is found.
type pattern struct {
	base []byte
	run  uint64 // of this measurement
}

const (
	blockSize = 4096
	stampSize = 16
)

func newPattern(part int64) pattern {
	var seed [32]byte
	for i := range 4 {
		binary.LittleEndian.PutUint64(seed[8*i:], rand.Uint64())
	}
	p := pattern{base: make([]byte, part), run: rand.Uint64()}
	rand.NewChaCha8(seed).Read(p.base) //nolint:errcheck // never fails
	return p
}

// buffer is one for parts of this pattern, aligned for O_DIRECT.
func (p pattern) buffer() []byte {
	b := aligned(int64(len(p.base)))
	copy(b, p.base)
	return b
}

// mark is the stamp of a block.
func (p pattern) mark(index, offset int) (b [stampSize]byte) {
	binary.LittleEndian.PutUint64(b[:], p.run+uint64(index)) //nolint:gosec // not negative
	binary.LittleEndian.PutUint64(b[8:], uint64(offset))     //nolint:gosec // not negative
	return b
}

// stamp makes a buffer that part. It has the bytes of the pattern.
func (p pattern) stamp(data []byte, index int) {
	for at := 0; at < len(data); at += blockSize {
		if len(data)-at < stampSize { // the last of a part; the buffer may have been stamped there for another
			copy(data[at:], p.base[at:])
			return
		}
		mark := p.mark(index, at)
		copy(data[at:], mark[:])
	}
}

// verify compares every byte of a part.
func (p pattern) verify(data []byte, index int) error {
	for at := 0; at < len(data); at += blockSize {
		got, rest := data[at:min(at+blockSize, len(data))], p.base[at:]
		if len(got) >= stampSize {
			if mark := p.mark(index, at); !bytes.Equal(got[:stampSize], mark[:]) {
				return fmt.Errorf("the 4 KiB at byte %d are not what was written there", at)
			}
			got, rest = got[stampSize:], rest[stampSize:]
		}
		if !bytes.Equal(got, rest[:len(got)]) {
			return fmt.Errorf("the 4 KiB at byte %d are not what was written there", at)
		}
	}
	return nil
}

// gzipBound is how much is compressed: more takes longer than the transfer and shows the same.
const gzipBound = 256 << 20

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// compressed returns how many bytes were compressed, and to how many.
func (p pattern) compressed(ctx context.Context, o Options) (of, to int64, err error) {
	var n counter
	w, err := gzip.NewWriterLevel(&n, gzip.BestSpeed)
	if err != nil {
		return 0, 0, err
	}
	buffer := p.buffer()
	for i := 0; of < min(o.Size, gzipBound); i++ {
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		part := buffer[:min(o.Part, o.Size-of)]
		p.stamp(part, i)
		if _, err := w.Write(part); err != nil {
			return 0, 0, err
		}
		of += int64(len(part))
	}
	err = w.Close()
	return of, int64(n), err
}
