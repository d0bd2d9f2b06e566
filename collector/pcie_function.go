package collector

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"path/filepath"
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

	mu                               sync.Mutex // protects all following fields
	speed, width, maxSpeed, maxWidth sysfs.File
	numa                             sysfs.File
	aer                              []aerFile
	out                              reading
}

// aerFile is the errors of one severity.
type aerFile struct {
	sysfs.File
	total  string     // the line that holds the sum
	labels [][]string // of each owner
	buf    [sysfs.MaxFile]byte
}

func newPCIFunction(dir, address string, owners []owner) *pciFunction {
	file := func(name string) sysfs.File { return sysfs.File{Path: filepath.Join(dir, name)} }
	f := &pciFunction{address: address, owners: owners,
		speed: file("current_link_speed"), width: file("current_link_width"),
		maxSpeed: file("max_link_speed"), maxWidth: file("max_link_width"), numa: file("numa_node")}
	for _, o := range owners {
		f.labels = append(f.labels, []string{o.rail, address, o.kind})
	}
	for _, sev := range []struct{ name, total string }{
		{"correctable", "TOTAL_ERR_COR"}, {"nonfatal", "TOTAL_ERR_NONFATAL"}, {"fatal", "TOTAL_ERR_FATAL"},
	} {
		a := aerFile{File: file("aer_dev_" + sev.name), total: sev.total}
		for _, o := range owners {
			a.labels = append(a.labels, []string{o.rail, address, o.kind, sev.name})
		}
		f.aer = append(f.aer, a)
	}
	return f
}

func (f *pciFunction) ownedBy(owners []owner) bool { return slices.Equal(f.owners, owners) }

// gone closes the function's files: at once, or when the read that is stuck in
// them returns.
func (f *pciFunction) gone() {
	closeAll := func() {
		for _, file := range []*sysfs.File{&f.speed, &f.width, &f.maxSpeed, &f.maxWidth, &f.numa} {
			file.Close()
		}
		for i := range f.aer {
			f.aer[i].Close()
		}
	}
	closeUnlocked(&f.mu, closeAll)
}

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
func (f *pciFunction) read(r pcieRows) reading {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := reading{samples: f.out.samples[:0]}
	put := func(m *Metric, v float64) {
		for _, labels := range f.labels {
			out.samples = append(out.samples, Sample{m, labels, v})
		}
	}
	fail := func(err error) {
		if sysfs.Reason(err) != sysfs.ReasonVanished { // a function without a link or without AER has no such file
			out.faults = append(out.faults, NewFault(f.address, err))
		}
	}
	f.readLinks(r, put, fail)
	if node, err := readNUMANode(&f.numa); err != nil {
		fail(err)
	} else if node >= 0 {
		put(r.numa, float64(node))
	}
	for i := range f.aer {
		a := &f.aer[i]
		total, err := a.read()
		if err != nil {
			fail(err)
			continue
		}
		for _, labels := range a.labels {
			out.samples = append(out.samples, Sample{r.aer, labels, float64(total)})
		}
	}
	f.out = out
	return out
}

func (f *pciFunction) readLinks(r pcieRows, put func(*Metric, float64), fail func(error)) {
	for _, l := range []struct {
		speed, width       *sysfs.File
		speedRow, widthRow *Metric
		bandwidth          *Metric
	}{
		{&f.speed, &f.width, r.speed, r.width, r.bandwidth},
		{&f.maxSpeed, &f.maxWidth, r.maxSpeed, r.maxWidth, nil},
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

// read returns the sum that the kernel prints below the errors by type.
func (a *aerFile) read() (uint64, error) {
	b, err := a.Read(a.buf[:])
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte(a.total+" ")); ok {
			v, err := sysfs.ParseUint(rest)
			return v, at(a.Path, err)
		}
	}
	return 0, &sysfs.Error{Path: a.Path, Reason: invalidOrEmpty(string(bytes.TrimSpace(b))), Err: fmt.Errorf("no line %s", a.total)}
}
