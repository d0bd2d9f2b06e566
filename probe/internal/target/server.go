package target

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/railscope/railscope/internal/connlimit"
	"github.com/railscope/railscope/probe/internal/node"
)

// Limits of the control channel.
const (
	MaxConnections = 64
	maxStrangers   = MaxConnections / 2 // connections that are not authenticated
	RequestTime    = 10 * time.Second
	idleTime       = time.Minute
	lastRequest    = 200 * time.Millisecond // for requests that are on their way at shutdown
)

// Server serves the control channel. Its connections outlive the responder that answers them.
type Server struct {
	responder func() *Responder
	refuse    func(reason, from string)
	limit     *connlimit.Limit
	http      *http.Server
}

// NewServer returns a server whose requests are answered by the present result of responder. An unauthenticated
// connection lives for strangerTime.
func NewServer(n *node.Node, strangerTime time.Duration, responder func() *Responder) *Server {
	s := &Server{responder: responder, refuse: n.Refused.Count,
		limit: connlimit.New(connlimit.Options{Connections: MaxConnections, Strangers: maxStrangers,
			StrangerTime: strangerTime, Work: n.StrangersWork, Refused: n.Refused.Count})}
	s.http = &http.Server{ReadTimeout: RequestTime,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			responder().ServeHTTP(w, req)
		}),
		IdleTimeout: idleTime, MaxHeaderBytes: 16 << 10, ConnState: connlimit.State, ConnContext: WithTargetConn,
		DisableGeneralOptionsHandler: true, // strangers get no answers but those of this package
		Protocols:                    new(http.Protocols)}
	s.http.Protocols.SetHTTP1(true) // one request at a time on each connection
	n.Opts.Server(s.http)
	return s
}

// Serve answers on l until that fails or is closed, and returns its error.
func (s *Server) Serve(l net.Listener) error {
	return s.http.Serve(&targetListener{s.limit.Listener(l), s.responder, s.refuse})
}

// Shutdown closes all connections, after a moment for requests that are on their way. The listeners must be closed.
func (s *Server) Shutdown() {
	for wait := lastRequest; wait > 0; wait -= lastRequest / 20 {
		if _, unread := s.limit.Open(); unread == 0 {
			break
		}
		time.Sleep(lastRequest / 20) // net/http does not answer a request that it has not read by now
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close() // connections that are still open need no answer
	}
}
