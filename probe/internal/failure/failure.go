// Package failure names what can go wrong with a transfer: where it happened
// and why, in words few enough to be labels. The worker process, the peer and
// the round all speak of failures in these terms.
package failure

import (
	"errors"
	"fmt"
)

// Stage is where in a round something happened.
type Stage string

// The stages, in the order of a round.
const (
	StageHello    Stage = "hello"    // asking the peer who it is
	StageLease    Stage = "lease"    // asking the peer for a lease
	StageOpen     Stage = "open"     // library, device, memory, queue pair
	StageConnect  Stage = "connect"  // RTR, RTS; or a TCP connection
	StageReach    Stage = "reach"    // the first write, of 8 B
	StageMTU      Stage = "mtu"      // a write of one full packet
	StageLatency  Stage = "latency"  // 8 B writes, one outstanding
	StageSolo     Stage = "solo"     // one rail alone
	StageStatic   Stage = "static"   // all rails, equal parts
	StageStealing Stage = "stealing" // all rails, whichever has room
	StageVerify   Stage = "verify"   // the target looks at what arrived
	StageBaseline Stage = "baseline" // the same over TCP, for comparison
	StageRelease  Stage = "release"  // giving the lease back
)

// Reason is why.
type Reason string

// The reasons. Where one stands for a signature of libibverbs or the kernel, it
// is in the comment.
const (
	// This node cannot use RDMA.
	NoCgo      Reason = "no_cgo"       // built without C
	NoLibrary  Reason = "no_library"   // libibverbs.so.1 cannot be loaded
	NoUverbs   Reason = "no_uverbs"    // ibv_get_device_list: ENOSYS; ib_uverbs is not loaded
	NoProvider Reason = "no_provider"  // the kernel has the device, libibverbs does not list it
	NoDevice   Reason = "no_device"    // one end has no RDMA device
	DevPerm    Reason = "dev_perm"     // ibv_open_device: EACCES, EPERM, ENOENT, ENODEV of /dev/infiniband/uverbs*
	Memlock    Reason = "memlock"      // ENOMEM of ibv_reg_mr, ibv_create_cq, ibv_create_qp: RLIMIT_MEMLOCK
	PortDown   Reason = "port_down"    // the port is not ACTIVE
	NoGID      Reason = "no_gid"       // no entry of the GID table will do
	GIDChanged Reason = "gid_changed"  // the entry is not what it was when it was chosen
	NoPeerRail Reason = "no_peer_rail" // the peer has no rail to pair this one with

	// Queue pairs do not connect.
	RTREinval      Reason = "rtr_einval"      // EINVAL: wrong GID index or type, MTU too large
	RTRUnreachable Reason = "rtr_unreachable" // ETIMEDOUT, EHOSTUNREACH: nobody answers ARP or ND for the peer's GID
	RTRNoRoute     Reason = "rtr_noroute"     // ENETUNREACH, ENODEV: no route from the GID's interface

	// A write does not complete.
	RetryExceeded Reason = "retry_exceeded" // IBV_WC_RETRY_EXC_ERR: no acknowledgement
	MTUBlackHole  Reason = "mtu_black_hole" // the same for a full packet, after 8 B got through
	RNR           Reason = "rnr"            // IBV_WC_RNR_RETRY_EXC_ERR
	RemoteAccess  Reason = "remote_access"  // IBV_WC_REM_ACCESS_ERR, REM_INV_REQ_ERR, REM_OP_ERR
	LocalProt     Reason = "local_prot"     // IBV_WC_LOC_PROT_ERR, LOC_LEN_ERR, LOC_QP_OP_ERR
	Flush         Reason = "flush"          // IBV_WC_WR_FLUSH_ERR, with no error before it
	DeviceFatal   Reason = "device_fatal"   // EIO, ENODEV in use, IBV_WC_FATAL_ERR: the device is gone or was reset
	Timeout       Reason = "timeout"        // nothing more happened before the deadline

	// The worker process.
	WorkerCrashed Reason = "worker_crashed" // it ended in the middle of a request
	WorkerTimeout Reason = "worker_timeout" // it did not answer, and was killed
	WorkerBackoff Reason = "worker_backoff" // it failed shortly before and is not yet started again

	// The control channel.
	PeerUnreachable Reason = "peer_unreachable" // no connection
	Unauthorized    Reason = "unauthorized"     // token or certificate refused
	TLS             Reason = "tls"              // no TLS session: wrong certificate, or one end without TLS
	// an answer that makes no sense: not a railscope, or a very different one
	Protocol  Reason = "protocol"
	PeerLost  Reason = "peer_lost"  // it stopped answering within the round
	LeaseLost Reason = "lease_lost" // it does not know the lease any more
	Self      Reason = "self"       // the peer is this node

	// TCP.
	TCPRefused     Reason = "tcp_refused"     // ECONNREFUSED
	TCPUnreachable Reason = "tcp_unreachable" // no route, nobody answers
	TCPBroken      Reason = "tcp_broken"      // the connection broke
	NoAddress      Reason = "no_address"      // no pair of addresses in one subnet

	// The data.
	DataMismatch Reason = "data_mismatch" // what arrived is not what was sent

	// Nothing is wrong, and nothing was done. Who says so is in the detail.
	Busy     Reason = "busy"     // the rails carry other traffic, or another round is going on
	Cooldown Reason = "cooldown" // too soon after the last one
	Budget   Reason = "budget"   // the bytes of this hour are used up
	Draining Reason = "draining" // shutting down
	Canceled Reason = "canceled" // told to stop

	Maintenance Reason = "maintenance" // the maintenance file exists

	PeerVersion Reason = "peer_version" // the peer speaks another version of the protocol, as in a rolling upgrade

	Other Reason = "other" // none of these; the detail says what
)

// Skips reports whether the reason says that nothing is wrong and the round was
// only not the time for it.
func (r Reason) Skips() bool {
	switch r {
	case Busy, Cooldown, Budget, Draining, Canceled, Maintenance, PeerVersion:
		return true
	}
	return false
}

// Failure is one thing that went wrong. It is an error.
type Failure struct {
	Rail   string `json:"rail,omitempty"` // empty: not one rail's
	Stage  Stage  `json:"stage"`
	Reason Reason `json:"reason"`
	Detail string `json:"detail,omitempty"` // for people: what exactly, with the errno or status, and what to do
}

// New returns a failure of no rail in particular.
func New(stage Stage, reason Reason, format string, args ...any) *Failure {
	return &Failure{Stage: stage, Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

func (f *Failure) Error() string {
	s := string(f.Stage) + ": " + string(f.Reason)
	if f.Rail != "" {
		s = "rail " + f.Rail + ": " + s
	}
	if f.Detail != "" {
		s += ": " + f.Detail
	}
	return s
}

// As returns the failure in err, or one of reason Other made of it; nil for nil.
func As(stage Stage, err error) *Failure {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	return New(stage, Other, "%v", err)
}
