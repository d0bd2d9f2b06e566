// Package failure names failures of a transfer by stage and reason, few enough to be labels. The worker process, the
// peer and the round all use them.
package failure

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Stage is the step of a round that failed.
type Stage string

// The stages, in the order of a round.
const (
	StageHello    Stage = "hello"    // asking the peer for its rails
	StageLease    Stage = "lease"    // asking the peer for a lease
	StageOpen     Stage = "open"     // library, device, memory, queue pair
	StageConnect  Stage = "connect"  // RTR, RTS; or a TCP connection
	StageReach    Stage = "reach"    // the first write, of 8 B
	StageMTU      Stage = "mtu"      // a write of one full packet
	StageLatency  Stage = "latency"  // 8 B writes, one outstanding
	StageSolo     Stage = "solo"     // one rail alone
	StageStriped  Stage = "striped"  // all rails at once
	StageVerify   Stage = "verify"   // the target compares what arrived
	StageBaseline Stage = "baseline" // the same over TCP, for comparison
	StageExtra    Stage = "extra"    // one more kind of burst: reads, paths and so on
	StageRelease  Stage = "release"  // returning the lease
)

// Reason is why it failed.
type Reason string

// The reasons, with what libibverbs or the kernel return.
const (
	// This node cannot use RDMA.
	NoCgo      Reason = "no_cgo"       // built without C
	NoLibrary  Reason = "no_library"   // libibverbs.so.1 cannot be loaded
	NoUverbs   Reason = "no_uverbs"    // ibv_get_device_list: ENOSYS; ib_uverbs is not loaded
	NoProvider Reason = "no_provider"  // the kernel has the device, libibverbs does not list it
	NoDevice   Reason = "no_device"    // one end has no RDMA device
	DevPerm    Reason = "dev_perm"     // ibv_open_device: EACCES, EPERM, ENOENT, ENODEV of /dev/infiniband/uverbs*
	IWARP      Reason = "iwarp"        // an RNIC: irdma in iWARP mode, cxgb4, siw
	NoRC       Reason = "no_rc"        // ibv_create_qp: EOPNOTSUPP; EFA has no RC queue pairs
	PKey       Reason = "pkey"         // the configured partition key is not in the port's table
	Memlock    Reason = "memlock"      // ENOMEM of ibv_reg_mr, ibv_create_cq, ibv_create_qp: RLIMIT_MEMLOCK
	PortDown   Reason = "port_down"    // the port is not ACTIVE, or IBV_EVENT_PORT_ERR
	NoGID      Reason = "no_gid"       // no usable entry in the GID table
	GIDChanged Reason = "gid_changed"  // the entry has changed since it was chosen
	NoPeerRail Reason = "no_peer_rail" // the peer has no matching rail
	PeerGID    Reason = "peer_gid"     // the peer's rail has no usable GID, or no longer the one that was chosen

	// GIDMisbound: all RoCE v2 IPv4 GIDs of a rail, at either end, are those of a bond or bridge over its interface.
	GIDMisbound Reason = "gid_misbound"

	// The device or the kernel lacks what the caller asked for.
	NoTimestamps Reason = "no_timestamps" // no completion timestamps, or of a clock that cannot be read
	NoDMABuf     Reason = "no_dmabuf"     // ibv_reg_dmabuf_mr is missing, or: ENOSYS, EOPNOTSUPP, EINVAL, ENOTTY
	NoPeermem    Reason = "no_peermem"    // ibv_reg_mr of GPU memory: EFAULT, EINVAL, EOPNOTSUPP; no nvidia-peermem

	// GPU memory.
	NoLibCUDA     Reason = "no_libcuda"     // dlopen or dlsym of libcuda, or CUDA_ERROR_STUB_LIBRARY
	NoGPU         Reason = "no_gpu"         // CUDA has no GPU at this PCI address
	UnifiedMemory Reason = "unified_memory" // an integrated GPU, which exports no memory: host memory is the GPU's
	CUDAOOM       Reason = "cuda_oom"       // CUDA_ERROR_OUT_OF_MEMORY
	CUDAError     Reason = "cuda_error"     // another error of CUDA

	// Queue pairs do not connect.
	RTREinval      Reason = "rtr_einval"      // EINVAL: wrong GID index or type, MTU too large
	RTRUnreachable Reason = "rtr_unreachable" // ETIMEDOUT, EHOSTUNREACH: no answer to ARP or ND for the peer's GID
	RTRNoRoute     Reason = "rtr_noroute"     // ENETUNREACH, ENODEV: no route from the GID's interface
	NoRoute        Reason = "no_route"        // from one rail of this node to another: the fabric does not route it

	// A write does not complete.
	RetryExceeded Reason = "retry_exceeded" // IBV_WC_RETRY_EXC_ERR: no acknowledgement
	MTUBlackHole  Reason = "mtu_black_hole" // the same for a full packet, after 8 B got through
	RNR           Reason = "rnr"            // IBV_WC_RNR_RETRY_EXC_ERR
	RemoteAccess  Reason = "remote_access"  // IBV_WC_REM_ACCESS_ERR, REM_INV_REQ_ERR, REM_OP_ERR
	LocalProt     Reason = "local_prot"     // IBV_WC_LOC_PROT_ERR, LOC_LEN_ERR, LOC_QP_OP_ERR
	Flush         Reason = "flush"          // IBV_WC_WR_FLUSH_ERR, with no error before it
	DeviceFatal   Reason = "device_fatal"   // EIO, ENODEV in use, IBV_WC_FATAL_ERR, IBV_EVENT_DEVICE_FATAL: it is gone
	QPError       Reason = "qp_error"       // IBV_EVENT_QP_ACCESS_ERR, QP_REQ_ERR, QP_FATAL, CQ_ERR
	Timeout       Reason = "timeout"        // no progress before the deadline

	// The worker process.
	WorkerCrashed Reason = "worker_crashed" // it ended during a request
	WorkerTimeout Reason = "worker_timeout" // it did not answer, and was killed
	WorkerBackoff Reason = "worker_backoff" // it failed recently, and the next start is delayed

	PeerWorker Reason = "peer_worker" // one of these, of the peer's

	// The control channel.
	PeerUnreachable Reason = "peer_unreachable" // no connection
	Unauthorized    Reason = "unauthorized"     // token or certificate refused
	TLS             Reason = "tls"              // no TLS session: invalid certificate, or one end without TLS
	Protocol        Reason = "protocol"         // an invalid answer: not a railscope, or another version
	PeerLost        Reason = "peer_lost"        // it stopped answering during the round
	LeaseLost       Reason = "lease_lost"       // the lease has ended on the peer
	Self            Reason = "self"             // the peer is this node

	// TCP.
	TCPRefused     Reason = "tcp_refused"     // ECONNREFUSED
	TCPUnreachable Reason = "tcp_unreachable" // no route, no answer
	TCPBroken      Reason = "tcp_broken"      // the connection broke
	NoAddress      Reason = "no_address"      // no pair of addresses in one subnet

	// The data.
	DataMismatch Reason = "data_mismatch" // what arrived is not what was sent

	// Not a failure: the round was skipped. The detail says by which end.
	Busy        Reason = "busy"         // the rails carry other traffic, or another round is in progress
	Cooldown    Reason = "cooldown"     // too soon after the last one
	Budget      Reason = "budget"       // the budget is used up
	Draining    Reason = "draining"     // shutting down
	Canceled    Reason = "canceled"     // stopped by the caller
	Maintenance Reason = "maintenance"  // the maintenance file exists
	PeerVersion Reason = "peer_version" // the peer speaks another protocol version, as in a rolling upgrade
	Disturbed   Reason = "disturbed"    // this node's processors were busy, so no goodput could be measured

	Other Reason = "other" // none of these; see the detail
)

