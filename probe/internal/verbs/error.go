package verbs

import (
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/railscope/railscope/probe/internal/failure"
)

// fault is a failed call of libibverbs or the kernel, or a failed completion.
type fault struct {
	op     string        // failed step, as in rail.c: "open device", "RTR", "write"
	device string        // empty if no specific one
	errno  syscall.Errno // positive; 0 refers to status
	status int           // enum ibv_wc_status of the completion; 0 if there is none
	vendor uint32        // vendor_err of the completion
	text   string        // message of the dynamic linker, in place of the errno
}

// failure returns the fault as a failure, with its reason and fix.
func (f fault) failure() *failure.Failure {
	reason := errnoReason(f.op, f.errno)
	var s strings.Builder
	if f.device != "" {
		s.WriteString(f.device + ": ")
	}
	s.WriteString(f.op)
	switch {
	case f.status != 0:
		var name string
		name, reason = status(f.status)
		fmt.Fprintf(&s, ": %s (status %d, vendor error %#x)", name, f.status, f.vendor)
	case f.text != "":
		s.WriteString(": " + f.text)
	case reason == failure.NoProvider:
		s.WriteString(": libibverbs does not list it")
	case reason == failure.IWARP:
		s.WriteString(": an iWARP device")
	case reason == failure.PKey:
		s.WriteString(": not in the port's table")
	case strings.HasPrefix(f.op, "IBV_EVENT_"):
		s.WriteString(" reported by the device")
	case reason == failure.Timeout:
		s.WriteString(": not completed in time")
	case reason == failure.Canceled:
		s.WriteString(": canceled")
	default:
		fmt.Fprintf(&s, ": %v (errno %d)", f.errno, int(f.errno))
	}
	if fix := remedy(reason); fix != "" {
		s.WriteString("; " + fix)
	}
	return failure.New("", reason, "%s", &s)
}

// misuse returns the failure of a wrong call of this package.
func misuse(device, text string) *failure.Failure {
	return failure.New("", failure.Other, "%s: %s", device, text)
}

// remedy returns the fix for a reason, if known.
func remedy(r failure.Reason) string {
	return map[failure.Reason]string{
		failure.NoLibrary: "install libibverbs1, or rdma-core",
		failure.NoUverbs:  "load the kernel module: modprobe ib_uverbs",
		failure.NoProvider: "install the device's provider (ibverbs-providers) in the version of libibverbs; " +
			"IBV_SHOW_WARNINGS=1 prints which one is missing",
		failure.DevPerm: "give this process access to /dev/infiniband/uverbs*: file mode and, in a container, " +
			"device rules",
		failure.Memlock: "allow this process to lock memory: ulimit -l unlimited, LimitMEMLOCK=infinity in the unit, " +
			"--ulimit memlock=-1 in a container",
		failure.NoRC: "the device has no RC queue pairs, which this probe needs; use the fabric's own benchmark " +
			"(EFA: fi_rma_bw of fabtests)",
		failure.IWARP: "the probe measures RoCE and InfiniBand; switch an irdma device to RoCE: devlink dev param " +
			"set pci/ADDRESS name enable_iwarp value false cmode runtime, then the same with enable_roce and true",
		failure.PKey: "compare probe.pkey with /sys/class/infiniband/DEVICE/ports/PORT/pkeys, which the subnet " +
			"manager fills",
		failure.NoTimestamps: "the device stamps no completions with a clock that can be read: the time in the " +
			"adapter is not separated",
		failure.NoDMABuf: "needs Linux 5.12, rdma-core 34, and drivers of GPU and device with dma-buf (NVIDIA: the " +
			"open kernel modules; AMD: Linux 6.4, or the driver of ROCm)",
		failure.NoPeermem: "load the kernel module: modprobe nvidia-peermem",
		failure.PortDown:  "the link failed during the round: check cable, transceiver and switch port",
		failure.QPError:   "the device stopped a queue pair: check the kernel log",
		failure.RTREinval: "check the GID index and its type, and the MTU of both ends",
		failure.RTRUnreachable: "no answer to ARP or neighbour discovery for the peer's GID: check subnets, VLANs " +
			"and which rails are paired",
		failure.RTRNoRoute: "no route to the peer's GID from this rail's interface",
		failure.RetryExceeded: "no acknowledgement from the peer: check filters of UDP port 4791, GID types and MTU " +
			"along the path",
		failure.RemoteAccess: "the peer no longer offers this memory",
		failure.DeviceFatal:  "the device was reset or removed: check the kernel log",
	}[r]
}

