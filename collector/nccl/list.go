package nccl

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/text"
)

// glob is one --nccl.log: names in directories.
type glob struct {
	fixed   string // the part of the directory without wildcards
	dir     string
	pattern string // of the name
}

// maxDirs bounds the directories that match one glob.
const maxDirs = 256

// newGlob parses a pattern.
func newGlob(pattern string) (glob, error) {
	var g glob
	if _, err := filepath.Match(pattern, ""); err != nil {
		return g, fmt.Errorf("%q: unclosed [ or trailing \\ (syntax: https://pkg.go.dev/path/filepath#Match)", pattern)
	}
	switch clean := filepath.Clean(pattern); {
	case !filepath.IsAbs(pattern):
		return g, fmt.Errorf("%q must be an absolute path, such as /var/log/nccl/*.log", pattern)
	case strings.HasSuffix(pattern, "/"):
		return g, fmt.Errorf("%q is a directory: name the files, such as %s", pattern, filepath.Join(clean, "*.log"))
	case strings.Contains(pattern, "**"):
		return g, fmt.Errorf("%q: ** is not supported; write one * for each directory, such as /var/log/nccl/*/*.log",
			pattern)
	default:
		g.dir, g.pattern = filepath.Split(clean)
		g.dir = filepath.Clean(g.dir)
	}
	g.fixed = g.dir
	for strings.ContainsAny(g.fixed, `*?[\`) {
		g.fixed = filepath.Dir(g.fixed)
	}
	return g, nil
}

// job is the name of a file's log: its path below the fixed part of its glob, as
// a label, without an extension that all have (.log, or the glob's). Any other
// distinguishes logs: host or process of NCCL_DEBUG_FILE=….%h.%p, .err and .out.
func (g glob) job(path string) string {
	name := strings.TrimPrefix(strings.TrimPrefix(path, g.fixed), "/")
	ext := filepath.Ext(name)
	if (ext == ".log" || ext == filepath.Ext(g.pattern)) && strings.Trim(ext, ".0123456789") != "" &&
		ext != filepath.Base(name) {
		name = strings.TrimSuffix(name, ext)
	}
	if half := text.MaxLabel / 2; len(name) > 2*half {
		// Pod, container and rank: the logs of one directory differ at the end.
		name = name[:half-2] + ".." + name[len(name)-half:]
	}
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = text.Label(part)
	}
	return strings.Join(parts, "/")
}

// listing is the result of listing the files.
type listing struct {
	followed   int
	waiting    int // as many newer ones as can be followed exist
	idle       int // too long without a new line
	special    int // no regular file: a directory, a link, a pipe
	unreadable int
	same       int // has the name of a newer one
	faults     []error
}

// matched is how many files match the globs.
func (c listing) matched() int {
	return c.followed + c.waiting + c.idle + c.special + c.unreadable + c.same
}

// fault keeps the first faults of a listing. None has a device:
// source_errors_total would keep the name of every log that ever existed.
func (c *listing) fault(err error) {
	if err != nil && len(c.faults) < 8 {
		c.faults = append(c.faults, collector.NewFault("", err))
	}
}

// candidate is a file that could be followed.
type candidate struct {
	glob  *glob
	dir   string
	name  string
	id    fileID
	owner uint32
	size  int64
	mtime int64 // nanoseconds since 1970, wall clock; not in the future
	idle  bool
}

// list lists the files and opens the newest, of each owner as many.
func (f *tailer) list(now time.Time) listing {
	var c listing
	var found []candidate
	f.seen, f.partial, f.deadline = 0, false, time.Now().Add(f.limits.scan)
	for i := range f.globs {
		for _, dir := range f.directories(&f.globs[i], now, &c) {
			found = f.scan(found, &f.globs[i], dir, now, &c)
		}
	}
	if f.partial {
		found = f.keepOpen(found, now)
	}
	// What is followed stays so, unless others are newer by more than a while.
	const stay = 5 * time.Minute
	rank := func(c *candidate) int64 {
		if f.files[c.id] != nil {
			return c.mtime + int64(stay)
		}
		return c.mtime
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(rank(&b), rank(&a)), cmp.Compare(a.dir, b.dir), cmp.Compare(a.name, b.name))
	})
	found = interleave(found, func(c *candidate) (uint32, bool) { return c.owner, !c.idle })
	f.choose(found, &c)
	c.followed = len(f.files)
	f.listed = true
	return c
}

// scan adds what is in a directory.
func (f *tailer) scan(found []candidate, g *glob, dir string, now time.Time, c *listing) []candidate {
	f.entries(g, dir, g.pattern, c, func(name string, st *unix.Stat_t) {
		if st.Mode&unix.S_IFMT != unix.S_IFREG {
			c.special++
			return
		}
		found = append(found, f.candidate(g, dir, name, st, now))
	})
	return found
}

// candidate is a file as it was listed. A time in the future counts as now.
func (f *tailer) candidate(g *glob, dir, name string, st *unix.Stat_t, now time.Time) candidate {
	mtime := min(st.Mtim.Nano(), now.UnixNano())
	return candidate{g, dir, name, statID(st), f.owner(st), st.Size, mtime, now.UnixNano()-mtime > int64(f.limits.idle)}
}

// keepOpen adds the open files that an incomplete listing did not reach: the files
// of others do not displace them.
func (f *tailer) keepOpen(found []candidate, now time.Time) []candidate {
	listed := make(map[fileID]bool, len(found))
	for i := range found {
		listed[found[i].id] = true
	}
	for _, file := range f.files {
		if listed[file.id] {
			continue
		}
		fd, err := f.openFile(file.path)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		err = unix.Fstat(fd, &st)
		unix.Close(fd)
		if err != nil || statID(&st) != file.id {
			continue
		}
		dir, name := filepath.Split(file.path)
		if i := slices.IndexFunc(f.globs, func(g glob) bool {
			ok, _ := filepath.Match(filepath.Join(g.dir, g.pattern), file.path)
			return ok
		}); i >= 0 {
			found = append(found, f.candidate(&f.globs[i], filepath.Clean(dir), name, &st, now))
		}
	}
	return found
}

// choose opens the first of found, up to the limit, and closes all others.
func (f *tailer) choose(found []candidate, c *listing) {
	for _, file := range f.files {
		file.chosen = false
	}
	before := make(map[fileID]int64, len(found))
	jobs := f.jobs(found)
	slots, tries := f.limits.files, 2*f.limits.files
	var renamed []reader
	for i := range found {
		one := &found[i]
		path := filepath.Join(one.dir, one.name)
		file := f.files[one.id]
		if _, twice := before[one.id]; twice || file != nil && file.chosen {
			continue // by another glob, or another name of the same file
		}
		if file != nil && file.path != path { // renamed: a log of another name, in which nothing is new
			before[one.id] = max(file.off, file.old)
			f.detach(file)
			renamed = append(renamed, file.log) // the one that has its name now goes on with it
			file = nil
		}
		old, known := before[one.id]
		if !known {
			old = f.oldBytes(one)
			before[one.id] = old
		}
		job := ""
		if slots > 0 && tries > 0 && !one.idle {
			job = jobs.name(one, file, path)
		}
		switch {
		case one.idle:
			c.idle++
			continue
		case job == "":
			c.waiting++
			continue
		case jobs.taken[job]:
			c.same++
			continue
		case file == nil:
			tries--
			f.finish(job)
			if err := f.add(path, job, one.id, old); err != nil {
				c.unreadable++
				c.fault(err)
				continue
			}
		}
		if file = f.files[one.id]; file != nil { // else it is something else by now
			jobs.taken[job], jobs.owner[job] = true, one.owner
			slots--
			delete(before, one.id)
			file.chosen = true
		}
	}
	f.release(before)
	for _, log := range renamed {
		log.end()
	}
	f.before = before
}

// jobNames are the names of the logs that a listing has chosen so far, and of
// those that are followed already.
type jobNames struct {
	taken map[string]bool
	owner map[string]uint32
}

func (f *tailer) jobs(found []candidate) jobNames {
	j := jobNames{map[string]bool{}, map[string]uint32{}}
	for i := range found {
		if file := f.files[found[i].id]; file != nil && file.path == filepath.Join(found[i].dir, found[i].name) {
			j.owner[file.job] = found[i].owner
		}
	}
	return j
}

// name is the name of a log. If another owner has that name already, the owner is
// added: nobody displaces the log of another by its name.
func (j jobNames) name(one *candidate, followed *file, path string) string {
	if followed != nil {
		return followed.job
	}
	job := one.glob.job(path)
	if owner, known := j.owner[job]; known && owner != one.owner {
		suffix := ":" + strconv.FormatUint(uint64(one.owner), 10)
		job = job[:min(len(job), text.MaxLabel-len(suffix))] + suffix
	}
	return job
}

// finish reads the rest of a job's log that was rotated before its successor is
// opened.
func (f *tailer) finish(job string) {
	for _, file := range f.files {
		if file.job == job && !file.chosen {
			budget := f.limits.tail
			_ = f.read(file, &budget) // it is closed anyway
		}
	}
}

// oldBytes returns how much of a file is not new: all of it at the start, nothing
// of one that appeared since.
func (f *tailer) oldBytes(one *candidate) int64 {
	if old, ok := f.before[one.id]; ok {
		return min(old, one.size)
	}
	if !f.listed {
		return one.size
	}
	return 0
}

// release closes what was not chosen, after one more read: a log that was renamed
// or removed may have new lines.
func (f *tailer) release(before map[fileID]int64) {
	for _, file := range f.files {
		if file.chosen {
			continue
		}
		budget := f.limits.tail
		_ = f.read(file, &budget) // it is closed anyway
		if _, there := before[file.id]; there {
			before[file.id] = max(file.off, file.old)
		}
		f.drop(file)
	}
}

// sortByPath orders the files, so that each is read first in turn.
func sortByPath(files []*file) {
	slices.SortFunc(files, func(a, b *file) int { return strings.Compare(a.path, b.path) })
}
