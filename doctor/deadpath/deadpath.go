// Package deadpath computes how long a job of this node waits before it detects a dead path: until a queue pair has
// repeated its request as often as its retry count says.
//
// The timeout T of a queue pair stands for 4.096 us x 2^T (InfiniBand Architecture Specification 1.7, 9.7.6.1.3). An
// adapter may wait up to four times as long before each repetition, so that R repetitions take between R+1 times that
// and four times as long. Adapters exceed it: what was measured is by unionxic/rdma-fault-characterization
// (harness/ack_timeout, 317 trials).
package deadpath

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/terminal"
)

// Wait is how long queue pairs of one setting wait for a peer that does not answer.
type Wait struct {
	Library  string  `json:"library"` // NCCL, RCCL or UCX
	Timeout  int     `json:"timeout"` // T, 1 to 31; 0: forever
	Retries  int     `json:"retries"` // R, 0 to 7
	From     string  `json:"from"`    // where the setting is from
	Least    float64 `json:"least_seconds"`
	Most     float64 `json:"most_seconds"`
	Measured string  `json:"measured"` // on what; empty: by the specification, not measured
}

// setting is a timeout and a retry count, and where they are from.
type setting struct {
	timeout, retries int
	from             string
}

// library is what decides about the queue pairs of a communication library.
type library struct {
	name             string
	timeout, retries string // variables
	usual            setting
	parse            func(string) (int, bool) // parses the value of the timeout
	installed        bool                     // jobs without variables are likely to use it
}

// The variables of the libraries, which are among [facts.JobVariables]. UCX's timeout is a time.
const (
	ncclTimeout, ncclRetries = "NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT"
	ucxTimeout, ucxRetries   = "UCX_RC_TIMEOUT", "UCX_RC_RETRY_COUNT"
)

// Waits returns the waits of the node's jobs, each setting once, or of the defaults if no job has its own. A library
// that the node does not use has none.
func Waits(f *facts.Facts) (list []Wait) {
	if !slices.ContainsFunc(f.Rails, repeats) {
		return nil
	}
	name := "NCCL"
	if f.GPUDirect.AMD {
		name = "RCCL"
	}
	for _, l := range []library{
		{name, ncclTimeout, ncclRetries, ncclDefault(f), parseSmall(31),
			len(f.GPUs) > 0 || versionsOf(f, "nccl") != nil || versionsOf(f, "rccl") != nil},
		{"UCX", ucxTimeout, ucxRetries, setting{ucxT(time.Second), 7, "the default"}, parseTime,
			versionsOf(f, "ucx") != nil},
	} {
		for _, s := range l.settings(f) {
			w := Wait{Library: l.name, Timeout: s.timeout, Retries: s.retries, From: s.from}
			w.Least, w.Most, w.Measured = seconds(f, s)
			list = append(list, w)
		}
	}
	return list
}

// repeats reports whether queue pairs of a rail have a timeout and a retry count: those of EFA and of iWARP have none.
func repeats(r facts.Rail) bool { return r.Provider != "efa" && r.LinkLayer != rail.IWARP }

// settings returns the settings of files and processes, or else the usual one of a library that is installed. A value
// that cannot be parsed does not count: the library ignores it.
func (l library) settings(f *facts.Facts) (list []setting) {
	base := l.usual
	for _, files := range []bool{true, false} {
		for _, env := range f.Jobs.Envs {
			if (env.File != "") != files {
				continue
			}
			s, set := base, false
			if v, ok := l.parse(env.Vars[l.timeout]); ok {
				s.timeout, set = v, true
			}
			if v, ok := parseSmall(7)(env.Vars[l.retries]); ok {
				s.retries, set = v, true
			}
			if !set {
				continue
			}
			s.from = holder(env)
			if files {
				base = s // processes may change one of the two
			}
			if !slices.ContainsFunc(list, func(o setting) bool {
				return o.timeout == s.timeout && o.retries == s.retries
			}) {
				list = append(list, s)
			}
		}
	}
	if len(list) == 0 && l.installed {
		list = append(list, l.usual)
	}
	return list
}

// holder says where a setting is from.
func holder(env facts.Env) string {
	if env.File != "" {
		return env.File
	}
	name := "a process"
	if len(env.Processes) > 0 {
		name = "process " + terminal.PlainName(env.Processes[0].Comm)
	}
	if env.Count > 1 {
		name += fmt.Sprintf(" and %d more", env.Count-1)
	}
	return name
}

