package nccl

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/internal/text"
)

// maxDirs limits the directories that match one glob.
const maxDirs = 256

// States of a matching file.
const (
	followed   = "followed"
	waiting    = "waiting" // newer files occupy all places
	idle       = "idle"    // no new line for too long
	special    = "special" // not a regular file: a directory, a link, a pipe
	unreadable = "unreadable"
	sameName   = "same_name" // a newer file has the same name
)

type listing struct {
	began   time.Time
	files   map[string]int // number of files by state
	faults  []error        // the first few
	seen    int            // entries of directories that were read
	partial bool           // the listing is not complete
}

func newListing() *listing { return &listing{began: time.Now(), files: map[string]int{}} }

// fail keeps the first faults. They have no device: source_errors_total would otherwise keep the name of every log.
func (l *listing) fail(err error) {
	if len(l.faults) < 8 {
		l.faults = append(l.faults, collector.NewFault("", err))
	}
}

type candidate struct {
	glob  *glob
	path  string
	id    fileID
	owner uint32
	size  int64
	mtime int64 // nanoseconds since 1970, wall clock; at most now
	idle  bool
	place int // position among its owner's files
}

func (f *tailer) candidate(l *listing, g *glob, path string, st *unix.Stat_t) candidate {
	return candidate{glob: g, path: path, id: statID(st), owner: f.owner(st), size: st.Size,
		mtime: min(st.Mtim.Nano(), l.began.UnixNano())}
}

func (f *tailer) list() *listing {
	l := newListing()
	var found []candidate
	for i := range f.globs {
		g := &f.globs[i]
		for _, dir := range f.directories(l, g) {
			found = f.scan(l, found, g, dir.path, g.pattern, unix.S_IFREG)
		}
	}
	if l.partial {
		found = f.addOpen(l, found)
	}
	// A followed file is kept unless other files are newer by more than this.
	const stay = 5 * time.Minute
	rank := func(c *candidate) int64 {
		if f.files[c.id] != nil {
			return c.mtime + int64(stay)
		}
		return c.mtime
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(rank(&b), rank(&a)), cmp.Compare(a.path, b.path))
	})
	for i := range found {
		found[i].idle = l.began.UnixNano()-found[i].mtime > int64(f.limits.idle)
	}
	f.choose(l, interleave(found))
	return l
}

// directories returns the directories that match, level by level. Links below the fixed part are only counted.
func (f *tailer) directories(l *listing, g *glob) []candidate {
	dirs := []candidate{{path: g.fixed}}
	for pattern := range strings.SplitSeq(g.relative(g.dir), "/") {
		if pattern == "" {
			break // the pattern has no variable part
		}
		var next []candidate
		for _, dir := range dirs {
			next = f.scan(l, next, g, dir.path, pattern, unix.S_IFDIR)
		}
		dirs = next
		if len(dirs) > maxDirs {
			l.partial = true
			l.fail(&sysfs.Error{Path: g.dir, Reason: sysfs.ReasonTooLarge, Err: fmt.Errorf(
				"%d directories: only %d were listed; narrow --nccl.log", len(dirs), maxDirs)})
			slices.SortFunc(dirs, func(a, b candidate) int {
				return cmp.Or(cmp.Compare(b.mtime, a.mtime), cmp.Compare(a.path, b.path))
			})
			dirs = interleave(dirs)[:maxDirs]
		}
	}
	return dirs
}

// interleave sorts a list so that each prefix has equally many files of each owner (max-min fair), with idle files
// last.
func interleave(list []candidate) []candidate {
	seen := map[uint32]int{}
	for i := range list {
		c := &list[i]
		c.place = len(list)
		if !c.idle {
			c.place = seen[c.owner]
			seen[c.owner]++
		}
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return a.place - b.place })
	return list
}

