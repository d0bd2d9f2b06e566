// Package proc reads /proc/PID, cgroups, namespaces, limits and the machine's memory with
// github.com/prometheus/procfs. It adds reasons that can be counted (package sysfs), names that are valid UTF-8,
// and limits. Processes control much of this data, so it is not trusted.
//
// A read may wait for a lock of the process, Environ in particular; call it in a lane (package lane).
package proc

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/sysfs"
)

// Tick is the unit of Stat.Start, USER_HZ: 100 per second on every architecture.
const Tick = 100

// Instance identifies a process, also among later ones with its PID.
type Instance struct {
	PID   int
	Start uint64 // Stat.Start
}

// Stat is /proc/PID/stat of a process or thread.
type Stat struct {
	Instance        // Start in ticks since the machine started (CLOCK_BOOTTIME)
	Comm     string // at most 15 bytes, valid UTF-8
	Parent   int
	Session  int
	TTY      bool // it has a controlling terminal
}

// ReadStat reads /proc/PID/stat, also of a thread. If it is gone, the error is [sysfs.ReasonVanished].
func ReadStat(root string, pid int) (Stat, error) {
	st, err := read(root, pid, "stat", procfs.Proc.Stat)
	if err != nil {
		return Stat{}, err
	}
	comm := strings.ToValidUTF8(st.Comm, "\ufffd")
	return Stat{Instance{pid, st.Starttime}, comm, st.PPID, st.Session, st.TTY != 0}, nil
}

// Process returns the process that a thread belongs to (Tgid).
func Process(root string, tid int) (int, error) {
	status, err := read(root, tid, "status", procfs.Proc.NewStatus)
	if err == nil && status.TGID <= 0 {
		err = invalid(file(root, tid, "status"), "no Tgid")
	}
	return status.TGID, err
}

// Capabilities returns the effective capabilities of a process, one bit each (include/uapi/linux/capability.h).
func Capabilities(root string, pid int) (uint64, error) {
	status, err := read(root, pid, "status", procfs.Proc.NewStatus)
	return status.CapEff, err
}

// AllowedCPUs returns the processors that a process may run on, by number (Cpus_allowed_list in proc_pid_status(5)).
func AllowedCPUs(root string, pid int) ([]uint64, error) {
	status, err := read(root, pid, "status", procfs.Proc.NewStatus)
	return status.CpusAllowedList, err
}

// PIDs lists at most limit processes. If there are more, it returns the first ones and an error.
func PIDs(root string, limit int) (pids []int, err error) {
	all, err := call(root, root, procfs.FS.AllProcs)
	for _, p := range all {
		if p.PID > 0 && len(pids) < limit {
			pids = append(pids, p.PID)
		}
	}
	if len(all) > limit {
		err = fmt.Errorf("%d processes: only the first %d are read", len(all), limit)
	}
	return pids, err
}

// Namespace returns the name of a process's namespace of a kind ("net", "pid"). Except for "self", it needs the
// rights that Environ needs. procfs.Namespaces fails if it may not read any one of them.
func Namespace(root, pid, kind string) (string, error) {
	path := filepath.Join(root, pid, "ns", kind)
	name, err := os.Readlink(path)
	return name, fail(path, err)
}

// SeesHost reports whether we are in the machine's initial PID namespace, as far as procfs shows: in another one
// the machine's processes are hidden. The number is PROC_PID_INIT_INO of include/linux/proc_ns.h.
func SeesHost(root string) bool {
	name, err := Namespace(root, "self", "pid")
	return err != nil || name == "pid:[4026531836]"
}

// Self returns our PID in procfs.
func Self(root string) (int, error) {
	self, err := call(root, filepath.Join(root, "self"), procfs.FS.Self)
	return self.PID, err
}

// MaxEnviron is the number of bytes of an environment that are read.
const MaxEnviron = 256 << 10

// Environ returns the wanted variables with which a process was started; of two with one name, the first, like
// getenv. cut reports whether there is more than MaxEnviron. Without the right to trace the process (its user, or
// CAP_SYS_PTRACE) it fails with [sysfs.ReasonPermission].
//
// procfs.Environ is not used: it reads four times as much into one string per variable, opens pipes, and loses a
// last variable without a zero byte.
func Environ(root string, pid int, wanted func(name string) bool) (vars map[string]string, cut bool, err error) {
	text, cut, err := Head(file(root, pid, "environ"), MaxEnviron)
	if err != nil {
		return nil, false, err
	}
	if cut { // the last variable may be incomplete
		text = text[:strings.LastIndexByte(text, 0)+1]
	}
	return Variables(text, wanted), cut, nil
}

// Variables returns the wanted variables of an environment, each VAR=VALUE and a zero byte; nil if there are none.
func Variables(text string, wanted func(name string) bool) map[string]string {
	var vars map[string]string
	for entry := range strings.SplitSeq(text, "\x00") {
		name, value, found := strings.Cut(entry, "=")
		if _, twice := vars[name]; !found || twice || !wanted(name) {
			continue
		}
		if vars == nil {
			vars = map[string]string{}
		}
		vars[strings.Clone(name)] = strings.Clone(value)
	}
	return vars
}

