package probe

import "context"

// prove is told that the connection of this request belongs to a peer.
func prove(context.Context) {}
