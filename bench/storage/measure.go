// Package storage measures how fast a checkpoint is saved to and loaded from directories and buckets.
package storage

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// Options say what is written and how.
type Options struct {
	Size, Part int64
	Streams    int
	Timeout    time.Duration // of one target, without the removal
	Root       string        // of /sys, for the interfaces
	Endpoint   string        // of s3, empty: AWS
}

// Percentiles are of the times of parts.
type Percentiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// PartSeconds are the times of parts in both directions.
type PartSeconds struct {
	Save Percentiles `json:"save"`
	Load Percentiles `json:"load"`
}

// Result is what one target did.
type Result struct {
	Target             string      `json:"target"`
	Bytes              int64       `json:"bytes"`
	GzipBytes          int64       `json:"gzip_bytes"`
	GzipOfBytes        int64       `json:"gzip_of_bytes"` // what was compressed: the first parts
	Streams            int         `json:"streams"`
	SaveSeconds        float64     `json:"save_seconds"`
	LoadSeconds        float64     `json:"load_seconds"`
	SaveBytesPerSecond float64     `json:"save_bytes_per_second"`
	LoadBytesPerSecond float64     `json:"load_bytes_per_second"`
	PartSeconds        PartSeconds `json:"part_seconds"`
	Cache              string      `json:"cache,omitempty"` // how a directory bypassed it: direct or advised
	Memory             bool        `json:"memory,omitempty"`
	Interfaces         []Interface `json:"interfaces"`
	Failure            string      `json:"failure,omitempty"`
}

// Target is a place for one checkpoint. Parts are written and read by several streams at once.
type Target interface {
	Create(ctx context.Context, size, part int64) error
	WritePart(ctx context.Context, index int, data []byte) error
	Finish(ctx context.Context) error // the checkpoint is durable afterwards
	ReadPart(ctx context.Context, index int, data []byte) error
	Remove(ctx context.Context) error // also after a failure or before Create
	Describe(*Result)
}

// removeTimeout is how long a removal may take after an interruption.
const removeTimeout = 30 * time.Second

// gzipBound is how much is compressed: more takes longer than the transfer and shows the same.
const gzipBound = 256 << 20

// Measure saves to the target, loads from it and removes what it wrote. Failures are in the result.
func Measure(ctx context.Context, name string, target Target, o Options) Result {
	r := Result{Target: name, Streams: o.Streams, Interfaces: []Interface{}}
	if err := measure(ctx, target, o, &r); err != nil {
		r.Failure = err.Error()
	}
	return r
}

func measure(ctx context.Context, target Target, o Options, r *Result) (err error) {
	if o.Size <= 0 || o.Part <= 0 || o.Streams <= 0 {
		return errors.New("size, part size and streams must be positive")
	}
	defer func() { // a fresh context: it removes also after an interruption
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
		defer cancel()
		err = errors.Join(err, target.Remove(ctx))
	}()
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	var seed [32]byte
	for i := range 4 {
		binary.LittleEndian.PutUint64(seed[8*i:], rand.Uint64())
	}
	if err := target.Create(ctx, o.Size, o.Part); err != nil {
		return err
	}
	if r.GzipOfBytes, r.GzipBytes, err = compressed(ctx, o, seed); err != nil {
		return err
	}
	before := readInterfaces(o.Root)
	defer func() { r.Interfaces = carried(before, readInterfaces(o.Root)); target.Describe(r) }()
	if err := save(ctx, target, o, seed, r); err != nil {
		return fmt.Errorf("save: %w", err)
	}
	if err := load(ctx, target, o, seed, r); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	return nil
}

