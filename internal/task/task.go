// Package task reads of procfs what is needed to say whose a process is: its
// name, its parent, when it started, and its cgroup. Everything that it reads
// was written by the process or its user and is not trusted: lengths are
// bounded, names are made valid UTF-8.
//
// Reads do not protect themselves against one that never returns; see package
// lane for that. Environ may wait for the process's memory lock.
package task

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/sysfs"
)

// Most bytes that are read of the files of a process.
const (
	maxStatus  = 4096 // the Tgid line is among the first
	maxCgroup  = 16 << 10
	maxEnviron = 256 << 10
)

// Tick is the unit of Stat.Start: USER_HZ, 100 a second on every architecture.
const Tick = 100

// Stat is what /proc/PID/stat says.
type Stat struct {
	PID     int
	Comm    string // at most 15 bytes, valid UTF-8
	Parent  int
	Session int
	TTY     bool   // it has a controlling terminal
	Start   uint64 // when it started, in ticks since the machine did (CLOCK_BOOTTIME)
}

// ReadStat reads /proc/PID/stat; of a thread it says the thread's name and
// start, and the process's parent. A process that is gone fails with ENOENT or
// ESRCH.
func ReadStat(procfs string, pid int) (Stat, error) {
	path := file(procfs, pid, "stat")
	b, err := head(path, maxStatus)
	if err != nil {
		return Stat{}, err
	}
	st, err := parseStat(b)
	return st, sysfs.At(path, err)
}

// parseStat reads "PID (COMM) STATE PPID PGRP SESSION TTY …"; the name may hold
// anything, parentheses too.
func parseStat(b []byte) (st Stat, err error) {
	bad := func() (Stat, error) {
		return Stat{}, &sysfs.Error{Reason: sysfs.ReasonInvalid, Err: errors.New("not the stat of a process")}
	}
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return bad()
	}
	if st.PID, err = strconv.Atoi(strings.TrimSpace(string(b[:open]))); err != nil || st.PID <= 0 {
		return bad()
	}
	st.Comm = strings.ToValidUTF8(string(b[open+1:end]), "\ufffd")
	// proc_pid_stat(5): field 3, the state, is the first after the name.
	f := strings.Fields(string(b[end+1:]))
	if len(f) < 20 {
		return bad()
	}
	var errs [4]error
	var tty int
	st.Parent, errs[0] = strconv.Atoi(f[1])
	st.Session, errs[1] = strconv.Atoi(f[3])
	tty, errs[2] = strconv.Atoi(f[4])
	st.Start, errs[3] = strconv.ParseUint(f[19], 10, 64)
	if errors.Join(errs[:]...) != nil {
		return bad()
	}
	st.TTY = tty != 0
	return st, nil
}

// Process returns the process that a thread belongs to (Tgid).
func Process(procfs string, tid int) (int, error) {
	path := file(procfs, tid, "status")
	b, err := head(path, maxStatus)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, "Tgid:"); ok {
			if pid, err := strconv.Atoi(strings.TrimSpace(value)); err == nil && pid > 0 {
				return pid, nil
			}
		}
	}
	return 0, &sysfs.Error{Path: path, Reason: sysfs.ReasonInvalid, Err: errors.New("no Tgid in it")}
}

// ReadCgroup reads /proc/PID/cgroup.
func ReadCgroup(procfs string, pid int) (Cgroup, error) {
	b, err := head(file(procfs, pid, "cgroup"), maxCgroup)
	return ParseCgroup(string(b)), err
}

// Environ returns the variables that a process was started with, of those
// asked for. It needs the rights to trace the process (its user, or
// CAP_SYS_PTRACE) and fails with EACCES without.
func Environ(procfs string, pid int, wanted func(name string) bool) (map[string]string, error) {
	b, err := head(file(procfs, pid, "environ"), maxEnviron)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for v := range bytes.SplitSeq(b, []byte{0}) {
		if name, value, ok := strings.Cut(string(v), "="); ok && wanted(name) {
			found[name] = value
		}
	}
	return found, nil
}

// SameNetwork reports whether a process is in our network namespace. It needs
// the rights that Environ needs.
func SameNetwork(procfs string, pid int) (bool, error) {
	var ours, its unix.Stat_t
	for path, st := range map[string]*unix.Stat_t{file(procfs, pid, "ns/net"): &its, filepath.Join(procfs, "self/ns/net"): &ours} {
		if err := unix.Stat(path, st); err != nil {
			return false, sysfs.Fail(path, err)
		}
	}
	return ours.Ino == its.Ino && ours.Dev == its.Dev, nil
}

// Now returns the time on the clock of Stat.Start.
func Now() (ticks uint64, err error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, fmt.Errorf("read CLOCK_BOOTTIME: %w", err)
	}
	return uint64(ts.Nano()) / (1e9 / Tick), nil
}

func file(procfs string, pid int, name string) string {
	return filepath.Join(procfs, strconv.Itoa(pid), name)
}

// head reads the beginning of a file.
func head(path string, most int) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, sysfs.Fail(path, err)
	}
	defer unix.Close(fd)
	b, n := make([]byte, min(most, 4096)), 0
	for {
		got, err := unix.Read(fd, b[n:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, sysfs.Fail(path, err)
		}
		n += got
		if got == 0 || n == most {
			return b[:n], nil
		}
		if n == len(b) {
			b = append(b, make([]byte, min(len(b), most-n))...)
		}
	}
}

// Hidden reports whether a process that procfs does not have is there all the
// same: procfs is mounted with hidepid, then.
func Hidden(procfs string, pid int) bool {
	var st unix.Statfs_t
	if unix.Statfs(procfs, &st) != nil || st.Type != unix.PROC_SUPER_MAGIC {
		return false // a capture, which has nothing to do with our processes
	}
	err := unix.Kill(pid, 0)
	return err == nil || errors.Is(err, unix.EPERM)
}
