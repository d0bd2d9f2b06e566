package verbs

import (
	"fmt"
	"strings"
	"syscall"

	"github.com/railscope/railscope/probe/internal/failure"
)

// Error is one thing that failed.
type Error struct {
	Op     string         // what was tried: "open device", "RTR", "write"
	Device string         // on which device; empty: on none in particular
	Errno  syscall.Errno  // what the library or the kernel says; 0: see Status
	Status int            // enum ibv_wc_status of the completion; 0: there was none
	Vendor uint32         // the device's own code for it, vendor_err
	Reason failure.Reason // what that means
	Text   string         // what the dynamic linker says, or what exactly is wrong
}

// Failure returns the error in the words of a round. Which rail's it is, the
// caller knows.
func (e *Error) Failure(stage failure.Stage) *failure.Failure {
	return failure.New(stage, e.Reason, "%v", e)
}

func (e *Error) Error() string {
	var s strings.Builder
	if e.Device != "" {
		s.WriteString(e.Device + ": ")
	}
	s.WriteString(e.Op)
	if e.Status != 0 {
		fmt.Fprintf(&s, ": %s (status %d, vendor error %#x)", statusName(e.Status), e.Status, e.Vendor)
	}
	if e.Errno != 0 && e.Text == "" {
		fmt.Fprintf(&s, ": %v (errno %d)", e.Errno, int(e.Errno))
	}
	if e.Text != "" {
		s.WriteString(": " + e.Text)
	}
	if what := remedy(e.Reason); what != "" {
		s.WriteString("; " + what)
	}
	return s.String()
}

// remedy says what to do, where that is known.
func remedy(r failure.Reason) string {
	switch r {
	case failure.NoLibrary:
		return "install libibverbs1, or rdma-core"
	case failure.NoUverbs:
		return "load the kernel module: modprobe ib_uverbs"
	case failure.NoProvider:
		return "install the device's provider (ibverbs-providers) in the version of libibverbs; " +
			"IBV_SHOW_WARNINGS=1 says which"
	case failure.DevPerm:
		return "allow this process /dev/infiniband/uverbs*: file mode and, in a container, device rules"
	case failure.Memlock:
		return "allow this process to lock memory: ulimit -l unlimited, LimitMEMLOCK=infinity in the unit, " +
			"--ulimit memlock=-1 in a container"
	case failure.RTREinval:
		return "look at the GID index and its type, and at the MTU of both ends"
	case failure.RTRUnreachable:
		return "nobody answers ARP or neighbour discovery for the peer's GID: look at subnets, VLANs and which " +
			"rails are paired"
	case failure.RTRNoRoute:
		return "there is no route to the peer's GID from the interface of this rail's"
	case failure.RetryExceeded:
		return "the peer did not acknowledge: look for filters of UDP port 4791, GID types and MTU along the path"
	case failure.RemoteAccess:
		return "the peer's memory is not what it was when it was offered"
	case failure.DeviceFatal:
		return "the device was reset or is gone: look at the kernel's log"
	}
	return ""
}

// op is one of enum rs_op of shim.h.
type op int

const (
	opNone op = iota
	opLoad
	opSymbol
	opList
	opFind
	opOpen
	opPort
	opGID
	opRandom
	opPD
	opCQ
	opQP
	opInit
	opRTR
	opRTS
	opMap
	opReg
	opPost
	opPoll
	opWrite
	opClose
	opUse
)

func (o op) String() string {
	return [...]string{"nothing", "load libibverbs", "load libibverbs", "list devices", "find device", "open device",
		"query port",
		"query GID", "random PSN", "allocate PD", "create CQ", "create QP", "INIT", "RTR", "RTS", "map memory",
		"register memory",
		"post write", "poll CQ", "write", "close", "use"}[o]
}

// newError makes an error of what C returned; errno is positive.
func newError(o op, device string, errno syscall.Errno, status int, vendor uint32) *Error {
	e := &Error{Op: o.String(), Device: device, Errno: errno, Status: status, Vendor: vendor}
	if status != 0 {
		e.Reason = statusReason(status)
		return e
	}
	e.Reason = errnoReason(o, errno)
	switch e.Reason {
	case failure.NoProvider:
		e.Text = "libibverbs does not list it"
	case failure.Timeout:
		e.Text = "not completed in time"
	case failure.Canceled:
		e.Text = "told to stop"
	}
	return e
}

