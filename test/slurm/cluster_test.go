//go:build slurm

package slurm

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/sysfstest"
)

// configuration of one node without cgroups. The recipes have the names that their comments give.
const configuration = `ClusterName=test
SlurmctldHost=node-1
SlurmUser=root
StateSaveLocation=/run/ctld
SlurmdSpoolDir=/run/slurmd
SlurmctldPidFile=/run/ctld.pid
SlurmdPidFile=/run/slurmd.pid
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1
Prolog=/etc/slurm/railscope-prolog.sh
Epilog=/etc/slurm/railscope-epilog.sh
PrologEpilogTimeout=60
HealthCheckProgram=/etc/slurm/railscope-health.sh
HealthCheckInterval=1
HealthCheckNodeState=ANY
NodeName=node-1 CPUs=2
PartitionName=all Nodes=ALL Default=YES
PartitionName=other Nodes=ALL
`

// Directories that are empty file systems while the test runs. slurmd gives its programs no PATH, and execvp
// without one does not find programs in /usr/local/bin, where railscope is.
var hidden = []string{"/run", "/etc/slurm", "/usr/local/bin"}

const (
	address = "192.0.2.1"      // address of node-1
	limit   = 30 * time.Second // time limit of one command
	state   = "/run/state"     // railscope's --state.dir
	sysfs   = "/run/sys"
	lines   = "/run/syslog" // lines that the recipes pass to logger
)

// cluster is one node that runs all of Slurm.
type cluster struct{ *testing.T }

// start starts the daemons in the namespaces of this process, with stub as HealthCheckProgram.
func start(t *testing.T) cluster {
	t.Helper()
	if os.Getpid() != 1 {
		t.Fatal("this test mounts over /run and others, and needs namespaces for that: make slurm")
	}
	for _, dir := range hidden {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
			t.Fatalf("mount tmpfs on %s: %v", dir, err)
		}
	}
	if err := syscall.Sethostname([]byte("node-1")); err != nil {
		t.Fatal(err)
	}
	c := cluster{t}
	// getaddrinfo(3), AI_ADDRCONFIG: a loopback address does not count
	c.run("ip", "address", "add", address+"/32", "dev", "lo")
	c.run("ip", "link", "set", "lo", "up")
	c.write("/run/hosts", "127.0.0.1 localhost\n"+address+" node-1\n")
	if err := syscall.Mount("/run/hosts", "/etc/hosts", "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	railscope, err := filepath.Abs("../../railscope")
	if err != nil {
		t.Fatal(err)
	}
	c.write("/usr/local/bin/railscope", fmt.Sprintf("#!/bin/sh\nexec %s \"$@\" --path.sysfs=%s "+
		"--path.procfs=/run/empty --path.rootfs=/run/empty --state.dir=%s\n", railscope, sysfs, state))
	c.write("/usr/local/bin/logger", "#!/bin/sh\necho \"$*\" >>"+lines+"\n")
	c.write("/etc/slurm/slurm.conf", configuration)
	if err := sysfstest.WriteMlx5(sysfs, 2); err != nil {
		t.Fatal(err)
	}
	c.recipe("prolog")
	c.recipe("epilog")
	c.write("/etc/slurm/railscope-health.sh", "#!/bin/sh\n")
	for _, dir := range []string{"/run/munge", "/run/ctld", "/run/slurmd", "/run/empty", state} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	key := make([]byte, 128)
	_, _ = rand.Read(key)
	if err := os.WriteFile("/run/munge.key", key, 0o600); err != nil {
		t.Fatal(err)
	}
	c.daemon("munged", "--foreground", "--key-file=/run/munge.key", "--log-file=/run/munged.log",
		"--pid-file=/run/munged.pid", "--seed-file=/run/munged.seed")
	c.until("munged answers", func() bool { return exec.Command("munge", "--no-input").Run() == nil })
	c.daemon("slurmctld", "-D", "-c")
	c.daemon("slurmd", "-D")
	c.nodeIs("idle", "none")
	return c
}

