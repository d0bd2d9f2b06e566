package probe

import "github.com/railscope/railscope/internal/connlimit"

// Reasons of refusals, beside those of connlimit.
const (
	refusedUnauthorized = "unauthorized" // neither token nor certificate of a peer
	refusedVersion      = "version"      // another version of the protocol
	refusedMalformed    = "malformed"    // not a request of railscope

	alreadyCounted = "" // as a connection that closed before its request was complete
)

func newRefusals(report func(reason, from string)) *connlimit.Refusals {
	return connlimit.NewRefusals(report, connlimit.Address, connlimit.Connections, connlimit.Timeout,
		refusedUnauthorized, refusedVersion, refusedMalformed)
}