// errnoReason returns the reason for an errno of an operation.
func errnoReason(op string, errno syscall.Errno) failure.Reason {
	for _, known := range []struct {
		ops    string          // separated by commas
		errnos []syscall.Errno // errnos that match; nil: all
		reason failure.Reason
	}{
		{"load libibverbs", nil, failure.NoLibrary},
		{"find device", nil, failure.NoProvider},
		{"find pkey", nil, failure.PKey},
		{"open device", []syscall.Errno{syscall.EPROTONOSUPPORT}, failure.IWARP},
		{"create QP", []syscall.Errno{syscall.EOPNOTSUPP}, failure.NoRC},
		{"IBV_EVENT_PORT_ERR", nil, failure.PortDown},
		{"IBV_EVENT_DEVICE_FATAL", nil, failure.DeviceFatal},
		{"IBV_EVENT_QP_FATAL,IBV_EVENT_QP_ACCESS_ERR,IBV_EVENT_QP_REQ_ERR,IBV_EVENT_CQ_ERR", nil, failure.QPError},
		{"poll CQ", nil, failure.DeviceFatal},
		{"list devices", []syscall.Errno{syscall.ENOSYS}, failure.NoUverbs},
		{"list devices", []syscall.Errno{syscall.EACCES, syscall.EPERM}, failure.DevPerm},
		{"open device", []syscall.Errno{syscall.EACCES, syscall.EPERM, syscall.ENOENT, syscall.ENODEV},
			failure.DevPerm},
		{"register memory,create CQ,create QP", []syscall.Errno{syscall.ENOMEM}, failure.Memlock},
		{"query GID", []syscall.Errno{syscall.EINVAL, syscall.ENOENT, syscall.ENODATA}, failure.NoGID},
		{"RTR", []syscall.Errno{syscall.EINVAL}, failure.RTREinval},
		{"RTR", []syscall.Errno{syscall.ETIMEDOUT, syscall.EHOSTUNREACH}, failure.RTRUnreachable},
		{"RTR", []syscall.Errno{syscall.ENETUNREACH, syscall.ENODEV}, failure.RTRNoRoute},
		{"write,read", []syscall.Errno{syscall.ETIMEDOUT}, failure.Timeout},
		{"write,read", []syscall.Errno{syscall.ECANCELED}, failure.Canceled},
		{"create CQ with timestamps,read the adapter's clock", nil, failure.NoTimestamps},
		{"cuCtxPushCurrent_v2,cuCtxPopCurrent_v2,cuMemcpyDtoHAsync_v2,cuEventRecord,cuEventQuery", nil,
			failure.CUDAError},
		{"register dma-buf", []syscall.Errno{syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.EINVAL, syscall.ENOTTY},
			failure.NoDMABuf},
		{"register GPU memory", []syscall.Errno{syscall.EFAULT, syscall.EINVAL, syscall.EOPNOTSUPP}, failure.NoPeermem},
	} {
		if slices.Contains(strings.Split(known.ops, ","), op) &&
			(known.errnos == nil || slices.Contains(known.errnos, errno)) {
			return known.reason
		}
	}
	if errno == syscall.EIO || errno == syscall.ENODEV {
		return failure.DeviceFatal
	}
	return failure.Other
}

// status returns the name of a completion's status, enum ibv_wc_status of rdma-core's libibverbs/verbs.h, and its
// reason.
func status(n int) (string, failure.Reason) {
	names := strings.Fields("SUCCESS LOC_LEN_ERR LOC_QP_OP_ERR LOC_EEC_OP_ERR LOC_PROT_ERR WR_FLUSH_ERR MW_BIND_ERR " +
		"BAD_RESP_ERR LOC_ACCESS_ERR REM_INV_REQ_ERR REM_ACCESS_ERR REM_OP_ERR RETRY_EXC_ERR RNR_RETRY_EXC_ERR " +
		"LOC_RDD_VIOL_ERR REM_INV_RD_REQ_ERR REM_ABORT_ERR INV_EECN_ERR INV_EEC_STATE_ERR FATAL_ERR " +
		"RESP_TIMEOUT_ERR GENERAL_ERR TM_ERR TM_RNDV_INCOMPLETE")
	if n < 1 || n >= len(names) {
		return "unknown", failure.Other
	}
	reason := failure.Other
	switch names[n] {
	case "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_PROT_ERR", "LOC_ACCESS_ERR":
		reason = failure.LocalProt
	case "WR_FLUSH_ERR":
		reason = failure.Flush
	case "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR":
		reason = failure.RemoteAccess
	case "RETRY_EXC_ERR", "RESP_TIMEOUT_ERR":
		reason = failure.RetryExceeded
	case "RNR_RETRY_EXC_ERR":
		reason = failure.RNR
	case "FATAL_ERR":
		reason = failure.DeviceFatal
	}
	return "IBV_WC_" + names[n], reason
}
