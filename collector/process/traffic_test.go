package process

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
)

// Two Slurm jobs, one of them with two ranks, and two processes of one name on the host. PID 7 is railscope.
const trafficTasks = `
-- proc/self/ns/pid --
-> pid:[4026531836]
-- tasks --
10 10 1 10 0 5 /system.slice/slurmstepd.scope/job_42/step_0/user/task_0 rank
11 11 1 11 0 6 /system.slice/slurmstepd.scope/job_42/step_0/user/task_1 rank1
20 20 1 20 0 7 /slurm/uid_1000/job_77/step_batch lammps
30 30 1 30 0 8 / tool
31 31 1 31 0 8 / tool
70 70 7 70 0 8 / railscope
`

// trafficMachine is a node whose rails carry what the test sets.
type trafficMachine struct {
	*processMachine
	carried map[string]rail.Carried // keyed by rail.Rail.Key
	source  *Source
}

func newTrafficMachine(t *testing.T, limit int) *trafficMachine {
	t.Helper()
	m := &trafficMachine{processMachine: newProcessMachine(t, []byte(trafficTasks)), carried: map[string]rail.Carried{}}
	m.nvml.err = &nvml.Error{Call: "dlopen", Code: nvml.CodeLibrary}
	if err := os.Rename(filepath.Join(m.dir, "proc/self"), filepath.Join(m.dir, "proc/7")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("7", filepath.Join(m.dir, "proc/self")); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		r := rail.Rail{Name: fmt.Sprint(i), Device: fmt.Sprint("mlx5_", i), Port: 1, PCIAddress: fmt.Sprint("0000:1a:00.", i)}
		m.rails, m.kernel.devices = append(m.rails[:i:i], r), append(m.kernel.devices[:i:i], r.Device)
		m.carried[r.Key()] = rail.Carried{Settled: true, Capacity: 1000,
			Group: rail.Group{Role: rail.Compute, Rate: 1000},
			Bytes: [rail.Directions]uint64{uint64(i) * 1e6, uint64(i) * 1e9}}
	}
	m.source = m.processMachine.source(limit)
	m.source.UseTraffic(func(device string) map[string]rail.Carried {
		all := maps.Clone(m.carried)
		maps.DeleteFunc(all, func(key string, _ rail.Carried) bool { return !strings.HasPrefix(key, device+"/") })
		return all
	})
	return m
}

// carry advances the time by 15 s and the rails' bytes by receive, and by twice as many transmitted bytes.
func (m *trafficMachine) carry(receive ...uint64) {
	time.Sleep(15 * time.Second)
	m.pass(receive...)
}

func (m *trafficMachine) pass(receive ...uint64) {
	for i := range receive {
		r := m.rails[i]
		c := m.carried[r.Key()]
		for d := range rail.Directions {
			c.Seconds[d] += 15
			c.Bytes[d] += receive[i] * uint64(1+d)
		}
		m.carried[r.Key()] = c
	}
}

// own sets how many bytes of a rail were railscope's, and whether no round is under way.
func (m *trafficMachine) own(i int, bytes uint64, settled bool) {
	c := m.carried[m.rails[i].Key()]
	c.Own[rail.Receive] += bytes
	c.Settled = settled
	m.carried[m.rails[i].Key()] = c
}

// use sets the queue pairs: RAIL STATE THREAD, separated by commas.
func (m *trafficMachine) use(t *testing.T, list string) {
	t.Helper()
	m.kernel.qps = map[string][]rdmanl.QP{}
	for one := range strings.SplitSeq(list, ",") {
		if f := strings.Fields(one); len(f) == 3 {
			m.kernel.add(t, []string{"mlx5_" + f[0], "1", f[1], f[2], "1"})
		}
	}
}

// lines returns the series of jobs in short form: what, rail or role, r for received bytes, job, value.
func (m *trafficMachine) lines() string {
	short := strings.NewReplacer("process_job_rail_", "", "process_job_rails_", "", "_ratio", "", "_total", "",
		"direction=receive", "r", "rail=", "", "role=", "", "pod=,", "", "container=", "", "comm=", "", "pod=", "")
	var list []string
	for _, line := range processLines(m.source) {
		if strings.HasPrefix(line, "process_job_") && !strings.Contains(line, `direction="transmit"`) {
			list = append(list, short.Replace(strings.ReplaceAll(line, `"`, "")))
		}
	}
	slices.Sort(list)
	return strings.Join(list, "; ")
}

