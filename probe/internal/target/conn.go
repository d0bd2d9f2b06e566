package target

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/railscope/railscope/internal/connlimit"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
)

// RecordHandshake is the first byte of a TLS connection. No request in the clear begins with it.
const RecordHandshake = 0x16

// Conn is one connection to this node: TLS, or earlier protocols in the clear, which are refused. It holds
// all state of strangers, so the limit of connections bounds that state.
type Conn struct {
	*connlimit.Conn
	conf   *tls.Config
	refuse func(reason, from string)

	begin sync.Once
	clear io.Reader // data received in the clear; nil until then
	err   error     // error of the start
	TLS   atomic.Pointer[tls.Conn]

	token string // token that the asker proved; used by one request at a time
}

// targetListener wraps each connection of a limited listener in a Conn.
type targetListener struct {
	net.Listener
	responder func() *Responder
	refuse    func(reason, from string)
}

// Accept implements [net.Listener].
func (l *targetListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &Conn{Conn: connlimit.Of(c), conf: l.responder().Creds.ServerTLS(), refuse: l.refuse}, nil
}

// state returns the state of the TLS connection; nil in the clear.
func (c *Conn) state() *tls.ConnectionState {
	t := c.TLS.Load()
	if t == nil {
		return nil
	}
	state := t.ConnectionState()
	return &state
}

// NetConn returns the connection below.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// readAhead is a connection whose first bytes were already read.
type readAhead struct {
	net.Conn
	io.Reader
}

func (r readAhead) Read(b []byte) (int, error) { return r.Reader.Read(b) }

// start reads the first bytes, and makes the handshake if they are TLS.
func (c *Conn) start() {
	first := make([]byte, protocol.MaxProof)
	n, err := c.Conn.Read(first)
	if err != nil {
		c.err = err
		return
	}
	c.clear = io.MultiReader(bytes.NewReader(first[:n]), c.Conn)
	if n == 0 || first[0] != RecordHandshake {
		return
	}
	conn := tls.Server(readAhead{c.Conn, c.clear}, c.conf)
	c.TLS.Store(conn)
	c.err = conn.Handshake()
	if reason := handshakeRefusal(c.err); reason != node.AlreadyCounted {
		c.refuse(reason, c.RemoteAddr().String())
	}
}

// handshakeRefusal returns the reason why a handshake was refused; empty if the asker gave up.
func handshakeRefusal(err error) string {
	var op *net.OpError
	var invalid x509.CertificateInvalidError
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &op):
		return node.AlreadyCounted
	case errors.As(err, new(*tls.CertificateVerificationError)), errors.As(err, &invalid),
		err.Error() == "tls: client didn't provide a certificate":
		return node.RefusedUnauthorized
	}
	return node.RefusedMalformed
}

// Read implements [net.Conn].
func (c *Conn) Read(b []byte) (int, error) {
	c.begin.Do(c.start)
	if c.err != nil {
		return 0, c.err
	}
	if t := c.TLS.Load(); t != nil {
		return t.Read(b)
	}
	return c.clear.Read(b)
}

// Write implements [net.Conn]. The server writes only after it has read.
func (c *Conn) Write(b []byte) (int, error) {
	if t := c.TLS.Load(); t != nil {
		return t.Write(b)
	}
	return c.Conn.Write(b)
}

// CloseWrite lets net/http finish an answer before it closes the connection.
func (c *Conn) CloseWrite() error {
	if t := c.TLS.Load(); t != nil {
		return t.CloseWrite()
	}
	return c.Conn.CloseWrite()
}

// Close implements [net.Conn].
func (c *Conn) Close() error {
	if t := c.TLS.Load(); t != nil {
		return t.Close()
	}
	return c.Conn.Close()
}