// Head reads the first limit bytes of a regular file. more reports whether there may be more. O_NONBLOCK is for
// pipes.
func Head(path string, limit int) (text string, more bool, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return "", false, fail(path, err)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return "", false, &sysfs.Error{Path: path, Reason: sysfs.ReasonNotRegular,
			Err: errors.New("not a regular file")}
	}
	b, err := io.ReadAll(io.LimitReader(f, int64(limit)))
	return string(b), len(b) == limit, fail(path, err)
}

// Unlimited is the value of a resource without a limit.
const Unlimited = math.MaxUint64

// LockedMemory returns the limits of a process's locked memory, in bytes. procfs.Limits has only the soft limit.
func LockedMemory(root string, pid int) (soft, hard uint64, err error) {
	path := file(root, pid, "limits")
	text, _, err := Head(path, sysfs.MaxFile)
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(text) {
		rest, found := strings.CutPrefix(line, "Max locked memory")
		if words := strings.Fields(rest); found && len(words) >= 2 {
			soft, err = limit(words[0])
			hard, hardErr := limit(words[1])
			if err = cmp.Or(err, hardErr); err != nil {
				return 0, 0, invalid(path, err.Error())
			}
			return soft, hard, nil
		}
	}
	return 0, 0, invalid(path, "no line on locked memory")
}

func limit(word string) (uint64, error) {
	if word == "unlimited" {
		return Unlimited, nil
	}
	v, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%.40q is not a limit", word)
	}
	return v, nil
}

// Memory is the machine's memory, in bytes.
type Memory struct {
	Total     uint64 // MemTotal
	Available uint64 // MemAvailable: the kernel's estimate of memory that is available without swapping
}

// ReadMemory reads meminfo (proc_meminfo(5)). Errors are [*sysfs.Error].
func ReadMemory(root string) (Memory, error) {
	path := filepath.Join(root, "meminfo")
	info, err := call(root, path, procfs.FS.Meminfo)
	switch {
	case err != nil:
		return Memory{}, err
	case info.MemTotal == nil || info.MemAvailable == nil:
		return Memory{}, invalid(path, "MemTotal or MemAvailable is missing")
	case max(*info.MemTotal, *info.MemAvailable) > 1<<64/1024-1: // in kB; the library's number of bytes would overflow
		return Memory{}, &sysfs.Error{Path: path, Reason: sysfs.ReasonRange,
			Err: fmt.Errorf("%d kB do not fit in 64 bits", *info.MemTotal)}
	}
	m := Memory{*info.MemTotalBytes, *info.MemAvailableBytes}
	if m.Total == 0 || m.Available > m.Total {
		return Memory{}, invalid(path, fmt.Sprintf("MemAvailable is %d of MemTotal %d bytes", m.Available, m.Total))
	}
	return m, nil
}

// FirstUsers reports whether a process is in the initial user namespace, in which capabilities apply to devices.
func FirstUsers(root string, pid int) bool {
	text, _, err := Head(file(root, pid, "uid_map"), sysfs.MaxFile)
	return err != nil || strings.Join(strings.Fields(text), " ") == "0 0 4294967295"
}

// Now returns the current time on the clock of Stat.Start, in ticks.
func Now() uint64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // cannot fail; 0 would be before the start of any process
	return uint64(ts.Nano()) / (1e9 / Tick)
}

// Hidden reports whether a process exists that procfs does not show: procfs is then mounted with hidepid.
func Hidden(root string, pid int) bool {
	var st unix.Statfs_t
	if unix.Statfs(root, &st) != nil || st.Type != unix.PROC_SUPER_MAGIC {
		return false // a captured tree
	}
	err := unix.Kill(pid, 0)
	return err == nil || errors.Is(err, unix.EPERM)
}

func file(root string, pid int, name string) string {
	return filepath.Join(root, strconv.Itoa(pid), name)
}

func read[T any](root string, pid int, name string, get func(procfs.Proc) (T, error)) (T, error) {
	return call(root, file(root, pid, name), func(fs procfs.FS) (v T, err error) {
		p, err := fs.Proc(pid)
		if err != nil {
			return v, err
		}
		return get(p)
	})
}

// call calls the library for one file. A panic of the library on unexpected content becomes an error of the file.
func call[T any](root, path string, get func(procfs.FS) (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = invalid(path, fmt.Sprint(p))
		}
	}()
	fs, err := procfs.NewFS(root)
	if err == nil {
		v, err = get(fs)
	}
	if err != nil {
		var zero T
		return zero, fail(path, err)
	}
	return v, nil
}

// fail returns the error of a file: the kernel's errno, or that it could not be parsed.
func fail(path string, err error) error {
	if err == nil {
		return nil
	}
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return sysfs.Fail(path, errno)
	}
	reason := sysfs.ReasonInvalid
	if errors.Is(err, strconv.ErrRange) {
		reason = sysfs.ReasonRange
	}
	return &sysfs.Error{Path: path, Reason: reason, Err: err}
}

func invalid(path, why string) error {
	return &sysfs.Error{Path: path, Reason: sysfs.ReasonInvalid, Err: errors.New(why)}
}

// KernelThread reports whether a process has no command line, like kernel threads and ended processes.
func KernelThread(root string, pid int) bool {
	text, _, err := Head(file(root, pid, "cmdline"), 1)
	return text == "" && err == nil
}
