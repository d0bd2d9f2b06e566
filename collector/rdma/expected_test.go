package rdma

import (
	"fmt"
	"testing"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfstest"
)

// BenchmarkExpected emits the expected values of eight rails, as one scrape does.
func BenchmarkExpected(b *testing.B) {
	sys := b.TempDir()
	if err := sysfstest.WriteMlx5(sys, 8); err != nil {
		b.Fatal(err)
	}
	finder := rail.NewFinder(sys, rail.Options{}, nil, time.Second)
	rails, _ := finder.Rails()
	s := New(sys, finder.Snapshot, time.Second)
	memory := expect.Memory{}
	for i := range rails {
		rails[i].PCIAddress = fmt.Sprintf("0000:%02x:00.0", i)
		rails[i].Place = rails[i].PCIAddress
		memory.Ports = append(memory.Ports, expect.Port{Place: rails[i].Place, Port: 1, NodeGUID: rails[i].NodeGUID,
			Rate: &expect.Seen[float64]{Value: 50e9}, MTU: &expect.Seen[int]{Value: 4096},
			Link: &expect.Seen[rail.Link]{Value: rail.Link{GigaTransfers: 32, Width: 16}}})
	}
	s.Expected = expect.New(expect.Options{Find: finder.Snapshot, Memory: memory}).Expected
	limits := make([]rail.Limits, len(rails))
	for i := range limits {
		limits[i] = rail.Limits{Active: true, Rate: 50e9, Link: 63e9, LinkKey: rails[i].PCIAddress}
	}
	for b.Loop() {
		s.emitExpected(rails, limits, func(collector.Sample) {})
	}
}
