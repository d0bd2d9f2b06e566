package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/alecthomas/units"
)

type storageSettings struct {
	*common
	targets          []string
	size, part       string
	streams          int
	timeout          time.Duration
	endpoint, format string
	endpointGiven    bool // the endpoint was given on the command line
}

const maxStreams = 256

func (s *storageSettings) define(app *kingpin.Application) *storageSettings {
	cmd := app.Command("storage", "Measure how fast a checkpoint is saved to directories and buckets and loaded from "+
		"them. Everything written is removed, also after an interruption. The exit code is 1 if a target failed.")
	cmd.Arg("target", "A directory, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX.").Required().StringsVar(&s.targets)
	cmd.Flag("size", "Size of the checkpoint, such as 14GB. A directory keeps 20 % of its file system free.").
		Envar("RAILSCOPE_STORAGE_SIZE").Default("1GiB").StringVar(&s.size)
	cmd.Flag("part-size", "Size of each part: a file of a directory, a part of a multipart upload.").
		Envar("RAILSCOPE_STORAGE_PART_SIZE").Default("16MiB").StringVar(&s.part)
	cmd.Flag("streams", "Parts that are written or read at once. Each has up to four buffers of a part in memory.").
		Envar("RAILSCOPE_STORAGE_STREAMS").Default("4").IntVar(&s.streams)
	cmd.Flag("timeout", "Longest time of a target, without the removal.").Envar("RAILSCOPE_STORAGE_TIMEOUT").
		Default("10m").DurationVar(&s.timeout)
	cmd.Flag("endpoint", "URL of the server of buckets, such as https://minio.example:9000; without it AWS and "+
		"Google. Plain HTTP is for loopback only.").Envar("RAILSCOPE_STORAGE_ENDPOINT").PlaceHolder("URL").
		IsSetByUser(&s.endpointGiven).StringVar(&s.endpoint)
	formatFlag(cmd, "RAILSCOPE_STORAGE_FORMAT", &s.format, "table", "json")
	return s
}

func (s *storageSettings) run(ctx context.Context, tracker *shutdownTracker, w io.Writer) error {
	defer tracker.begin("storage", nil)()
	tracker.wait() // the command removes what it wrote
	args, err := s.args()
	if err != nil {
		return misuse{err}
	}
	return runCompanion(ctx, w, args)
}

// args returns the command line of railscope-bench.
func (s *storageSettings) args() ([]string, error) {
	size, err := positiveSize("--size", s.size)
	if err != nil {
		return nil, err
	}
	part, err := positiveSize("--part-size", s.part)
	switch {
	case err != nil:
		return nil, err
	case s.streams < 1 || s.streams > maxStreams:
		return nil, fmt.Errorf("--streams must be from 1 to %d, not %d", maxStreams, s.streams)
	case s.timeout <= 0:
		return nil, fmt.Errorf("--timeout must be positive, not %v", s.timeout)
	}
	bucket := func(target string) bool { return strings.Contains(target, "://") }
	if s.endpointGiven && !slices.ContainsFunc(s.targets, bucket) {
		return nil, errors.New("--endpoint has no effect on directories: name a bucket, such as s3://BUCKET/PREFIX")
	}
	args := []string{"storage", "--size=" + strconv.FormatInt(size, 10),
		"--part-size=" + strconv.FormatInt(min(part, size), 10), "--streams=" + strconv.Itoa(s.streams),
		fmt.Sprintf("--timeout=%g", s.timeout.Seconds()), "--endpoint=" + s.endpoint, "--format=" + s.format,
		"--sysfs=" + s.Sysfs}
	if page().Color {
		args = append(args, "--color")
	}
	return append(append(args, "--"), s.targets...), nil
}

// positiveSize parses a number of bytes from the command line.
func positiveSize(flag, text string) (int64, error) {
	bytes, err := units.ParseStrictBytes(text)
	if err != nil || bytes <= 0 || bytes > 1<<50 {
		return 0, fmt.Errorf("%s must be a size, such as 4GB or 64MiB, not %q", flag, text)
	}
	return bytes, nil
}
