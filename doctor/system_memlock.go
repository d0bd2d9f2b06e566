package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/sysfs"
)

// MemlockFacts is how much memory this process may lock. ibv_reg_mr counts
// against RLIMIT_MEMLOCK unless the process has CAP_IPC_LOCK in the first user
// namespace (ib_umem_get in drivers/infiniband/core/umem.c).
type MemlockFacts struct {
	Known  bool   `json:"known"`
	Soft   uint64 `json:"soft"`   // bytes; unlimitedMemlock for no limit
	Hard   uint64 `json:"hard"`   // bytes, likewise
	Exempt bool   `json:"exempt"` // has CAP_IPC_LOCK where it counts
}

const (
	unlimitedMemlock = ^uint64(0)
	// enoughMemlock is what a modest transfer over a few rails needs: queues and
	// a buffer for each. Real jobs lock gigabytes.
	enoughMemlock = 64 << 20
	capIPCLock    = 14 // include/uapi/linux/capability.h
)

// readMemlock reads /proc/self/limits, status and uid_map.
func (s *system) readMemlock(context.Context) part {
	dir := filepath.Join(s.o.Procfs, "self")
	text, err := procText(dir, "limits")
	if err != nil {
		if !s.live && sysfs.Reason(err) == sysfs.ReasonVanished {
			return part{put: func(*SystemFacts) {}}
		}
		return part{put: func(*SystemFacts) {}, unread: []string{fmt.Sprintf("limits on locked memory: %v; mount procfs", err)}}
	}
	var m MemlockFacts
	if m.Soft, m.Hard, err = parseMemlock(text); err != nil {
		return part{put: func(*SystemFacts) {}, unread: []string{fmt.Sprintf("limits on locked memory: %s: %v; look at `ulimit -l`", filepath.Join(dir, "limits"), err)}}
	}
	status, err := procText(dir, "status")
	if err != nil { // a limit is none for who is exempt from it
		return part{put: func(*SystemFacts) {}, unread: []string{fmt.Sprintf("limits on locked memory: %v; look at `ulimit -l`", err)}}
	}
	m.Known = true
	users, usersErr := procText(dir, "uid_map")
	first := usersErr != nil || strings.Join(strings.Fields(users), " ") == "0 0 4294967295"
	m.Exempt = first && hasCapability(status, capIPCLock)
	return part{put: func(f *SystemFacts) { f.Memlock = m }}
}

// maxProcText bounds a file of procfs that is read whole. Groups and lists of
// processors make status longer than a page, thousands of groups a few hundred
// KiB.
const maxProcText = 1 << 20

func procText(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	file, err := os.Open(path)
	if err != nil {
		return "", sysfs.Fail(path, errno(err))
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxProcText+1))
	switch {
	case err != nil:
		return "", sysfs.Fail(path, errno(err))
	case len(text) > maxProcText:
		return "", &sysfs.Error{Path: path, Reason: sysfs.ReasonTooLarge, Err: fmt.Errorf("more than %d bytes", maxProcText)}
	}
	return strings.TrimSpace(string(text)), nil
}

// errno is what the kernel said, without what was done to which file.
func errno(err error) error {
	if e, ok := errors.AsType[unix.Errno](err); ok {
		return e
	}
	return err
}

// parseMemlock finds the line on locked memory in /proc/<pid>/limits
// (proc_pid_limits in fs/proc/base.c).
func parseMemlock(text string) (soft, hard uint64, err error) {
	for line := range strings.Lines(text) {
		rest, found := strings.CutPrefix(line, "Max locked memory")
		if !found {
			continue
		}
		words := strings.Fields(rest)
		if len(words) < 2 {
			break
		}
		var both [2]uint64
		for i, word := range words[:2] {
			if both[i] = unlimitedMemlock; word == "unlimited" {
				continue
			}
			if both[i], err = strconv.ParseUint(word, 10, 64); err != nil {
				return 0, 0, fmt.Errorf("%q is not a limit", clean(word))
			}
		}
		return both[0], both[1], nil
	}
	return 0, 0, fmt.Errorf("no line on locked memory")
}

// hasCapability reports whether CapEff in /proc/<pid>/status has the bit.
func hasCapability(status string, bit uint) bool {
	for line := range strings.Lines(status) {
		if text, found := strings.CutPrefix(line, "CapEff:"); found {
			set, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
			return err == nil && set>>bit&1 == 1
		}
	}
	return false
}

func checkMemlock(f *Facts, found func(Finding)) {
	m := f.System.Memlock
	if len(f.System.Ports) == 0 || !m.Known || m.Exempt || m.Soft >= enoughMemlock {
		return
	}
	finding := Finding{
		Severity: Fault, Subject: "this node",
		Read: fmt.Sprintf("Max locked memory in /proc/self/limits is %s (soft), %s (hard), and CapEff in /proc/self/status is without CAP_IPC_LOCK",
			memlockText(m.Soft), memlockText(m.Hard)),
		Why: "memory has to be locked to be registered for RDMA: with so little ibv_reg_mr and ibv_create_cq fail with ENOMEM, and most programs then go by TCP",
		Mend: []string{
			`printf '* - memlock unlimited\nroot - memlock unlimited\n' > /etc/security/limits.d/90-rdma.conf  # then log in again`,
			"# a service: systemctl edit NAME, add [Service] LimitMEMLOCK=infinity, then systemctl restart NAME",
			"# a container: docker run --ulimit memlock=-1; in Kubernetes securityContext.capabilities.add: [IPC_LOCK]",
		},
	}
	if m.Hard >= enoughMemlock {
		finding.Severity = Warning
		finding.Why = "memory has to be locked to be registered for RDMA; a program may raise the soft limit to the hard one, but most do not, and then fail with ENOMEM or go by TCP"
		finding.Mend = append([]string{"ulimit -S -l $(ulimit -H -l)  # in the shell that starts the job"}, finding.Mend...)
	}
	found(finding)
}

func memlockText(bytes uint64) string {
	if bytes == unlimitedMemlock {
		return "unlimited"
	}
	return fmt.Sprintf("%d bytes", bytes)
}
