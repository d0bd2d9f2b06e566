package pcie

import (
	"bytes"
	"errors"
	"math"
	"path/filepath"
	"strconv"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

type function struct {
	table  *table
	key    key
	files  collector.Files
	labels [][]string // label values of each rail or GPU behind it
	facts  collector.Facts
	buf    [sysfs.MaxFile]byte
}

func (s *Source) open(k key) *function {
	return &function{table: s.table, key: k, files: collector.NewFiles(s.sysfs, "bus/pci/devices", k.address),
		labels: collector.RailLabels(k.rails, k.address, k.kind)}
}

func (f *function) Close() { f.files.Close() }

func (f *function) Read(r *collector.Reading) {
	f.facts.Read(r, func() { f.readFacts(r) })
	for severity, total := range map[string]string{ // the line that holds the sum
		"correctable": "TOTAL_ERR_COR", "nonfatal": "TOTAL_ERR_NONFATAL", "fatal": "TOTAL_ERR_FATAL",
	} {
		file := f.files.Attr("aer_dev_" + severity)
		b, err := file.Read(f.buf[:], r.Time)
		count := uint64(0)
		if err == nil {
			count, err = parseErrorTotal(b, total)
		}
		labels := collector.RailLabels(f.key.rails, f.key.address, f.key.kind, severity)
		r.Record(f.table.aer, float64(count), sysfs.At(file.Path, err), labels...)
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
	_, _ = f.readLink(r, "max", f.table.maxSpeed, f.table.maxWidth) // an error was already reported
	node, err := readNUMANode(filepath.Join(f.files.Dir, "numa_node"))
	fail(r, err)
	if err == nil && node >= 0 {
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