// ncclDefault returns the defaults of NCCL's versions on this node (src/transport/net_ib.cc): 14 before 2.14, 18 before
// 2.23, then 20. With several, the oldest counts; without one, the newest default.
func ncclDefault(f *facts.Facts) setting {
	s := setting{20, 7, "the default since NCCL 2.23"}
	for _, v := range versionsOf(f, "nccl") {
		parts := strings.SplitN(v, ".", 3)
		if len(parts) < 2 || parts[0] != "2" {
			continue
		}
		switch minor, err := strconv.Atoi(parts[1]); {
		case err != nil || minor >= 23:
		case minor >= 14 && s.timeout > 18:
			s.timeout, s.from = 18, "the default of NCCL "+v
		case minor < 14 && s.timeout > 14:
			s.timeout, s.from = 14, "the default of NCCL "+v
		}
	}
	return s
}

func versionsOf(f *facts.Facts, component string) (list []string) {
	for _, v := range f.Versions {
		if v.Component == component {
			list = append(list, v.Version)
		}
	}
	return list
}

// parseSmall returns a parser of numbers from 0 to most.
func parseSmall(most int) func(string) (int, bool) {
	return func(text string) (int, bool) {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		return n, err == nil && n >= 0 && n <= most
	}
}

// parseTime parses a time of UCX, such as 1000.00ms or 2s, and returns T. A number without a unit is in seconds
// (ucs_config_sscanf_time in src/ucs/config/parser.c).
func parseTime(text string) (int, bool) {
	for _, unit := range []struct {
		suffix string
		length time.Duration
	}{{"ms", time.Millisecond}, {"us", time.Microsecond}, {"ns", time.Nanosecond}, {"m", time.Minute},
		{"s", time.Second}, {"", time.Second}} {
		number, ok := strings.CutSuffix(strings.TrimSpace(text), unit.suffix)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || v <= 0 || v > 1e6 {
			return 0, false
		}
		return ucxT(time.Duration(v * float64(unit.length))), true
	}
	return 0, false
}

// tick is the time of T = 0.
const tick = 4096 * time.Nanosecond

// ucxT returns the T that UCX sets for a time: the nearest one, and no limit above 30 (uct_ib_to_qp_fabric_time in
// src/uct/ib/base/ib_device.c).
func ucxT(d time.Duration) int {
	t := int(math.Round(math.Log2(float64(d) / float64(tick))))
	if t > 30 {
		return 0
	}
	return max(t, 1)
}

// seconds returns how long a setting waits on the rails of a node: as measured, if all of them are adapters on which
// that was.
func seconds(f *facts.Facts, s setting) (least, most float64, measured string) {
	if s.timeout == 0 {
		return 0, 0, ""
	}
	const connectX6 = "ConnectX-6, firmware 20.43.4100"
	other := func(r facts.Rail) bool { return !slices.Contains(strings.Fields(r.Kind), "MT4123") }
	if s.retries == 7 && !slices.ContainsFunc(f.Rails, other) {
		switch {
		case s.timeout >= 10 && s.timeout <= 16: // the adapter has a floor
			return 3.50, 3.76, connectX6
		case s.timeout == 20:
			return 58.46, 58.79, connectX6
		}
	}
	one := (tick << s.timeout).Seconds() * float64(s.retries+1)
	return one, 4 * one, ""
}

// String describes the wait for a person.
func (w Wait) String() string {
	setting := fmt.Sprintf("timeout %d and %s: %s", w.Timeout, retries(w.Retries), w.From)
	if w.Timeout == 0 {
		return fmt.Sprintf("%s waits forever for a peer that does not answer (%s)", w.Library, setting)
	}
	how := "by the specification, not measured on these adapters"
	if w.Measured != "" {
		how = "measured on " + w.Measured
	}
	return fmt.Sprintf("%s detects a dead path after %s to %s s (%s; %s)", w.Library, short(w.Least), short(w.Most),
		setting, how)
}

func retries(n int) string {
	if n == 1 {
		return "1 retry"
	}
	return fmt.Sprintf("%d retries", n)
}

// short returns a number with three digits at most.
func short(v float64) string {
	return strconv.FormatFloat(v, 'f', max(0, 2-int(math.Log10(cmp.Or(v, 1)))), 64)
}
