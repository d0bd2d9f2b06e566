//go:build !cgo || !linux

package verbs

import (
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
)

func noCgo() *failure.Failure {
	return failure.New(failure.StageOpen, failure.NoCgo,
		"this railscope was built without C: build it with CGO_ENABLED=1 on Linux")
}

// Library is libibverbs; there is none without C.
type Library struct{}

// Rail is one port of one device; there is none without C.
type Rail struct{}

// Buffer is memory that is not Go's; there is none without C.
type Buffer struct{}

// Run is what one round writes; there is none without C.
type Run struct{}

// Open returns a *[failure.Failure]: [failure.NoCgo].
func Open(string) (*Library, error) { return nil, noCgo() }

// File returns nothing.
func (*Library) File() string { return "" }

// Devices returns what [Open] returns.
func (*Library) Devices() ([]string, error) { return nil, noCgo() }

// OpenRail returns what [Open] returns.
func (*Library) OpenRail(Spec) (*Rail, error) { return nil, noCgo() }

// NewBuffer returns what [Open] returns.
func NewBuffer(int) (*Buffer, error) { return nil, noCgo() }

// Bytes returns nothing.
func (*Buffer) Bytes() []byte { return nil }

// Close does nothing.
func (*Buffer) Close() error { return nil }

// Info returns nothing.
func (*Rail) Info() Info { return Info{} }

// Register returns what [Open] returns.
func (*Rail) Register(*Buffer) (Region, error) { return Region{}, noCgo() }

// Connect returns what [Open] returns.
func (*Rail) Connect(Remote, Attr) error { return noCgo() }

// Close does nothing.
func (*Rail) Close() error { return nil }

// NewRun returns what [Open] returns.
func NewRun(int) (*Run, error) { return nil, noCgo() }

// Cancel does nothing.
func (*Run) Cancel() {}

// Progress returns nothing.
func (*Run) Progress() []int64 { return nil }

// Close does nothing.
func (*Run) Close() {}

// Latency returns what [Open] returns.
func (*Run) Latency(*Rail, int, time.Duration) ([]time.Duration, error) { return nil, noCgo() }

// Burst returns what [Open] returns.
func (*Run) Burst([]*Rail, *Buffer, BurstOptions) (BurstResult, error) {
	return BurstResult{}, noCgo()
}
