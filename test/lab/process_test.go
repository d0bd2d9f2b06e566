//go:build lab

package lab

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// serveProcesses starts railscope with the process source as an unprivileged user: the source needs no privilege
// for what it reads here.
func serveProcesses(t *testing.T, flags ...string) *exporter {
	t.Helper()
	argv := append([]string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all",
		"--bounding-set=-all",
		railscope, "serve", "--source.process"}, flags...)
	e := &exporter{node: 1, process: node(1).Start(t, argv...)}
	eventually(t, commandTime, func() error {
		if !e.process.Running() {
			return fmt.Errorf("railscope ended: %w", e.process.failure())
		}
		_, err := fetch(e.url())
		return err
	})
	t.Cleanup(func() {
		e.scrape(t)
		e.process.Stop(t)
		if t.Failed() {
			t.Logf("railscope said:\n%s", e.process.Stderr)
		}
	})
	return e
}

// resource is a queue pair as the rdma tool shows it.
type resource struct {
	Device string `json:"ifname"`
	Comm   string `json:"comm"`
	State  string `json:"state"`
	PID    int    `json:"pid"`
}

func resources(t *testing.T) []resource {
	t.Helper()
	var list []resource
	out := node(1).Run(t, "rdma", "-j", "resource", "show", "qp")
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("rdma resource: %v: %s", err, out)
	}
	return list
}

// TestProcessQueuePairs finds the queue pairs of a real program by its name, on its rail, while it runs, and not
// afterwards; the kernel's own belong to no process.
func TestProcessQueuePairs(t *testing.T) {
	freshRails(t, 2)
	meet(t, 0, 1)
	limit(t, 1, shape)
	e := serveProcesses(t)
	e.shows(t, want{`process_queue_pairs`: gone, `source_success{source="process"}`: 1,
		`source_present{source="process"}`:                1,
		`process_queue_pairs_read_seconds{device="rxe0"}`: some,
		`process_queue_pairs_read_seconds{device="rxe1"}`: some})
	kernels := 0
	for _, r := range resources(t) {
		if r.PID == 0 {
			kernels++
		}
	}
	if kernels == 0 {
		t.Error("the kernel has no queue pairs of its own: that they are not shown proves nothing")
	}

	job := startFlow(t, 1)
	e.shows(t, want{
		`process_queue_pairs{comm="ib_write_bw",rail="1",state="rts",pod="",container=""}`: 1,
		`process_queue_pairs{comm="ib_write_bw",rail="0"}`:                                 gone,
	})
	pid := strings.TrimSpace(node(1).Run(t, "pgrep", "-x", "ib_write_bw"))
	found := 0
	for _, r := range resources(t) {
		if r.Comm == "ib_write_bw" && r.Device == "rxe1" && r.State == "RTS" && fmt.Sprint(r.PID) == pid {
			found++
		}
	}
	if found != 1 {
		t.Errorf("the rdma tool shows %d queue pairs of process %s, want 1: %+v", found, pid, resources(t))
	}
	job.stop()
	e.shows(t, want{`process_queue_pairs`: gone, `source_success{source="process"}`: 1})
}

// TestProcessPod: a process in a cgroup in containerd's format gets the names that the kubelet gave its logs.
func TestProcessPod(t *testing.T) {
	const uid, id = "3f1c9e0a_4b7d_4f7a_9c55_0d5d8a4f1b2e",
		"c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00"
	freshRails(t, 2)
	meet(t, 0, 1)
	limit(t, 0, shape)
	n := node(1)
	scope := "/tmp/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + uid +
		".slice/cri-containerd-" + id + ".scope"
	n.Shell(t, `mkdir -p /tmp/cgroup /tmp/root/var/log/containers
mountpoint -q /tmp/cgroup || mount -t cgroup2 none /tmp/cgroup
mkdir -p `+scope+`
touch /tmp/root/var/log/containers/train-0_default_trainer-`+id+`.log`)
	t.Cleanup(func() {
		n.Shell(t, `for d in $(find /tmp/cgroup/kubepods.slice -depth -type d); do rmdir $d; done; umount /tmp/cgroup`)
	})
	e := serveProcesses(t, "--path.rootfs=/tmp/root")
	job := startFlow(t, 0)
	n.Shell(t, `echo $(pgrep -x ib_write_bw) > `+scope+`/cgroup.procs`)
	series := `process_queue_pairs{comm="ib_write_bw",rail="0",pod="default/train-0",container="trainer",state="rts"}`
	e.shows(t, want{series: 1})
	job.stop()
	e.shows(t, want{`process_queue_pairs`: gone})
}

// TestProcessThreads: queue pairs belong to the thread that created them. railscope's worker creates them in a
// separate thread, and they are attributed to railscope.
func TestProcessThreads(t *testing.T) {
	freshRails(t, 2)
	meet(t, 0, 1)
	limit(t, 0, shape)
	limit(t, 1, shape)
	e := serveProcesses(t)
	answer(t)
	bench := startBench(t, longBursts)
	series := `process_queue_pairs{comm="railscope-probe",state="rts",rail=`
	e.shows(t, want{series + `"0"}`: some, series + `"1"}`: some})
	threads := 0
	for _, r := range resources(t) {
		if r.PID == 0 {
			continue
		}
		// A thread that has ended meanwhile proves nothing, and is not a mistake.
		if res, err := node(1).Try("grep", "^Tgid",
			fmt.Sprintf("/proc/%d/status", r.PID)); err == nil && strings.TrimSpace(strings.TrimPrefix(res.Stdout,
			"Tgid:")) != fmt.Sprint(r.PID) {
			threads++
		}
	}
	if threads == 0 {
		t.Error("all queue pairs were made by a process's first thread: this proves nothing")
	}
	node(1).Run(t, "kill", "-INT", fmt.Sprint(bench.PID))
	bench.end(t, roundTime) // the exit code is 1
	e.shows(t, want{`process_queue_pairs`: gone})
}

// TestProcessMany creates enough queue pairs for more than one message of a dump.
func TestProcessMany(t *testing.T) {
	const pairs = 400
	freshRails(t, 2)
	meet(t, 0)
	e := serveProcesses(t)
	argv := func(n node) []string {
		g, ok := gidOf(gids(t, n, "rxe0"), n.address(0))
		if !ok {
			t.Fatal("no GID")
		}
		return []string{"ib_write_bw", "-d", "rxe0", "-x", g.index, "-F", "-q", fmt.Sprint(pairs), "-t", "8", "-Q", "1",
			"-s", "1024", "-D", "20", "-u", fmt.Sprint(patientTimeout), "-p", "18600"}
	}
	server := node(2).Start(t, argv(2)...)
	eventually(t, commandTime, func() error {
		if node(2).Run(t, "ss", "-Hltn", "sport = :18600") == "" {
			return fmt.Errorf("ib_write_bw does not listen")
		}
		return nil
	})
	client := node(1).Start(t, append(argv(1), node(2).control())...)
	series := `process_queue_pairs{comm="ib_write_bw",rail="0",state="rts"}`
	var m metrics
	eventually(t, 2*time.Minute, func() error {
		if !client.Running() {
			t.Fatalf("ib_write_bw ended: %v", client.failure())
		}
		m = e.scrape(t)
		return want{series: pairs}.check(m)
	})
	t.Logf("%d queue pairs, listed in %v s", pairs, m.must(t, `process_queue_pairs_read_seconds{device="rxe0"}`))
	client.kill()
	server.kill()
	e.shows(t, want{`process_queue_pairs`: gone})
}
