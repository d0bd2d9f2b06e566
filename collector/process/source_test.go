package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/collectortest"
	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/sysfs"
)

// processLines reads a source and returns all samples and faults, one per line, without the rows about the read
// itself.
func processLines(p *Source) []string {
	var lines []string
	err := p.Read(func(s collector.Sample) {
		if strings.HasSuffix(s.Metric.Name, "_seconds") {
			return
		}
		var labels []string
		for i, value := range s.Labels {
			labels = append(labels, fmt.Sprintf("%s=%q", s.Metric.Labels[i], value))
		}
		lines = append(lines, fmt.Sprintf("%s{%s} %v", s.Metric.Name, strings.Join(labels, ","), s.Value))
	})
	if errors.Is(err, collector.ErrAbsent) {
		return append(lines, "absent")
	}
	for _, f := range collector.Faults(err) {
		lines = append(lines, fmt.Sprintf("fault %s %v: %s", f.Reason, f.Expected, f.Error()))
	}
	return lines
}

func capture(t testing.TB, name string) *processMachine {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	return newProcessMachine(t, data)
}

// same compares two lists of lines in any order.
func same(t *testing.T, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestProcessKubernetes: threads belong to their process and logs name pods. Queue pairs of the kernel and of an
// ended process (8888) have no owner. Memory that the driver does not report is absent.
func TestProcessKubernetes(t *testing.T) {
	m := capture(t, "kubernetes")
	want := []string{
		`process_queue_pairs{rail="0",pod="",container="",comm="storaged",state="rts"} 3`,
		`process_queue_pairs{rail="0",pod="default/train-0",container="trainer",comm="python3",state="rts"} 16`,
		`process_queue_pairs{rail="1",pod="default/train-0",container="trainer",comm="python3",state="reset"} 1`,
		`process_queue_pairs{rail="1",pod="default/train-0",container="trainer",comm="python3",state="rtr"} 1`,
		`process_queue_pairs{rail="1",pod="default/train-0",container="trainer",comm="python3",state="rts"} 8`,
		`process_job_rail_shared{rail="0",pod="",container="",comm="storaged"} 1`,
		`process_job_rail_shared{rail="0",pod="default/train-0",container="trainer",comm="python3"} 1`,
		`process_job_rail_shared{rail="1",pod="default/train-0",container="trainer",comm="python3"} 0`,
		`process_gpu_memory_bytes{gpu="0",pod="default/train-0",container="trainer",comm="python3"} 1e+10`,
		`process_gpu_memory_bytes{gpu="1",pod="default/train-0",container="trainer",comm="python3"} 1.1e+10`,
		`process_gpu_memory_bytes{gpu="2",pod="serving/vllm-7d9f",container="deadbeefdead",comm="vllm"} 9e+10`,
		`process_gpu_memory_bytes{gpu="3",pod="serving/vllm-7d9f",container="deadbeefdead",comm="vllm"} 9e+10`,
		`process_gpu_without_rdma{pod="default/train-0",container="trainer",comm="python3",spans="gpus"} 0`,
		`process_gpu_without_rdma{pod="serving/vllm-7d9f",container="deadbeefdead",comm="vllm",spans="gpus"} 1`,
	}
	p := m.source(0)
	for range 2 {
		same(t, want, processLines(p))
	}
}

// TestProcessBare: jobs without Kubernetes are distinguished by Slurm, container and ancestors. A virtual function
// is on its physical function's rail. A desktop, MPS and a job that has just started are not judged.
func TestProcessBare(t *testing.T) {
	m := capture(t, "bare")
	m.kernel.devices = append(m.kernel.devices, "mlx5_2", "mlx5_3")
	m.environ(t, 101, "HOME=/", "SLURM_STEP_NUM_NODES=1")
	m.environ(t, 302, "WORLD_SIZE=16", "LOCAL_WORLD_SIZE=1", "SLURM_STEP_NUM_NODES=1")
	want := []string{
		`process_queue_pairs{rail="",pod="",container="slurm-42",comm="a.out",state="init"} 1`,
		`process_queue_pairs{rail="1",pod="",container="",comm="",state="init"} 1`,
		`process_queue_pairs{rail="1",pod="",container="c0ffee00c0ff",comm="trtllm",state="rts"} 2`,
		`process_job_rail_shared{rail="1",pod="",container="c0ffee00c0ff",comm="trtllm"} 1`,
		`process_gpu_memory_bytes{gpu="0",pod="",container="",comm="Xorg"} 5`,
		`process_gpu_memory_bytes{gpu="0",pod="",container="",comm="new"} 7`,
		`process_gpu_memory_bytes{gpu="0",pod="",container="",comm="nvidia-cuda-mps-server"} 6`,
		`process_gpu_memory_bytes{gpu="0",pod="",container="",comm="rank"} 400`,
		`process_gpu_memory_bytes{gpu="0",pod="",container="",comm="single"} 300`,
		`process_gpu_memory_bytes{gpu="0",pod="",container="c0ffee00c0ff",comm="trtllm"} 2000`,
		`process_gpu_memory_bytes{gpu="0",pod="",container="slurm-42",comm="a.out"} 1000`,
		`process_gpu_memory_bytes{gpu="1",pod="",container="",comm="Xorg"} 5`,
		`process_gpu_memory_bytes{gpu="1",pod="",container="",comm="new"} 7`,
		`process_gpu_memory_bytes{gpu="1",pod="",container="",comm="nvidia-cuda-mps-server"} 6`,
		`process_gpu_memory_bytes{gpu="1",pod="",container="",comm="rank"} 400`,
		`process_gpu_memory_bytes{gpu="1",pod="",container="",comm="single"} 300`,
		`process_gpu_memory_bytes{gpu="1",pod="",container="c0ffee00c0ff",comm="trtllm"} 2000`,
		`process_gpu_memory_bytes{gpu="1",pod="",container="slurm-42",comm="a.out"} 1000`,
		`process_gpu_memory_bytes{gpu="2",pod="",container="c0ffee00c0ff",comm="trtllm"} 9000`,
		`process_gpu_without_rdma{pod="",container="",comm="rank",spans="gpus"} 1`,
		`process_gpu_without_rdma{pod="",container="",comm="single",spans="nodes"} 1`,
		`process_gpu_without_rdma{pod="",container="c0ffee00c0ff",comm="trtllm",spans="gpus"} 0`,
	}
	same(t, want, processLines(m.source(0)))
}

// TestJobs: a job has the rails of all its connected queue pairs, and the variables that its processes set. A rail
// is in use while a process other than railscope has a queue pair on it that is or was connected.
func TestJobs(t *testing.T) {
	find := func(m *processMachine) (string, *Source) {
		p := m.source(0)
		processLines(p)
		jobs, knownJobs := p.Jobs()
		used, knownRails := p.RailsInUse()
		text := fmt.Sprintf("%+v %v; %v %v", jobs, knownJobs, used, knownRails)
		return strings.ReplaceAll(text, "pod 3f1c9e0a-4b7d-4f7a-9c55-0d5d8a4f1b2e", "pod"), p
	}
	for name, tt := range map[string]struct {
		change func(m *processMachine)
		want   string
	}{
		"training on both rails": {func(*processMachine) {},
			"[{Name:default/train-0 Comm:python3 GPUs:2 Rails:[0 1] EnvironmentRead:false Variables:[]}] true; map[0:[pod tree 7000] 1:[pod]] true"},
		"with environments": {func(m *processMachine) {
			m.environ(t, 4001, "HOME=/", "NCCL_IB_HCA=mlx5_0", "UCX_NET_DEVICES=")
			m.environ(t, 4002, "NCCL_IB_HCA=mlx5_0", "NCCL_DEBUG=INFO")
		}, "[{Name:default/train-0 Comm:python3 GPUs:2 Rails:[0 1] EnvironmentRead:true " +
			"Variables:[NCCL_IB_HCA UCX_NET_DEVICES]}] true; map[0:[pod tree 7000] 1:[pod]] true"},
		"on one of them": {func(m *processMachine) { m.kernel.qps["mlx5_1"] = nil },
			"[{Name:default/train-0 Comm:python3 GPUs:2 Rails:[0] EnvironmentRead:false Variables:[]}] true; map[0:[pod tree 7000]] true"},
		"a connection that broke": {func(m *processMachine) {
			m.kernel.qps["mlx5_1"] = []rdmanl.QP{{Port: 1, State: 6, PID: 4101}}
		}, "[{Name:default/train-0 Comm:python3 GPUs:2 Rails:[0] EnvironmentRead:false Variables:[]}] true; map[0:[pod tree 7000] 1:[pod]] true"},
		"too young": {func(m *processMachine) { m.now = 900_000 + 119*100 }, "[] true; map[0:[pod tree 7000] 1:[pod]] true"},
		"an owner that is hidden": {func(m *processMachine) {
			m.kernel.qps["mlx5_1"] = []rdmanl.QP{{Port: 1, State: rdmanl.RTS}}
		}, "[] false; map[0:[pod tree 7000] 1:[unknown on rail 1]] true"},
		"a device that failed": {func(m *processMachine) {
			m.kernel.err = map[string]error{"mlx5_1": unix.EIO}
		}, "[] false; map[] false"},
		"a rail whose device is elsewhere": {func(m *processMachine) { m.kernel.devices = m.kernel.devices[:1] },
			"[] false; map[] false"},
		"its own probe": {func(m *processMachine) {
			m.task(t, []string{"8000", "8000", "7999", "8000", "0", "1000", "/x", "railscope"})
			m.kernel.qps["mlx5_0"] = nil
			m.kernel.qps["mlx5_1"] = []rdmanl.QP{{Port: 1, State: rdmanl.RTS, PID: 8000}}
			self := filepath.Join(m.dir, "proc/self")
			if err := errors.Join(os.Rename(self, filepath.Join(m.dir, "proc/7999")),
				os.Symlink("7999", self)); err != nil {
				t.Fatal(err)
			}
		}, "[] true; map[] true"},
	} {
		m := capture(t, "kubernetes")
		tt.change(m)
		if got, _ := find(m); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, tt.want)
		}
	}
	lanetest.Test(t, func(t *testing.T) {
		_, p := find(capture(t, "kubernetes"))
		time.Sleep(qpFresh)
		_, jobs := p.Jobs()
		if _, rails := p.RailsInUse(); jobs || rails {
			t.Error("known without a read for two minutes")
		}
	})
}

