package doctor

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
	"github.com/railscope/railscope/internal/sysfs"
)

const dpkgStatus = "/var/lib/dpkg/status"

// Bounds on the search for libraries.
const (
	maxLibraryDirs = 512
	maxStatusFile  = 64 << 20 // bytes of dpkg's list of packages
)

// named finds versions in names of files and directories: what a shared library,
// or a Python package's .dist-info, is called when installed.
type named struct {
	component string
	prefix    string         // of every such name, so that few of thousands of names are matched
	pattern   *regexp.Regexp // its first group is the version
}

// libraryNames are the files that tell their version in a directory of libraries.
// rdma-core's second half is the package's version (CMakeLists.txt,
// rdma_library).
func libraryNames() []named {
	return []named{
		{"rdma_core", "libibverbs.so.1.", regexp.MustCompile(`^libibverbs\.so\.1\.\d+\.(\d+\.\d+)$`)},
		{"nccl", "libnccl.so.", regexp.MustCompile(`^libnccl\.so\.(\d+\.\d+\.\d+)$`)},
		{"nixl", "libnixl.so.", regexp.MustCompile(`^libnixl\.so\.(\d+\.\d+\.\d+)$`)},
	}
}

// pythonNames are the directories that tell the version of a Python package.
func pythonNames() []named {
	return []named{
		{"nccl", "nvidia_nccl_cu", regexp.MustCompile(`^nvidia_nccl_cu\d+-(\d[\w.]*)\.dist-info$`)},
		{"nixl", "nixl", regexp.MustCompile(`^nixl(?:_cu\d+)?-(\d[\w.]*)\.dist-info$`)},
		{"ucx", "libucx_cu", regexp.MustCompile(`^libucx_cu\d+-(\d[\w.]*)\.dist-info$`)},
	}
}

// Where libraries and Python packages are installed.
func libraryGlobs() []string {
	return []string{"/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib", "/usr/local/lib64", "/usr/local/lib/*-linux-gnu",
		"/usr/local/*/lib", "/usr/local/*/lib64", "/usr/local/*/lib/*-linux-gnu", "/opt/*/lib", "/opt/*/lib64", "/opt/*/*/lib", "/opt/*/*/lib64", "/opt/*/*/lib/*-linux-gnu"}
}

func pythonGlobs() []string {
	return []string{"/usr/lib/python3/dist-packages", "/usr/local/lib/python3*/dist-packages", "/usr/local/lib/python3*/site-packages", "/usr/lib*/python3*/site-packages",
		"/opt/*/lib/python3*/site-packages", "/opt/*/*/lib/python3*/site-packages"}
}

// readVersions looks at what is running, and what is installed below the host's
// root.
func (s *system) readVersions(ctx context.Context) part {
	list := s.runningVersions()
	var unread []string
	if s.o.Rootfs != "" {
		installed, err := s.installedVersions(ctx)
		list = append(list, installed...)
		if err != nil {
			unread = append(unread, fmt.Sprintf("versions of libraries: %v; those found so far are compared", err))
		}
	}
	slices.SortFunc(list, func(a, b VersionFact) int {
		return strings.Compare(a.Component+"\x00"+a.Of+"\x00"+a.Version+"\x00"+a.Where, b.Component+"\x00"+b.Of+"\x00"+b.Version+"\x00"+b.Where)
	})
	list = slices.CompactFunc(list, func(a, b VersionFact) bool {
		return a.Component == b.Component && a.Of == b.Of && a.Version == b.Version
	})
	if len(list) > maxVersions {
		unread = append(unread, fmt.Sprintf("versions of libraries: %d, only the first %d are compared; remove what is not used", len(list), maxVersions))
		list = list[:maxVersions]
	}
	return part{put: func(f *SystemFacts) { f.Versions = list }, unread: unread}
}

// runningVersions are those of kernel, drivers and firmware.
func (s *system) runningVersions() (list []VersionFact) {
	add := func(component, of, version, where string) {
		if version != "" {
			list = append(list, VersionFact{component, clean(of), clean(version), clean(where)})
		}
	}
	osrelease, _ := sysfs.ReadString(s.o.Procfs, "sys/kernel/osrelease")
	add("kernel", "", osrelease, "/proc/sys/kernel/osrelease")
	if text, err := sysfs.ReadString(s.o.Procfs, "driver/nvidia/version"); err == nil {
		if d, err := gpudirect.ParseDriver(text); err == nil {
			add("nvidia_driver", "", d.Version, "/proc/driver/nvidia/version")
		}
	}
	for _, r := range s.rails {
		if r.Firmware != "" && !r.Software {
			add("firmware", strings.TrimSpace(r.HCAType+" "+r.BoardID), r.Firmware, "/sys/class/infiniband/"+r.Device+"/fw_ver")
		}
		if version, err := sysfs.ReadString(s.o.Sysfs, "module", r.Driver, "version"); err == nil && r.Driver != "" {
			add("nic_driver", r.Driver, version, "/sys/module/"+r.Driver+"/version")
		}
	}
	return list
}

