package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/internal/terminal"
)

// InspectorVariable names the directory in which NCCL Inspector writes (plugins/profiler/inspector of NCCL 2.28 and
// later). It must be set for the command; railscope does not turn the Inspector on.
const InspectorVariable = "NCCL_INSPECTOR_DUMP_DIR"

// Collectives is the time of a command's dumped collectives, in the process where they took longest. It is a lower
// bound: it excludes collectives below the Inspector's minimum size, those between two dumps, and those of all
// communicators but the busiest, which may overlap.
type Collectives struct {
	Seconds float64 `json:"seconds"` // seconds of the dumped collectives in the busiest communicator
	Share   float64 `json:"share"`   // share of the command's duration
	AtLeast bool    `json:"at_least"`
	Dumped  int64   `json:"dumped"`
	// Of is the number of collectives from the first dumped one to the last, by their sequence numbers.
	Of        int64 `json:"of"`
	Processes int   `json:"processes"`
}

// Bounds on what is read.
const (
	maxInspectorFiles = 4096
	maxInspectorLine  = 1 << 20
	maxInspectorBytes = 1 << 30 // bytes of all files
)

// inspected is one line of the Inspector's JSON.
type inspected struct {
	Header struct {
		ID string `json:"id"`
	} `json:"header"`
	Metadata struct {
		PID  int64   `json:"pid"`
		Host string  `json:"hostname"`
		Dump float64 `json:"dump_timestamp_us"`
	} `json:"metadata"`
	Coll *struct {
		Coll string  `json:"coll"`
		SN   int64   `json:"coll_sn"`
		Time float64 `json:"coll_exec_time_us"`
	} `json:"coll_perf"`
}

type process struct {
	host string
	pid  int64
}

// counted holds the collectives of one kind in one communicator.
type counted struct {
	seen        map[int64]bool
	sum         float64 // total time, µs
	first, last int64
}

// ReadInspector reads the dumps of NCCL Inspector in dir since start, for a command that took this many seconds; nil
// without an error if there are none. The Inspector dumps only the latest collective at intervals, and none below a
// minimum size.
func ReadInspector(dir string, start time.Time, seconds float64) (*Collectives, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", InspectorVariable, dir, err)
	}
	of, left := map[process]map[string]*counted{}, int64(maxInspectorBytes)
	var errs []error
	for _, name := range files[:min(len(files), maxInspectorFiles)] {
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() || info.ModTime().Before(start) || filepath.Ext(name) == ".prom" {
			continue
		}
		left -= info.Size()
		if left < 0 {
			errs = append(errs, fmt.Errorf("%s has more than %d GiB of dumps: the rest is not read", dir,
				maxInspectorBytes>>30))
			break
		}
		if err := readInspected(name, start, of); err != nil {
			errs = append(errs, err)
		}
	}
	return summary(of, seconds), errors.Join(errs...)
}

func readInspected(name string, start time.Time, of map[process]map[string]*counted) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // the file was only read
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxInspectorLine)
	for lines.Scan() {
		var one inspected
		if json.Unmarshal(lines.Bytes(), &one) != nil || one.Coll == nil || one.Coll.Time < 0 ||
			one.Metadata.Dump < float64(start.UnixMicro()) {
			continue // line of an earlier run, or cut because its process was killed
		}
		who := process{one.Metadata.Host, one.Metadata.PID}
		if of[who] == nil {
			of[who] = map[string]*counted{}
		}
		key := one.Header.ID + " " + one.Coll.Coll
		c := of[who][key]
		if c == nil {
			c = &counted{seen: map[int64]bool{}, first: one.Coll.SN, last: one.Coll.SN}
			of[who][key] = c
		}
		if c.seen[one.Coll.SN] {
			continue
		}
		c.seen[one.Coll.SN] = true
		c.sum += one.Coll.Time
		c.first, c.last = min(c.first, one.Coll.SN), max(c.last, one.Coll.SN)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func summary(of map[process]map[string]*counted, seconds float64) *Collectives {
	var worst *Collectives
	for _, kinds := range of {
		one, communicators := Collectives{Processes: len(of)}, map[string]float64{}
		for key, c := range kinds {
			one.Dumped += int64(len(c.seen))
			one.Of += c.last - c.first + 1
			one.AtLeast = one.AtLeast || c.first > 1 // counts start at 0 or 1
			communicator, _, _ := strings.Cut(key, " ")
			communicators[communicator] += c.sum / 1e6
			one.Seconds = max(one.Seconds, communicators[communicator])
		}
		one.AtLeast = one.AtLeast || one.Dumped < one.Of || len(communicators) > 1
		if worst == nil || one.Seconds > worst.Seconds {
			worst = &one
		}
	}
	if worst != nil && seconds > 0 {
		worst.Share = worst.Seconds / seconds
	}
	return worst
}

func collectiveTitles() []grid.Cell {
	return append(grid.Titles("COLLECTIVES", "SECONDS", "OF THE TIME", "DUMPED", "OF"), grid.Cell{})
}

func (c *Collectives) row(name string) []grid.Cell {
	text, colour := grid.Band(c.Share)
	least := ""
	if c.AtLeast {
		least = "≥ "
		if !grid.Worst(c.Share) {
			text, colour = "lower bound: more were not counted", ""
		}
	}
	return []grid.Cell{grid.Name(name), grid.Number(least + grid.ThreeDigits(c.Seconds)),
		grid.Number(least + terminal.Percent(c.Share)), grid.Number(strconv.FormatInt(c.Dumped, 10)),
		grid.Number(strconv.FormatInt(c.Of, 10)), {Text: text, Colour: colour}}
}
