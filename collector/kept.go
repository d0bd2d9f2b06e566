package collector

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/sysfs"
)

// keptDir is a directory whose files are read at every scrape and therefore
// kept open. Not safe for concurrent use: it belongs to one lane.
type keptDir struct {
	dir   sysfs.Dir
	files []keptFile
}

type keptFile struct {
	sysfs.File
	seen     bool      // it was there in this life of the directory
	notUntil time.Time // when one that was never there is looked for again
}

func newKeptDir(path string, names ...string) *keptDir {
	d := &keptDir{dir: sysfs.Dir{Path: path}, files: make([]keptFile, len(names))}
	for i, name := range names {
		d.files[i].Path = filepath.Join(path, name)
	}
	return d
}

// check looks whether the directory is still the one that the open files are
// in, and closes them if not. born says that it is another directory than last
// time, or the first. Errors are [*sysfs.Error].
func (d *keptDir) check() (born bool, err error) {
	born, changed, err := d.dir.Look()
	if err != nil {
		d.close()
		return false, err
	}
	if !changed {
		return false, nil
	}
	for i := range d.files {
		d.files[i].Close()
		d.files[i].seen = d.files[i].seen && !born
		d.files[i].notUntil = time.Time{}
	}
	return born, nil
}

// read reads file i into buf. It returns nil and no error for a file that this
// directory never had: kernels and drivers differ in what they offer. One that
// was there and is gone has vanished.
func (d *keptDir) read(i int, buf []byte) ([]byte, error) {
	f := &d.files[i]
	if !f.seen && !f.notUntil.IsZero() && time.Now().Before(f.notUntil) {
		return nil, nil
	}
	b, err := f.Read(buf)
	if err != nil {
		if !f.seen && errors.Is(err, unix.ENOENT) {
			f.notUntil = time.Now().Add(lookAgain)
			return nil, nil
		}
		return nil, err
	}
	f.seen = true
	return b, nil
}

// uint reads file i as a number; ok is false where read returns nil.
func (d *keptDir) uint(i int, buf []byte) (v uint64, ok bool, err error) {
	b, err := d.read(i, buf)
	if b == nil || err != nil {
		return 0, false, err
	}
	if v, err = sysfs.ParseUint(b); err != nil {
		return 0, false, sysfs.At(d.files[i].Path, err)
	}
	return v, true, nil
}

// bad is the error of file i, whose content is not what the kernel prints there.
func (d *keptDir) bad(i int, content []byte, what string) error {
	e := &sysfs.Error{Path: d.files[i].Path, Reason: sysfs.ReasonInvalid, Err: fmt.Errorf("%.40q is %s", content, what)}
	if len(content) == 0 {
		e.Reason, e.Err = sysfs.ReasonEmpty, errors.New("the file is empty")
	}
	return e
}

func (d *keptDir) close() {
	for i := range d.files {
		d.files[i].Close()
	}
	d.dir.Close()
}

// laneRead is what a read in a lane brings back. It is written only inside the
// lane and read only after the lane delivered it, so its room is used again by
// the next read.
type laneRead struct {
	samples []Sample
	faults  []error
}

func (r *laneRead) reset() {
	clear(r.samples) // hold on to no label values of members that are gone
	r.samples, r.faults = r.samples[:0], r.faults[:0]
}

func (r *laneRead) add(m *Metric, labels []string, value float64) {
	r.samples = append(r.samples, Sample{Metric: m, Labels: labels, Value: value})
}

func (r *laneRead) fail(device string, err error) {
	r.faults = append(r.faults, NewFault(device, err))
}

// laneEmit emits what the lanes delivered and returns what went wrong in them;
// device turns a lane's key into the device of its faults.
func laneEmit(results []lane.Result[*laneRead], device func(key string) string, emit func(Sample)) []error {
	var faults []error
	for _, res := range results {
		switch res.State {
		case lane.Done:
			for _, s := range res.Value.samples {
				emit(s)
			}
			faults = append(faults, res.Value.faults...)
		default:
			faults = append(faults, LaneFault(device(res.Key), res.State, res.Err))
		}
	}
	return faults
}
