package pcie

import (
	"bytes"
	"errors"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

type function struct {
	table  *table
	files  collector.Files
	labels [][]string // of each rail or GPU behind it
	facts  collector.Facts
	aer    []errorCount
	buf    [sysfs.MaxFile]byte
}

type errorCount struct {
	file, total string     // total: the line that holds the sum
	labels      [][]string // as those of the function
}

func (s *Source) open(k key) *function {
	f := &function{table: s.table, files: collector.NewFiles(s.sysfs, "bus/pci/devices", k.address)}
	for name := range strings.SplitSeq(k.rails, "\n") {
		f.labels = append(f.labels, []string{name, k.address, k.kind})
	}
	for _, e := range [...]struct{ severity, total string }{
		{"correctable", "TOTAL_ERR_COR"}, {"nonfatal", "TOTAL_ERR_NONFATAL"}, {"fatal", "TOTAL_ERR_FATAL"},
	} {
		count := errorCount{file: "aer_dev_" + e.severity, total: e.total}
		for name := range strings.SplitSeq(k.rails, "\n") {
			count.labels = append(count.labels, []string{name, k.address, k.kind, e.severity})
		}
		f.aer = append(f.aer, count)
	}
	return f
}

func (f *function) Close() { f.files.Close() }

func (f *function) Read(r *collector.Reading) {
	f.facts.Read(r, func() { f.readFacts(r) })
	for _, count := range f.aer {
		file := f.files.Attr(count.file)
		b, err := file.Read(f.buf[:], r.Time)
		total := uint64(0)
		if err == nil {
			total, err = parseErrorTotal(b, count.total)
		}
		r.Record(f.table.aer, float64(total), sysfs.At(file.Path, err), count.labels...)
	}
}

func (f *function) readFacts(r *collector.Reading) {
	if err := sysfs.Exists(f.files.Dir); err != nil {
		r.Fail(err)
		return
	}
	current, err := f.readLink(r, "current", f.table.speed, f.table.width)
	if err == nil {
		r.Record(f.table.bandwidth, current.BytesPerSecond(), nil, f.labels...)
	}
	_, _ = f.readLink(r, "max", f.table.maxSpeed, f.table.maxWidth) // an error was reported
	node, err := readNUMANode(filepath.Join(f.files.Dir, "numa_node"))
	if fail(r, err); err == nil && node >= 0 {
		r.Record(f.table.numa, float64(node), nil, f.labels...)
	}
}

func fail(r *collector.Reading, err error) {
	if err != nil && sysfs.Reason(err) != sysfs.ReasonVanished {
		r.Fail(err)
	}
}

func (f *function) readLink(r *collector.Reading, kind string, speed, width *collector.Metric) (rail.Link, error) {
	link, err := rail.ReadLink(f.files.Dir, kind)
	if err == nil {
		r.Record(speed, link.GigaTransfers*1e9, nil, f.labels...)
		r.Record(width, float64(link.Width), nil, f.labels...)
	} else if !errors.Is(err, rail.ErrNoLink) {
		fail(r, err)
	}
	return link, err
}

func readNUMANode(path string) (int, error) {
	text, err := sysfs.ReadString(path)
	if err != nil {
		return -1, err
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < -1 || n > math.MaxInt16 {
		return -1, sysfs.Invalid(path, []byte(text), "not a NUMA node")
	}
	return n, nil
}

func parseErrorTotal(b []byte, total string) (uint64, error) {
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte(total+" ")); ok {
			return sysfs.ParseUint(rest)
		}
	}
	return 0, sysfs.Invalid("", b, "without a line "+total)
}
