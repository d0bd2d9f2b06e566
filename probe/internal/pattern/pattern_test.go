package pattern

import (
	"bytes"
	"testing"
)

// TestWord compares the generator with its published output: the first words of SplitMix64 from seed 1234567.
func TestWord(t *testing.T) {
	for n, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431,
		16408922859458223821} {
		if got := word(1234567, uint64(n)); got != want {
			t.Errorf("word %d = %d, want %d", n, got, want)
		}
	}
}

// TestParts fills a buffer in parts and at once, with the same result. Another seed changes every word.
func TestParts(t *testing.T) {
	whole, parts, other := make([]byte, 4096), make([]byte, 4096), make([]byte, 4096)
	Fill(whole, 42, 0)
	for at := 0; at < len(parts); at += 512 {
		Fill(parts[at:at+512], 42, int64(at))
	}
	if !bytes.Equal(whole, parts) {
		t.Error("parts differ from the whole")
	}
	Fill(other, 43, 0)
	for at := 0; at < len(whole); at += Word {
		if bytes.Equal(whole[at:at+Word], other[at:at+Word]) {
			t.Errorf("the word at %d is the same for two seeds", at)
		}
	}
}

func BenchmarkFill(b *testing.B) {
	buf := make([]byte, 1<<20)
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		Fill(buf, 1, 0)
	}
}
