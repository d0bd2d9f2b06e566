package pcie

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// function is one PCI function.
type function struct {
	table  *table
	dir    string
	labels [][]string // of each rail or GPU behind it
	facts  collector.Facts
	aer    []errorCount
	buf    [sysfs.MaxFile]byte
}

// errorCount is the file of the errors of one severity.
type errorCount struct {
	file   sysfs.Attr
	total  string     // the line that holds the sum
	labels [][]string // as those of the function
}

func (s *Source) open(k key) *function {
	f := &function{table: s.table, dir: filepath.Join(s.sysfs, "bus/pci/devices", k.address)}
	for name := range strings.SplitSeq(k.rails, "\n") {
		f.labels = append(f.labels, []string{name, k.address, k.kind})
	}
	for _, e := range []struct{ severity, total string }{
		{"correctable", "TOTAL_ERR_COR"}, {"nonfatal", "TOTAL_ERR_NONFATAL"}, {"fatal", "TOTAL_ERR_FATAL"},
	} {
		count := errorCount{total: e.total}
		count.file.Path = filepath.Join(f.dir, "aer_dev_"+e.severity)
		for _, l := range f.labels {
			count.labels = append(count.labels, append(slices.Clip(l), e.severity))
		}
		f.aer = append(f.aer, count)
	}
	return f
}

// Close implements [collector.Device].
func (f *function) Close() {
	for i := range f.aer {
		f.aer[i].file.Close()
	}
}

// Read implements [collector.Device].
func (f *function) Read(r *collector.Reading) {
	f.facts.Read(r, func() { f.readFacts(r) })
	for i := range f.aer {
		count := &f.aer[i]
		b, err := count.file.Read(f.buf[:], r.Time)
		if errors.Is(err, sysfs.ErrNone) {
			continue
		}
		total := uint64(0)
		if err == nil {
			total, err = parseErrorTotal(b, count.total)
		}
		if err != nil {
			r.Fail(sysfs.At(count.file.Path, err))
			continue
		}
		add(r, f.table.aer, count.labels, float64(total))
	}
}

func add(r *collector.Reading, m *collector.Metric, labels [][]string, value float64) {
	for _, l := range labels {
		r.Add(m, l, value)
	}
}

func (f *function) readFacts(r *collector.Reading) {
	if _, err := sysfs.Inode(f.dir); err != nil {
		r.Fail(err)
		return
	}
	fail := func(err error) {
		if sysfs.Reason(err) != sysfs.ReasonVanished { // a function without a link has no such file
			r.Fail(err)
		}
	}
	for _, l := range []struct {
		prefix                  string
		speed, width, bandwidth *collector.Metric
	}{
		{"current", f.table.speed, f.table.width, f.table.bandwidth},
		{"max", f.table.maxSpeed, f.table.maxWidth, nil},
	} {
		link, err := readLink(f.dir, l.prefix)
		if errors.Is(err, rail.ErrNoLink) {
			continue
		}
		if err != nil {
			fail(err)
			continue
		}
		add(r, l.speed, f.labels, link.GigaTransfers*1e9)
		add(r, l.width, f.labels, float64(link.Width))
		if l.bandwidth != nil {
			add(r, l.bandwidth, f.labels, link.BytesPerSecond())
		}
	}
	if node, err := readNUMANode(filepath.Join(f.dir, "numa_node")); err != nil {
		fail(err)
	} else if node >= 0 {
		add(r, f.table.numa, f.labels, float64(node))
	}
}

// readLink reads the speed and width of a function's link, prefix being current
// or max. The error is rail.ErrNoLink or a [*sysfs.Error].
func readLink(dir, prefix string) (rail.Link, error) {
	path := filepath.Join(dir, prefix+"_link_speed")
	text, err := sysfs.ReadString(path)
	if err != nil {
		return rail.Link{}, err
	}
	if strings.HasPrefix(text, "Unknown") { // the kernel's way to say that there is no link
		return rail.Link{}, rail.ErrNoLink
	}
	transfers, err := rail.ParseLinkSpeed(text)
	if err != nil {
		return rail.Link{}, sysfs.Invalid(path, []byte(text), "no link speed")
	}
	path = filepath.Join(dir, prefix+"_link_width")
	lanes, err := sysfs.ReadUint(path)
	switch {
	case err != nil:
		return rail.Link{}, err
	case lanes == 0:
		return rail.Link{}, rail.ErrNoLink
	case lanes > 32:
		err := fmt.Errorf("a link of %d lanes", lanes)
		return rail.Link{}, &sysfs.Error{Path: path, Reason: sysfs.ReasonRange, Err: err}
	}
	return rail.Link{GigaTransfers: transfers, Width: int(lanes)}, nil
}

// readNUMANode reads a number that may be -1.
func readNUMANode(path string) (int, error) {
	text, err := sysfs.ReadString(path)
	if err != nil {
		return -1, err
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < -1 || n > math.MaxInt16 {
		return -1, sysfs.Invalid(path, []byte(text), "no NUMA node")
	}
	return n, nil
}

// parseErrorTotal returns the sum that the kernel prints below the errors by type.
func parseErrorTotal(b []byte, total string) (uint64, error) {
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte(total+" ")); ok {
			return sysfs.ParseUint(rest)
		}
	}
	return 0, sysfs.Invalid("", b, "without a line "+total)
}
