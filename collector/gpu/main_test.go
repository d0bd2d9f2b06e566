package gpu

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/amdgpu"
	"github.com/railscope/railscope/internal/hungfs"
	"github.com/railscope/railscope/internal/testenv"
)

func TestMain(m *testing.M) {
	hungfs.Main()
	testenv.Setup()
	os.Exit(m.Run())
}

// noAMD finds no GPU: its sysfs has no amdgpu.
func noAMD() *amdgpu.Finder { return amdgpu.NewFinder("/nonexistent") }

// readLines reads a source and returns the samples, sorted, and then the faults, one per line.
func readLines(src collector.Source) []string {
	var lines []string
	err := src.Read(func(s collector.Sample) {
		var labels []string
		for i, value := range s.Labels {
			labels = append(labels, fmt.Sprintf("%s=%q", s.Metric.Labels[i], value))
		}
		lines = append(lines, fmt.Sprintf("%s{%s} %v", s.Metric.Name, strings.Join(labels, ","), s.Value))
	})
	slices.Sort(lines)
	if errors.Is(err, collector.ErrAbsent) {
		return append(lines, "absent "+err.Error())
	}
	for _, f := range collector.Faults(err) {
		expected := ""
		if f.Expected {
			expected = "expected "
		}
		lines = append(lines, fmt.Sprintf("%sfault %s: %s", expected, f.Reason, f.Error()))
	}
	return lines
}
