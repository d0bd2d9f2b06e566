package advice

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/bench/tables"
	"github.com/railscope/railscope/probe/result"
)

const gb = 1e9 / 8 // 1 Gb/s

// rails returns a round over rails that carry this much alone and together, in Gb/s.
func rails(alone, together float64, n int) result.Result {
	r := result.Result{Transport: result.RDMA, Outcome: result.OK}
	flow := func(gigabits float64) *result.Flow {
		return &result.Flow{Bytes: int64(gigabits * gb), Active: time.Second}
	}
	for i := range n {
		r.Rails = append(r.Rails, result.RailResult{Rail: fmt.Sprint(i), Device: fmt.Sprintf("mlx5_%d", i), Port: 1,
			GID: "::ffff:10.0.0.1", GIDIndex: 3, Solo: flow(alone), Striped: flow(together)})
	}
	return r
}

// row returns a row of writes by RDMA over rails 0 to n − 1.
func row(memory string, n int, gigabits float64) suite.Row {
	r := suite.Row{Transport: "rdma", Op: "write", Memory: memory, Goodput: new(gigabits * gb)}
	for i := range n {
		r.Rails = append(r.Rails, fmt.Sprint(i))
	}
	if n == 1 {
		r.Latency = []suite.Latency{{Bytes: 8, P50: 2e-6}}
	}
	return r
}

// sizeRow returns a row of the sweep: a transfer that takes µs over two rails.
func sizeRow(name string, size int64, µs float64) suite.Row {
	r := row("host", 2, 180)
	r.Name, r.Size, r.Latency = name, size, []suite.Latency{{Bytes: size, P50: µs / 1e6}}
	return r
}

func cache(model string, tokens int64, way string, seconds float64) suite.KVCache {
	return suite.KVCache{Model: model, Tokens: tokens, Bytes: int64(1e9 * max(1, float64(tokens))), Row: way,
		Seconds: &seconds}
}

const variablesOfTwo = `# NCCL
export NCCL_IB_HCA='=mlx5_0:1,mlx5_1:1'
# before NCCL 2.21 also: export NCCL_IB_GID_INDEX=3
# UCX, and NIXL and vLLM's NixlConnector over it
export UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1
export UCX_MAX_RMA_RAILS=2 UCX_MAX_RNDV_RAILS=2
`

