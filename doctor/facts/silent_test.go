package facts_test

import (
	"slices"
	"testing"
	"time"

	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/doctor/facts"
)

// TestSilentReaders: a reader that does not answer in time is silent, and so it is while that call goes on; one that
// failed, too.
func TestSilentReaders(t *testing.T) {
	o := doctortest.Captured(t, "lag", "")
	o.Budget = 10 * time.Millisecond
	release := make(chan struct{})
	defer close(release)
	o.Fails = func(reader string) bool {
		if reader == facts.ReaderBonds {
			<-release
		}
		return reader == facts.ReaderNUMA
	}
	g := facts.New(o)
	for _, when := range []string{"late", "busy"} {
		f := g.Gather(t.Context(), facts.WithoutJobs)
		for _, reader := range []string{facts.ReaderBonds, facts.ReaderNUMA} {
			if !slices.Contains(f.Silent, reader) {
				t.Errorf("%s: %q is not among the silent %q", when, reader, f.Silent)
			}
		}
	}
}
