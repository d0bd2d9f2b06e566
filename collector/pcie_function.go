package collector

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// pciFunction is one PCI function's open files.
type pciFunction struct {
	address string
	owners  []owner
	labels  [][]string // of each owner

	mu  sync.Mutex   // protects all following fields
	dir *keptDir     // the files of pciFiles
	aer [][][]string // labels of the errors of each severity, of each owner
	buf [sysfs.MaxFile]byte
	out laneRead
}

// The files of a function, in the order of its keptDir.
const (
	pciSpeed = iota
	pciWidth
	pciMaxSpeed
	pciMaxWidth
	pciNUMA
	pciAER // and the two after it
)

var pciFiles = []string{"current_link_speed", "current_link_width", "max_link_speed", "max_link_width", "numa_node",
	"aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal"}

// aerSeverities are the severities of the AER files, and the line of each that
// holds the sum.
var aerSeverities = []struct{ name, total string }{
	{"correctable", "TOTAL_ERR_COR"}, {"nonfatal", "TOTAL_ERR_NONFATAL"}, {"fatal", "TOTAL_ERR_FATAL"},
}

func newPCIFunction(dir, address string, owners []owner) *pciFunction {
	f := &pciFunction{address: address, owners: owners, dir: newKeptDir(dir, pciFiles...), aer: make([][][]string, len(aerSeverities))}
	for _, o := range owners {
		f.labels = append(f.labels, []string{o.rail, address, o.kind})
		for i, severity := range aerSeverities {
			f.aer[i] = append(f.aer[i], []string{o.rail, address, o.kind, severity.name})
		}
	}
	return f
}

func (f *pciFunction) ownedBy(owners []owner) bool { return slices.Equal(f.owners, owners) }

// gone closes the function's files: at once, or when the read that is stuck in
// them returns.
func (f *pciFunction) gone() { closeUnlocked(&f.mu, f.dir.close) }

// closeUnlocked runs fn with mu held, in the background if mu is taken: by a
// read that is stuck and may never return.
func closeUnlocked(mu *sync.Mutex, fn func()) {
	if mu.TryLock() {
		defer mu.Unlock()
		fn()
		return
	}
	go func() {
		mu.Lock()
		defer mu.Unlock()
		fn()
	}()
}

// read reads the function. What it returns is valid until the next read.
func (f *pciFunction) read(r pcieRows) *laneRead {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &f.out
	out.reset()
	fail := func(err error) {
		if sysfs.Reason(err) != sysfs.ReasonVanished { // a function without a link or without AER has no such file
			out.fail(f.address, err)
		}
	}
	put := func(m *Metric, labels [][]string, v float64) {
		for _, l := range labels {
			out.add(m, l, v)
		}
	}
	if _, err := f.dir.check(); err != nil {
		out.fail(f.address, err)
		return out
	}
	f.readLinks(r, func(m *Metric, v float64) { put(m, f.labels, v) }, fail)
	if node, err := readNUMANode(f.file(pciNUMA)); err != nil {
		fail(err)
	} else if node >= 0 {
		put(r.numa, f.labels, float64(node))
	}
	for i, severity := range aerSeverities {
		total, err := readAERTotal(f.file(pciAER+i), severity.total, f.buf[:])
		if err != nil {
			fail(err)
			continue
		}
		put(r.aer, f.aer[i], float64(total))
	}
	return out
}

func (f *pciFunction) file(i int) *sysfs.File { return &f.dir.files[i].File }

func (f *pciFunction) readLinks(r pcieRows, put func(*Metric, float64), fail func(error)) {
	for _, l := range []struct {
		speed, width       *sysfs.File
		speedRow, widthRow *Metric
		bandwidth          *Metric
	}{
		{f.file(pciSpeed), f.file(pciWidth), r.speed, r.width, r.bandwidth},
		{f.file(pciMaxSpeed), f.file(pciMaxWidth), r.maxSpeed, r.maxWidth, nil},
	} {
		link, err := readPCILink(l.speed, l.width)
		if errors.Is(err, errNoLink) {
			continue
		}
		if err != nil {
			fail(err)
			continue
		}
		put(l.speedRow, link.GigaTransfers*1e9)
		put(l.widthRow, float64(link.Width))
		if l.bandwidth != nil {
			put(l.bandwidth, link.BytesPerSecond())
		}
	}
}

// errNoLink is the kernel's way to say that a function has no link of its own:
// speed Unknown or width 0.
var errNoLink = errors.New("no PCIe link")

// readPCILink reads speed and width of a function's link. The error is
// errNoLink or a [*sysfs.Error].
func readPCILink(speed, width *sysfs.File) (rail.Link, error) {
	var buf [64]byte
	b, err := speed.Read(buf[:])
	if err != nil {
		return rail.Link{}, err
	}
	text := string(bytes.TrimSpace(b))
	if strings.HasPrefix(text, "Unknown") {
		return rail.Link{}, errNoLink
	}
	gts, err := rail.ParseLinkSpeed(text)
	if err != nil {
		return rail.Link{}, &sysfs.Error{Path: speed.Path, Reason: invalidOrEmpty(text), Err: err}
	}
	lanes, err := width.ReadUint()
	if err != nil {
		return rail.Link{}, err
	}
	if lanes == 0 {
		return rail.Link{}, errNoLink
	}
	if lanes > 32 {
		return rail.Link{}, &sysfs.Error{Path: width.Path, Reason: sysfs.ReasonRange, Err: fmt.Errorf("a link of %d lanes", lanes)}
	}
	return rail.Link{GigaTransfers: gts, Width: int(lanes)}, nil
}

func invalidOrEmpty(text string) string {
	if text == "" {
		return sysfs.ReasonEmpty
	}
	return sysfs.ReasonInvalid
}

// readNUMANode reads a number that may be -1.
func readNUMANode(f *sysfs.File) (int, error) {
	var buf [64]byte
	b, err := f.Read(buf[:])
	if err != nil {
		return -1, err
	}
	text := string(bytes.TrimSpace(b))
	n, err := strconv.Atoi(text)
	if err != nil || n < -1 || n > math.MaxInt16 {
		return -1, &sysfs.Error{Path: f.Path, Reason: invalidOrEmpty(text), Err: fmt.Errorf("%q is not a NUMA node", text)}
	}
	return n, nil
}

// readAERTotal returns the sum that the kernel prints below the errors by type.
func readAERTotal(f *sysfs.File, total string, buf []byte) (uint64, error) {
	b, err := f.Read(buf)
	if err != nil {
		return 0, err
	}
	v, err := parseAERTotal(b, total)
	return v, sysfs.At(f.Path, err)
}

func parseAERTotal(b []byte, total string) (uint64, error) {
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte(total+" ")); ok {
			return sysfs.ParseUint(rest)
		}
	}
	return 0, &sysfs.Error{Reason: invalidOrEmpty(string(bytes.TrimSpace(b))), Err: fmt.Errorf("no line %s", total)}
}
