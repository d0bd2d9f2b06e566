package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/internal/terminal"
)

// InspectorVariable names the directory in which NCCL Inspector writes (plugins/profiler/inspector of NCCL 2.28 and
// later). It must be set for the command; railscope does not turn the Inspector on.
const InspectorVariable = "NCCL_INSPECTOR_DUMP_DIR"

// Collectives is how long the collectives of a command took, in the process in which they took longest.
type Collectives struct {
	Seconds   float64 `json:"seconds"` // mean of those dumped × how many there were; communicators may overlap
	Share     float64 `json:"share"`   // of the time of the command
	Dumped    int64   `json:"dumped"`
	Of        int64   `json:"of"` // by their sequence numbers
	Processes int     `json:"processes"`
}

// Bounds of what is read.
const (
	maxInspectorFiles = 4096
	maxInspectorLine  = 1 << 20
	maxInspectorBytes = 1 << 30 // of all files
)

// inspected is one line of JSON of the Inspector.
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

// counted are the collectives of one kind in one communicator.
type counted struct {
	seen        map[int64]bool
	sum         float64 // µs
	first, last int64
}

// ReadInspector reads what NCCL Inspector dumped into a directory since a command started; nil without an error:
// nothing. It dumps the latest collective from time to time, not each, so their number is taken from the sequence
// numbers.
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
		if left -= info.Size(); left < 0 {
			errs = append(errs, fmt.Errorf("%s has more than %d GiB of dumps: the rest is not read", dir, maxInspectorBytes>>30))
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
	defer func() { _ = f.Close() }() // it was only read
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxInspectorLine)
	for lines.Scan() {
		var one inspected
		if json.Unmarshal(lines.Bytes(), &one) != nil || one.Coll == nil || one.Coll.Time < 0 ||
			one.Metadata.Dump < float64(start.UnixMicro()) {
			continue // one of an earlier run, or the last line of a process that was killed
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
		one := Collectives{Processes: len(of)}
		for _, c := range kinds {
			n := c.last - c.first + 1
			one.Dumped += int64(len(c.seen))
			one.Of += n
			one.Seconds += c.sum / float64(len(c.seen)) * float64(n) / 1e6
		}
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
	return []grid.Cell{grid.Name(name), grid.Number(grid.ThreeDigits(c.Seconds)), grid.Number(terminal.Percent(c.Share)),
		grid.Number(strconv.FormatInt(c.Dumped, 10)), grid.Number(strconv.FormatInt(c.Of, 10)),
		{Text: text, Colour: colour}}
}
