// Package pattern makes bytes that are unique to one burst: a target's memory must have what the asker sent in this
// burst, not in an earlier one.
//
// The race detector skips them: checking each byte took 1/4 of the time of the probe's tests.
package pattern

import "encoding/binary"

// Word is the unit of a pattern: offsets and lengths are multiples of it.
const Word = 8

// Fill writes the pattern of seed into buf, which begins at offset, a multiple of [Word]. A last part shorter than a
// word holds the word's first bytes.
//
//go:norace
func Fill(buf []byte, seed uint64, offset int64) {
	n := uint64(offset / Word)
	for len(buf) >= Word {
		binary.LittleEndian.PutUint64(buf, word(seed, n))
		buf, n = buf[Word:], n+1
	}
	var last [Word]byte
	binary.LittleEndian.PutUint64(last[:], word(seed, n))
	copy(buf, last[:])
}

// word returns the n-th output of SplitMix64 from seed (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
// Generators, 2014): every bit of every word depends on seed and place.
func word(seed, n uint64) uint64 {
	z := seed + (n+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
