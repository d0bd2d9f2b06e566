//go:build cgo

package worker

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// capable starts a worker and prints its capabilities.
func capable() int {
	p, err := start([]string{"/proc/self/exe"}, []string{role + "=worker"}, newStderrLog(func(string) {}))
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	defer p.kill()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	for _, line := range regexp.MustCompile(`(?m)^(Cap(Inh|Prm|Eff|Amb)|NoNewPrivs):.*$`).FindAllString(string(status),
		-1) {
		fmt.Fprintln(os.Stdout, strings.Join(strings.Fields(line), " "))
	}
	return 0
}

// TestPrivileges: the worker has no capability but CAP_IPC_LOCK, and that only if railscope has it.
func TestPrivileges(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a process capabilities")
	}
	const lock = "0000000000004000" // 1 << CAP_IPC_LOCK
	const none = "0000000000000000"
	for _, tc := range []struct {
		name    string
		user    uint32
		ambient []uintptr
		want    string
	}{
		{"drop-ins of the unit", 65534, []uintptr{unix.CAP_DAC_READ_SEARCH, unix.CAP_SYS_PTRACE}, none},
		{"and locked memory", 65534, []uintptr{unix.CAP_DAC_READ_SEARCH, unix.CAP_IPC_LOCK}, lock},
		{"nothing", 65534, nil, none},
		{"root", 0, nil, lock},
	} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), role+"=capable")
		cmd.SysProcAttr = &syscall.SysProcAttr{AmbientCaps: tc.ambient, Credential: &syscall.Credential{Uid: tc.user,
			Gid: tc.user}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v %s", tc.name, err, out)
		}
		want := fmt.Sprintf("CapInh: %[1]s\nCapPrm: %[1]s\nCapEff: %[1]s\nCapAmb: %[1]s\nNoNewPrivs: 1\n", tc.want)
		if string(out) != want {
			t.Errorf("%s: the worker has\n%swant\n%s", tc.name, out, want)
		}
	}
}