// TestJobTraffic: a job is charged only for bytes between two lists that show it alone on the rail.
func TestJobTraffic(t *testing.T) {
	const both = "0 rts 10, 1 rts 11"
	type step struct {
		use     string
		receive uint64 // bytes that rail 0 received before the list
		change  func(*trafficMachine)
		want    string // series of rail 0
	}
	alone := func(bytes int) string {
		return fmt.Sprintf("bytes{0,r,slurm-42,rank} %d; shared{0,slurm-42,rank} 0", bytes)
	}
	for name, steps := range map[string][]step{
		"one job":                 {{both, 500, nil, alone(0)}, {both, 100, nil, alone(100)}, {both, 30, nil, alone(130)}},
		"another rank of the job": {{both, 0, nil, alone(0)}, {"0 rts 11", 9, nil, alone(9)}},
		"another job comes and goes": {{both, 0, nil, alone(0)}, {both, 10, nil, alone(10)},
			{both + ", 0 rts 20", 100, nil, "shared{0,slurm-42,rank} 1; shared{0,slurm-77,lammps} 1"},
			{both, 100, nil, alone(10)}, {both, 5, nil, alone(15)}},
		"another job takes over": {{both, 0, nil, alone(0)},
			{"1 rts 11, 0 rts 20", 7, nil, "bytes{0,r,slurm-77,lammps} 0; shared{0,slurm-77,lammps} 0"},
			{"1 rts 11, 0 rts 20", 7, nil, "bytes{0,r,slurm-77,lammps} 7; shared{0,slurm-77,lammps} 0"}},
		"one that only receives": {{both + ", 0 rtr 20", 0, nil,
			"shared{0,slurm-42,rank} 1; shared{0,slurm-77,lammps} 1"}},
		"one that has not connected": {{both + ", 0 init 20", 0, nil, alone(0)}},
		"a job that has ended": {{both, 0, nil, alone(0)}, {both, 8, nil, alone(8)},
			{"0 rts 20", 0, nil, "bytes{0,r,slurm-77,lammps} 0; shared{0,slurm-77,lammps} 0"}, {both, 8, nil, alone(0)}},
		"a process that cannot be read, maybe the job's": {{both, 0, nil, alone(0)}, {both, 8, nil, alone(8)},
			{"0 rts 20", 0, func(m *trafficMachine) { m.unreadable(t, "20") }, ""}, {both, 9, nil, alone(8)}},
		"a thread that has ended":  {{both, 0, nil, alone(0)}, {both + ", 0 rts 0", 8, nil, "shared{0,slurm-42,rank} 1"}},
		"a process that has ended": {{both + ", 0 rts 99", 8, nil, "shared{0,slurm-42,rank} 1"}},
		"storage of the kernel": {{both, 0, nil, alone(0)}, {both, 8, func(m *trafficMachine) {
			m.kernel.qps["mlx5_0"] = append(m.kernel.qps["mlx5_0"],
				rdmanl.QP{Port: 1, State: rdmanl.RTS, Kernel: true, Connected: true})
		}, "shared{0,slurm-42,rank} 1"}},
		"management": {{both + ", 0 rts k", 0, nil, alone(0)}, {both + ", 0 rts k", 8, nil, alone(8)}},
		"own rounds": {{both + ", 0 rts 70", 0, nil, alone(0)}, {both, 100, func(m *trafficMachine) {
			m.own(0, 60, true)
		}, alone(40)}, {both, 1, func(m *trafficMachine) { m.own(0, 4, true) }, alone(40)}},
		"a round under way at a list": {{both, 0, nil, alone(0)},
			{both, 100, func(m *trafficMachine) { m.own(0, 0, false) }, alone(0)},
			{both, 1, func(m *trafficMachine) { m.own(0, 90, true) }, alone(11)}},
		"a round under way at the first": {
			{both, 100, func(m *trafficMachine) { m.own(0, 0, false) }, "shared{0,slurm-42,rank} 0"},
			{both, 1, func(m *trafficMachine) { m.own(0, 90, true) }, alone(0)}},
		"a list that fails": {{both, 0, nil, alone(0)},
			{both, 8, func(m *trafficMachine) { m.kernel.err = map[string]error{"mlx5_0": unix.EIO} }, ""},
			{both, 8, func(m *trafficMachine) { m.kernel.err = nil }, alone(0)}, {both, 8, nil, alone(8)}},
		"a list that is cut": {{both, 0, nil, alone(0)},
			{both, 8, func(m *trafficMachine) { m.kernel.err = map[string]error{"mlx5_0": rdmanl.ErrCut} }, ""}},
		"another device that fails": {{both, 0, nil, alone(0)},
			{both, 8, func(m *trafficMachine) { m.kernel.err = map[string]error{"mlx5_1": unix.EIO} }, alone(8)}},
		"a virtual function": {{both, 0, nil, alone(0)},
			{both + ", 9 rts 10", 8, virtual(t), "shared{0,slurm-42,rank} 1"}},
		"storage of the kernel on a virtual function": {{both, 0, nil, alone(0)}, {both, 8, func(m *trafficMachine) {
			virtual(t)(m)
			m.kernel.qps["mlx5_9"] = []rdmanl.QP{{Port: 1, State: rdmanl.RTS, Kernel: true, Connected: true}}
		}, "shared{0,slurm-42,rank} 1"}},
		"a virtual function that is not used": {{both, 0, virtual(t), alone(0)}},
		"a virtual function that fails": {{both, 0, func(m *trafficMachine) {
			virtual(t)(m)
			m.kernel.err = map[string]error{"mlx5_9": unix.EIO}
		}, "shared{0,slurm-42,rank} 1"}},
		"a software device": {{both, 0, func(m *trafficMachine) { m.rails[0].Software = true }, "shared{0,slurm-42,rank} 0"}},
		"a rail without samples": {{both, 0, func(m *trafficMachine) { delete(m.carried, "mlx5_0/1") },
			"shared{0,slurm-42,rank} 0"}},
		"rails that change their names": {{both, 0, nil, alone(0)}, {"0 rts 11, 1 rts 10", 8, func(m *trafficMachine) {
			m.rails[0].Name, m.rails[1].Name = "1", "0"
		}, alone(0)}},
		"two of one name": {{"0 rts 30, 1 rts 31", 0, nil, "bytes{0,r,,tool} 0; shared{0,,tool} 0"},
			{"0 rts 31, 1 rts 30", 8, nil, "bytes{0,r,,tool} 0; shared{0,,tool} 0"},
			{"0 rts 31, 0 rts 30", 8, nil, "shared{0,,tool} 2"}},
	} {
		lanetest.Test(t, func(t *testing.T) {
			m := newTrafficMachine(t, 0)
			for i, step := range steps {
				m.carry(step.receive, 0)
				m.use(t, step.use)
				if step.change != nil {
					step.change(m)
				}
				of0 := slices.DeleteFunc(strings.Split(m.lines(), "; "), func(line string) bool {
					return !strings.Contains(line, "{0,")
				})
				if got := strings.Join(of0, "; "); got != step.want {
					t.Errorf("%s, list %d:\n got %s\nwant %s", name, i, got, step.want)
				}
			}
		})
	}
}

