package proc

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/sysfs"
)

const (
	uid    = "3f1c9e0a-4b7d-4f7a-9c55-0d5d8a4f1b2e"
	static = "5d3cf1f1a0f0a5a6e0f3e6f1f1a0f0a5"
)

var (
	id       = strings.Repeat("c0ffee00", 8)
	other    = strings.Repeat("deadbeef", 8)
	slice    = strings.ReplaceAll(uid, "-", "_")
	burst    = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + slice + ".slice/"
	besteff  = "/kubepods/besteffort/pod" + uid + "/"
	guaranty = "/kubepods.slice/kubepods-pod" + slice + ".slice/"
)

// Paths in the format of the runtimes' sources and documentation; the identities are made up.
func TestCgroup(t *testing.T) {
	for _, tt := range []struct {
		name    string
		content string
		want    Cgroup
	}{
		{"v2, systemd, containerd", "0::" + burst + "cri-containerd-" + id + ".scope\n",
			Cgroup{Pod: uid, Container: id}},
		{"v2, systemd, containerd, deeper", "0::" + guaranty + "cri-containerd-" + id + ".scope/init.scope\n",
			Cgroup{Pod: uid, Container: id}},
		{"v2, systemd, CRI-O", "0::" + guaranty + "crio-" + id + ".scope/container\n", Cgroup{Pod: uid, Container: id}},
		{"removed, with a process that has not been waited for", "0::" + besteff + id + " (deleted)\n",
			Cgroup{Pod: uid, Container: id}},
		{"CRI-O's monitor", "0::" + guaranty + "crio-conmon-" + id + ".scope\n", Cgroup{Pod: uid}},
		{"v2, cgroupfs", "0::" + besteff + id + "\n", Cgroup{Pod: uid, Container: id}},
		{"cgroupfs, CRI-O", "0::/kubepods/pod" + uid + "/crio-" + id + "\n", Cgroup{Pod: uid, Container: id}},
		{"containerd under its own service",
			"0::/system.slice/containerd.service/kubepods-burstable-pod" + slice + ".slice:cri-containerd:" + id + "\n",
			Cgroup{Pod: uid, Container: id}},
		{"a static pod", "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + static +
			".slice/cri-containerd-" + id + ".scope\n", Cgroup{Pod: static, Container: id}},
		{"seen from a cgroup namespace",
			"0::/../../kubepods-besteffort-pod" + slice + ".slice/cri-containerd-" + id + ".scope\n",
			Cgroup{Pod: uid, Container: id}},
		{"v1, many hierarchies",
			"12:memory:" + besteff + id + "\n11:rdma:/\n1:name=systemd:" + besteff + id + "\n0::/\n",
			Cgroup{Pod: uid, Container: id}},
		{"v1, only systemd's knows", "4:cpu,cpuacct:/\n1:name=systemd:/kubepods/pod" + uid + "/" + id + "\n",
			Cgroup{Pod: uid, Container: id}},
		{"Docker, systemd", "0::/system.slice/docker-" + id + ".scope\n", Cgroup{Container: id}},
		{"Docker, cgroupfs", "9:devices:/docker/" + id + "\n", Cgroup{Container: id}},
		{"Docker in Docker", "0::/docker/" + other + "/docker/" + id + "\n", Cgroup{Container: id}},
		{"Podman", "0::/machine.slice/libpod-" + id + ".scope/container\n", Cgroup{Container: id}},
		{"Podman, rootless", "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + id + ".scope\n",
			Cgroup{Container: id}},
		{"Podman's monitor", "0::/machine.slice/libpod-conmon-" + id + ".scope\n", Cgroup{}},
		{"Slurm, v1", "5:memory:/slurm/uid_1000/job_4242/step_0/task_3\n", Cgroup{Slurm: "4242"}},
		{"Slurm, v1, named after the node", "5:memory:/slurm/node7/uid_1000/job_4242/step_batch\n",
			Cgroup{Slurm: "4242"}},
		{"Slurm, v2", "0::/system.slice/slurmstepd.scope/job_4242/step_0/user/task_0\n", Cgroup{Slurm: "4242"}},
		{"Slurm, v2, named after the node", "0::/system.slice/node7_slurmstepd.scope/job_4242/step_0/user/task_0\n",
			Cgroup{Slurm: "4242"}},
		{"a job that is not Slurm's", "0::/system.slice/cron.service/job_4242\n", Cgroup{}},
		{"a container in a Slurm job", "0::/system.slice/slurmstepd.scope/job_7/step_0/user/libpod-" + id + ".scope\n",
			Cgroup{Container: id, Slurm: "7"}},
		{"a login", "0::/user.slice/user-1000.slice/session-3.scope\n", Cgroup{}},
		{"the root", "0::/\n", Cgroup{}},
		{"an ID that is too long", "0::/docker/" + id + "0\n", Cgroup{}},
		{"a UID that is too short", "0::/kubepods/pod3f1c9e0a-4b7d-4f7a-9c55/" + id + "\n", Cgroup{Container: id}},
		{"nothing", "", Cgroup{}},
	} {
		got, err := cgroupOf(t, tt.content)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		path := got.Path
		got.Path = ""
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
		if path != "" && !strings.Contains(strings.ReplaceAll(tt.content, " (deleted)\n", "\n"), ":"+path+"\n") {
			t.Errorf("%s: path %q", tt.name, path)
		}
	}
	if got, _ := cgroupOf(t, "3:cpu:/a\n0::/b\n"); got.Path != "/b" {
		t.Errorf("of two hierarchies the path is %q, want the unified one's", got.Path)
	}
	for _, content := range []string{"x\n", "::\n", "1:a\n", ":::::\n", "\xff\n"} {
		if got, err := cgroupOf(t, content); got != (Cgroup{}) || sysfs.Reason(err) != sysfs.ReasonInvalid {
			t.Errorf("%q: %+v, %v", content, got, err)
		}
	}
}

// cgroupOf reads the cgroup file of a process with this content.
func cgroupOf(t *testing.T, content string) (Cgroup, error) {
	t.Helper()
	return ReadCgroup(procfsWith(t, "7/cgroup", content), 7)
}

func FuzzCgroup(f *testing.F) {
	f.Add(burst + "cri-containerd-" + id + ".scope")
	f.Add("/system.slice/slurmstepd.scope/job_4242/step_0")
	f.Add("/docker/" + id)
	f.Fuzz(func(t *testing.T, path string) {
		var c Cgroup
		c.add(path, true)
		if c.Container != "" && (len(c.Container) != 64 || !strings.Contains(path, c.Container)) {
			t.Errorf("container %q", c.Container)
		}
		if c.Pod != "" && len(c.Pod) != 36 && len(c.Pod) != 32 {
			t.Errorf("pod %q", c.Pod)
		}
		if strings.Trim(c.Slurm, "0123456789") != "" {
			t.Errorf("job %q", c.Slurm)
		}
	})
}
