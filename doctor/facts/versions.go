package facts

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/gpudirect"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

const dpkgStatus = "/var/lib/dpkg/status"

// Bounds on the search for libraries.
const (
	maxVersions    = 128      // versions kept per node
	maxLibraryDirs = 512      // directories searched
	maxStatusFile  = 64 << 20 // bytes of dpkg's list of packages
)

// location is where software is installed, with name patterns by component. The first group of a pattern is the
// version.
type location struct {
	globs []string
	names map[string]*regexp.Regexp
}

// locations returns where shared libraries and Python packages are. rdma-core's version is the second half of
// libibverbs'.
func locations() []location {
	return []location{
		{[]string{
			"/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib",
			"/usr/local/lib", "/usr/local/lib64", "/usr/local/lib/*-linux-gnu",
			"/usr/local/*/lib", "/usr/local/*/lib64", "/usr/local/*/lib/*-linux-gnu",
			"/opt/*/lib", "/opt/*/lib64", "/opt/*/*/lib", "/opt/*/*/lib64", "/opt/*/*/lib/*-linux-gnu",
		}, map[string]*regexp.Regexp{
			"rdma_core": regexp.MustCompile(`^libibverbs\.so\.1\.\d+\.(\d+\.\d+)$`),
			"nccl":      regexp.MustCompile(`^libnccl\.so\.(\d+\.\d+\.\d+)$`),
			"rccl":      regexp.MustCompile(`^librccl\.so\.(\d+\.\d+\.\d{5,6})$`), // ROCm's version is the last number
			"nixl":      regexp.MustCompile(`^libnixl\.so\.(\d+\.\d+\.\d+)$`),
		}},
		{[]string{
			"/usr/lib/python3/dist-packages", "/usr/local/lib/python3*/dist-packages",
			"/usr/local/lib/python3*/site-packages", "/usr/lib*/python3*/site-packages",
			"/opt/*/lib/python3*/site-packages", "/opt/*/*/lib/python3*/site-packages",
		}, map[string]*regexp.Regexp{
			"nccl": regexp.MustCompile(`^nvidia_nccl_cu\d+-(\d[\w.]*)\.dist-info$`),
			"nixl": regexp.MustCompile(`^nixl(?:_cu\d+)?-(\d[\w.]*)\.dist-info$`),
			"ucx":  regexp.MustCompile(`^libucx_cu\d+-(\d[\w.]*)\.dist-info$`),
		}},
	}
}

func (f *Facts) arrangeVersions() {
	slices.SortFunc(f.Versions, func(a, b Installed) int {
		return cmp.Or(strings.Compare(a.Component, b.Component), strings.Compare(a.Of, b.Of),
			strings.Compare(a.Version, b.Version), strings.Compare(a.Where, b.Where))
	})
	f.Versions = slices.CompactFunc(f.Versions, func(a, b Installed) bool {
		return a.Component == b.Component && a.Of == b.Of && a.Version == b.Version
	})
	if len(f.Versions) > maxVersions {
		f.Unread = append(f.Unread, fmt.Sprintf("versions of libraries: only the first %d of %d are compared; remove "+
			"unused ones", maxVersions, len(f.Versions)))
		f.Versions = f.Versions[:maxVersions]
	}
}