// TestRails: which rails to use, with the variables for them.
func TestRails(t *testing.T) {
	spark := rails(111, 55.5, 4)
	spark.Shared = []result.Shared{{Rails: []string{"0", "1"}, What: "PCIe link 0000:01:00"},
		{Rails: []string{"2", "3"}, What: "PCIe link 0002:01:00"}}
	broken := rails(93, 92.5, 3)
	broken.Rails[1] = result.RailResult{Rail: "1", Failure: &result.Failure{Reason: "port_down"}}
	broken.Rails[2].GIDIndex = 5
	broken.Class = result.Class{TrafficClass: 106, Source: "configured"}
	third := rails(93, 92.5, 3)
	third.Rails[2] = result.RailResult{Rail: "2", Unpaired: true}
	infiniband := rails(390, 388, 1)
	infiniband.Rails[0].GIDIndex = 0
	slow := rails(93, 92.5, 3)
	slow.Rails[1].Striped.Bytes /= 4
	slower := rails(93, 92.5, 3)
	slower.Rails[1].Striped.Bytes = slower.Rails[1].Striped.Bytes * 7 / 10
	for _, tc := range []struct {
		why         string
		r           result.Result
		text, lines string
	}{
		{"two rails", rails(93, 92.5, 2), "Use rails 0 and 1: together they carry 185.00 Gb/s, 1.99 times the best " +
			"one.",
			variablesOfTwo},
		{"two halves of a port each", spark, "Use rails 0 and 2: the others share PCIe link 0000:01:00 with them. All " +
			"4 rails together carry 222.00 Gb/s, and these 222.00 Gb/s alone.",
			strings.ReplaceAll(variablesOfTwo, "mlx5_1", "mlx5_2")},
		{"a broken rail, other indexes, a class", broken, "Use rails 0 and 2: together they carry 185.00 Gb/s, 1.99 " +
			"times the best one. Without a figure: rail 1 (port_down).", `# NCCL
export NCCL_IB_HCA='=mlx5_0:1,mlx5_2:1'
# before NCCL 2.21 they cannot be used together: no GID index is the same on all of them
export NCCL_IB_TC=106
# UCX, and NIXL and vLLM's NixlConnector over it
export UCX_NET_DEVICES=mlx5_0:1,mlx5_2:1
export UCX_MAX_RMA_RAILS=2 UCX_MAX_RNDV_RAILS=2 UCX_IB_TRAFFIC_CLASS=106
`},
		{"a slow rail for which the others wait", slow, "Use rails 0 and 2, without rail 1 until it is repaired: NCCL " +
			"and UCX cut transfers in equal parts, and so all 3 rails together reach 69.38 Gb/s, and these 185.00 " +
			"Gb/s.",
			strings.ReplaceAll(variablesOfTwo, "mlx5_1", "mlx5_2")},
		{"a slow rail that still helps", slower, "Use rails 0, 1 and 2: together they carry 249.75 Gb/s, 2.69 times " +
			"the best one.", strings.NewReplacer("mlx5_1:1", "mlx5_1:1,mlx5_2:1", "RAILS=2",
			"RAILS=3").Replace(variablesOfTwo)},
		{"a rail to another node", third, "Use rails 0 and 1: together they carry 185.00 Gb/s, 1.99 times the best " +
			"one.",
			variablesOfTwo},
		{"one rail of InfiniBand", infiniband, "Use rail 0: it carries 388.00 Gb/s.", `# NCCL
export NCCL_IB_HCA='=mlx5_0:1'
# UCX, and NIXL and vLLM's NixlConnector over it
export UCX_NET_DEVICES=mlx5_0:1
export UCX_MAX_RMA_RAILS=1 UCX_MAX_RNDV_RAILS=1
`},
	} {
		list := For(tc.r, suite.Suite{})
		if len(list) != 1 {
			t.Fatalf("%s: %+v", tc.why, list)
		}
		if diff := cmp.Diff(tc.text, list[0].Text); diff != "" {
			t.Errorf("%s:\n%s", tc.why, diff)
		}
		if diff := cmp.Diff(tc.lines, strings.Join(list[0].Lines, "\n")+"\n"); diff != "" {
			t.Errorf("%s:\n%s", tc.why, diff)
		}
	}
	overTCP := rails(9, 9, 2)
	overTCP.Transport = result.TCP
	for why, r := range map[string]result.Result{"over TCP": overTCP, "nothing": {Transport: result.RDMA}} {
		if list := For(r, suite.Suite{}); list == nil || len(list) > 0 {
			t.Errorf("%s: %+v", why, list)
		}
	}
}

