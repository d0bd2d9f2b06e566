//go:build lab

package lab

import (
	"strconv"
	"strings"
	"testing"
)

// TestDoctorFixesSystem breaks system settings that affect the rails. doctor must find exactly that fault, and find
// nothing after its printed commands were run.
func TestDoctorFixesSystem(t *testing.T) {
	freshRails(t, 2)
	finds(t, nil)
	for _, c := range []struct{ name, check, fault string }{
		{"a module that is not loaded", "rdma_cm", "modprobe -r rdma_ucm"},
		{"a provider that nothing names", "provider", "rm /etc/libibverbs.d/rxe.driver"},
	} {
		t.Run(c.name, func(t *testing.T) {
			node(1).Shell(t, c.fault)
			finds(t, []string{c.check}).fix(t)
			finds(t, nil)
		})
	}
}

// TestDoctorEnvironment: doctor finds the process whose environment prevents RDMA, among others whose environment
// does not, and no longer finds it after it has ended.
func TestDoctorEnvironment(t *testing.T) {
	freshRails(t, 2)
	node(1).Start(t, "env", "NCCL_IB_DISABLE=0", "NCCL_IB_HCA=rxe", "NCCL_IB_GID_INDEX=1", "UCX_TLS=rc,sm,self",
		"UCX_NET_DEVICES=rxe0:1,rxe1:1", "sleep", "600")
	finds(t, nil)
	job := node(1).Start(t, "env", "NCCL_IB_DISABLE=1", "UCX_NET_DEVICES=lo", "sleep", "600")
	d := finds(t, []string{"nccl_ib_disable", "ucx_net_devices"})
	pid := strconv.Itoa(job.PID)
	for _, f := range d.Findings {
		if other(f.Check) {
			continue
		}
		t.Logf("%s: %s: %s: %s; %s", f.Severity, f.Check, f.Subject, f.Evidence, f.Where)
		if want := "/proc/" + pid + "/environ (sleep)"; !strings.Contains(f.Where, want) {
			t.Errorf("%s: %q, want %q", f.Check, f.Where, want)
		}
	}
	node(1).Run(t, "kill", pid)
	finds(t, nil)
}