// errnoReason says what an errno means after an operation.
func errnoReason(o op, errno syscall.Errno) failure.Reason {
	type key struct {
		op    op
		errno syscall.Errno
	}
	switch o {
	case opLoad, opSymbol:
		return failure.NoLibrary
	case opFind:
		return failure.NoProvider
	case opPoll:
		return failure.DeviceFatal
	}
	switch (key{o, errno}) {
	case key{opList, syscall.ENOSYS}:
		return failure.NoUverbs
	case key{opOpen, syscall.EACCES}, key{opOpen, syscall.EPERM}, key{opOpen, syscall.ENOENT},
		key{opOpen, syscall.ENODEV},
		key{opList, syscall.EACCES}, key{opList, syscall.EPERM}:
		return failure.DevPerm
	case key{opReg, syscall.ENOMEM}, key{opCQ, syscall.ENOMEM}, key{opQP, syscall.ENOMEM}:
		return failure.Memlock
	case key{opGID, syscall.EINVAL}, key{opGID, syscall.ENOENT}, key{opGID, syscall.ENODATA}:
		return failure.NoGID
	case key{opRTR, syscall.EINVAL}:
		return failure.RTREinval
	case key{opRTR, syscall.ETIMEDOUT}, key{opRTR, syscall.EHOSTUNREACH}:
		return failure.RTRUnreachable
	case key{opRTR, syscall.ENETUNREACH}, key{opRTR, syscall.ENODEV}:
		return failure.RTRNoRoute
	case key{opWrite, syscall.ETIMEDOUT}:
		return failure.Timeout
	case key{opWrite, syscall.ECANCELED}:
		return failure.Canceled
	}
	if errno == syscall.EIO || errno == syscall.ENODEV {
		return failure.DeviceFatal
	}
	return failure.Other
}

// statuses are enum ibv_wc_status of rdma-core's libibverbs/verbs.h, and what
// they mean.
func statuses() []struct {
	name   string
	reason failure.Reason
} {
	return []struct {
		name   string
		reason failure.Reason
	}{
		{"SUCCESS", failure.Other},
		{"LOC_LEN_ERR", failure.LocalProt},
		{"LOC_QP_OP_ERR", failure.LocalProt},
		{"LOC_EEC_OP_ERR", failure.Other},
		{"LOC_PROT_ERR", failure.LocalProt},
		{"WR_FLUSH_ERR", failure.Flush},
		{"MW_BIND_ERR", failure.Other},
		{"BAD_RESP_ERR", failure.Other},
		{"LOC_ACCESS_ERR", failure.LocalProt},
		{"REM_INV_REQ_ERR", failure.RemoteAccess},
		{"REM_ACCESS_ERR", failure.RemoteAccess},
		{"REM_OP_ERR", failure.RemoteAccess},
		{"RETRY_EXC_ERR", failure.RetryExceeded},
		{"RNR_RETRY_EXC_ERR", failure.RNR},
		{"LOC_RDD_VIOL_ERR", failure.Other},
		{"REM_INV_RD_REQ_ERR", failure.RemoteAccess},
		{"REM_ABORT_ERR", failure.RemoteAccess},
		{"INV_EECN_ERR", failure.Other},
		{"INV_EEC_STATE_ERR", failure.Other},
		{"FATAL_ERR", failure.DeviceFatal},
		{"RESP_TIMEOUT_ERR", failure.RetryExceeded},
		{"GENERAL_ERR", failure.Other},
		{"TM_ERR", failure.Other},
		{"TM_RNDV_INCOMPLETE", failure.Other},
	}
}

func statusName(status int) string {
	if list := statuses(); status > 0 && status < len(list) {
		return "IBV_WC_" + list[status].name
	}
	return "unknown"
}

func statusReason(status int) failure.Reason {
	if list := statuses(); status > 0 && status < len(list) {
		return list[status].reason
	}
	return failure.Other
}
