package node

import "github.com/railscope/railscope/internal/connlimit"

// Reasons of refusals, in addition to those of connlimit.
const (
	RefusedUnauthorized = "unauthorized" // neither a valid token nor a valid certificate
	RefusedVersion      = "version"      // another version of the protocol
	RefusedMalformed    = "malformed"    // the request is not railscope's

	AlreadyCounted = "" // reason already counted, such as a connection closed before its request was complete
)

func newRefusals(report func(reason, from string)) *connlimit.Refusals {
	return connlimit.NewRefusals(report, connlimit.Address, connlimit.Connections, connlimit.Timeout,
		RefusedUnauthorized, RefusedVersion, RefusedMalformed)
}
