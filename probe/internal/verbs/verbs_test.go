package verbs

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
)

// TestNoCgo holds the stub to its one answer; with C there is nothing to see.
func TestNoCgo(t *testing.T) {
	_, err := Open("")
	f, ok := errors.AsType[*failure.Failure](err)
	if !ok {
		t.Skip("built with C")
	}
	if f.Reason != failure.NoCgo {
		t.Errorf("without C: %v", f)
	}
	for _, err := range []error{second((*Library)(nil).Devices()), second((*Library)(nil).OpenRail(Spec{})),
		second(NewBuffer(8)), second(NewRun(1))} {
		if f, ok := errors.AsType[*failure.Failure](err); !ok || f.Reason != failure.NoCgo {
			t.Errorf("without C: %v", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

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

// TestFold lays longer transfers into a buffer of 100 bytes.
func TestFold(t *testing.T) {
	for _, tc := range []struct{ ranges, want []Range }{
		{nil, nil},
		{[]Range{{0, 100}}, []Range{{0, 100}}},
		{[]Range{{40, 100}}, []Range{{0, 100}}},
		{[]Range{{30, 10}, {10, 20}}, []Range{{10, 30}}},
		{[]Range{{90, 20}}, []Range{{0, 10}, {90, 10}}},
		{[]Range{{10, 20}, {120, 20}, {260, 10}}, []Range{{10, 30}, {60, 10}}},
		{[]Range{{0, 50}, {110, 10}}, []Range{{0, 50}}},
	} {
		if got := fold(tc.ranges, 100); !slices.Equal(got, tc.want) {
			t.Errorf("fold(%v) = %v, want %v", tc.ranges, got, tc.want)
		}
	}
}

// TestReasons walks the table of signatures.
func TestReasons(t *testing.T) {
	for _, tc := range []struct {
		op     op
		errno  syscall.Errno
		status int
		want   failure.Reason
		says   string
	}{
		{opList, syscall.ENOSYS, 0, failure.NoUverbs, "modprobe ib_uverbs"},
		{opList, syscall.ENOMEM, 0, failure.Other, "list devices"},
		{opFind, syscall.ENODEV, 0, failure.NoProvider, "libibverbs does not list it"},
		{opOpen, syscall.EACCES, 0, failure.DevPerm, "device rules"},
		{opOpen, syscall.EPERM, 0, failure.DevPerm, "errno 1"},
		{opOpen, syscall.ENOENT, 0, failure.DevPerm, ""},
		{opOpen, syscall.ENODEV, 0, failure.DevPerm, ""},
		{opOpen, syscall.EMFILE, 0, failure.Other, "too many open files"},
		{opReg, syscall.ENOMEM, 0, failure.Memlock, "LimitMEMLOCK=infinity"},
		{opCQ, syscall.ENOMEM, 0, failure.Memlock, "ulimit -l"},
		{opQP, syscall.ENOMEM, 0, failure.Memlock, ""},
		{opPost, syscall.ENOMEM, 0, failure.Other, ""},
		{opGID, syscall.EINVAL, 0, failure.NoGID, ""},
		{opRTR, syscall.EINVAL, 0, failure.RTREinval, "RTR"},
		{opRTS, syscall.EINVAL, 0, failure.Other, "RTS"},
		{opRTR, syscall.ETIMEDOUT, 0, failure.RTRUnreachable, "ARP"},
		{opRTR, syscall.EHOSTUNREACH, 0, failure.RTRUnreachable, ""},
		{opRTR, syscall.ENETUNREACH, 0, failure.RTRNoRoute, ""},
		{opRTR, syscall.ENODEV, 0, failure.RTRNoRoute, ""},
		{opRTR, syscall.EIO, 0, failure.DeviceFatal, ""},
		{opPost, syscall.EIO, 0, failure.DeviceFatal, ""},
		{opPoll, syscall.EIO, 0, failure.DeviceFatal, ""},
		{opReg, syscall.ENODEV, 0, failure.DeviceFatal, ""},
		{opWrite, syscall.ETIMEDOUT, 0, failure.Timeout, "not completed in time"},
		{opWrite, syscall.ECANCELED, 0, failure.Canceled, ""},
		{opWrite, 0, 12, failure.RetryExceeded, "IBV_WC_RETRY_EXC_ERR (status 12, vendor error 0x81)"},
		{opWrite, 0, 13, failure.RNR, "IBV_WC_RNR_RETRY_EXC_ERR"},
		{opWrite, 0, 9, failure.RemoteAccess, ""},
		{opWrite, 0, 10, failure.RemoteAccess, "IBV_WC_REM_ACCESS_ERR"},
		{opWrite, 0, 11, failure.RemoteAccess, ""},
		{opWrite, 0, 1, failure.LocalProt, ""},
		{opWrite, 0, 2, failure.LocalProt, ""},
		{opWrite, 0, 4, failure.LocalProt, ""},
		{opWrite, 0, 5, failure.Flush, "IBV_WC_WR_FLUSH_ERR"},
		{opWrite, 0, 19, failure.DeviceFatal, "IBV_WC_FATAL_ERR"},
		{opWrite, 0, 21, failure.Other, "IBV_WC_GENERAL_ERR"},
		{opWrite, 0, 99, failure.Other, "status 99"},
	} {
		err := newError(tc.op, "mlx5_0", tc.errno, tc.status, 0x81)
		if err.Reason != tc.want || !strings.Contains(err.Error(), tc.says) || !strings.HasPrefix(err.Error(),
			"mlx5_0: ") {
			t.Errorf("%v, errno %d, status %d: %v: %v; want %v, %q", tc.op, tc.errno, tc.status, err.Reason, err,
				tc.want, tc.says)
		}
		if f := err.Failure(failure.StageOpen); f.Reason != tc.want || f.Detail != err.Error() {
			t.Errorf("as a failure: %v", f)
		}
	}
}