// daemon runs a program until the test ends, and prints its log if the test failed.
func (c cluster) daemon(name string, args ...string) {
	c.Helper()
	log, err := os.Create("/run/" + name + ".out")
	if err != nil {
		c.Fatal(err)
	}
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if c.Failed() {
			text, _ := os.ReadFile(log.Name())
			c.Logf("%s:\n%s", name, text)
		}
	})
}

// try runs a command within its time limit, and returns its output.
func (c cluster) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(c.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// run runs a command that must succeed.
func (c cluster) run(args ...string) string {
	c.Helper()
	out, err := c.try(args...)
	if err != nil {
		c.Fatalf("%q: %v: %s", args, err, out)
	}
	return out
}

// until waits for a condition.
func (c cluster) until(what string, holds func() bool) {
	c.Helper()
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.Fatalf("after %v still not: %s", limit, what)
		}
	}
}

// nodeIs waits until sinfo prints this state and reason.
func (c cluster) nodeIs(state, reason string) {
	c.Helper()
	began, is := time.Now(), ""
	for want := state + "|" + reason; is != want; time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > limit {
			c.Fatalf("the node is %q, want %q", is, want)
		}
		is, _ = c.try("sinfo", "--noheader", "--partition=all", "--format=%T|%E")
	}
}

// jobIs waits until a job is in this state, with this reason.
func (c cluster) jobIs(id, state, reason string) {
	c.Helper()
	began, want := time.Now(), "JobState="+state+" Reason="+reason
	for {
		is, _ := c.try("scontrol", "show", "job", "--oneliner", id)
		if strings.Contains(is, want+" ") {
			return
		}
		if time.Since(began) > limit {
			c.Fatalf("the job is %q, want %q", is, want)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// submit submits a batch job to Slurm.
func (c cluster) submit(command string) (id string) {
	c.Helper()
	return c.run("sbatch", "--parsable", "--chdir=/", "--output=/dev/null", "--wrap="+command)
}

// ready makes the node healthy and idle, after all jobs and their epilogs have ended.
func (c cluster) ready() {
	c.Helper()
	c.port("4: ACTIVE")
	c.run("scancel", "--user=root")
	c.resume()
}

// resume makes the node accept jobs again, after the epilogs of its earlier jobs.
func (c cluster) resume() {
	c.Helper()
	c.until("no job is left on the node", func() bool {
		return c.run("squeue", "--noheader", "--states=RUNNING,COMPLETING") == ""
	})
	if c.run("sinfo", "--noheader", "--partition=all", "--format=%E") != "none" {
		c.run("scontrol", "update", "NodeName=node-1", "State=RESUME")
	}
	c.nodeIs("idle", "none")
}

// port sets the state of the port of rail 1.
func (c cluster) port(state string) {
	c.Helper()
	c.write(portState, state+"\n")
}

const portState = sysfs + "/class/infiniband/mlx5_1/ports/1/state"

// recipe installs a recipe for Slurm as shipped.
func (c cluster) recipe(name string) {
	c.Helper()
	text, err := os.ReadFile("../../deploy/integrations/slurm-" + name + ".sh")
	if err != nil {
		c.Fatal(err)
	}
	c.write("/etc/slurm/railscope-"+name+".sh", string(text))
}

// write replaces a file atomically: a script may be running.
func (c cluster) write(file, text string) {
	c.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o755); err != nil {
		c.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		c.Fatal(err)
	}
}

// logged returns what the recipes passed to logger since the last call.
func (c cluster) logged() string {
	text, _ := os.ReadFile(lines)
	_ = os.Remove(lines)
	return string(text)
}

// silent is a railscope that accepts connections and never answers.
func (c cluster) silent() (end func()) {
	c.Helper()
	l, err := net.Listen("unix", state+"/status.sock")
	if err != nil {
		c.Fatal(err)
	}
	return func() { _ = l.Close() }
}
