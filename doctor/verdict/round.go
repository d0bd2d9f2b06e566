package verdict

import (
	"slices"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/status"
	"github.com/railscope/railscope/probe/result"
)

// Round is the result of a round with a peer, or why there was none.
type Round struct {
	Peer    string
	Found   []finding.Finding
	Skipped string
}

// NewRound judges a round. A round without figures says nothing against the rails.
func NewRound(r result.Result) *Round {
	round := &Round{Peer: r.Peer, Found: check.Round(r)}
	switch r.Outcome {
	case result.Skipped:
		round.Skipped = "peer " + r.Peer + " was not probed: " + check.Reason(r.Reason, r.Detail)
	case result.Reached:
		round.Skipped = "RDMA to peer " + r.Peer + " works; what it carries was not measured: " +
			check.Reason(r.Reason, r.Detail)
	}
	return round
}

// Contradict returns the findings in raised, changed by the round: findings about the peer that the round did not
// repeat are recovering, and so are those about rails if no other peer can have raised them. A nil round changes
// nothing.
func (r *Round) Contradict(raised []finding.Finding, running *status.Status) []finding.Finding {
	if r == nil || r.Skipped != "" {
		return raised
	}
	only := len(running.Peers) == 1 && running.Peers[0].Name == r.Peer
	for i, f := range raised {
		again := slices.ContainsFunc(r.Found, func(o finding.Finding) bool {
			return o.Check == f.Check && o.Subject == f.Subject
		})
		raised[i].Recovering = f.Recovering || !again &&
			(f.Subject == "peer "+r.Peer || only && !f.Peer() && check.OfRoundAlone(f.Check))
	}
	return raised
}

// Remembered returns the findings of the running railscope that a command cannot see, without silenced ones.
// stateKnown: the command reads its state directory.
func Remembered(running *status.Status, stateKnown bool) (list []finding.Finding) {
	for _, f := range Standing(running) {
		if check.Remembered(f.Check, stateKnown) {
			list = append(list, f)
		}
	}
	return list
}
