package facts

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/gpudirect"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

const dpkgStatus = "/var/lib/dpkg/status"

// Bounds on the search for libraries.
const (
	maxVersions    = 128      // that are kept of a node
	maxLibraryDirs = 512      // that are searched
	maxExpanded    = 2048     // paths that a pattern becomes
	maxStatusFile  = 64 << 20 // bytes of dpkg's list of packages
)

// named finds versions in names of files and directories: what a shared library,
// or a Python package's .dist-info, is called when installed.
type named struct {
	component string
	prefix    string         // of every such name, so that few of thousands of names are matched
	pattern   *regexp.Regexp // its first group is the version
}

// libraryNames are the files that show their version in a directory of
// libraries. rdma-core's second half is the package's version (CMakeLists.txt,
// rdma_library).
func libraryNames() []named {
	return []named{
		{"rdma_core", "libibverbs.so.1.", regexp.MustCompile(`^libibverbs\.so\.1\.\d+\.(\d+\.\d+)$`)},
		{"nccl", "libnccl.so.", regexp.MustCompile(`^libnccl\.so\.(\d+\.\d+\.\d+)$`)},
		{"nixl", "libnixl.so.", regexp.MustCompile(`^libnixl\.so\.(\d+\.\d+\.\d+)$`)},
	}
}

// pythonNames are the directories that show the version of a Python package.
func pythonNames() []named {
	return []named{
		{"nccl", "nvidia_nccl_cu", regexp.MustCompile(`^nvidia_nccl_cu\d+-(\d[\w.]*)\.dist-info$`)},
		{"nixl", "nixl", regexp.MustCompile(`^nixl(?:_cu\d+)?-(\d[\w.]*)\.dist-info$`)},
		{"ucx", "libucx_cu", regexp.MustCompile(`^libucx_cu\d+-(\d[\w.]*)\.dist-info$`)},
	}
}

// libraryGlobs are where libraries are installed.
func libraryGlobs() []string {
	return []string{
		"/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib",
		"/usr/local/lib", "/usr/local/lib64", "/usr/local/lib/*-linux-gnu",
		"/usr/local/*/lib", "/usr/local/*/lib64", "/usr/local/*/lib/*-linux-gnu",
		"/opt/*/lib", "/opt/*/lib64", "/opt/*/*/lib", "/opt/*/*/lib64", "/opt/*/*/lib/*-linux-gnu",
	}
}

// pythonGlobs are where Python packages are installed.
func pythonGlobs() []string {
	return []string{
		"/usr/lib/python3/dist-packages", "/usr/local/lib/python3*/dist-packages",
		"/usr/local/lib/python3*/site-packages", "/usr/lib*/python3*/site-packages",
		"/opt/*/lib/python3*/site-packages", "/opt/*/*/lib/python3*/site-packages",
	}
}

// arrangeVersions sorts the versions and drops those that stand twice.
func (f *Facts) arrangeVersions() {
	slices.SortFunc(f.Versions, func(a, b Installed) int {
		return cmp.Or(strings.Compare(a.Component, b.Component), strings.Compare(a.Of, b.Of),
			strings.Compare(a.Version, b.Version), strings.Compare(a.Where, b.Where))
	})
	f.Versions = slices.CompactFunc(f.Versions, func(a, b Installed) bool {
		return a.Component == b.Component && a.Of == b.Of && a.Version == b.Version
	})
	if len(f.Versions) > maxVersions {
		f.Unread = append(f.Unread,
			fmt.Sprintf("versions of libraries: %d, only the first %d are compared; remove unused "+
				"ones",
				len(f.Versions), maxVersions))
		f.Versions = f.Versions[:maxVersions]
	}
}

// readRunningVersions reads those of kernel, drivers and firmware.
func (g *Gatherer) readRunningVersions(_ *reader, rails []rail.Rail) func(*Facts) {
	var list []Installed
	add := func(component, of, version, where string) {
		if version != "" {
			list = append(list, Installed{component, Clean(of), Clean(version), Clean(where)})
		}
	}
	osrelease, _ := sysfs.ReadString(g.o.Procfs, "sys/kernel/osrelease")
	add("kernel", "", osrelease, "/proc/sys/kernel/osrelease")
	if text, err := sysfs.ReadString(g.o.Procfs, "driver/nvidia/version"); err == nil {
		if d, err := gpudirect.ParseDriver(text); err == nil {
			add("nvidia_driver", "", d.Version, "/proc/driver/nvidia/version")
		}
	}
	for _, r := range rails {
		if r.Firmware != "" && !r.Software {
			add("firmware", strings.TrimSpace(r.HCAType+" "+r.BoardID), r.Firmware,
				"/sys/class/infiniband/"+r.Device+"/fw_ver")
		}
		if version, err := sysfs.ReadString(g.o.Sysfs, "module", r.Driver, "version"); err == nil && r.Driver != "" {
			add("nic_driver", r.Driver, version, "/sys/module/"+r.Driver+"/version")
		}
	}
	return func(f *Facts) { f.Versions = append(f.Versions, list...) }
}

