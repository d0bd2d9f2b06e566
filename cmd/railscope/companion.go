package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/internal/outfile"
)

// companionName is the program with the large libraries. It is installed beside this one.
const companionName = "railscope-bench"

// companion returns the path of railscope-bench.
func companion() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", companionName, err)
	}
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	path := filepath.Join(filepath.Dir(self), companionName)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: it writes reports and is part of the package: install it beside railscope, or "+
			"build both by make build", err)
	}
	return path, nil
}

// removal is how long railscope-bench may take after a signal to remove what it wrote.
const removal = 45 * time.Second

// runCompanion runs a command of railscope-bench, which prints its own errors.
func runCompanion(ctx context.Context, w io.Writer, args []string) error {
	path, err := companion()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // it is this package's own
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, w, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = removal
	if err = cmd.Run(); err == nil {
		return nil
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		if exit.ExitCode() == exitMisuse {
			return exitStatus(exitMisuse)
		}
		return errReported
	}
	return fmt.Errorf("%s: %w", path, err)
}

// reports are the paths of files that a command writes in addition to its output.
type reports struct{ html, plot string }

func (r *reports) define(cmd *kingpin.CmdClause, env string) {
	cmd.Flag("report", "Write a report with tables and plots to this file, one HTML page without outside resources.").
		Envar("RAILSCOPE_" + env + "_REPORT").PlaceHolder("FILE.html").StringVar(&r.html)
	cmd.Flag("plot", "Write the plots to this file, a PNG or SVG by its suffix.").
		Envar("RAILSCOPE_" + env + "_PLOT").PlaceHolder("FILE.png").StringVar(&r.plot)
}

func (r reports) asked() bool { return r.html != "" || r.plot != "" }

// check returns an error, before anything is measured, if a file cannot be written.
func (r reports) check() error {
	if !r.asked() {
		return nil
	}
	if suffix := r.suffix(); r.plot != "" && suffix != "png" && suffix != "svg" {
		return misuse{fmt.Errorf("--plot must end in .png or .svg, not %q", r.plot)}
	}
	if suffix := strings.ToLower(filepath.Ext(r.html)); r.html != "" && suffix != ".html" && suffix != ".htm" {
		return misuse{fmt.Errorf("--report must end in .html, not %q: for a PDF, print the page from a browser",
			r.html)}
	}
	for _, one := range []struct{ flag, file string }{{"report", r.html}, {"plot", r.plot}} {
		if one.file == "" {
			continue
		}
		if err := outfile.Check(one.file); err != nil {
			return misuse{fmt.Errorf("--%s: %w", one.flag, err)}
		}
	}
	_, err := companion()
	return err
}

func (r reports) suffix() string {
	return strings.ToLower(strings.TrimPrefix(filepath.Ext(r.plot), "."))
}

// write writes the files from the JSON output of a command.
func (r reports) write(ctx context.Context, of string, json func(io.Writer) error) error {
	if !r.asked() {
		return nil
	}
	var input bytes.Buffer
	if err := json(&input); err != nil {
		return err
	}
	for _, one := range []struct{ file, as string }{{r.html, "html"}, {r.plot, r.suffix()}} {
		if one.file == "" {
			continue
		}
		text, err := drawReport(ctx, of, one.as, input.Bytes())
		if err == nil {
			err = outfile.Write(one.file, text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reportTime is the time limit of drawing.
const reportTime = time.Minute

func drawReport(ctx context.Context, of, as string, input []byte) ([]byte, error) {
	path, err := companion()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, reportTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "report", "--of="+of, "--as="+as) //nolint:gosec // it is this package's own
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", path, err, strings.TrimSpace(stderr.String()))
	}
	return out.Bytes(), nil
}