// installedVersions searches the well-known places. It ends early with ctx.
func (s *system) installedVersions(ctx context.Context) (list []VersionFact, err error) {
	w := finder{root: s.o.Rootfs, listed: map[string][]string{}, seen: map[[2]uint64]bool{}}
	search := func(globs []string, names []named) {
		for _, glob := range globs {
			for _, dir := range w.expand(glob) {
				if err == nil {
					err = cmp.Or(ctx.Err(), w.full())
				}
				if err == nil && w.first(dir) {
					list = append(list, w.versions(dir, names)...)
				}
			}
		}
	}
	search(libraryGlobs(), libraryNames())
	search(pythonGlobs(), pythonNames())
	if v := s.packagedUCX(); v != "" {
		list = append(list, VersionFact{Component: "ucx", Version: clean(v), Where: dpkgStatus})
	}
	return list, err
}

// finder looks into directories below a root, which may be slow: into each once.
type finder struct {
	root   string
	listed map[string][]string // names in a directory
	seen   map[[2]uint64]bool  // device and inode of those searched, which links give several names
}

// names lists a directory, empty where it cannot be.
func (w *finder) names(dir string) []string {
	if names, known := w.listed[dir]; known || len(w.listed) > 2*maxLibraryDirs {
		return names
	}
	entries, _ := sysfs.List(filepath.Join(w.root, dir))
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name
	}
	w.listed[dir] = names
	return names
}

// expand returns the paths that a pattern stands for, whether they are there or
// not.
func (w *finder) expand(pattern string) []string {
	dirs := []string{"/"}
	for part := range strings.SplitSeq(strings.TrimPrefix(pattern, "/"), "/") {
		var next []string
		for _, dir := range dirs {
			if !strings.Contains(part, "*") {
				next = append(next, filepath.Join(dir, part))
				continue
			}
			for _, name := range w.names(dir) {
				if ok, _ := filepath.Match(part, name); ok && len(next) < 4*maxLibraryDirs {
					next = append(next, filepath.Join(dir, name))
				}
			}
		}
		dirs = next
	}
	return dirs
}

// first reports whether a path leads to a directory that was not searched yet.
func (w *finder) first(dir string) bool {
	var st unix.Stat_t
	if unix.Stat(filepath.Join(w.root, dir), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || w.seen[[2]uint64{st.Dev, st.Ino}] {
		return false
	}
	w.seen[[2]uint64{st.Dev, st.Ino}] = true
	return true
}

func (w *finder) full() error {
	if len(w.seen) > maxLibraryDirs {
		return fmt.Errorf("more than %d directories of libraries", maxLibraryDirs)
	}
	return nil
}

// versions returns the versions that a directory's names tell, and ucx.pc.
func (w *finder) versions(dir string, names []named) (list []VersionFact) {
	for _, name := range w.names(dir) {
		if name == "pkgconfig" {
			pc := filepath.Join(dir, name, "ucx.pc")
			if v := pkgConfigVersion(filepath.Join(w.root, pc)); v != "" {
				list = append(list, VersionFact{Component: "ucx", Version: clean(v), Where: clean(pc)})
			}
		}
		for _, n := range names {
			if !strings.HasPrefix(name, n.prefix) {
				continue
			}
			if m := n.pattern.FindStringSubmatch(name); m != nil {
				list = append(list, VersionFact{Component: n.component, Version: clean(m[1]), Where: clean(filepath.Join(dir, name))})
			}
		}
	}
	return list
}

// packagedUCX returns the version of UCX that is installed as a Debian package,
// whose libraries do not tell it. dpkg's list of packages is megabytes long, so
// it is read only where there is such a package.
func (s *system) packagedUCX() string {
	for _, name := range []string{"libucx0:amd64", "libucx0:arm64", "ucx:amd64", "ucx:arm64", "ucx"} {
		if exists(filepath.Join(s.o.Rootfs, "/var/lib/dpkg/info", name+".list")) {
			return dpkgVersion(filepath.Join(s.o.Rootfs, dpkgStatus), "libucx0", "ucx")
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
