package storage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// pattern is the content of a checkpoint: random bytes that cannot be compressed. A stamp in each block has its part
// and offset, so that no two blocks are equal and misplaced ones are found.
type pattern struct {
	base []byte
	run  uint64 // random number of this measurement
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

// buffer returns a buffer for parts of this pattern, aligned for O_DIRECT.
func (p pattern) buffer() []byte {
	b := aligned(int64(len(p.base)))
	copy(b, p.base)
	return b
}

// mark returns the stamp of a block.
func (p pattern) mark(index, offset int) (b [stampSize]byte) {
	binary.LittleEndian.PutUint64(b[:], p.run+uint64(index)) //nolint:gosec // not negative
	binary.LittleEndian.PutUint64(b[8:], uint64(offset))     //nolint:gosec // not negative
	return b
}

// stamp turns a buffer with the pattern's bytes into a part.
func (p pattern) stamp(data []byte, index int) {
	for at := 0; at < len(data); at += blockSize {
		// The last block of a part is short. The buffer may have another part's stamp there.
		if len(data)-at < stampSize {
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
