package deadpath_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/doctor/deadpath"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/rail"
)

// TestWaits: by the variables of the jobs, or by the defaults of the libraries; as measured where the adapter and the
// setting were, else by the specification.
func TestWaits(t *testing.T) {
	process := func(count int, vars ...string) facts.Env {
		env := facts.Env{Vars: map[string]string{}, Count: count, Processes: []facts.Process{{PID: 7, Comm: "python3"}}}
		for i := 0; i < len(vars); i += 2 {
			env.Vars[vars[i]] = vars[i+1]
		}
		return env
	}
	file := func(path string, vars ...string) facts.Env {
		env := process(0, vars...)
		env.File, env.Processes = path, nil
		return env
	}
	const unmeasured = "; by the specification, not measured on these adapters)"
	for _, tc := range []struct {
		why       string
		kind      string // Kind of two rails; empty: there are none.
		gpus      int
		installed []string // component, version, …
		envs      []facts.Env
		want      []string
	}{
		{"no rails", "", 8, []string{"nccl", "2.27.3"}, nil, nil},
		{"neither GPUs nor libraries", "mlx5_core MT4129", 0, nil, nil, nil},
		{"NCCL in a container", "mlx5_core MT4129", 8, nil, nil, []string{"NCCL detects a dead path after 34.4 to " +
			"137 s (timeout 20 and 7 retries: the default since NCCL 2.23" + unmeasured}},
		{"on the adapter of the measurement", "mlx5_core MT4123 MT_0000000223", 8, []string{"nccl", "2.27.3"}, nil,
			[]string{"NCCL detects a dead path after 58.5 to 58.8 s (timeout 20 and 7 retries: the default since " +
				"NCCL 2.23; measured on ConnectX-6, firmware 20.43.4100)"}},
		{"a ConnectX-6 Dx", "mlx5_core MT4125", 0, []string{"nccl", "2.18.1"}, nil, []string{"NCCL detects a dead " +
			"path after 8.59 to 34.4 s (timeout 18 and 7 retries: the default of NCCL 2.18.1" + unmeasured}},
		{"several versions", "bnxt_en", 0, []string{"nccl", "2.27.3", "nccl", "2.12.12", "nccl", "2.14.3"}, nil,
			[]string{"NCCL detects a dead path after 0.54 to 2.15 s (timeout 14 and 7 retries: the default of NCCL " +
				"2.12.12" +
				unmeasured}},
		{"a job, and its floor", "mlx5_core MT4123", 8, nil, []facts.Env{process(8, "NCCL_IB_TIMEOUT", "14")},
			[]string{"NCCL detects a dead path after 3.50 to 3.76 s (timeout 14 and 7 retries: process python3 and " +
				"7 more; measured on ConnectX-6, firmware 20.43.4100)"}},
		{"the ends of the floor, and beside them", "mlx5_core " +
			"MT4123", 8, nil, []facts.Env{process(1, "NCCL_IB_TIMEOUT", "10"),
			process(1, "NCCL_IB_TIMEOUT", "16"), process(1, "NCCL_IB_TIMEOUT", "9"), process(1, "NCCL_IB_TIMEOUT", "17"),
			process(1, "NCCL_IB_TIMEOUT", "20", "NCCL_IB_RETRY_CNT", "6")}, []string{
			"NCCL detects a dead path after 3.50 to 3.76 s (timeout 10 and 7 retries: process python3; measured on " +
				"ConnectX-6, firmware 20.43.4100)",
			"NCCL detects a dead path after 3.50 to 3.76 s (timeout 16 and 7 retries: process python3; measured on " +
				"ConnectX-6, firmware 20.43.4100)",
			"NCCL detects a dead path after 0.017 to 0.067 s (timeout 9 and 7 retries: process python3" + unmeasured,
			"NCCL detects a dead path after 4.29 to 17.2 s (timeout 17 and 7 retries: process python3" + unmeasured,
			"NCCL detects a dead path after 30.1 to 120 s (timeout 20 and 6 retries: process python3" + unmeasured}},
		{"a setting that was not measured", "mlx5_core MT4123", 8, nil, []facts.Env{process(1, "NCCL_IB_TIMEOUT", "22",
			"NCCL_IB_RETRY_CNT", "3")}, []string{"NCCL detects a dead path after 68.7 to 275 s (timeout 22 and 3 " +
			"retries: process python3" + unmeasured}},
		{"a file, and a job that changes a half of " +
			"it", "bnxt_en", 8, nil, []facts.Env{process(1, "NCCL_IB_RETRY_CNT", "1"),
			file("/etc/nccl.conf", "NCCL_IB_TIMEOUT", "18"), process(1, "NCCL_NET", "IB")}, []string{
			"NCCL detects a dead path after 8.59 to 34.4 s (timeout 18 and 7 retries: /etc/nccl.conf" + unmeasured,
			"NCCL detects a dead path after 2.15 to 8.59 s (timeout 18 and 1 retry: process python3" + unmeasured}},
		{"values that NCCL ignores, and one that waits " +
			"forever", "bnxt_en", 8, nil, []facts.Env{process(1, "NCCL_IB_TIMEOUT", "99"),
			process(1, "NCCL_IB_TIMEOUT", "0")}, []string{
			"NCCL waits forever for a peer that does not answer (timeout 0 and 7 retries: process python3)"}},
		{"UCX", "bnxt_en", 0, []string{"ucx", "1.18.0"}, nil, []string{"UCX detects a dead path after 8.59 to 34.4 s " +
			"(timeout 18 and 7 retries: the default" + unmeasured}},
		{"UCX's variables, without UCX on the " +
			"host", "bnxt_en", 0, nil, []facts.Env{process(1, "UCX_RC_TIMEOUT", "500ms"),
			process(1, "UCX_RC_TIMEOUT", "2", "UCX_RC_RETRY_COUNT", "4"), process(1, "UCX_RC_TIMEOUT", "soon")}, []string{
			"UCX detects a dead path after 4.29 to 17.2 s (timeout 17 and 7 retries: process python3" + unmeasured,
			"UCX detects a dead path after 10.7 to 42.9 s (timeout 19 and 4 retries: process python3" + unmeasured}},
	} {
		f := &facts.Facts{}
		f.GPUs = make([]facts.GPU, tc.gpus)
		if tc.kind != "" {
			f.Rails = []facts.Rail{{Kind: tc.kind}, {Kind: tc.kind}}
		}
		for i := 0; i < len(tc.installed); i += 2 {
			f.Versions = append(f.Versions, facts.Installed{Component: tc.installed[i], Version: tc.installed[i+1]})
		}
		f.Jobs.Envs = tc.envs
		for _, env := range tc.envs {
			for name := range env.Vars {
				if !slices.Contains(facts.JobVariables(), name) {
					t.Errorf("%s: %s is not read", tc.why, name)
				}
			}
		}
		var got []string
		for _, w := range deadpath.Waits(f) {
			got = append(got, w.String())
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.why, diff)
		}
	}
}

