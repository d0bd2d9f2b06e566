//go:build !cgo

package probe

import (
	"testing"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/result"
)

const builtWithC = false

// TestRoundWithoutC: a build without C reports that, and uses TCP.
func TestRoundWithoutC(t *testing.T) {
	p := makePair(t, 2, nil)
	p.serve()
	res := p.round()
	if res.Outcome != result.Fallback || res.Transport != result.TCP || res.Reason != failure.NoCgo || !res.Verified {
		t.Errorf("%s by %s because of %q (%s), verified %v", res.Outcome, res.Transport, res.Reason, res.Detail,
			res.Verified)
	}
}
