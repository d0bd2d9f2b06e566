package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/bench/record"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/outfile"
	"github.com/railscope/railscope/internal/proc"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/secret"
	"github.com/railscope/railscope/internal/serve"
	"github.com/railscope/railscope/internal/terminal"
)

type runSettings struct {
	*common
	command []string
	json    string
	compare string
	repeat  int
	figure  string
	reports reports
}

func (s *runSettings) define(app *kingpin.Application) *runSettings {
	cmd := app.Command("run", "Run a command, and show what the rails carried meanwhile: bytes, balance, queue pairs, "+
		"memory. The report goes to standard error, and the exit code is the command's. Write -- before the command.")
	cmd.Arg("command", "The command and its arguments.").Required().StringsVar(&s.command)
	cmd.Flag("json", "Write the report as JSON to a file, too; - is standard output.").
		Envar("RAILSCOPE_RUN_JSON").PlaceHolder("FILE").
		StringVar(&s.json)
	cmd.Flag("compare", "tcp: run the command over RDMA and over TCP in turn (NCCL_IB_DISABLE=1, UCX_TLS=tcp,…), and "+
		"compare the times.").Envar("RAILSCOPE_RUN_COMPARE").PlaceHolder("tcp").EnumVar(&s.compare, "tcp")
	cmd.Flag("repeat", "How often each of both runs with --compare.").Envar("RAILSCOPE_RUN_REPEAT").Default("5").
		IntVar(&s.repeat)
	cmd.Flag("figure", "Regular expression with one group that finds the command's own figure in its output, such as "+
		"'([0-9.]+) samples/s'; the last match counts. With --compare.").Envar("RAILSCOPE_RUN_FIGURE").
		PlaceHolder("REGEX").StringVar(&s.figure)
	s.reports.define(cmd, "RUN")
	return s
}

// exitStatus is the exit code of a command.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

const (
	outputTime  = 5 * time.Second // time for output of processes that the command left running
	maxRepeat   = 100
	exitNoExec  = 126 // same code as in shells
	exitNoFile  = 127
	exitSignals = 128 // base of the number of the signal
)

func (s *runSettings) run(_ context.Context, tracker *shutdownTracker, w io.Writer) error {
	defer tracker.begin("run", nil)()
	tracker.wait() // the command decides when it ends
	cfg, err := s.load()
	if err != nil {
		return err
	}
	if s.repeat < 1 || s.repeat > maxRepeat {
		return misuse{fmt.Errorf("--repeat must be from 1 to %d, not %d", maxRepeat, s.repeat)}
	}
	pattern, err := figurePattern(s.figure)
	if err != nil {
		return misuse{err}
	}
	if pattern != nil && s.compare == "" {
		return misuse{errors.New("--figure needs --compare=tcp")}
	}
	if err := s.reports.check(); err != nil {
		return err
	}
	if s.json != "" && s.json != "-" {
		if err := outfile.Check(s.json); err != nil {
			return misuse{fmt.Errorf("--json: %w", err)}
		}
	}
	rails, err := s.host(cfg, listBudget).Finder.Rails()
	o := record.Options{Sysfs: s.Sysfs, Procfs: s.Procfs, Rails: rails,
		GPUs: gpuMemory(nvml.NewSession(nvml.NewLibrary("")), s.Sysfs, s.Procfs)}
	links := rdmanl.NewForDumps(time.Second)
	o.QueuePairs = func(device string, each func(rdmanl.QP)) error {
		return links.QueuePairs(device, rdmanl.QPLimits{}, each)
	}
	o.Own = s.ownTraffic
	r := runner{settings: s, options: o, pattern: pattern}
	if err != nil {
		r.notes = append(r.notes, err.Error())
	}
	if s.compare != "" {
		return r.compare(w)
	}
	rec, _, err := r.once(nil)
	if err != nil {
		return err
	}
	if err := errors.Join(rec.WriteTable(os.Stderr, isTerminal(os.Stderr)), s.writeJSON(w, rec.WriteJSON),
		s.reports.write(context.Background(), "run", rec.WriteJSON)); err != nil {
		return err
	}
	if rec.ExitCode != 0 {
		return exitStatus(rec.ExitCode)
	}
	return nil
}

// ownTraffic returns what the probe of the running railscope has carried so far. If one runs and cannot be asked,
// the error says what to do.
func (c *common) ownTraffic() (map[string]record.Own, error) {
	all := map[string]record.Own{}
	s, err := c.runningStatus(context.Background(), time.Second)
	switch {
	case err == nil:
		for _, r := range s.Rails {
			if r.ProbeTransmit == nil || r.ProbeReceive == nil || r.ProbeTCP == nil {
				return nil, errors.New("the railscope that runs on this node is an earlier version")
			}
			all[r.Device+"/"+r.Port] = record.Own{Transmit: *r.ProbeTransmit, Receive: *r.ProbeReceive,
				TCP: *r.ProbeTCP}
		}
		return all, nil
	case errors.Is(err, os.ErrPermission):
		return nil, errors.New("run this command as root or as the user of the railscope that runs on this node")
	case !errors.Is(err, errNoDaemon):
		return nil, err
	case probeWorks(c.Procfs):
		return nil, fmt.Errorf("the railscope that runs on this node has no status.sock in %s: give it and this "+
			"command one --state.dir", c.socketDir())
	}
	return all, nil // there is no probe
}

// probeWorks reports whether a process on this node is the worker of a probe.
func probeWorks(procfs string) bool {
	const most, longest = 100_000, 4 << 10
	pids, _ := proc.PIDs(procfs, most) // empty on an error
	return slices.ContainsFunc(pids, func(pid int) bool {
		line, _, err := proc.Head(filepath.Join(procfs, strconv.Itoa(pid), "cmdline"), longest)
		return err == nil && strings.HasSuffix(line, "\x00"+serve.WorkerCommand+"\x00")
	})
}

