package probe

import (
	"testing"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

// TestSettle: exactly the bytes sent over the paths that did not fail must have been compared.
func TestSettle(t *testing.T) {
	const each = 4 << 20
	for _, tc := range []struct {
		why    string
		bytes  int64
		failed []string
		bad    int64 // offset of a wrong byte; -1: none
		want   failure.Reason
	}{
		{"all", 2 * each, nil, -1, ""},
		{"nothing", 0, nil, -1, failure.Protocol},
		{"one byte too few", 2*each - 1, nil, -1, failure.Protocol},
		{"one byte too many", 2*each + 1, nil, -1, failure.Protocol},
		{"one rail too few", each, nil, -1, failure.Protocol},
		{"one rail failed", each, []string{"b"}, -1, ""},
		{"one failed, the other not compared", 0, []string{"b"}, -1, failure.Protocol},
		{"a failed one counted", 2 * each, []string{"b"}, -1, failure.Protocol},
		{"both failed", 0, []string{"a", "b"}, -1, ""},
		{"a wrong byte", 2 * each, nil, 7, failure.DataMismatch},
	} {
		var res result.Result
		s := round.Session{Res: &res}
		var c round.ExpectedWrites
		for i, name := range []string{"a", "b"} {
			p := judged{}.path(i)
			s.Flows = append(s.Flows, p)
			c.Add(p, name, each/4, []int64{4}, each)
		}
		v := worker.Verified{Bytes: tc.bytes, Mismatch: tc.bad}
		for _, name := range tc.failed {
			v.Failures = append(v.Failures, failure.Failure{Rail: name, Reason: failure.Timeout})
		}
		var got failure.Reason
		err := s.CheckVerified(failure.StageStriped, &c, v, nil, "the target")
		if err != nil {
			got = failure.As(failure.StageVerify, err).Reason
		}
		if got != tc.want || len(res.Failures) != len(tc.failed) {
			t.Errorf("%s: %q (%v) and %d failed rails, want %q", tc.why, got, err, len(res.Failures), tc.want)
		}
	}
}