func (g *Gatherer) readRunningVersions(rails []rail.Rail) func(*Facts) {
	var list []Installed
	add := func(component, of, version, where string) {
		if version != "" {
			list = append(list, Installed{component, clean(of), clean(version), clean(where)})
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
		if !r.Software {
			add("firmware", strings.TrimSpace(r.HCAType+" "+r.BoardID), r.Firmware, "/sys/class/infiniband/"+r.Device+
				"/fw_ver")
		}
		if r.Driver != "" {
			version, _ := sysfs.ReadString(g.o.Sysfs, "module", r.Driver, "version")
			add("nic_driver", r.Driver, version, "/sys/module/"+r.Driver+"/version")
		}
	}
	return func(f *Facts) { f.Versions = append(f.Versions, list...) }
}

// searchEvery is the interval of a live page's searches, which read thousands of names. It examines every minute.
const searchEvery = 10 * time.Minute

// readInstalledVersions searches the known locations below the host's root. It stops when ctx ends.
func (g *Gatherer) readInstalledVersions(ctx context.Context, r *reader) func(*Facts) {
	if g.o.Rootfs == "" {
		return nil
	}
	list := g.installed
	if now := time.Now(); now.Sub(g.searched) >= searchEvery {
		var err error
		list, err = g.findInstalled(ctx)
		if err != nil {
			r.say("versions of libraries: %v; those found so far are compared", err)
		} else {
			g.searched, g.installed = now, list
		}
	}
	return func(f *Facts) { f.Versions = append(f.Versions, list...) }
}

func (g *Gatherer) findInstalled(ctx context.Context) (list []Installed, err error) {
	if v := g.packagedUCX(); v != "" {
		list = append(list, Installed{Component: "ucx", Version: clean(v), Where: dpkgStatus})
	}
	root, searched := os.DirFS(g.o.Rootfs), 0
	for _, in := range locations() {
		for _, pattern := range in.globs {
			dirs, _ := fs.Glob(root, strings.TrimPrefix(pattern, "/")) // all patterns are valid
			for _, dir := range dirs {
				if !isDir(filepath.Join(g.o.Rootfs, dir)) {
					continue
				}
				searched++
				if searched > maxLibraryDirs {
					return list, fmt.Errorf("more than %d directories of libraries", maxLibraryDirs)
				}
				if err := ctx.Err(); err != nil {
					return list, err
				}
				list = append(list, g.versionsIn("/"+dir, in.names)...)
			}
		}
	}
	return list, nil
}

func (g *Gatherer) versionsIn(dir string, names map[string]*regexp.Regexp) (list []Installed) {
	path := filepath.Join(g.o.Rootfs, dir)
	entries, _ := sysfs.List(path) // a directory that cannot be listed shows no version
	for _, e := range entries {
		for component, pattern := range names {
			if m := pattern.FindStringSubmatch(e.Name); m != nil {
				where := clean(filepath.Join(dir, e.Name))
				list = append(list, Installed{Component: component, Version: clean(m[1]), Where: where})
			}
		}
	}
	const pc = "pkgconfig/ucx.pc"
	text, _ := sysfs.ReadString(path, pc)
	for line := range strings.Lines(text) {
		if v, found := strings.CutPrefix(line, "Version:"); found {
			list = append(list, Installed{Component: "ucx", Version: clean(strings.TrimSpace(v)),
				Where: clean(filepath.Join(dir, pc))})
		}
	}
	return list
}

// packagedUCX returns the version of UCX from a Debian package, whose libraries do not show it. dpkg's list of packages
// has megabytes, so it is read only if the package exists.
func (g *Gatherer) packagedUCX() string {
	for _, name := range []string{"libucx0:amd64", "libucx0:arm64", "ucx:amd64", "ucx:arm64", "ucx"} {
		if sysfs.Exists(filepath.Join(g.o.Rootfs, "/var/lib/dpkg/info", name+".list")) == nil {
			return dpkgVersion(filepath.Join(g.o.Rootfs, dpkgStatus), "libucx0", "ucx")
		}
	}
	return ""
}

// dpkgVersion returns the upstream version of the first installed package of the list.
func dpkgVersion(path string, packages ...string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	lines := bufio.NewScanner(io.LimitReader(file, maxStatusFile))
	lines.Buffer(make([]byte, 64<<10), 1<<20)
	wanted, installed := false, false
	for lines.Scan() {
		key, value, _ := bytes.Cut(lines.Bytes(), []byte(": "))
		switch string(key) {
		case "Package":
			wanted, installed = slices.Contains(packages, string(value)), false
		case "Status":
			installed = bytes.HasSuffix(value, []byte(" installed"))
		case "Version":
			if wanted && installed {
				return upstream(string(value))
			}
		}
	}
	return ""
}

var debianVersion = regexp.MustCompile(`^(?:[^:]*:)?([^-+~]*)`)

// upstream strips epoch, revision and the suffix of a repack or release candidate from a Debian version.
func upstream(v string) string { return debianVersion.FindStringSubmatch(v)[1] }