// writeJSON writes an object to the destination of --json.
func (s *runSettings) writeJSON(stdout io.Writer, write func(io.Writer) error) error {
	switch s.json {
	case "":
		return nil
	case "-":
		return write(stdout)
	}
	var text strings.Builder
	if err := write(&text); err != nil {
		return err
	}
	return outfile.Write(s.json, []byte(text.String()))
}

func figurePattern(text string) (*regexp.Regexp, error) {
	if text == "" {
		return nil, nil
	}
	p, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("--figure: %w", err)
	}
	if p.NumSubexp() != 1 {
		return nil, fmt.Errorf("--figure must have one group, such as '([0-9.]+) samples/s', not %q", text)
	}
	return p, nil
}

// runner runs the command and records the rails.
type runner struct {
	settings *runSettings
	options  record.Options
	pattern  *regexp.Regexp
	notes    []string
}

// shownCommand returns a command as records store it: without passwords of URLs, because records are passed on.
func shownCommand(argv []string) (shown []string) {
	for _, arg := range argv {
		shown = append(shown, secret.HideUserinfo(arg, ""))
	}
	return shown
}

// once runs the command with these additional variables, and returns the record and the figure that the command
// printed.
func (r *runner) once(env []string) (record.Record, string, error) {
	argv := r.settings.command
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec,noctx // it is what the user asks to run, until it ends
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = outputTime
	figure, log := lastMatch{pattern: r.pattern}, new(record.Lines)
	also := []io.Writer{os.Stdout}
	if r.pattern != nil {
		also = append(also, &figure)
	}
	if variable(cmd.Env, record.NCCLDebug) != "" && variable(cmd.Env, record.NCCLDebugFile) == "" {
		also = append(also, log)
	}
	if len(also) > 1 {
		cmd.Stdout = io.MultiWriter(also...)
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1,
		syscall.SIGUSR2)
	defer signal.Stop(signals)
	watch := record.Start(r.options)
	if err := cmd.Start(); err != nil {
		watch.Stop()
		fmt.Fprintln(os.Stderr, terminal.Plain(fmt.Sprintf("railscope: run %s: %v", argv[0], err)))
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return record.Record{}, "", exitStatus(exitNoFile)
		}
		return record.Record{}, "", exitStatus(exitNoExec)
	}
	ended := make(chan struct{})
	go forward(signals, ended, cmd.Process, inForeground())
	err := cmd.Wait()
	close(ended)
	if r.pattern != nil {
		figure.end() // looks at a last line without a newline as well
	}
	rec := watch.Stop()
	rec.Command, rec.ExitCode = shownCommand(argv), exitCode(cmd, err)
	rec.Notes = append(rec.Notes, r.notes...)
	addNCCL(&rec, cmd.Env, log)
	for _, v := range environment() {
		rec.Environment[v.Name] = v.Here
	}
	return rec, figure.value, nil
}

// addNCCL adds what NCCL reports of a command with this environment: its collectives, and its log, which is in printed
// unless it has files.
func addNCCL(rec *record.Record, environment []string, printed *record.Lines) {
	var err error
	if dir := variable(environment, record.InspectorVariable); dir != "" {
		rec.Collectives, err = record.ReadInspector(dir, rec.Start, rec.Seconds)
		if err != nil {
			rec.Notes = append(rec.Notes, "collectives: "+err.Error())
		}
	}
	if variable(environment, record.NCCLDebug) == "" {
		return
	}
	rec.Log = printed.Read()
	if files := variable(environment, record.NCCLDebugFile); files != "" {
		rec.Log, err = record.ReadLogs(files, rec.Start)
		if err != nil {
			rec.Notes = append(rec.Notes, "log of NCCL: "+err.Error())
		}
	}
}

// variable returns the value of a variable in an environment. The last entry counts.
func variable(environment []string, name string) string {
	for _, v := range slices.Backward(environment) {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// exitCode returns the exit code of a command that has ended, as shells report it.
func exitCode(cmd *exec.Cmd, err error) int {
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case ok && status.Signaled():
		return exitSignals + int(status.Signal())
	case err != nil && cmd.ProcessState.Success(): // its output could not be written
		return exitFailure
	}
	return cmd.ProcessState.ExitCode()
}

// inForeground reports whether this process is in the foreground of its terminal. Signals of the keyboard then
// reach the command as well.
func inForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false // no terminal
	}
	defer func() { _ = tty.Close() }() // nothing was written
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// forward forwards signals to the command, except those of the keyboard if the command gets them itself.
func forward(signals <-chan os.Signal, ended <-chan struct{}, to *os.Process, foreground bool) {
	for {
		select {
		case <-ended:
			return
		case sig := <-signals:
			if keyboard := sig == syscall.SIGINT || sig == syscall.SIGQUIT; !keyboard || !foreground {
				_ = to.Signal(sig) // it may have just ended
			}
		}
	}
}

// lastMatch keeps the last match in the written text, line by line.
type lastMatch struct {
	pattern *regexp.Regexp
	line    []byte
	value   string
}

// maxFigureLine limits the length of a line that is searched for a figure.
const maxFigureLine = 64 << 10

func (l *lastMatch) Write(p []byte) (int, error) {
	for _, c := range p {
		if c != '\n' && c != '\r' {
			if len(l.line) < maxFigureLine {
				l.line = append(l.line, c)
			}
			continue
		}
		l.end()
	}
	return len(p), nil
}

func (l *lastMatch) end() {
	if m := l.pattern.FindSubmatch(l.line); m != nil {
		l.value = string(m[1])
	}
	l.line = l.line[:0]
}
