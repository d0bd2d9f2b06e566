// Package read reads the output of other benchmarks: perftest, iperf3, nccl-tests, nixlbench, the debug log of NCCL and
// NCCL Inspector. It recognises a file by its content, never by its name. A file may have several outputs.
package read

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/internal/terminal"
)

// Bounds on a file. Exceeding one is an error.
const (
	maxFile     = 1 << 30
	maxLine     = 1 << 20
	maxDocument = 64 << 20 // bytes of a JSON document
	maxRows     = 250_000
	maxErrors   = 20
	maxText     = 160 // characters of a test or rail
)

// Result is one figure of a tool, or one line of its log. Fields are absent if the tool does not report them.
type Result struct {
	File    string   `json:"file"`
	Tool    string   `json:"tool"`
	Test    string   `json:"test"`
	Bytes   *int64   `json:"bytes,omitempty"` // size of a message or block
	Rate    *float64 `json:"bytes_per_second,omitempty"`
	BusRate *float64 `json:"bus_bytes_per_second,omitempty"`
	Latency *Latency `json:"latency_seconds,omitempty"`
	Rail    string   `json:"rail,omitempty"` // name of the device, as printed; several with commas
	Line    int      `json:"source_line"`
	Marks   []string `json:"marks"`
	// Failed reports that the tool reported a failure, or that the row cannot be attributed to one run.
	Failed   bool    `json:"failed,omitempty"`
	lanes    float64 // directions × ports that Rate sums up; 0 means 1
	rounding float64 // rounding error of Latency.Avg, seconds
}

// Latency holds times in seconds.
type Latency struct {
	Avg *float64 `json:"avg,omitempty"`
	Min *float64 `json:"min,omitempty"`
	P50 *float64 `json:"p50,omitempty"`
	P99 *float64 `json:"p99,omitempty"`
	Max *float64 `json:"max,omitempty"`
}

// Error is a fault in a file.
type Error struct {
	File string
	Line int // 0 for the whole file
	Text string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Text
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Text)
}

// tool is a supported tool. Each file gets new parsers.
type tool struct {
	name, looksLike string
	parser          func(*sink) parser
}

// parser receives all of a file and selects its tool's output.
type parser interface {
	text(line)
	document(*document) (mine bool)
	end() // called at the end of the file
}

func tools() []tool {
	return []tool{
		{"perftest", "#bytes … BW average[MiB/sec] or t_avg[usec], --out_json", newPerftest},
		{"iperf3", "[ ID] Interval … Bitrate, --json", newIperf3},
		{"iperf2", "Client connecting to …, TCP port; connected with", newIperf2},
		{"nccl-tests", "# size count type … algbw busbw, -J", newNCCLTests},
		{"nixlbench", "Block Size (B) … B/W (GB/Sec)", newNixlbench},
		{"osu", "# OSU MPI Bandwidth Test, # Size", newOSU},
		{"ucx_perftest", "| Stage | # iterations … Final:, or iterations,…,overall_bw", newUCXPerftest},
		{"nccl", "NCCL INFO or NCCL WARN", newNCCLLog},
		{"nccl-inspector", "coll_perf, p2p_perf, nccl_bus_bandwidth_gbs", newInspector},
	}
}

// File reads one file completely. With an error it also returns the results before it.
func File(name string, r io.Reader) ([]Result, error) {
	s := &sink{file: name}
	scan(r, s, func() (parsers []parser) {
		for _, t := range tools() {
			parsers = append(parsers, t.parser(s))
		}
		return parsers
	})
	if len(s.rows) == 0 && len(s.errs) == 0 {
		var known []string
		for _, t := range tools() {
			known = append(known, t.name+" ("+t.looksLike+")")
		}
		s.fail(0, "no output of a known tool; looked for %s", strings.Join(known, ", "))
	}
	slices.SortStableFunc(s.rows, func(a, b Result) int { return cmp.Compare(a.Line, b.Line) })
	return s.rows, errors.Join(s.errs...)
}

// Nixlbench reads nixlbench's output and calls each with every row as it arrives.
func Nixlbench(name string, r io.Reader, each func(Result)) error {
	s := &sink{file: name, each: each}
	scan(r, s, func() []parser { return []parser{newNixlbench(s)} })
	return errors.Join(s.errs...)
}

// sink collects the results and errors of the parsers of a file.
type sink struct {
	file    string
	rows    []Result
	errs    []error
	dropped bool         // rows beyond maxRows were dropped
	each    func(Result) // receives the rows, which are then not kept; may be nil
}

// add cleans and keeps a row, and returns its index; -1 if it is not kept.
func (s *sink) add(r Result) int {
	r.File, r.Test, r.Rail = s.file, short(r.Test), short(r.Rail)
	r.Marks = append([]string{}, r.Marks...)
	if s.each != nil {
		s.each(r)
		return -1
	}
	if len(s.rows) >= maxRows {
		if !s.dropped {
			s.fail(r.Line, "more than %d rows: the rest is not read", maxRows)
		}
		s.dropped = true
		return -1
	}
	s.rows = append(s.rows, r)
	return len(s.rows) - 1
}

// fail marks a row as failed, with the reason.
func (r *Result) fail(format string, args ...any) {
	r.Failed = true
	text := terminal.Plain(fmt.Sprintf(format, args...))
	if !slices.Contains(r.Marks, text) {
		r.Marks = append(r.Marks, text)
	}
}

// mixed marks a row that one of several runs printed.
const mixed = "several runs are mixed here: nobody can tell whose row it is"

func (s *sink) fail(at int, format string, args ...any) {
	if len(s.errs) < maxErrors {
		s.errs = append(s.errs, &Error{s.file, at, terminal.Plain(fmt.Sprintf(format, args...))})
	}
}

func short(s string) string {
	s = strings.TrimSpace(terminal.Plain(s))
	if runes := []rune(s); len(runes) > maxText {
		return string(runes[:maxText-1]) + "…"
	}
	return s
}

// figure parses a number. A number that JSON cannot represent is marked and absent; a negative one is marked.
func (r *Result) figure(name, text string, unit float64) *float64 {
	v, err := parseFloat(text)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return nil
	}
	return r.value(name, v, unit)
}

func (r *Result) value(name string, v, unit float64) *float64 {
	scaled := v * unit
	switch {
	case math.IsNaN(scaled) || math.IsInf(scaled, 0):
		r.Marks = append(r.Marks, fmt.Sprintf("%s is %v", name, v))
		return nil
	case v < 0:
		r.Marks = append(r.Marks, fmt.Sprintf("%s is negative: %v", name, v))
	}
	return &scaled
}

// latency returns the row's latency, which it creates if absent.
func (r *Result) latency() *Latency {
	if r.Latency == nil {
		r.Latency = &Latency{}
	}
	return r.Latency
}

// average sets the average latency. The number of digits in text shows its rounding.
func (r *Result) average(text string, unit float64) {
	if v := r.figure("latency", text, unit); v != nil {
		r.latency().Avg = v
		mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
		_, decimals, _ := strings.Cut(mantissa, ".")
		e, _ := strconv.Atoi(exponent) // 0 without an exponent
		r.rounding = unit * math.Pow10(e-len(decimals)) / 2
	}
}

// size parses a number of bytes; nil if text is not a number.
func size(text string) *int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return nil
	}
	return &n
}
