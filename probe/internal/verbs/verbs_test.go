package verbs

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
)

func TestTimeoutExponent(t *testing.T) {
	for _, tc := range []struct {
		inFlight time.Duration
		min, max uint8
		want     uint8
	}{
		{0, 1, 31, 1},
		{4096 * time.Nanosecond, 0, 31, 0},
		{4097 * time.Nanosecond, 0, 31, 1},
		{67108864 * time.Nanosecond, 0, 31, 14},
		{67108865 * time.Nanosecond, 0, 31, 15},
		{time.Millisecond, 14, 18, 14},
		{time.Hour, 14, 18, 18},
		{1<<63 - 1, 1, 31, 31},
	} {
		if got := TimeoutExponent(tc.inFlight, tc.min, tc.max); got != tc.want {
			t.Errorf("TimeoutExponent(%v, %d, %d) = %d, want %d", tc.inFlight, tc.min, tc.max, got, tc.want)
		}
	}
}

// TestReasons checks the reason and the text of each kind of failure.
func TestReasons(t *testing.T) {
	for _, tc := range []struct {
		op     string
		errno  syscall.Errno
		status int
		want   failure.Reason
		says   string
	}{
		{"list devices", syscall.ENOSYS, 0, failure.NoUverbs, "modprobe ib_uverbs"},
		{"list devices", syscall.ENOMEM, 0, failure.Other, "list devices"},
		{"find device", syscall.ENODEV, 0, failure.NoProvider, "libibverbs does not list it"},
		{"open device", syscall.EACCES, 0, failure.DevPerm, "device rules"},
		{"open device", syscall.EPERM, 0, failure.DevPerm, "errno 1"},
		{"open device", syscall.ENOENT, 0, failure.DevPerm, ""},
		{"open device", syscall.ENODEV, 0, failure.DevPerm, ""},
		{"open device", syscall.EMFILE, 0, failure.Other, "too many open files"},
		{"register memory", syscall.ENOMEM, 0, failure.Memlock, "LimitMEMLOCK=infinity"},
		{"create CQ", syscall.ENOMEM, 0, failure.Memlock, "ulimit -l"},
		{"create QP", syscall.ENOMEM, 0, failure.Memlock, ""},
		{"post write", syscall.ENOMEM, 0, failure.Other, ""},
		{"register dma-buf", syscall.ENOSYS, 0, failure.NoDMABuf, "Linux 5.12, rdma-core 34"},
		{"register dma-buf", syscall.ENOTTY, 0, failure.NoDMABuf, ""},
		{"register dma-buf", syscall.EIO, 0, failure.DeviceFatal, ""},
		{"register GPU memory", syscall.EFAULT, 0, failure.NoPeermem, "modprobe nvidia-peermem"},
		{"register memory", syscall.EFAULT, 0, failure.Other, ""},
		{"create CQ with timestamps", syscall.EOPNOTSUPP, 0, failure.NoTimestamps, "clock"},
		{"read the adapter's clock", syscall.EOPNOTSUPP, 0, failure.NoTimestamps, ""},
		{"query GID", syscall.EINVAL, 0, failure.NoGID, ""},
		{"RTR", syscall.EINVAL, 0, failure.RTREinval, "RTR"},
		{"RTS", syscall.EINVAL, 0, failure.Other, "RTS"},
		{"RTR", syscall.ETIMEDOUT, 0, failure.RTRUnreachable, "ARP"},
		{"RTR", syscall.EHOSTUNREACH, 0, failure.RTRUnreachable, ""},
		{"RTR", syscall.ENETUNREACH, 0, failure.RTRNoRoute, ""},
		{"RTR", syscall.ENODEV, 0, failure.RTRNoRoute, ""},
		{"RTR", syscall.EIO, 0, failure.DeviceFatal, ""},
		{"post write", syscall.EIO, 0, failure.DeviceFatal, ""},
		{"poll CQ", syscall.EIO, 0, failure.DeviceFatal, ""},
		{"register memory", syscall.ENODEV, 0, failure.DeviceFatal, ""},
		{"write", syscall.ETIMEDOUT, 0, failure.Timeout, "not completed in time"},
		{"read", syscall.ETIMEDOUT, 0, failure.Timeout, "read: not completed in time"},
		{"read", syscall.ECANCELED, 0, failure.Canceled, ""},
		{"write", syscall.ECANCELED, 0, failure.Canceled, ""},
		{"write", 0, 12, failure.RetryExceeded, "IBV_WC_RETRY_EXC_ERR (status 12, vendor error 0x81)"},
		{"write", 0, 13, failure.RNR, "IBV_WC_RNR_RETRY_EXC_ERR"},
		{"write", 0, 9, failure.RemoteAccess, ""},
		{"write", 0, 10, failure.RemoteAccess, "IBV_WC_REM_ACCESS_ERR"},
		{"write", 0, 11, failure.RemoteAccess, ""},
		{"write", 0, 1, failure.LocalProt, ""},
		{"write", 0, 2, failure.LocalProt, ""},
		{"write", 0, 4, failure.LocalProt, ""},
		{"write", 0, 5, failure.Flush, "IBV_WC_WR_FLUSH_ERR"},
		{"write", 0, 19, failure.DeviceFatal, "IBV_WC_FATAL_ERR"},
		{"write", 0, 21, failure.Other, "IBV_WC_GENERAL_ERR"},
		{"write", 0, 99, failure.Other, "status 99"},
	} {
		f := fault{op: tc.op, device: "mlx5_0", errno: tc.errno, status: tc.status, vendor: 0x81}.failure()
		if f.Reason != tc.want || !strings.Contains(f.Detail, tc.says) || !strings.HasPrefix(f.Detail, "mlx5_0: ") {
			t.Errorf("%v, errno %d, status %d: %v; want %v, %q", tc.op, tc.errno, tc.status, f, tc.want, tc.says)
		}
	}
}
