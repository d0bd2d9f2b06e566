package storage

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// object keeps the parts one after the other, as a bucket does, and reads them by their offsets.
type object struct {
	mu    sync.Mutex // protects parts
	parts [][]byte
	whole []byte
	spoil func(whole []byte) // called before anything is read; nil: nothing is changed
}

func (o *object) Create(_ context.Context, size, part int64) error {
	o.parts = make([][]byte, (size+part-1)/part)
	return nil
}

func (o *object) WritePart(_ context.Context, i int, data []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.parts[i] = slices.Clone(data)
	return nil
}

func (o *object) Finish(context.Context) error {
	o.whole = slices.Concat(o.parts...)
	if o.spoil != nil {
		o.spoil(o.whole)
	}
	return nil
}

func (o *object) ReadPart(_ context.Context, _ int, offset int64, data []byte) error {
	copy(data, o.whole[offset:])
	return nil
}

func (o *object) Remove(context.Context) error { o.parts, o.whole = nil, nil; return nil }
func (o *object) Describe(*Result)             {}

// TestCompressed: a compressed checkpoint is read back whole from files and from one object, and what was changed there
// is found.
func TestCompressed(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct {
		name, failure string
		target        Target
	}{
		{"files", "", roomy(dir)},
		{"an object", "", &object{}},
		{"a changed byte", "decompress: ", &object{spoil: func(b []byte) { b[len(b)/2]++ }}},
		{"a changed checksum", "decompress: ", &object{spoil: func(b []byte) { b[len(b)-8]++ }}},
		{"no directory", "no such file", roomy(filepath.Join(dir, "none"))},
	} {
		r := Result{Bytes: small.Size}
		MeasureCompressed(t.Context(), tc.target, small, &r)
		c := r.Compressed
		if tc.failure != "" {
			if c != nil || !strings.HasPrefix(r.Failure, "compressed: ") || !strings.Contains(r.Failure, tc.failure) {
				t.Errorf("%s: %+v, %s", tc.name, c, r.Failure)
			}
			continue
		}
		if r.Failure != "" || c == nil || c.Bytes <= small.Size || c.Bytes > small.Size*11/10 || c.SaveSeconds <= 0 ||
			c.LoadSeconds <= 0 || c.SaveBytesPerSecond <= 0 || c.LoadBytesPerSecond <= 0 { // its content is random
			t.Errorf("%s: %+v, %s", tc.name, c, r.Failure)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestMeasureAll: both are measured, and a target that cannot be opened has the reason.
func TestMeasureAll(t *testing.T) {
	dir := t.TempDir()
	r := MeasureAll(t.Context(), dir, Options{Size: 1 << 20, Part: 1 << 18, Streams: 2, Timeout: small.Timeout,
		Root: "/nonexistent"})
	if r.Failure != "" || r.SaveSeconds <= 0 || r.Compressed == nil {
		t.Errorf("%+v", r)
	}
	for name, want := range map[string]string{filepath.Join(dir, "none"): "no such file", "ftp://x/y": "ftp"} {
		if r := MeasureAll(t.Context(), name, small); r.Compressed != nil || !strings.Contains(r.Failure, want) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
