package probe

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// workers returns the live processes that this one has started, by the environment of the fabric.
func workers(t *testing.T, env string) (pids []int) {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		list, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		for word := range strings.FieldsSeq(string(list)) {
			vars, _ := os.ReadFile("/proc/" + word + "/environ") // empty for a zombie
			if strings.Contains(string(vars), env+"\x00") {
				pid, _ := strconv.Atoi(word)
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// workers returns a node's workers. The names of the nodes separate a and b of one fabric, and directories separate
// fabrics.
func (p *pairOfNodes) workers(name string) []int {
	var of []int
	env := p.fabric.Env(name)
	for _, pid := range workers(p.t, env[1]) {
		vars, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		if strings.Contains(string(vars), env[2]+"\x00") {
			of = append(of, pid)
		}
	}
	return of
}

// signal sends a signal to a node's only worker, if it runs.
func (p *pairOfNodes) signal(name string, sig unix.Signal) (pid int) {
	p.t.Helper()
	if !within(5*time.Second, func() bool { return len(p.workers(name)) == 1 }) {
		p.t.Fatalf("workers of %s: %v", name, p.workers(name))
	}
	pid = p.workers(name)[0]
	if err := unix.Kill(pid, sig); err != nil {
		p.t.Fatal(err)
	}
	return pid
}