// TestFigures: each sentence has the figures that it is about, and there is none without them.
func TestFigures(t *testing.T) {
	one, all := row("host", 1, 93), row("host", 2, 185)
	tcp := suite.Row{Transport: "tcp", Goodput: new(12.4 * gb)}
	const gradients = "Gradients of 7B parameters in bf16 take 0.605 s between two nodes by RDMA and 9.03 s by TCP. " +
		"By RDMA that is below 20 % of a step that takes at least 3.03 s, and above 40 % of one below 1.51 s, unless " +
		"computing hides it."
	for _, tc := range []struct {
		why  string
		s    suite.Suite
		want []string
	}{
		{"gradients", suite.Suite{Rows: []suite.Row{tcp, one, all}}, []string{gradients}},
		{"gradients over one rail", suite.Suite{Rows: []suite.Row{one}}, []string{"Gradients of 7B parameters in bf16 " +
			"take 1.20 s between two nodes. By RDMA that is below 20 % of a step that takes at least 6.02 s, and " +
			"above 40 % of one below 3.01 s, unless computing hides it."}},
		// One rail needs 2 µs and 5.64, 11.28, 22.55 µs.
		{"sizes", suite.Suite{Rows: []suite.Row{tcp, one, all}, Sweep: []suite.Row{sizeRow("64 KiB", 65536, 6.5),
			sizeRow("128 KiB", 131072, 12.5), sizeRow("256 KiB", 262144, 15)}}, []string{"From 256 KiB on, a single " +
			"transfer is faster over all rails: 15.00 µs, and about 24.55 µs over one.", gradients}},
		{"sizes that do not pay", suite.Suite{Rows: []suite.Row{tcp, one, all}, Sweep: []suite.Row{
			sizeRow("64 KiB", 65536, 6.5), sizeRow("128 KiB", 131072, 12.5)}}, []string{"Single transfers up to 128 " +
			"KiB are not faster over all rails than over one: further rails pay for many transfers at once.",
			gradients}},
		{"caches of a size", suite.Suite{KVCache: []suite.KVCache{cache("Llama", 99, tables.AllRails, 9),
			cache("8GB", 0, tables.OneRail, 0.691), cache("8GB", 0, tables.AllRails, 0.346), cache("8GB", 0,
				tables.OverTCP,
				5.16)}}, []string{"A KV cache of 8GB takes 346 ms over all rails and 691 ms over one: 345 ms saved, " +
			"and 5.16 s over TCP."}},
		{"caches of a model", suite.Suite{KVCache: []suite.KVCache{cache("Llama", 8, tables.OneRail, 0.1),
			cache("Llama", 8, tables.AllRails, 0.095)}}, []string{"A KV cache of Llama with 8 tokens (7.45 GiB) takes " +
			"95 ms over all rails and 100 ms over one: further rails do not pay for it."}},
		{"a cache over one rail", suite.Suite{KVCache: []suite.KVCache{cache("8GB", 0, tables.AllRails, 0.346)}}, nil},
		{"GPUs that are reached", suite.Suite{Rows: []suite.Row{row("host", 3, 185), row("cuda_dmabuf", 2, 183)}},
			[]string{"Buffers in GPU memory are reached directly (cuda_dmabuf): 183.00 Gb/s, as fast as memory of the " +
				"host. Do not stage.", "…"}},
		{"GPUs that are far", suite.Suite{Rows: []suite.Row{row("host", 3, 185), row("rocm_dmabuf", 2, 60)}},
			[]string{"Buffers in GPU memory are reached directly (rocm_dmabuf), at 60.00 Gb/s; memory of the host " +
				"carries 185.00 Gb/s: look at the GPU's distance to the rails (railscope rails).", "…"}},
		{"a Spark", suite.Suite{Rows: []suite.Row{row("cuda_host", 2, 105.4), row("cuda_staged", 1, 4),
			row("cuda_staged", 2,
				4.1)}}, []string{"The rails do not reach GPU memory. Allocate buffers as pinned host memory " +
			"(cudaHostAlloc): 105.40 Gb/s; GPU memory that is copied through the host carries 4.10 Gb/s, and a " +
			"further rail does not help it."}},
		{"a Spark whose copies scale", suite.Suite{Rows: []suite.Row{row("cuda_host", 2, 105.4), row("cuda_staged",
			1, 4),
			row("cuda_staged", 2, 8)}}, []string{"The rails do not reach GPU memory. Allocate buffers as pinned host " +
			"memory (cudaHostAlloc): 105.40 Gb/s; GPU memory that is copied through the host carries 8.00 Gb/s."}},
		{"copies as fast", suite.Suite{Rows: []suite.Row{row("cuda_host", 2, 90), row("cuda_staged", 2, 89)}},
			[]string{"The rails do not reach GPU memory, and copying it through the host (89.00 Gb/s) is as fast as " +
				"pinned host memory (90.00 Gb/s)."}},
	} {
		var got []string
		for _, one := range For(rails(93, 92.5, 2), tc.s)[1:] {
			got = append(got, one.Text)
		}
		if n := len(tc.want); n > 0 && tc.want[n-1] == "…" { // what follows is tested above
			tc.want, got = tc.want[:n-1], got[:min(n-1, len(got))]
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s:\n%s", tc.why, diff)
		}
	}
}