// virtual returns a step that adds a virtual function of rail 0.
func virtual(t *testing.T) func(*trafficMachine) {
	return func(m *trafficMachine) {
		dir := filepath.Join(m.dir, "sys/class/infiniband/mlx5_9/device")
		err := os.MkdirAll(dir, 0o755)
		if err := errors.Join(err, os.Symlink("../0000:1a:00.0", filepath.Join(dir, "physfn"))); err != nil {
			t.Fatal(err)
		}
		m.kernel.devices = append(m.kernel.devices, "mlx5_9")
	}
}

// unreadable makes the files of a process invalid.
func (m *trafficMachine) unreadable(t *testing.T, pid string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, "proc", pid, "stat"), []byte("x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestJobTrafficLateList: what a rail carries while a list waits for the firmware, and until the next list, does
// not belong to the previous list: it counts only after the next list began.
func TestJobTrafficLateList(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newTrafficMachine(t, 0)
		m.use(t, "0 rts 10")
		m.kernel.each = func() { time.Sleep(10 * time.Second) } // it is not repeated for 90 s
		m.lines()
		m.carry(100, 0) // after the list began
		for range 3 {
			if got := m.lines(); got != "bytes{0,r,slurm-42,rank} 0; shared{0,slurm-42,rank} 0" {
				t.Error(got)
			}
			m.carry(10, 0)
		}
		time.Sleep(time.Minute)
		m.kernel.each = nil
		if got := m.lines(); got != "bytes{0,r,slurm-42,rank} 130; shared{0,slurm-42,rank} 0" {
			t.Errorf("the next list: %s", got)
		}
	})
}

