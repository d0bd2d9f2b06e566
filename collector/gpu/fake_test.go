//go:build cgo

package gpu

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/nvml/nvmltest"
)

// fakeNVML is the libnvidia-ml of a capture, loaded in the process of one test.
type fakeNVML struct {
	*nvmltest.Library
	session *nvml.Session
}

// captured runs the calling test in a process with the library of a capture; see [nvmltest.Process].
func captured(t *testing.T, capture string) *fakeNVML {
	t.Helper()
	l := nvmltest.Passing(t, filepath.Join("testdata", capture+".txtar"))
	if l == nil {
		return nil
	}
	return newFakeNVML(l)
}

func newFakeNVML(l *nvmltest.Library) *fakeNVML {
	return &fakeNVML{l, nvml.NewSession(nvml.NewLibrary(l.Path))}
}

// source returns a gpu source that uses the fake.
func (f *fakeNVML) source(budget time.Duration, processes int) collector.Source {
	return New(f.Procfs, f.session, budget, processes)
}

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
