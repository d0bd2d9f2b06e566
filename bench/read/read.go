// Package read reads the output of other benchmarks: perftest, iperf3, nccl-tests, nixlbench, the debug log of NCCL and
// NCCL Inspector. A file is recognised by its content, never by its name, and may have several outputs.
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

// Bounds of a file. What is beyond them is an error.
const (
	maxFile     = 1 << 30
	maxLine     = 1 << 20
	maxDocument = 64 << 20 // of JSON
	maxRows     = 250_000
	maxErrors   = 20
	maxText     = 160 // characters of a test or rail
)

// Result is one figure of a tool, or one line of its log. What the tool does not report is absent.
type Result struct {
	File     string   `json:"file"`
	Tool     string   `json:"tool"`
	Test     string   `json:"test"`
	Bytes    *int64   `json:"bytes,omitempty"` // of a message or block
	Rate     *float64 `json:"bytes_per_second,omitempty"`
	BusRate  *float64 `json:"bus_bytes_per_second,omitempty"`
	Latency  *Latency `json:"latency_seconds,omitempty"`
	Rail     string   `json:"rail,omitempty"` // the device, as the tool names it; several with commas
	Line     int      `json:"source_line"`
	Marks    []string `json:"marks"`
	lanes    float64  // directions × ports that Rate sums up; 0: one
	rounding float64  // of Latency.Avg, seconds
}

// Latency is in seconds.
type Latency struct {
	Avg *float64 `json:"avg,omitempty"`
	Min *float64 `json:"min,omitempty"`
	P50 *float64 `json:"p50,omitempty"`
	P99 *float64 `json:"p99,omitempty"`
	Max *float64 `json:"max,omitempty"`
}

// Error is what is wrong with a file.
type Error struct {
	File string
	Line int // 0: the whole file
	Text string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Text
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Text)
}

// tool is what can be read. A new parser is made for each file.
type tool struct {
	name, looksLike string
	parser          func(*sink) parser
}

// parser gets all of a file, and takes what its tool printed.
type parser interface {
	text(line)
	document(*document) (mine bool)
	end() // of the file
}

func tools() []tool {
	return []tool{
		{"perftest", "#bytes … BW average[MiB/sec] or t_avg[usec], --out_json", newPerftest},
		{"iperf3", "[ ID] Interval … Bitrate, --json", newIperf3},
		{"nccl-tests", "# size count type … algbw busbw, -J", newNCCLTests},
		{"nixlbench", "Block Size (B) … B/W (GB/Sec)", newNixlbench},
		{"nccl", "NCCL INFO or NCCL WARN", newNCCLLog},
		{"nccl-inspector", "coll_perf, p2p_perf, nccl_bus_bandwidth_gbs", newInspector},
	}
}

// File reads all of one file. Results before an error are returned with it.
func File(name string, r io.Reader) ([]Result, error) {
	s := &sink{file: name}
	var parsers []parser
	for _, t := range tools() {
		parsers = append(parsers, t.parser(s))
	}
	scan(r, s, parsers)
	for _, p := range parsers {
		p.end()
	}
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

// Nixlbench calls each with the rows of nixlbench's output as they arrive.
func Nixlbench(name string, r io.Reader, each func(Result)) error {
	s := &sink{file: name, each: each}
	p := newNixlbench(s)
	scan(r, s, []parser{p})
	p.end()
	return errors.Join(s.errs...)
}

// sink collects what parsers find in a file.
type sink struct {
	file    string
	rows    []Result
	errs    []error
	dropped bool         // rows above maxRows
	each    func(Result) // instead of rows; nil: rows
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

// figure parses a number. One that JSON cannot represent is marked and absent; a negative one is marked.
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

// latency returns where the latency of the row is kept.
func (r *Result) latency() *Latency {
	if r.Latency == nil {
		r.Latency = &Latency{}
	}
	return r.Latency
}

// average sets the average latency from text, which shows how far it is rounded.
func (r *Result) average(text string, unit float64) {
	if v := r.figure("latency", text, unit); v != nil {
		r.latency().Avg = v
		mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
		_, decimals, _ := strings.Cut(mantissa, ".")
		e, _ := strconv.Atoi(exponent) // none: 0
		r.rounding = unit * math.Pow10(e-len(decimals)) / 2
	}
}

// size parses a number of bytes; nil if it is none.
func size(text string) *int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return nil
	}
	return &n
}