// save times the writes and the end that makes them durable. Between parts a stream fills its buffer: the time of the
// slowest stream without its fills is the save time.
func save(ctx context.Context, target Target, o Options, seed [32]byte, r *Result) error {
	busy, times, err := streams(ctx, o, func(ctx context.Context, i int, data []byte) (time.Duration, error) {
		fill(data, seed, i)
		start := time.Now()
		err := target.WritePart(ctx, i, data)
		return time.Since(start), err
	})
	if err != nil {
		return err
	}
	start := time.Now()
	if err := target.Finish(ctx); err != nil {
		return err
	}
	r.Bytes = o.Size
	r.SaveSeconds = (busy + time.Since(start)).Seconds()
	r.SaveBytesPerSecond = float64(o.Size) / max(r.SaveSeconds, 1e-9)
	r.PartSeconds.Save = percentiles(times)
	return nil
}

// load times the reads alone. Every byte is verified between them.
func load(ctx context.Context, target Target, o Options, seed [32]byte, r *Result) error {
	busy, times, err := streams(ctx, o, func(ctx context.Context, i int, data []byte) (time.Duration, error) {
		clear(data)
		start := time.Now()
		err := target.ReadPart(ctx, i, data)
		took := time.Since(start)
		if err == nil {
			err = verify(data, seed, i)
		}
		return took, err
	})
	if err != nil {
		return err
	}
	r.LoadSeconds = busy.Seconds()
	r.LoadBytesPerSecond = float64(o.Size) / max(r.LoadSeconds, 1e-9)
	r.PartSeconds.Load = percentiles(times)
	return nil
}

type transfer func(ctx context.Context, index int, data []byte) (time.Duration, error)

// streams runs a transfer of every part, and returns the time of the busiest stream and of each part.
func streams(ctx context.Context, o Options, do transfer) (time.Duration, []time.Duration, error) {
	parts := int((o.Size + o.Part - 1) / o.Part)
	times, busy := make([]time.Duration, parts), make([]time.Duration, o.Streams)
	group, ctx := errgroup.WithContext(ctx)
	for s := range o.Streams {
		group.Go(func() error {
			buffer := aligned(min(o.Part, o.Size))
			for i := s; i < parts; i += o.Streams {
				if err := ctx.Err(); err != nil {
					return err
				}
				n := min(o.Part, o.Size-int64(i)*o.Part)
				took, err := do(ctx, i, buffer[:n])
				if err != nil {
					return fmt.Errorf("part %d: %w", i, err)
				}
				times[i] = took
				busy[s] += took
			}
			return nil
		})
	}
	err := group.Wait()
	return slices.Max(busy), times, err
}

// fill writes the bytes of a part: no compression shortens them, and the load can repeat them.
func fill(data []byte, seed [32]byte, index int) {
	binary.LittleEndian.PutUint64(seed[:], binary.LittleEndian.Uint64(seed[:])+uint64(index)) //nolint:gosec // not negative
	rand.NewChaCha8(seed).Read(data)                                                          //nolint:errcheck // never fails
}

func verify(data []byte, seed [32]byte, index int) error {
	want := make([]byte, len(data))
	if fill(want, seed, index); bytes.Equal(data, want) {
		return nil
	}
	for i := range data {
		if data[i] != want[i] {
			return fmt.Errorf("byte %d differs from what was written", i)
		}
	}
	return nil
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// compressed returns how many bytes were compressed, and to how many.
func compressed(ctx context.Context, o Options, seed [32]byte) (of, to int64, err error) {
	var n counter
	w, err := gzip.NewWriterLevel(&n, gzip.BestSpeed)
	if err != nil {
		return 0, 0, err
	}
	buffer := make([]byte, min(o.Part, o.Size))
	for i := 0; of < min(o.Size, gzipBound); i++ {
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		part := buffer[:min(o.Part, o.Size-of)]
		fill(part, seed, i)
		if _, err := w.Write(part); err != nil {
			return 0, 0, err
		}
		of += int64(len(part))
	}
	err = w.Close()
	return of, int64(n), err
}

func percentiles(times []time.Duration) Percentiles {
	slices.Sort(times)
	at := func(q float64) float64 { // nearest rank
		return times[max(int(math.Ceil(q*float64(len(times))))-1, 0)].Seconds()
	}
	return Percentiles{P50: at(0.5), P99: at(0.99)}
}
