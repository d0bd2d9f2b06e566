package proc

import (
	"regexp"
	"strings"

	"github.com/prometheus/procfs"
)

// Cgroup is what a process's cgroup path shows about its owner. Unknown fields are empty.
type Cgroup struct {
	Pod       string // UID of the Kubernetes pod, with its dashes
	Container string // ID that the runtime gave the container, 64 hexadecimal digits
	Slurm     string // number of the Slurm job
	Path      string // path: that of the unified hierarchy, else of the first one
}

// Patterns of cgroup names by runtimes and resource managers. A pod's UID has dashes, with systemd underscores, and
// neither if it is the hash of a static pod's file. A container's ID follows the runtime's name, or stands alone.
var (
	podPart = regexp.MustCompile(`(?:^|[-/])pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})` +
		`(?:\.slice)?(?:$|[/:])`)
	containerPart = regexp.MustCompile(`(?:^|[-/:])([0-9a-f]{64})(?:\.scope)?(?:$|[/:])`)
	slurmPart     = regexp.MustCompile(`/(?:slurm|slurmstepd\.scope|[^/]*_slurmstepd\.scope)(?:/.*)?` +
		`/job_([0-9]{1,10})(?:$|/)`)
)

// ReadCgroup reads /proc/PID/cgroup. It understands the paths of cgroup v1 and v2, of the systemd and the cgroupfs
// driver, of containerd, CRI-O, Docker and Podman, and of Slurm, also relative to our cgroup namespace.
//
// Source: cgroups(7); pkg/kubelet/cm/cgroup_manager_linux.go in Kubernetes.
func ReadCgroup(root string, pid int) (Cgroup, error) {
	list, err := read(root, pid, "cgroup", procfs.Proc.Cgroups)
	var c Cgroup
	for _, g := range list {
		c.add(g.Path, g.HierarchyID == 0)
	}
	return c, err
}

func (c *Cgroup) add(path string, unified bool) {
	if !strings.HasPrefix(path, "/") {
		return
	}
	path = strings.TrimSuffix(path, " (deleted)") // the cgroup was removed before its last process
	if c.Path == "" || unified && path != "/" {
		c.Path = path
	}
	if m := podPart.FindStringSubmatch(path); c.Pod == "" && m != nil {
		c.Pod = strings.ReplaceAll(m[1], "_", "-")
	}
	if c.Container == "" {
		c.Container = containerOf(path)
	}
	if m := slurmPart.FindStringSubmatch(path); c.Slurm == "" && m != nil {
		c.Slurm = m[1]
	}
}

// containerOf returns the innermost container of a path. A container's monitor (conmon) has a cgroup named after
// it.
func containerOf(path string) string {
	all := containerPart.FindAllStringSubmatchIndex(path, -1)
	if len(all) == 0 {
		return ""
	}
	last := all[len(all)-1]
	if strings.HasSuffix(path[:last[2]], "conmon-") {
		return ""
	}
	return path[last[2]:last[3]]
}