// judged returns the lines of rows that judge a job.
func judged(p *Source) []string {
	return slices.DeleteFunc(processLines(p), func(line string) bool {
		return !strings.HasPrefix(line, "process_gpu_without_rdma") && !strings.HasPrefix(line, "fault")
	})
}

// TestProcessNotJudged: no job is judged while an unknown queue pair may belong to it.
func TestProcessNotJudged(t *testing.T) {
	const accused = `process_gpu_without_rdma{pod="serving/vllm-7d9f",container="deadbeefdead",comm="vllm",spans="gpus"} 1`
	for _, tt := range []struct {
		name   string
		change func(*processMachine)
		want   bool
	}{
		{"as it is", func(*processMachine) {}, true},
		{"a queue pair that can send, of a thread that has ended", func(m *processMachine) {
			m.kernel.qps["mlx5_1"] = append(m.kernel.qps["mlx5_1"], rdmanl.QP{State: rdmanl.RTS})
		}, false},
		{"one of a thread that has ended, on a device that is not a rail", func(m *processMachine) {
			m.kernel.devices = append(m.kernel.devices, "mlx5_9")
			m.kernel.qps["mlx5_9"] = []rdmanl.QP{{State: rdmanl.RTS, Port: 1}}
			m.device(t, "mlx5_9")
		}, true},
		{"one of its own, on a device that is not a rail", func(m *processMachine) {
			m.kernel.devices = append(m.kernel.devices, "mlx5_9")
			m.kernel.qps["mlx5_9"] = []rdmanl.QP{{State: rdmanl.RTS, Port: 1, PID: 5000}}
			m.device(t, "mlx5_9")
		}, true},
		{"one of its own, on a device that could not be made a rail", func(m *processMachine) {
			m.kernel.qps["mlx5_1"] = append(m.kernel.qps["mlx5_1"], rdmanl.QP{State: rdmanl.RTS, Port: 1, PID: 5000})
			m.device(t, "mlx5_1")
			m.rails, m.railsErr = m.rails[:1], unix.EIO
		}, false},
		{"one of its own, on a virtual function of who knows what", func(m *processMachine) {
			m.kernel.devices = append(m.kernel.devices, "mlx5_9")
			m.kernel.qps["mlx5_9"] = []rdmanl.QP{{State: rdmanl.RTS, Port: 1, PID: 5000}}
			m.device(t, "mlx5_9/device/physfn")
		}, false},
		{"one of its own, on a device that sysfs does not show", func(m *processMachine) {
			m.kernel.devices = append(m.kernel.devices, "mlx5_9")
			m.kernel.qps["mlx5_9"] = []rdmanl.QP{{State: rdmanl.RTS, Port: 1, PID: 5000}}
		}, false},
		{"one that cannot", func(m *processMachine) {
			m.kernel.qps["mlx5_1"] = append(m.kernel.qps["mlx5_1"], rdmanl.QP{State: 6})
		}, true},
		{"a dump cut short", func(m *processMachine) {
			m.kernel.err = map[string]error{"mlx5_1": fmt.Errorf("%w: too many", rdmanl.ErrCut)}
		}, false},
		{"a device that fails", func(m *processMachine) { m.kernel.err = map[string]error{"mlx5_0": unix.EIO} }, false},
		{"a rail whose device is not listed", func(m *processMachine) {
			m.kernel.devices = m.kernel.devices[:1]
		}, false},
		{"a node without rails", func(m *processMachine) { m.rails = nil }, false},
		{"a job of a minute", func(m *processMachine) { m.now = 800000 + 6000 }, false},
		{"devices are in network namespaces that we do not see", func(m *processMachine) { m.kernel.shared = false },
			false},
	} {
		m := capture(t, "kubernetes")
		tt.change(m)
		if got := judged(m.source(0)); slices.Contains(got, accused) != tt.want {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}

// TestProcessEnvironLate: while a job's environment is not known, the job is not judged by its GPUs.
func TestProcessEnvironLate(t *testing.T) {
	m := capture(t, "kubernetes")
	p := m.source(0)
	p.opts.Budget = time.Second
	hang := make(chan struct{})
	p.spans.lanes.Run(time.Millisecond, []string{"environ"}, func(string) struct{} { // a read that waits for a lock
		<-hang
		return struct{}{}
	})
	if got := judged(p); len(got) > 0 {
		t.Errorf("judged %q before any environment was read", got)
	}
	close(hang)
	for start := time.Now(); len(judged(p)) == 0; time.Sleep(time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			t.Fatal("never judged")
		}
	}
}

// TestProcessNamespaces: if devices belong to network namespaces, the jobs in ours can be judged.
func TestProcessNamespaces(t *testing.T) {
	m := capture(t, "kubernetes")
	m.kernel.shared = false
	for path, target := range map[string]string{"self/ns/net": "ours", "5000/ns/net": "ours", "4001/ns/net": "ours",
		"4002/ns/net": "theirs"} {
		for _, name := range []string{"ours", "theirs"} {
			if err := os.WriteFile(filepath.Join(m.dir, name), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		path = filepath.Join(m.dir, "proc", path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.Symlink(filepath.Join(m.dir, target), path)); err != nil {
			t.Fatal(err)
		}
	}
	m.kernel.qps = nil
	same(t, []string{`process_gpu_without_rdma{pod="serving/vllm-7d9f",container="deadbeefdead",comm="vllm",spans="gpus"} 1`}, judged(m.source(0)))
}

func TestSpanOf(t *testing.T) {
	for _, tt := range []struct {
		env  string
		want jobSpan
	}{
		{"", spanUnknown},
		{"WORLD_SIZE=8 LOCAL_WORLD_SIZE=8", spanNode},
		{"WORLD_SIZE=16 LOCAL_WORLD_SIZE=8", spanNodes},
		{"WORLD_SIZE=16", spanUnknown},
		{"WORLD_SIZE=x LOCAL_WORLD_SIZE=8 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2", spanNodes},
		{"WORLD_SIZE=8 LOCAL_WORLD_SIZE=8 SLURM_STEP_NUM_NODES=4", spanNode},
		{"SLURM_STEP_NUM_NODES=4", spanNodes},
		{"SLURM_STEP_NUM_NODES=1", spanNode},
		{"SLURM_STEP_NUM_NODES=0", spanUnknown},
		{"PMI_SIZE=2 MPI_LOCALNRANKS=1", spanNodes},
	} {
		env := map[string]string{}
		for v := range strings.FieldsSeq(tt.env) {
			name, value, _ := strings.Cut(v, "=")
			if !sized(name) {
				t.Errorf("%s is not read", name)
			}
			env[name] = value
		}
		if got := spanOf(env); got != tt.want {
			t.Errorf("%q: %v, want %v", tt.env, got, tt.want)
		}
	}
	if sized("HOME") || sized("") {
		t.Error("a variable of no launcher is read")
	}
}

// TestProcessReused: a PID whose process began after the list was read belongs to another process.
func TestProcessReused(t *testing.T) {
	m := newProcessMachine(t, []byte(`
-- proc/self/ns/pid --
-> pid:[4026531836]
-- tasks --
10 10 1 10 0 1000001 / later
11 11 1 11 0 1000000 / same tick
-- qps --
mlx5_0 1 rts 10 1
mlx5_0 1 rts 11 1
-- gpus --
0 GPU-0 10 5 c
0 GPU-0 11 6 c
`))
	same(t, []string{
		`process_job_rail_shared{rail="0",pod="",container="",comm="same_tick"} 1`,
		`process_queue_pairs{rail="0",pod="",container="",comm="same_tick",state="rts"} 1`,
		`process_gpu_memory_bytes{gpu="0",pod="",container="",comm="same_tick"} 6`,
	}, processLines(m.source(0)))
}

// TestProcessComm: a process's name may be any bytes.
func TestProcessComm(t *testing.T) {
	m := newProcessMachine(t,
		[]byte("-- proc/self/ns/pid --\n-> pid:[4026531836]\n-- qps --\nmlx5_0 1 rts 10 1\nmlx5_0 1 rts 11 2\n"))
	m.nvml.err = &nvml.Error{Call: "dlopen", Code: nvml.CodeNotBuilt}
	for _, pid := range []string{"10", "11"} {
		m.task(t, []string{pid, pid, "1", pid, "0", "5", "/", "tr\xe9n" + pid[:1]})
	}
	same(t, []string{`process_queue_pairs{rail="0",pod="",container="",comm="tr_n1",state="rts"} 3`,
		`process_job_rail_shared{rail="0",pod="",container="",comm="tr_n1"} 2`},
		processLines(m.source(0)))
}

// TestProcessAbsent: a machine without RDMA and GPUs has no processes to report.
func TestProcessAbsent(t *testing.T) {
	m := newProcessMachine(t, []byte("-- proc/self/ns/pid --\n-> pid:[4026531836]\n"))
	m.kernel.err = map[string]error{"": unix.EPROTONOSUPPORT}
	m.nvml.err = &nvml.Error{Call: "dlopen", Code: nvml.CodeLibrary}
	same(t, []string{"absent"}, processLines(m.source(0)))
	m.kernel.err, m.kernel.devices = nil, nil
	same(t, []string{"absent"}, processLines(m.source(0)))
	m.nvml.err = &nvml.Error{Call: "nvmlInit_v2", Code: nvml.CodeVersionMismatch}
	if got := processLines(m.source(0)); len(got) != 1 || !strings.HasPrefix(got[0],
		"fault version_mismatch false: nvmlInit_v2") {
		t.Errorf("NVML fails: %q", got)
	}
}

// TestProcessNamespace: without access to the host's processes, the source returns only an error that says what to
// do.
func TestProcessNamespace(t *testing.T) {
	for _, tt := range []struct{ name, files, reason, text string }{
		{"in a container", "-- proc/self/ns/pid --\n-> pid:[4026532000]\n", collector.ReasonNamespace, "hostPID: true"},
		{"no procfs", "-- sys/x --\n", sysfs.ReasonVanished, "--path.procfs"},
	} {
		m := newProcessMachine(t, []byte(tt.files+"-- qps --\nmlx5_0 1 rts 0 1\n"))
		err := m.source(0).Read(func(s collector.Sample) { t.Error(s) })
		f, ok := errors.AsType[*collector.Fault](err)
		if !ok || f.Reason != tt.reason || f.Expected || !strings.Contains(f.Error(), tt.text) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// TestProcessMIGParent: that the parent of MIG instances lists its processes for privileged callers only is expected;
// of another GPU it is a fault.
func TestProcessMIGParent(t *testing.T) {
	for mig, want := range []string{"fault permission false: gpu2: ", "fault permission true: gpu2: "} {
		m := capture(t, "kubernetes")
		m.nvml.gpus[2].mig = uint64(mig)
		m.nvml.gpus[2].err = &nvml.Error{Call: "nvmlDeviceGetComputeRunningProcesses", Code: nvml.CodeNoPermission}
		got := processLines(m.source(0))
		if !slices.ContainsFunc(got, func(l string) bool { return strings.HasPrefix(l, want) }) {
			t.Errorf("MIG mode %d: no line %s in\n%s", mig, want, strings.Join(got, "\n"))
		}
	}
}

// TestProcessFaults: each failure is reported, and affects nothing else.
func TestProcessFaults(t *testing.T) {
	m := capture(t, "kubernetes")
	m.kernel.err = map[string]error{"mlx5_0": unix.EINVAL, "mlx5_1": fmt.Errorf("%w after 3: %w", rdmanl.ErrCut,
		os.ErrDeadlineExceeded)}
	m.nvml.gpus[2].err = &nvml.Error{Call: "nvmlDeviceGetComputeRunningProcesses", Code: nvml.CodeGPULost}
	got := processLines(m.source(0))
	for _, want := range []string{
		`process_queue_pairs{rail="1",pod="default/train-0",container="trainer",comm="python3",state="rts"} 8`,
		`process_gpu_memory_bytes{gpu="3",pod="serving/vllm-7d9f",container="deadbeefdead",comm="vllm"} 9e+10`,
		"fault unsupported false: mlx5_0: invalid argument",
		"fault timeout false: mlx5_1: the number of queue pairs is a lower bound: the dump was cut short after 3: " +
			"i/o timeout",
		"fault gpu_lost false: gpu2: nvmlDeviceGetComputeRunningProcesses: the GPU is lost",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no line %s", want)
		}
	}
	for _, line := range got {
		if strings.Contains(line, `rail="0"`) || strings.Contains(line, `gpu="2"`) || strings.Contains(line,
			"without") {
			t.Errorf("%s, which is unknown", line)
		}
	}
}

func TestRailNames(t *testing.T) {
	sys := t.TempDir()
	for device, physical := range map[string]string{"mlx5_4": "../0000:1a:00.0", "mlx5_5": "../0000:99:00.0"} {
		dir := filepath.Join(sys, "class/infiniband", device, "device")
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Symlink(physical, filepath.Join(dir, "physfn"))); err != nil {
			t.Fatal(err)
		}
	}
	p := &Source{opts: Options{Sysfs: sys}}
	rails := []rail.Rail{
		{Name: "a", Device: "mlx5_0", Port: 1, PCIAddress: "0000:1a:00.0"},
		{Name: "b", Device: "mlx4_0", Port: 1, PCIAddress: "0000:3d:00.0"},
		{Name: "c", Device: "mlx4_0", Port: 2, PCIAddress: "0000:3d:00.0"},
		{Name: "d", Device: "rxe0", Port: 1}, {Name: "e", Device: "rxe1", Port: 1},
	}
	for _, tt := range []struct {
		device string
		port   uint32
		want   string
	}{
		{"mlx5_0", 1, "a"}, {"mlx5_0", 0, "a"}, {"mlx5_0", 2, ""},
		{"mlx4_0", 1, "b"}, {"mlx4_0", 2, "c"}, {"mlx4_0", 0, ""},
		{"mlx5_4", 1, "a"}, {"mlx5_5", 1, ""}, {"mlx5_9", 1, ""},
		{"rxe1", 1, "e"}, {"rxe1", 0, "e"}, {"rxe2", 0, ""},
	} {
		of, _ := p.railsOf(tt.device, rails)
		if got := railName(of, tt.port); got != tt.want {
			t.Errorf("%s/%d: %q, want %q", tt.device, tt.port, got, tt.want)
		}
	}
}

// TestUnexaminedDevice: a device that cannot be examined is the rdma source's to report; this source succeeds without
// it. Without any rail it says why.
func TestUnexaminedDevice(t *testing.T) {
	m := capture(t, "kubernetes")
	read := func() (lines, faults []string, err error) {
		lines, faults, err = collectortest.ReadLines(t, m.source(0))
		return slices.DeleteFunc(lines, func(s string) bool { return strings.Contains(s, "_seconds") }), faults, err
	}
	want, faults, err := read()
	if err != nil || len(faults) > 0 {
		t.Fatal(faults, err)
	}
	m.railsErr = errors.Join(&rail.DeviceError{Device: "mlx5_9", Err: unix.EIO})
	got, faults, err := read()
	if err != nil || len(faults) > 0 {
		t.Errorf("it failed: %q, %v", faults, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	m.rails = nil
	_, faults, err = read()
	if err == nil || len(faults) != 1 {
		t.Errorf("no rails: %q, %v", faults, err)
	}
}

// TestStatKept: stat is read once in a while of a process, and at once of another process under its PID.
func TestStatKept(t *testing.T) {
	m := newProcessMachine(t, nil)
	write := func(start string) { m.task(t, []string{"10", "10", "1", "10", "0", start, "/", "rank"}) }
	c := ownerCache{procfs: filepath.Join(m.dir, "proc"), kept: map[int]*keptTask{}}
	read := func() uint64 {
		st, err := c.task(10)
		if err != nil {
			t.Fatal(err)
		}
		return st.Start
	}
	write("5")
	first := read()
	write("6")
	second := read()
	c.kept[10].read = time.Now().Add(-fresh)
	third := read()
	if err := os.Rename(filepath.Join(m.dir, "proc/10"), filepath.Join(m.dir, "proc/ended")); err != nil {
		t.Fatal(err)
	}
	write("7")
	if got := []uint64{first, second, third, read()}; !slices.Equal(got, []uint64{5, 5, 6, 7}) {
		t.Errorf("started at %v", got)
	}
	if err := os.RemoveAll(filepath.Join(m.dir, "proc/10")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.task(10); sysfs.Reason(err) != sysfs.ReasonVanished {
		t.Errorf("an ended process: %v", err)
	}
}
