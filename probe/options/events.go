package options

import (
	"net"
)

// Events are callbacks for the log and the series. All but Device and LetGo are required.
type Events struct {
	Answering func(addr net.Addr) // peers are answered at this address
	Stopped   func(err error)     // peers are not answered: listening failed, and is retried
	// Peers is called with the labels of the peers that results will name; see [result.Result.Peer]. It is never called
	// while a result is observed.
	Peers func(peers []string)
	// Resolved is called for a DNS name, host:port, or file:PATTERN with the number of nodes that it lists, when
	// the number changes or when lookups start to fail or to succeed. With an error, the nodes are the previous
	// ones.
	Resolved func(name string, peers int, err error)
	// SecretFile is called with an error when a token or certificate file can no longer be used and its last
	// content stays in use, and with nil when the file is valid again.
	SecretFile func(path string, err error)
	// WeakToken is called for a token file whose shortest token is short enough to be guessed: once per content,
	// and again when options are applied.
	WeakToken func(path string, bytes int)

	// Device is called for each asynchronous event of an open device; port 0 means the whole device. Without it, no
	// device is kept open.
	Device func(device string, port int, event string, count uint64)
	// LetGo reports whether devices must be closed now. It is asked every second.
	LetGo func() bool
}
