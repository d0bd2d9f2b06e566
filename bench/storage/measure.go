// Package storage measures how fast a checkpoint is saved to and loaded from directories and buckets.
package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/internal/stats"
)

// Options configure a measurement.
type Options struct {
	Size, Part int64
	Streams    int
	Timeout    time.Duration // limit for one target, without the removal
	Root       string        // directory of /sys, for the interfaces
	Endpoint   string        // URL for buckets; empty for AWS or Google
}

// Result is the result of one target.
type Result = suite.Checkpoint

// Target is a place for one checkpoint. Several streams write and read parts concurrently.
type Target interface {
	Create(ctx context.Context, size, part int64) error
	WritePart(ctx context.Context, index int, data []byte) error
	Finish(ctx context.Context) error // makes the checkpoint durable
	// ReadPart reads a part that was written, which begins at an offset of the whole.
	ReadPart(ctx context.Context, index int, offset int64, data []byte) error
	Remove(ctx context.Context) error // also works after a failure or before Create
	Describe(*Result)
}

// removeTimeout limits a removal after an interruption.
const removeTimeout = 30 * time.Second

// Measure saves to the target, loads from it and removes the data. Failures are in the result.
func Measure(ctx context.Context, name string, target Target, o Options) Result {
	r := Result{Target: name, Streams: o.Streams, Interfaces: []suite.Interface{}}
	if err := measure(ctx, target, o, &r); err != nil {
		r.Failure = err.Error()
	}
	return r
}

func measure(ctx context.Context, target Target, o Options, r *Result) (err error) {
	if o.Size <= 0 || o.Part <= 0 || o.Streams <= 0 {
		return errors.New("size, part size and streams must be positive")
	}
	defer func() { // the fresh context allows removal after an interruption
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
		defer cancel()
		err = errors.Join(err, target.Remove(ctx))
	}()
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if err := target.Create(ctx, o.Size, o.Part); err != nil {
		return err
	}
	p := newPattern(min(o.Part, o.Size))
	before := readInterfaces(o.Root)
	defer func() { r.Interfaces = carried(before, readInterfaces(o.Root)); target.Describe(r) }()
	if err := save(ctx, target, o, p, r); err != nil {
		return fmt.Errorf("save: %w", err)
	}
	if err := load(ctx, target, o, p, r); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	return nil
}

// save measures the wall-clock time of the writes and of the call that makes them durable. Between two parts a stream
// only stamps its buffer.
func save(ctx context.Context, target Target, o Options, p pattern, r *Result) error {
	start := time.Now()
	times, _, err := streams(ctx, o, p, 1, func(ctx context.Context, i int, data []byte) (time.Duration, error) {
		p.stamp(data, i)
		start := time.Now()
		err := target.WritePart(ctx, i, data)
		return time.Since(start), err
	}, func([]byte, int) error { return nil })
	if err != nil {
		return err
	}
	if err := target.Finish(ctx); err != nil {
		return err
	}
	r.Bytes = o.Size
	r.SaveSeconds = time.Since(start).Seconds()
	r.SaveBytesPerSecond = float64(o.Size) / max(r.SaveSeconds, 1e-9)
	r.PartSeconds.Save = percentiles(times)
	return nil
}

// load measures the wall-clock time of the reads. Each part is verified while its stream reads the next.
func load(ctx context.Context, target Target, o Options, p pattern, r *Result) error {
	start := time.Now()
	times, end, err := streams(ctx, o, p, 2, func(ctx context.Context, i int, data []byte) (time.Duration, error) {
		start := time.Now()
		err := target.ReadPart(ctx, i, int64(i)*o.Part, data)
		return time.Since(start), err
	}, p.verify)
	if err != nil {
		return err
	}
	r.LoadSeconds = end.Sub(start).Seconds()
	r.LoadBytesPerSecond = float64(o.Size) / max(r.LoadSeconds, 1e-9)
	r.PartSeconds.Load = percentiles(times)
	return nil
}

// streams runs do for every part. It runs after on the part's buffer while the stream continues with another buffer. It
// returns the time of each part, and when the last do ended.
func streams(ctx context.Context, o Options, p pattern, buffers int,
	do func(ctx context.Context, index int, data []byte) (time.Duration, error),
	after func(data []byte, index int) error) (times []time.Duration, end time.Time, err error) {
	parts := int((o.Size + o.Part - 1) / o.Part)
	times, ends := make([]time.Duration, parts), make([]time.Time, o.Streams)
	group, ctx := errgroup.WithContext(ctx)
	for s := range min(o.Streams, parts) {
		spare := make(chan []byte, buffers)
		for range buffers {
			spare <- p.buffer()
		}
		group.Go(func() error {
			for i := s; i < parts; i += o.Streams {
				var buffer []byte
				select {
				case buffer = <-spare:
				case <-ctx.Done():
					return ctx.Err()
				}
				data := buffer[:min(o.Part, o.Size-int64(i)*o.Part)]
				took, err := do(ctx, i, data)
				if err != nil {
					return fmt.Errorf("part %d: %w", i, err)
				}
				times[i], ends[s] = took, time.Now()
				group.Go(func() error {
					defer func() { spare <- buffer }()
					if err := after(data, i); err != nil {
						return fmt.Errorf("part %d: %w", i, err)
					}
					return nil
				})
			}
			return nil
		})
	}
	err = group.Wait()
	return times, slices.MaxFunc(ends, time.Time.Compare), err
}

func percentiles(times []time.Duration) suite.Percentiles {
	return suite.Percentiles{P50: stats.Quantile(times, 0.5).Seconds(), P99: stats.Quantile(times, 0.99).Seconds()}
}

// Failed returns the result of a target that could not be opened.
func Failed(name string, o Options, err error) Result {
	return Result{Target: name, Streams: o.Streams, Interfaces: []suite.Interface{}, Failure: err.Error()}
}