// TestJobImbalance: a job's rails are compared over the job's own lists, while it has all of them to itself.
func TestJobImbalance(t *testing.T) {
	const both = "0 rts 10, 1 rts 11"
	lanetest.Test(t, func(t *testing.T) {
		m := newTrafficMachine(t, 0)
		for i, step := range []struct {
			use     string
			receive [2]uint64
			want    string
		}{
			{both, [2]uint64{0, 0}, ""},
			{both, [2]uint64{1000, 610}, "0.39"},
			{both, [2]uint64{1000, 1000}, "0"},
			{both, [2]uint64{100, 0}, ""},                                 // idle
			{both, [2]uint64{1000, 0}, "1"},                               //
			{both + ", 1 rts 20", [2]uint64{1000, 500}, ""},               // another job is on rail 1
			{both, [2]uint64{1000, 500}, ""},                              // the other job has left
			{both, [2]uint64{1000, 500}, "0.5"},                           //
			{"0 rts 10", [2]uint64{1000, 500}, ""},                        // the job uses one rail
			{both, [2]uint64{1000, 500}, ""},                              // and then another one
			{both + ", 0 rts 70, 1 rts 70", [2]uint64{1000, 250}, "0.75"}, // the probe uses both rails, too
		} {
			m.carry(step.receive[:]...)
			m.use(t, step.use)
			got := ""
			for line := range strings.SplitSeq(m.lines(), "; ") {
				if value, found := strings.CutPrefix(line, "imbalance{r,compute,slurm-42,rank} "); found {
					got = value
				}
			}
			if got != step.want {
				t.Errorf("list %d: %q, want %q", i, got, step.want)
			}
		}
		now := func(what, want string) {
			t.Helper()
			if got := m.lines(); !strings.Contains(got, "imbalance{r,compute,slurm-42,rank} "+want) {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		time.Sleep(5 * time.Second)
		m.pass(1000, 1000)
		now("5 s later", "0.75")
		m.carry(1000, 500)
		now("20 s later", "0.25")
		m.carry(1000, 1000)
		m.own(0, 0, false)
		now("a round is under way", "0.25")
		m.own(0, 0, true)
		m.carry(1000, 1000)
		m.hold("mlx5_1")
		now("one list is older", "0.25")
		time.Sleep(2 * time.Minute)
		now("all lists are new", "0")
		m.own(0, 0, false)
		time.Sleep(2*time.Minute + time.Second)
		if got := m.lines(); strings.Contains(got, "imbalance") {
			t.Errorf("not compared for two minutes: %s", got)
		}
	})
}

// hold makes the last list of a device so slow that it is not repeated for 90 s.
func (m *trafficMachine) hold(device string) {
	m.source.pairs.last[device].Load().took = 10 * time.Second
}

// TestJobImbalanceRails: if a job leaves one of three rails, the other two are compared from then on.
func TestJobImbalanceRails(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newTrafficMachine(t, 0)
		for i, step := range []struct{ use, want string }{
			{"0 rts 10, 1 rts 10, 2 rts 10", ""}, {"0 rts 10, 1 rts 10, 2 rts 10", "imbalance{r,compute,slurm-42,rank} 0.9"},
			{"0 rts 10, 1 rts 10", ""}, {"0 rts 10, 1 rts 10", "imbalance{r,compute,slurm-42,rank} 0.5"},
		} {
			m.carry(1000, 500, 100)
			m.use(t, step.use)
			got := ""
			for line := range strings.SplitSeq(m.lines(), "; ") {
				if strings.HasPrefix(line, "imbalance") {
					got = line
				}
			}
			if got != step.want {
				t.Errorf("list %d: %s, want %s", i, got, step.want)
			}
		}
	})
}

