// Package failure identifies failures of a transfer by stage and reason, few enough for labels. The worker process, the
// peer and the round use them.
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

// Stages, in the order of a round.
const (
	StageHello    Stage = "hello"    // request for the peer's rails
	StageLease    Stage = "lease"    // request for a lease from the peer
	StageOpen     Stage = "open"     // library, device, memory, queue pair
	StageConnect  Stage = "connect"  // RTR, RTS; or a TCP connection
	StageReach    Stage = "reach"    // first write, of 8 bytes
	StageMTU      Stage = "mtu"      // write of one full packet
	StageLatency  Stage = "latency"  // writes of 8 bytes, one at a time
	StageSolo     Stage = "solo"     // one rail alone
	StageStriped  Stage = "striped"  // all rails at once
	StageVerify   Stage = "verify"   // comparison at the target
	StageBaseline Stage = "baseline" // burst over TCP, for comparison
	StageExtra    Stage = "extra"    // additional burst: reads, paths and so on
	StageRelease  Stage = "release"  // return of the lease
)

// Reason is the cause of a failure.
type Reason string

// Reasons, with the results of libibverbs or the kernel.
const (
	// This node cannot use RDMA.
	NoCgo      Reason = "no_cgo"       // built without cgo
	NoLibrary  Reason = "no_library"   // libibverbs.so.1 cannot be loaded
	NoUverbs   Reason = "no_uverbs"    // ibv_get_device_list: ENOSYS, ib_uverbs is not loaded
	NoProvider Reason = "no_provider"  // the kernel lists the device, libibverbs does not
	NoDevice   Reason = "no_device"    // one end has no RDMA device
	DevPerm    Reason = "dev_perm"     // ibv_open_device: EACCES, EPERM, ENOENT, ENODEV of /dev/infiniband/uverbs*
	IWARP      Reason = "iwarp"        // an RNIC: irdma in iWARP mode, cxgb4, siw
	NoRC       Reason = "no_rc"        // ibv_create_qp: EOPNOTSUPP; EFA has no RC queue pairs
	PKey       Reason = "pkey"         // the configured partition key is not in the port's table
	Memlock    Reason = "memlock"      // ENOMEM of ibv_reg_mr, ibv_create_cq, ibv_create_qp: RLIMIT_MEMLOCK
	PortDown   Reason = "port_down"    // the port is not ACTIVE, or IBV_EVENT_PORT_ERR
	NoGID      Reason = "no_gid"       // no usable entry in the GID table
	GIDChanged Reason = "gid_changed"  // the GID entry changed after it was chosen
	NoPeerRail Reason = "no_peer_rail" // the peer has no matching rail
	PeerGID    Reason = "peer_gid"     // the peer's rail has no usable GID, or its GID changed

	// GIDMisbound: all RoCE v2 IPv4 GIDs of a rail, at either end, belong to a bond or bridge over its interface.
	GIDMisbound Reason = "gid_misbound"

	// The device or the kernel lacks a feature.
	NoTimestamps Reason = "no_timestamps" // no completion timestamps, or their clock cannot be read
	NoDMABuf     Reason = "no_dmabuf"     // no export, no ibv_reg_dmabuf_mr, or ENOSYS, EOPNOTSUPP, EINVAL, ENOTTY
	NoPeermem    Reason = "no_peermem"    // ibv_reg_mr of GPU memory: EFAULT, EINVAL, EOPNOTSUPP; no nvidia-peermem

	// GPU memory.
	NoLibCUDA     Reason = "no_libcuda"     // dlopen or dlsym of libcuda, or CUDA_ERROR_STUB_LIBRARY
	NoLibHSA      Reason = "no_libhsa"      // dlopen or dlsym of libhsa-runtime64
	NoGPU         Reason = "no_gpu"         // CUDA or ROCm has no GPU at this PCI address, or hsa_init fails
	UnifiedMemory Reason = "unified_memory" // an integrated GPU, which exports no memory: it uses the host's
	CUDAOOM       Reason = "cuda_oom"       // CUDA_ERROR_OUT_OF_MEMORY
	CUDAError     Reason = "cuda_error"     // another error of CUDA
	ROCmOOM       Reason = "rocm_oom"       // HSA_STATUS_ERROR_OUT_OF_RESOURCES
	ROCmError     Reason = "rocm_error"     // another error of HSA

	// Queue pairs do not connect.
	RTREinval      Reason = "rtr_einval"      // EINVAL: wrong GID index or type, MTU too large
	RTRUnreachable Reason = "rtr_unreachable" // ETIMEDOUT, EHOSTUNREACH: no answer to ARP or ND for the peer's GID
	RTRNoRoute     Reason = "rtr_noroute"     // ENETUNREACH, ENODEV: no route from the GID's interface
	NoRoute        Reason = "no_route"        // between two rails of this node: the fabric has no route

	// A write does not complete.
	RetryExceeded Reason = "retry_exceeded" // IBV_WC_RETRY_EXC_ERR: no acknowledgement
	MTUBlackHole  Reason = "mtu_black_hole" // no acknowledgement of a full packet, although 8 bytes arrived
	RNR           Reason = "rnr"            // IBV_WC_RNR_RETRY_EXC_ERR
	RemoteAccess  Reason = "remote_access"  // IBV_WC_REM_ACCESS_ERR, REM_INV_REQ_ERR, REM_OP_ERR
	LocalProt     Reason = "local_prot"     // IBV_WC_LOC_PROT_ERR, LOC_LEN_ERR, LOC_QP_OP_ERR
	Flush         Reason = "flush"          // IBV_WC_WR_FLUSH_ERR, with no error before it
	// The device is gone: EIO or ENODEV in use, IBV_WC_FATAL_ERR or IBV_EVENT_DEVICE_FATAL.
	DeviceFatal Reason = "device_fatal"
	QPError     Reason = "qp_error" // IBV_EVENT_QP_ACCESS_ERR, QP_REQ_ERR, QP_FATAL, CQ_ERR
	Timeout     Reason = "timeout"  // no progress before the deadline

	// Failures of the worker process.
	WorkerCrashed Reason = "worker_crashed" // ended during a request
	WorkerTimeout Reason = "worker_timeout" // did not answer, and was killed
	WorkerBackoff Reason = "worker_backoff" // failed recently, and the next start is delayed

	PeerWorker Reason = "peer_worker" // failure of the peer's worker process

	// Failures of the control channel.
	PeerUnreachable Reason = "peer_unreachable" // no connection
	Unauthorized    Reason = "unauthorized"     // token or certificate refused
	TLS             Reason = "tls"              // no TLS session: invalid certificate, or one end without TLS
	Protocol        Reason = "protocol"         // invalid response: not a railscope, or another version
	PeerLost        Reason = "peer_lost"        // the peer stopped responding during the round
	LeaseLost       Reason = "lease_lost"       // the peer ended the lease
	Self            Reason = "self"             // the peer is this node

	// Failures of TCP.
	TCPRefused     Reason = "tcp_refused"     // ECONNREFUSED
	TCPUnreachable Reason = "tcp_unreachable" // no route, or no response
	TCPBroken      Reason = "tcp_broken"      // the connection broke
	NoAddress      Reason = "no_address"      // no pair of addresses in one subnet

	// Failures of the data.
	DataMismatch Reason = "data_mismatch" // received data differs from sent data

	// The round was skipped, which is not a failure. The detail says by which end.
	Busy        Reason = "busy"         // the rails carry other traffic, or another round is in progress
	Cooldown    Reason = "cooldown"     // too soon after the last one
	Budget      Reason = "budget"       // the budget is used up
	Draining    Reason = "draining"     // shutting down
	Canceled    Reason = "canceled"     // stopped by the caller
	Maintenance Reason = "maintenance"  // a maintenance file exists
	PeerVersion Reason = "peer_version" // the peer uses another protocol version, as in a rolling upgrade
	Disturbed   Reason = "disturbed"    // this node's processors were busy, so no goodput could be measured
	NoGap       Reason = "no_gap"       // the rails of both ends were never quiet at the same time
	Collided    Reason = "collided"     // a burst in a gap met traffic of others less than an hour ago
	Ramping     Reason = "ramping"      // the rate of a rail still rose when the burst ended

	Other Reason = "other" // any other, see the detail
)