// readInstalledVersions searches the well-known places below the host's root. It
// ends early with ctx.
func (g *Gatherer) readInstalledVersions(ctx context.Context, r *reader) func(*Facts) {
	if g.o.Rootfs == "" {
		return nil
	}
	s := search{root: g.o.Rootfs, cache: &g.libraries, seen: map[[2]uint64]bool{}}
	var list []Installed
	var err error
	in := func(globs []string, kind string, names []named) {
		for _, glob := range globs {
			for _, dir := range s.expand(glob) {
				if err == nil {
					err = cmp.Or(ctx.Err(), s.full())
				}
				if err == nil && s.first(dir) {
					list = append(list, s.versions(dir, kind, names)...)
				}
			}
		}
	}
	in(libraryGlobs(), "libraries", libraryNames())
	in(pythonGlobs(), "packages", pythonNames())
	if err != nil {
		r.say("versions of libraries: %v; those found so far are compared", err)
	}
	if v := g.packagedUCX(); v != "" {
		list = append(list, Installed{Component: "ucx", Version: Clean(v), Where: dpkgStatus})
	}
	return func(f *Facts) { f.Versions = append(f.Versions, list...) }
}

// search reads directories below a root, which may be slow, each once.
type search struct {
	root  string
	cache *libraryCache
	seen  map[[2]uint64]bool // device and inode of those searched, which links give several names
}

// expand returns the paths that a pattern stands for, whether they exist or not.
func (s *search) expand(pattern string) []string {
	dirs := []string{"/"}
	for part := range strings.SplitSeq(strings.TrimPrefix(pattern, "/"), "/") {
		var next []string
		for _, dir := range dirs {
			if !strings.Contains(part, "*") {
				next = append(next, filepath.Join(dir, part))
				continue
			}
			fits := func(name string) bool { ok, _ := filepath.Match(part, name); return ok }
			for _, name := range s.cache.match(filepath.Join(s.root, dir), part, fits) {
				if len(next) < maxExpanded {
					next = append(next, filepath.Join(dir, name))
				}
			}
		}
		dirs = next
	}
	return dirs
}

// first reports whether a path leads to a directory that was not searched yet.
func (s *search) first(dir string) bool {
	var st unix.Stat_t
	if unix.Stat(filepath.Join(s.root, dir), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false
	}
	id := [2]uint64{st.Dev, st.Ino}
	if s.seen[id] {
		return false
	}
	s.seen[id] = true
	return true
}

func (s *search) full() error {
	if len(s.seen) > maxLibraryDirs {
		return fmt.Errorf("more than %d directories of libraries", maxLibraryDirs)
	}
	return nil
}

// versions returns the versions that a directory's names show, and ucx.pc.
func (s *search) versions(dir, kind string, names []named) (list []Installed) {
	add := func(component, version, path string) {
		list = append(list, Installed{Component: component, Version: Clean(version), Where: Clean(path)})
	}
	for _, name := range s.cache.match(filepath.Join(s.root, dir), kind, func(name string) bool {
		return name == "pkgconfig" || slices.ContainsFunc(names,
			func(n named) bool { return strings.HasPrefix(name, n.prefix) })
	}) {
		if name == "pkgconfig" {
			pc := filepath.Join(dir, name, "ucx.pc")
			if v := pkgConfigVersion(filepath.Join(s.root, pc)); v != "" {
				add("ucx", v, pc)
			}
		}
		for _, n := range names {
			if m := n.pattern.FindStringSubmatch(name); m != nil {
				add(n.component, m[1], filepath.Join(dir, name))
			}
		}
	}
	return list
}

// packagedUCX returns the version of UCX that is installed as a Debian package,
// whose libraries do not show it. dpkg's list of packages is megabytes long, so
// it is read only if there is such a package.
func (g *Gatherer) packagedUCX() string {
	for _, name := range []string{"libucx0:amd64", "libucx0:arm64", "ucx:amd64", "ucx:arm64", "ucx"} {
		if exists(filepath.Join(g.o.Rootfs, "/var/lib/dpkg/info", name+".list")) {
			return dpkgVersion(filepath.Join(g.o.Rootfs, dpkgStatus), "libucx0", "ucx")
		}
	}
	return ""
}

// pkgConfigVersion returns the Version of a .pc file.
func pkgConfigVersion(path string) string {
	text, _ := sysfs.ReadString(path)
	for line := range strings.Lines(text) {
		if v, found := strings.CutPrefix(line, "Version:"); found {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// dpkgVersion returns the upstream version of the first of the packages that is
// installed, without epoch and Debian's revision.
func dpkgVersion(path string, packages ...string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	lines := bufio.NewScanner(io.LimitReader(file, maxStatusFile))
	lines.Buffer(make([]byte, 64<<10), 1<<20)
	ours, installed := false, false
	for lines.Scan() {
		line := lines.Bytes()
		if name, found := bytes.CutPrefix(line, []byte("Package: ")); found {
			ours, installed = slices.Contains(packages, string(name)), false
			continue
		}
		if !ours {
			continue
		}
		if status, found := bytes.CutPrefix(line, []byte("Status: ")); found {
			installed = bytes.HasSuffix(status, []byte(" installed"))
		}
		if v, found := bytes.CutPrefix(line, []byte("Version: ")); found && installed {
			return upstream(string(v))
		}
	}
	return ""
}

// upstream is a Debian version without epoch, revision and what a repack added.
func upstream(v string) string {
	if _, rest, found := strings.Cut(v, ":"); found {
		v = rest
	}
	if i := strings.LastIndexByte(v, '-'); i >= 0 {
		v = v[:i]
	}
	v, _, _ = strings.Cut(v, "+")
	v, _, _ = strings.Cut(v, "~")
	return v
}