// TestOneOther: what was measured on one adapter is not said of another one beside it.
func TestOneOther(t *testing.T) {
	f := &facts.Facts{}
	f.GPUs = make([]facts.GPU, 1)
	f.Rails = []facts.Rail{{Kind: "mlx5_core MT4123"}, {Kind: "mlx5_core MT4129"}}
	if w := deadpath.Waits(f); len(w) != 1 || w[0].Measured != "" ||
		w[0].Least != (8*4096*time.Nanosecond<<20).Seconds() || w[0].Most != 4*w[0].Least {
		t.Errorf("%+v", w)
	}
}

// TestOtherFabrics: EFA and iWARP have no retry count. AMD's library is RCCL.
func TestOtherFabrics(t *testing.T) {
	for _, tc := range []struct {
		rail facts.Rail
		amd  bool
		want string
	}{
		{facts.Rail{Provider: "efa"}, false, ""},
		{facts.Rail{LinkLayer: rail.IWARP}, false, ""},
		{facts.Rail{Provider: "bnxt_re"}, true, "RCCL"},
		{facts.Rail{Provider: "mlx5", LinkLayer: "InfiniBand"}, false, "NCCL"},
	} {
		f := &facts.Facts{}
		f.GPUs, f.Rails, f.GPUDirect.AMD = make([]facts.GPU, 1), []facts.Rail{tc.rail}, tc.amd
		got := ""
		for _, w := range deadpath.Waits(f) {
			got += w.Library
		}
		if got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.rail, got, tc.want)
		}
	}
}
