package record

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/bench/read"
	"github.com/railscope/railscope/internal/terminal"
)

// Variables of NCCL that say what it logs, and where: standard output, unless a file is named, in which %h is the host
// and %p the PID (Environment Variables, NCCL User Guide).
const (
	NCCLDebug     = "NCCL_DEBUG"
	NCCLDebugFile = "NCCL_DEBUG_FILE"
)

// FromNCCL is what NCCL itself reports of a command.
type FromNCCL struct {
	Collectives *Collectives `json:"collectives"` // collectives from NCCL Inspector
	Log         []Said       `json:"nccl_log"`    // its networks, from NCCL_DEBUG; nil: it was not on
}

// Said is what the log says of a network.
type Said struct {
	Text  string   `json:"text"`
	Rail  string   `json:"device"` // name of the device, as printed; empty: none
	Marks []string `json:"marks"`  // what is wrong with it
}

// Bounds on what is read of logs.
const (
	maxLog      = 8 << 20 // bytes of standard output that are kept, and of each file
	maxLogFiles = 256
)

// Lines keeps the lines of a command's output that NCCL wrote.
type Lines struct {
	kept, line []byte
}

// Write implements [io.Writer]. It never fails: the output belongs to the command.
func (l *Lines) Write(p []byte) (int, error) {
	for _, c := range p {
		if c != '\n' {
			if len(l.line) < 4<<10 {
				l.line = append(l.line, c)
			}
			continue
		}
		if text := string(l.line); strings.Contains(text, " NCCL ") && len(l.kept)+len(text) < maxLog {
			l.kept = append(append(l.kept, l.line...), c)
		}
		l.line = l.line[:0]
	}
	return len(p), nil
}

// Read returns what the lines say of networks.
func (l *Lines) Read() []Said { return said(strings.NewReader(string(l.kept))) }

// ReadLogs returns what the files of NCCL_DEBUG_FILE say that were written since a time, each thing once.
func ReadLogs(name string, since time.Time) (list []Said, err error) {
	pattern := strings.NewReplacer("%h", "*", "%p", "*", "%%", "%").Replace(name)
	files, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", NCCLDebugFile, err)
	}
	list = []Said{}
	n := 0
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || info.ModTime().Before(since.Add(-time.Second)) {
			continue
		}
		n++
		if n > maxLogFiles {
			return list, fmt.Errorf("%s: more than %d files: the others were not read", NCCLDebugFile, maxLogFiles)
		}
		f, err := os.Open(path)
		if err != nil {
			return list, fmt.Errorf("%s: %w", NCCLDebugFile, err)
		}
		for _, one := range said(io.LimitReader(f, maxLog)) {
			if !slices.ContainsFunc(list, one.same) {
				list = append(list, one)
			}
		}
		_ = f.Close() // it was only read
	}
	if n == 0 {
		return list, fmt.Errorf("%s: no file %s was written", NCCLDebugFile, terminal.Plain(pattern))
	}
	return list, nil
}

func (s Said) same(other Said) bool { return s.Text == other.Text && s.Rail == other.Rail }

const network = "network "

func said(log io.Reader) []Said {
	results, _ := read.File("NCCL", log) // a log without networks has none
	list := []Said{}
	for _, r := range results {
		if r.Tool == "nccl" && (strings.HasPrefix(r.Test, network) || strings.HasPrefix(r.Test, "GPUDirect RDMA ") ||
			len(r.Marks) > 0) {
			list = append(list, Said{Text: r.Test, Rail: r.Rail, Marks: append([]string{}, r.Marks...)})
		}
	}
	return list
}

// networks returns the names of the networks that NCCL chose.
func networks(list []Said) string {
	var names []string
	for _, s := range list {
		if name, ok := strings.CutPrefix(s.Text, network); ok {
			name, _, _ = strings.Cut(name, " ")
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return strings.Join(names, ", ")
}

func (f FromNCCL) logRows() [][]grid.Cell {
	rows := [][]grid.Cell{{grid.Name("NCCL"), {Text: "DEVICE"}, {Text: "WRONG"}}}
	for _, s := range f.Log {
		marks := strings.Join(s.Marks, "; ")
		colour := ""
		if marks != "" {
			colour = terminal.Red
		}
		rows = append(rows, []grid.Cell{grid.Name(s.Text), {Text: terminal.Plain(s.Rail)},
			{Text: terminal.Plain(marks), Colour: colour}})
	}
	return rows
}
