package nixl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/railscope/railscope/bench/read"
)

// TestCauses: outputs of real failures, with names of machines and addresses replaced, have one cause each.
func TestCauses(t *testing.T) {
	for name, tc := range map[string]struct {
		c    Combination
		want string // beginning of the cause; empty if there is none
	}{
		"memlock":     {Combination{Backend: "UCX", Memory: "DRAM"}, "locked memory is limited to 8192 kbytes: run nixlbench under ulimit -l unlimited"},
		"ah":          {Combination{Backend: "UCX", Memory: "DRAM"}, "the peer's address 192.168.102.2 is not reachable from roceP2p1s0f0 (Connection timed out)"},
		"notransport": {Combination{Backend: "UCX", Memory: "DRAM"}, "UCX has no transport between the nodes: UCX_TLS"},
		"netdev": {Combination{Backend: "UCX", Memory: "DRAM"}, "UCX_NET_DEVICES names mlx5_0:1, which is not on this node, or not in " +
			"this container: here are roceP2p1s0f0:1, rocep1s0f0:1"},
		"plugin":     {Combination{Backend: "LIBFABRIC", Memory: "DRAM"}, "the plugin of the backend is missing, or a library that it needs: set NIXL_PLUGIN_DIR to the directory of libplugin_LIBFABRIC.so"},
		"transports": {Combination{Backend: "UCX", Memory: "VRAM"}, "UCX_TLS names 'cuda_ipc','cuda_copy', which UCX here does not have"},
		"gpu":        {Combination{Backend: "UCX", Memory: "VRAM"}, "GPU memory could not be registered: on a GPU without GPUDirect RDMA"},
		"backend":    {Combination{Backend: "UCX", Memory: "VRAM"}, ""},
	} {
		output, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		got := Causes(settings("nixlbench"), tc.c, string(output))
		if tc.want == "" && len(got) > 0 || tc.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], tc.want)) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestCausesOfHost: in a run without GPUs, a failed registration is not explained by GPU memory.
func TestCausesOfHost(t *testing.T) {
	output, err := os.ReadFile("testdata/gpu.txt")
	if err != nil {
		t.Fatal(err)
	}
	got := Causes(settings("nixlbench"), Combination{Backend: "UCX", Memory: "DRAM"}, string(output))
	if len(got) != 1 || !strings.HasPrefix(got[0], "host memory could not be registered: ibv_reg_mr(") {
		t.Errorf("%q", got)
	}
}

// TestDoubts: figures are attributed to the transport that carried the bytes.
func TestDoubts(t *testing.T) {
	const gib = 1 << 30
	r := Runner{Settings: settings("nixlbench")}
	names := map[string]string{"0": "mlx5_0", "1": "mlx5_1"}
	for name, tc := range map[string]struct {
		row  Row
		want string
	}{
		"both carried":       {Row{Rails: map[string]int64{"0": gib, "1": gib}}, ""},
		"one carried":        {Row{Rails: map[string]int64{"0": 10 * gib, "1": 1 << 20}}, "all rails were asked for, and rail 0 carried 100 %"},
		"there is one":       {Row{Rails: map[string]int64{"0": 10 * gib}}, ""},
		"one was asked for":  {Row{Rails: map[string]int64{"0": gib, "1": 0}, Combination: Combination{Devices: []string{"mlx5_0"}}}, ""},
		"another one did":    {Row{Rails: map[string]int64{"0": gib, "1": gib}, Combination: Combination{Devices: []string{"mlx5_0"}}}, "rails that were not asked for carried 50 %"},
		"nothing by RDMA":    {Row{Rails: map[string]int64{"0": 0, "1": 0}, TCP: gib}, "nothing went by RDMA"},
		"almost all by TCP":  {Row{Rails: map[string]int64{"0": 2 << 20, "1": 0}, TCP: gib}, "most went by TCP"},
		"the rails were not": {Row{}, ""},
		"the tool says so":   {Row{Results: []read.Result{{Failed: true, Marks: []string{"consistency check failed"}}}}, "consistency check failed"},
	} {
		tc.row.devices = names
		got := strings.Join(r.doubts(tc.row), "; ")
		if !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