// TestJobTrafficVirtualFunction: another job on a virtual function between two lists of the physical function
// counts as a user.
func TestJobTrafficVirtualFunction(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newTrafficMachine(t, 0)
		virtual(t)(m)
		const both = "0 rts 10, 1 rts 10"
		for i, step := range []struct{ use, want string }{
			{both, "bytes{0,r,slurm-42,rank} 0; bytes{1,r,slurm-42,rank} 0; "},
			{both + ", 9 rts 20", "bytes{1,r,slurm-42,rank} 0; "},
			{both, "bytes{1,r,slurm-42,rank} 0; "}, // the rails have not been listed again
			{both, "bytes{0,r,slurm-42,rank} 0; bytes{1,r,slurm-42,rank} 600; "},
			{both, "bytes{0,r,slurm-42,rank} 1000; bytes{1,r,slurm-42,rank} 700; imbalance{r,compute,slurm-42,rank} 0.9; "},
		} {
			if i == 3 { // time for new lists of the rails
				for range 3 {
					m.carry(1000, 100)
				}
				time.Sleep(time.Minute)
			}
			m.carry(1000, 100)
			m.use(t, step.use)
			lines := m.lines()
			if got := lines[:strings.Index(lines, "shared")]; got != step.want {
				t.Errorf("list %d: %s, want %s", i, got, step.want)
			}
			if i == 0 {
				m.hold("mlx5_0")
				m.hold("mlx5_1")
			}
		}
	})
}

// TestJobTrafficBounded: series beyond the limit are summed, and the series of jobs that ended make room.
func TestJobTrafficBounded(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newTrafficMachine(t, 3) // one rail of a job in two directions, and the overflow
		read := func(use string, receive ...uint64) string {
			m.carry(receive...)
			m.use(t, use)
			bytes := slices.DeleteFunc(processLines(m.source), func(line string) bool {
				return !strings.Contains(line, "bytes_total")
			})
			return fmt.Sprint(len(bytes), " ", strings.Contains(fmt.Sprint(bytes), "slurm-42"))
		}
		if got := read("0 rts 10", 0, 0); got != "2 true" {
			t.Error(got)
		}
		if got := read("0 rts 10, 1 rts 20", 0, 0); got != "3 true" {
			t.Error(got)
		}
		read("0 rts 10, 1 rts 20", 10, 100)
		if got := m.lines(); !strings.Contains(got, "bytes{other,direction=other,other,other,other} 300") {
			t.Error(got)
		}
		if got := read("1 rts 20", 0, 0); got != "3 false" { // there is room now
			t.Error(got)
		}
		if n := len(m.source.traffic.jobs); n != 1 {
			t.Errorf("%d jobs", n)
		}
		m.unreadable(t, "30")
		m.use(t, "0 rts 30")
		for _, want := range []int{1, 0} { // for two minutes, a process that cannot be read may belong to the job
			m.lines()
			if n := len(m.source.traffic.jobs); n != want {
				t.Errorf("%d jobs, want %d", n, want)
			}
			time.Sleep(qpFresh)
		}
		const four = "0 rts 10, 1 rts 10, 2 rts 20, 3 rts 20" // a job on two rails has two imbalances
		for i := range 2 {
			m.use(t, four)
			m.carry(1000, 500, 1000, 700)
			imbalances := slices.DeleteFunc(processLines(m.source), func(line string) bool {
				return !strings.Contains(line, "imbalance")
			})
			if len(imbalances) != 3*i || strings.Contains(fmt.Sprint(imbalances), "other") {
				t.Errorf("imbalances %q", imbalances)
			}
		}
	})
}
