package probe

import (
	"context"
	"net"

	"github.com/railscope/railscope/internal/connlimit"
)

// proofKey is where a request's context has its connection.
type proofKey struct{}

// withConn lets [prove] find the connection; it is for [http.Server.ConnContext].
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, proofKey{}, connlimit.Of(c))
}

// prove lifts the bounds on strangers from the connection of a request that was
// admitted. Call it with the request's context.
func prove(ctx context.Context) {
	if c, _ := ctx.Value(proofKey{}).(*connlimit.Conn); c != nil {
		c.Prove()
	}
}