// Skips reports whether the reason is not a failure: the round was skipped.
func (r Reason) Skips() bool {
	switch r {
	case Busy, Cooldown, Budget, Draining, Canceled, Maintenance, PeerVersion, Disturbed:
		return true
	}
	return false
}

// Failure is one failure of a transfer. It is an error.
type Failure struct {
	Rail   string `json:"rail,omitempty"` // empty: not of a single rail
	Stage  Stage  `json:"stage"`
	Reason Reason `json:"reason"`
	Detail string `json:"detail,omitempty"` // for people: what failed, with errno or status, and what to do

	// RetryAfter is for a round that was skipped: the least time after which it may succeed. 0: not within the interval.
	RetryAfter time.Duration `json:"retry_after,omitempty"`
}

// onPeer begins the detail of what failed at the peer.
const onPeer = "on the peer: "

// OnPeer returns the failure as one of the peer.
func (f Failure) OnPeer() *Failure {
	f.Detail = onPeer + f.Detail
	return &f
}

// AtPeer reports whether the failure is one of the peer.
func (f Failure) AtPeer() bool { return strings.HasPrefix(f.Detail, onPeer) }

// New returns a failure that is not of a single rail.
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

// Stages returns all stages, in the order of a round.
func Stages() []Stage {
	return []Stage{StageHello, StageLease, StageOpen, StageConnect, StageReach, StageMTU, StageLatency, StageSolo,
		StageStriped, StageVerify, StageBaseline, StageExtra, StageRelease}
}

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{
		NoCgo, NoLibrary, NoUverbs, NoProvider, NoDevice, DevPerm, IWARP, NoRC, PKey, Memlock, PortDown, NoGID,
		GIDChanged, NoPeerRail, PeerGID, GIDMisbound, NoTimestamps, NoDMABuf, NoPeermem, NoLibCUDA, NoGPU,
		UnifiedMemory, CUDAOOM, CUDAError, RTREinval, RTRUnreachable,
		RTRNoRoute, NoRoute, RetryExceeded, MTUBlackHole, RNR, RemoteAccess, LocalProt, Flush, DeviceFatal, QPError, Timeout,
		WorkerCrashed, WorkerTimeout, WorkerBackoff, PeerWorker, PeerUnreachable, Unauthorized, TLS, Protocol, PeerLost,
		LeaseLost, Self, TCPRefused, TCPUnreachable, TCPBroken, NoAddress, DataMismatch, Busy, Cooldown, Budget,
		Draining, Canceled, Maintenance, PeerVersion, Disturbed, Other,
	}
}

// Known reports whether the stage is in [Stages]: those from the network become labels, too.
func (s Stage) Known() bool { return slices.Contains(Stages(), s) }

// Known reports whether the reason is in [Reasons].
func (r Reason) Known() bool { return slices.Contains(Reasons(), r) }
