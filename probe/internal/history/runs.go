package history

import (
	"slices"

	"github.com/railscope/railscope/probe/result"
)

// A short burst on a healthy pair finds a scaling below [result.SharedBelow] in 4 of 30 rounds, and is slower than TCP
// in 13 of 30. So a single burst does not decide: several have to agree.
const (
	Agreeing     = 3 // striped bursts in a row, of this round or of earlier ones, that must agree
	rememberRuns = 5 // striped bursts remembered
	rememberTCP  = 2 // baselines remembered
	SingleRuns   = 2 // bursts of each kind in a single interactive round, which has no earlier ones
)

// judgeRuns decides what the bursts of this round and of earlier ones agree on.
func (p *PastPeer) judgeRuns(res *result.Result) {
	lossy := slices.ContainsFunc(res.Rails, func(one result.RailResult) bool {
		return one.Lossy ||
			one.OthersSeen() != nil
	})
	res.Bottleneck = p.Low >= Agreeing && !lossy && !res.LacksRail()
	res.EvenAlone = res.EvenAlone && res.Bottleneck
	if res.Speedup == nil || *res.Speedup >= result.SlowerBelow || len(p.runs) < SingleRuns ||
		len(p.tcp) < rememberTCP {
		return
	}
	res.SlowerThanTCP = slices.Max(p.runs) < result.SlowerBelow*slices.Min(p.tcp)
}

// noteRuns adds a round to the memory of a peer.
func (p *PastPeer) noteRuns(res *result.Result) {
	if res.Transport == result.TCP { // the state after it is a new one
		p.runs, p.tcp, p.Low = nil, nil, 0
	}
	if res.Transport != result.RDMA {
		return
	}
	p.runs = append(p.runs, res.Runs...)
	p.runs = p.runs[max(len(p.runs)-rememberRuns, 0):]
	p.tcp = append(p.tcp, res.TCPRuns...)
	p.tcp = p.tcp[max(len(p.tcp)-rememberTCP, 0):]
}
