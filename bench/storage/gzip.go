package storage

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/railscope/railscope/bench/suite"
)

// zipped is a target whose parts are compressed on the way to it, each for itself, as parallel tools do.
type zipped struct {
	Target
	mu      sync.Mutex // protects lengths
	lengths []int64    // lengths of the compressed parts
}

func (z *zipped) Create(ctx context.Context, size, part int64) error {
	z.lengths = make([]int64, (size+part-1)/part)
	return z.Target.Create(ctx, size, part)
}

// WritePart compresses at the fastest level: others take longer than most networks, for a few percent.
func (z *zipped) WritePart(ctx context.Context, i int, data []byte) error {
	var to bytes.Buffer
	to.Grow(len(data) + len(data)/64)
	w, err := gzip.NewWriterLevel(&to, gzip.BestSpeed)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return err
	}
	z.mu.Lock()
	z.lengths[i] = int64(to.Len())
	z.mu.Unlock()
	return z.Target.WritePart(ctx, i, to.Bytes())
}

// ReadPart reads a part and decompresses it. Where its parts lie one after the other, that is known once all are
// written.
func (z *zipped) ReadPart(ctx context.Context, i int, _ int64, data []byte) error {
	from := aligned(z.lengths[i])
	if err := z.Target.ReadPart(ctx, i, z.sum(i), from); err != nil {
		return err
	}
	r, err := gzip.NewReader(bytes.NewReader(from))
	if err == nil {
		_, err = io.ReadFull(r, data)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, r) // the checksum is behind the data
	}
	if err != nil {
		return fmt.Errorf("decompress: %w", err)
	}
	return nil
}

// sum returns the bytes of the first n parts.
func (z *zipped) sum(n int) (bytes int64) {
	for _, length := range z.lengths[:n] {
		bytes += length
	}
	return bytes
}

// MeasureCompressed does the same as [Measure] with parts that are compressed, and adds to r what it took.
func MeasureCompressed(ctx context.Context, target Target, o Options, r *Result) {
	z, own := &zipped{Target: target}, Result{}
	if err := measure(ctx, z, o, &own); err != nil {
		r.Failure = "compressed: " + err.Error()
		return
	}
	r.Compressed = &suite.Compressed{Bytes: z.sum(len(z.lengths)), SaveSeconds: own.SaveSeconds,
		LoadSeconds: own.LoadSeconds, SaveBytesPerSecond: own.SaveBytesPerSecond,
		LoadBytesPerSecond: own.LoadBytesPerSecond}
}

// MeasureAll opens a target and measures it, plain and compressed.
func MeasureAll(ctx context.Context, name string, o Options) Result {
	target, err := Open(ctx, name, o)
	if err != nil {
		return Failed(name, o, err)
	}
	r := Measure(ctx, name, target, o)
	if r.Failure != "" {
		return r
	}
	target, err = Open(ctx, name, o) // each measurement has a name of its own
	if err != nil {
		r.Failure = err.Error()
		return r
	}
	MeasureCompressed(ctx, target, o, &r)
	return r
}
