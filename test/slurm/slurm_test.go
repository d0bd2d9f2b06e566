//go:build slurm

package slurm

import (
	"os"
	"strings"
	"testing"
	"time"
)

const (
	finding = "rail 1: port down"
	down    = "railscope: critical: " + finding
)

// TestSlurm runs the recipes under slurmd, step by step: one cluster, whose node starts every step idle.
func TestSlurm(t *testing.T) {
	c := start(t)
	t.Log(c.run("slurmd", "-V"))
	for _, step := range []struct {
		name string
		run  func(cluster)
	}{
		{"a healthy node", healthy},
		{"prolog", prolog},
		{"epilog", epilog},
		{"a railscope that does not answer", unanswered},
		{"health", health}, // from here on, HealthCheckProgram is the recipe
		{"maintenance", maintained},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			cluster{t}.ready()
			step.run(cluster{t})
		}) {
			return
		}
	}
}

// A job runs on a healthy node.
func healthy(c cluster) {
	if out := c.run("srun", "hostname"); out != "node-1" {
		c.Errorf("srun hostname: %q", out)
	}
	if log := c.logged(); log != "" {
		c.Errorf("logged: %q", log)
	}
}

// Neither a batch job nor an interactive one starts on a node with a critical finding. The batch job starts when
// the node is healthy and its owner or an administrator releases it.
func prolog(c cluster) {
	c.port("1: DOWN")
	id := c.submit("true")
	c.nodeIs("drained", "Prolog error")
	c.Log("\n" + c.run("sinfo", "-R"))
	c.jobIs(id, "PENDING", "launch_failed_requeued_held")
	want := "-t railscope-prolog job " + id + " refused: " + down + "\n" +
		"-t railscope-epilog after job " + id + ": " + down + "\n" // slurmd also runs it after a prolog that failed
	if log := c.logged(); log != want {
		c.Errorf("logged: %q, want %q", log, want)
	}
	c.resume()
	if out, err := c.try("srun", "echo", "it runs"); err == nil || strings.Contains(out, "it runs") {
		c.Errorf("srun on a node with a finding: %v, %q", err, out)
	}
	c.nodeIs("drained", "Prolog error")
	c.port("4: ACTIVE")
	c.logged()
	c.resume()
	c.run("scontrol", "release", id)
	c.run("scontrol", "update", "JobId="+id, "StartTime=now") // otherwise 2 minutes after the release
	c.jobIs(id, "COMPLETED", "None")
}

// A job after which its node has a critical finding is the last one on it.
func epilog(c cluster) {
	id := c.submit("echo 1: DOWN >" + portState)
	c.nodeIs("drained", "Epilog error")
	c.Log("\n" + c.run("sinfo", "-R"))
	c.jobIs(id, "COMPLETED", "None")
	if log, want := c.logged(), "-t railscope-epilog after job "+id+": "+down+"\n"; log != want {
		c.Errorf("logged: %q, want %q", log, want)
	}
}

// A railscope that does not answer only delays a job.
func unanswered(c cluster) {
	defer c.silent()()
	began := time.Now()
	if out := c.run("srun", "hostname"); out != "node-1" {
		c.Errorf("srun hostname: %q", out)
	}
	if took := time.Since(began); took < 2*time.Second || took > 15*time.Second {
		c.Errorf("srun took %v, want the 2 s of railscope check", took)
	}
}

// HealthCheckProgram gives the reason of a prolog that failed, drains an idle node with the finding as reason, and
// keeps any other reason.
func health(c cluster) {
	c.port("1: DOWN")
	c.submit("true")
	c.nodeIs("drained", "Prolog error")
	c.recipe("health")
	c.nodeIs("drained", finding+" (railscope, Prolog error)")
	c.Log("\n" + c.run("sinfo", "-R", "--format=%60E %N"))
	c.run("scontrol", "update", "NodeName=node-1", "State=RESUME")
	c.nodeIs("drained", finding+" (railscope)")
	c.Log("\n" + c.run("sinfo", "-R", "--format=%60E %N"))
	c.run("scontrol", "update", "NodeName=node-1", "State=DRAIN", "Reason=fan is broken")
	time.Sleep(3 * time.Second) // 3 runs
	c.nodeIs("drained", "fan is broken")
}

// railscope's maintenance file exists exactly while the node is drained for maintenance.
func maintained(c cluster) {
	c.recipe("maintenance")
	exists := func(want bool) {
		c.Helper()
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			if _, err := os.Stat("/run/railscope/maintenance"); (err == nil) == want {
				return
			}
			if time.Now().After(end) {
				c.Fatalf("the maintenance file exists: %t, want %t", !want, want)
			}
		}
	}
	c.run("scontrol", "update", "NodeName=node-1", "State=DRAIN", "Reason=maintenance: new cable")
	exists(true)
	c.run("scontrol", "update", "NodeName=node-1", "State=RESUME")
	exists(false)
}
