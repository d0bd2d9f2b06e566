package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/rdmanl"
)

// twoNodes has mlx5_0 and mlx5_1 on NUMA node 0 and mlx5_2 on node 1, with the distance between the nodes.
func twoNodes(distance int) doctortest.Tree {
	tree := doctortest.Tree{
		nic0 + "numa_node": "0\n", nic2 + "numa_node": "1\n",
		"sys/devices/pci0000:30/0000:30:01.0/0000:3c:00.0/numa_node": "0\n",
	}
	const node = "sys/devices/system/node/node"
	tree[node+"0/cpulist"], tree[node+"0/distance"] = "0-3,8-11\n", fmt.Sprintf("10 %d\n", distance)
	tree[node+"1/cpulist"], tree[node+"1/distance"] = "4-7,12-15\n", fmt.Sprintf("%d 10\n", distance)
	return tree
}

// pinned is a process with a second thread that may run only on these processors.
func pinned(pid int, comm, cpus string) doctortest.Tree {
	tree := doctortest.Tree{fmt.Sprintf("proc/%d/comm", pid): comm + "\n"}
	for _, tid := range []int{pid, pid + 1} {
		tree[fmt.Sprintf("proc/%d/status", tid)] = fmt.Sprintf("Name:\t%s\nTgid:\t%d\nPid:\t%d\n"+
			"Cpus_allowed_list:\t%s\n", comm, pid, tid, cpus)
	}
	return tree
}

// pairs sets the queue pairs of threads, by device.
func pairs(of map[string][]uint32) func(*facts.Options) {
	return func(o *facts.Options) {
		o.Kernel.QueuePairs = func(device string, _ rdmanl.QPLimits, each func(rdmanl.QP)) error {
			each(rdmanl.QP{Port: 1, State: rdmanl.RTS, Kernel: true})
			each(rdmanl.QP{Port: 1, State: 1, PID: 2001}) // not connected
			for _, tid := range of[device] {
				each(rdmanl.QP{Port: 1, State: rdmanl.RTS, PID: tid})
			}
			return nil
		}
	}
}

func trees(list ...doctortest.Tree) doctortest.Tree {
	all := doctortest.Tree{}
	for _, tree := range list {
		maps.Copy(all, tree)
	}
	return all
}

func holderCases() []systemCase {
	two := trees(twoNodes(21), pinned(2001, "vllm", "0-1"), pinned(2011, "vllm", "8-9"))
	return []systemCase{
		{name: "process_numa_far", fixture: hgx, change: two,
			with: pairs(map[string][]uint32{"mlx5_2": {2001, 2012}})},
		{name: "process_numa_far without a rail of its own", fixture: hgx,
			change: trees(twoNodes(21), pinned(2001, "vllm", "4-7"),
				doctortest.Tree{nic2 + "infiniband/mlx5_2/ports/1/state": "1: DOWN\n"}),
			with: pairs(map[string][]uint32{"mlx5_0": {2001}, "mlx5_1": {2002}})},
	}
}

// TestProcessNUMA: no finding about a process that is near one of its rails, may run anywhere, stays within one
// processor, has exited or has no known place, nor about the probe's worker. Queue pairs are not read every minute.
func TestProcessNUMA(t *testing.T) {
	far := map[string][]uint32{"mlx5_2": {2001}}
	for name, tc := range map[string]struct {
		tree doctortest.Tree
		of   map[string][]uint32
	}{
		"near one of two": {trees(twoNodes(21), pinned(2001, "a", "0-1")),
			map[string][]uint32{"mlx5_2": {2001}, "mlx5_0": {2002}}},
		"everywhere":           {trees(twoNodes(21), pinned(2001, "a", "0-15")), far},
		"within one processor": {trees(twoNodes(12), pinned(2001, "a", "0-1")), far},
		"gone":                 {twoNodes(21), far},
		"of unknown place":     {trees(twoNodes(21), pinned(2001, "a", "64-70")), far},
		"unknown nodes":        {pinned(2001, "a", "0-1"), far},
		"the probe's worker":   {trees(twoNodes(21), pinned(2001, "railscope-probe", "0-1")), far},
		"no queue pairs":       {trees(twoNodes(21), pinned(2001, "a", "0-1")), nil},
	} {
		o := doctortest.System(t, hgx, tc.tree)
		pairs(tc.of)(&o)
		if list := runSystem(systemFacts(t, o)); len(list) > 0 {
			t.Errorf("%s: %s", name, findingsText(list))
		}
	}
	o := doctortest.System(t, hgx, trees(twoNodes(21), pinned(2001, "a", "0-1")))
	o.Kernel.QueuePairs = func(string, rdmanl.QPLimits, func(rdmanl.QP)) error { return errors.New("no answer") }
	if f := facts.New(o).Gather(context.Background(), facts.All); len(f.Unread) > 0 {
		t.Errorf("%q", f.Unread)
	}
	f := facts.New(o).Gather(context.Background(), facts.ByHand)
	if len(f.Unread) != 3 || !strings.Contains(f.Unread[0], "queue pairs of rail 0 (mlx5_0/1): no answer; see dmesg") {
		t.Errorf("%q", f.Unread)
	}
}

// TestProcessStaysPrivate: peers do not receive the processes, and the running railscope shows no PID.
func TestProcessStaysPrivate(t *testing.T) {
	c := holderCases()[0]
	o := doctortest.System(t, c.fixture, c.change)
	c.with(&o)
	f := systemFacts(t, o)
	if shared := Share(f); len(f.Jobs.Holders) != 2 || len(shared.Jobs.Holders) != 0 {
		t.Error(f.Jobs.Holders, shared.Jobs.Holders)
	}
	list := runSystem(f)
	if len(list) != 1 || strings.Contains(fmt.Sprint(Served(list[0])), "2001") ||
		!strings.Contains(list[0].Where, "2001") {
		t.Error(findingsText(list))
	}
}