// Skips reports whether the reason means a skipped round rather than a failure.
func (r Reason) Skips() bool {
	switch r {
	case Busy, Cooldown, Budget, Draining, Canceled, Maintenance, PeerVersion, Disturbed, Ramping, NoGap,
		Collided:
		return true
	}
	return false
}

// Failure is one failure of a transfer. It is an error.
type Failure struct {
	Rail   string `json:"rail,omitempty"` // empty if not about a single rail
	Stage  Stage  `json:"stage"`
	Reason Reason `json:"reason"`
	Detail string `json:"detail,omitempty"` // text for people: what failed, with errno or status, and what to do

	// RetryAfter is the minimum time after which a skipped round may succeed; 0 for not within the interval.
	RetryAfter time.Duration `json:"retry_after,omitempty"`
}

// onPeer is the prefix of the detail of failures at the peer.
const onPeer = "on the peer: "

// OnPeer returns a copy of the failure as one at the peer.
func (f Failure) OnPeer() *Failure {
	f.Detail = onPeer + f.Detail
	return &f
}

// AtPeer reports whether the failure occurred at the peer.
func (f Failure) AtPeer() bool { return strings.HasPrefix(f.Detail, onPeer) }

// New returns a failure that is not about a single rail.
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

// As returns the failure in err, or wraps err as one of reason Other; nil for nil.
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
		GIDChanged, NoPeerRail, PeerGID, GIDMisbound, NoTimestamps, NoDMABuf, NoPeermem, NoLibCUDA, NoLibHSA,
		NoGPU, UnifiedMemory, CUDAOOM, CUDAError, ROCmOOM, ROCmError, RTREinval, RTRUnreachable,
		RTRNoRoute, NoRoute, RetryExceeded, MTUBlackHole, RNR, RemoteAccess, LocalProt, Flush, DeviceFatal, QPError,
		Timeout,
		WorkerCrashed, WorkerTimeout, WorkerBackoff, PeerWorker, PeerUnreachable, Unauthorized, TLS, Protocol, PeerLost,
		LeaseLost, Self, TCPRefused, TCPUnreachable, TCPBroken, NoAddress, DataMismatch, Busy, Cooldown, Budget,
		Draining, Canceled, Maintenance, PeerVersion, Disturbed, Ramping, NoGap, Collided, Other,
	}
}

// Known reports whether the stage is in [Stages]. Stages from the network also become labels.
func (s Stage) Known() bool { return slices.Contains(Stages(), s) }

// Known reports whether the reason is in [Reasons].
func (r Reason) Known() bool { return slices.Contains(Reasons(), r) }
