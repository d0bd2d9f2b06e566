package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func cpus(set unix.CPUSet) (list []int) {
	for cpu := range 1024 {
		if set.IsSet(cpu) {
			list = append(list, cpu)
		}
	}
	return list
}

func TestAmong(t *testing.T) {
	var allowed unix.CPUSet
	for _, cpu := range []int{0, 1, 2, 3, 64, 65, 1023} {
		allowed.Set(cpu)
	}
	for list, want := range map[string][]int{
		"0-1,64-127\n": {0, 1, 64, 65}, "3": {3}, "": nil, "\n": nil, "4-63": nil, "2,x,65-": {2}, "1023-65535": {1023},
		"3-1": nil, "-1": nil,
	} {
		if got := cpus(among(list, allowed)); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", list, got, want)
		}
	}
}

// TestOnNode: the thread runs on the CPUs of the node, and afterwards where it ran before.
func TestOnNode(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	affinity := func() []int {
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(0, &set); err != nil {
			t.Fatal(err)
		}
		return cpus(set)
	}
	all, dir := affinity(), t.TempDir()
	last := all[len(all)-1]
	for node, list := range []string{fmt.Sprint(last), "", "5000-5001"} {
		at := filepath.Join(dir, fmt.Sprintf("node%d", node))
		if err := os.Mkdir(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, "cpulist"), []byte(list+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for node, want := range map[int][]int{0: {last}, 1: all, 2: all, 3: all, -1: all} {
		var got []int
		onNode(dir, node, func() { got = affinity() })
		if after := affinity(); !slices.Equal(got, want) || !slices.Equal(after, all) {
			t.Errorf("node %d: on %v, want %v; then on %v, want %v", node, got, want, after, all)
		}
	}
}

func TestMostOf(t *testing.T) {
	for _, c := range []struct {
		nodes []int
		want  int
	}{{nil, -1}, {[]int{-1, -1}, -1}, {[]int{0}, 0}, {[]int{1, 0}, 0}, {[]int{0, 1, 1}, 1}, {[]int{-1, -1, 1}, 1}} {
		if got := mostOf(c.nodes); got != c.want {
			t.Errorf("%v: %d, want %d", c.nodes, got, c.want)
		}
	}
}