// scan adds the entries of a directory that match a pattern and have the type kind (S_IFREG or S_IFDIR), up to the
// limits.
func (f *tailer) scan(l *listing, found []candidate, g *glob, dir, pattern string, kind uint32) []candidate {
	fd, err := g.open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP) && dir != g.fixed:
		return found // removed, or replaced by a link: the next listing counts it
	case err != nil:
		l.fail(sysfs.Fail(dir, err))
		return found
	}
	d := os.NewFile(uintptr(fd), dir)
	defer d.Close()
	for seen := 0; ; {
		names, err := d.Readdirnames(512)
		for _, name := range names {
			var st unix.Stat_t
			if ok, _ := filepath.Match(pattern, name); !ok || // newGlob rejects a bad pattern
				unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil { // removed
				continue
			}
			switch mode := st.Mode & unix.S_IFMT; {
			case mode == kind:
				found = append(found, f.candidate(l, g, filepath.Join(dir, name), &st))
			case kind == unix.S_IFREG, mode == unix.S_IFLNK:
				l.files[special]++
			}
		}
		seen += len(names)
		l.seen += len(names)
		switch {
		case errors.Is(err, io.EOF):
			return found
		case err != nil:
		case seen >= f.limits.names || l.seen >= f.limits.total:
			err = &sysfs.Error{Path: dir, Reason: sysfs.ReasonTooLarge, Err: fmt.Errorf("more than %d files: only "+
				"these were listed; narrow --nccl.log, or remove old logs", min(f.limits.names, l.seen))}
		case time.Since(l.began) > f.limits.scan:
			err = &sysfs.Error{Path: dir, Reason: sysfs.ReasonTimeout, Err: fmt.Errorf("listing took more than %v "+
				"and was stopped; narrow --nccl.log, or remove old logs", f.limits.scan)}
		}
		if err != nil {
			l.partial = true
			l.fail(err)
			return found
		}
	}
}

// addOpen adds the open files that an incomplete listing did not reach, so that other users' files do not displace
// them.
func (f *tailer) addOpen(l *listing, found []candidate) []candidate {
	listed := make(map[fileID]bool, len(found))
	for i := range found {
		listed[found[i].id] = true
	}
	for _, file := range f.files {
		if listed[file.id] {
			continue
		}
		if fd, st, err := file.glob.openFile(file.path, file.id); err == nil {
			unix.Close(fd)
			found = append(found, f.candidate(l, file.glob, file.path, &st))
		}
	}
	return found
}

func (f *tailer) choose(l *listing, found []candidate) {
	for _, file := range f.files {
		file.chosen = false
	}
	owners := map[string]uint32{} // name of the log → owner
	for i := range found {
		if file := f.files[found[i].id]; file != nil && file.path == found[i].path {
			owners[file.log.name] = found[i].owner
		}
	}
	before := make(map[fileID]int64, len(found))
	taken := map[string]bool{} // names of logs
	slots, tries := f.limits.files, 2*f.limits.files
	var renamed []*job
	for i := range found {
		one := &found[i]
		file := f.files[one.id]
		if _, twice := before[one.id]; twice || file != nil && file.chosen {
			continue // matched by another glob, or a second name of the same file
		}
		// old is the part that is not new: the whole file if it existed at the start, nothing if it appeared later.
		old, known := f.before[one.id]
		if !known && f.before == nil {
			old = one.size
		}
		before[one.id] = min(old, one.size)
		if file != nil && file.path != one.path { // renamed: now another log, without new lines
			before[one.id] = max(file.off, file.old)
			f.detach(file)
			renamed = append(renamed, file.log) // the file that has the old name now continues this log
			file = nil
		}
		switch {
		case one.idle:
			l.files[idle]++
			continue
		case slots == 0 || tries == 0:
			l.files[waiting]++
			continue
		}
		name := logName(one, file, owners)
		if taken[name] {
			l.files[sameName]++
			continue
		}
		if file == nil {
			tries--
			var err error
			file, err = f.add(one, name, before[one.id])
			if err != nil {
				l.files[unreadable]++
				l.fail(err)
			}
		}
		if file != nil { // otherwise it was replaced
			taken[name], owners[name] = true, one.owner
			slots--
			delete(before, one.id)
			file.chosen = true
			l.files[followed]++
		}
	}
	f.release(before)
	for _, log := range renamed {
		log.apply(event{kind: closed}, true)
	}
	f.before = before
}

// logName returns the name of a log, with the UID if another owner has a log of that name: nobody may displace
// others' logs.
func logName(one *candidate, file *file, owners map[string]uint32) string {
	if file != nil {
		return file.log.name
	}
	name := one.glob.job(one.path)
	if owner, known := owners[name]; known && owner != one.owner {
		suffix := ":" + strconv.FormatUint(uint64(one.owner), 10)
		name = name[:min(len(name), text.MaxLabel-len(suffix))] + suffix
	}
	return name
}

// release closes the files that were not chosen, after a last read: a log that was renamed or removed may have new
// lines.
func (f *tailer) release(before map[fileID]int64) {
	for _, file := range f.files {
		if file.chosen {
			continue
		}
		f.finish(file)
		if _, there := before[file.id]; there {
			before[file.id] = max(file.off, file.old)
		}
		f.drop(file)
	}
}
