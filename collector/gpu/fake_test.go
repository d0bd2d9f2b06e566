//go:build cgo

package gpu

import (
	"path/filepath"
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
	return New(noAMD(), f.Procfs, f.session, budget, processes)
}
