package protocol

import (
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
)

// Deny returns the failure by which a lease is denied.
func Deny(reason failure.Reason, format string, args ...any) *failure.Failure {
	return failure.New(failure.StageLease, reason, format, args...)
}

// Later is deny of what may be granted after a while.
func Later(wait time.Duration, reason failure.Reason, format string, args ...any) *failure.Failure {
	f := Deny(reason, format, args...)
	f.RetryAfter = wait
	return f
}

// BudgetFailure returns the refusal for a budget that is used up.
func BudgetFailure(whose string, need, wait time.Duration) *failure.Failure {
	return Later(wait, failure.Budget, "%s probe budget is used up: %v of the rails' time will be available in %v",
		whose, need.Round(time.Microsecond), wait.Round(time.Second))
}

// OnPeer is a failure of this node as the asker sees it; nil of nil.
func OnPeer(err error) *failure.Failure {
	f := failure.As("", err)
	if f == nil {
		return nil
	}
	return f.OnPeer()
}

// RetryLeast and RetryMost are the least and the longest time before a denied round is retried.
const (
	RetryLeast = time.Second
	RetryMost  = 5 * time.Second
)
