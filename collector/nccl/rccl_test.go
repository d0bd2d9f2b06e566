package nccl

import (
	"slices"
	"testing"
)

// rcclTranscripts returns the expected samples of RCCL's logs. They are shortened from public reports, with other names
// of hosts and addresses; the one of the ANP plugin follows the source (ROCm/amd-anp, src/net_ib.cc; RCCL's
// src/plugin/net.cc).
func rcclTranscripts() map[string][]string {
	return map[string][]string{
		"rccl-2.7-ib.log": { // https://github.com/ROCm/rccl/issues/419
			`channels["j" "P2P"] 2`,
			`fallback["j"] 0`,
			`network_info["j" "IB"] 1`,
		},
		"rccl-2.7-no-gdr.log": { // https://github.com/ROCm/amdgpu/issues/102
			`fallback["j"] 0`,
			`gdr_enabled["j" "mlx5_0"] 0`,
			`network_info["j" "IB"] 1`,
		},
		"rccl-2.16-socket.log": { // https://github.com/ROCm/rccl/issues/1026
			`channels["j" "NET/Socket"] 3`,
			`channels["j" "P2P"] 1`,
			`fallback["j"] 1`,
			`fallback_reason_info["j" "unknown"] 1`,
			`warnings_total["settings"] 3`,
		},
		"rccl-2.18-settings.log": { // https://github.com/ROCm/rccl/issues/908
			`warnings_total["cuda"] 1`,
			`warnings_total["settings"] 3`,
		},
		"rccl-2.20-torchrun.log": { // https://github.com/ROCm/rccl/issues/1454
			`warnings_total["settings"] 1`,
		},
		"rccl-2.21-one-node.log": { // https://github.com/ROCm/rccl-tests/issues/163
			`fallback["j"] 0`,
			`network_info["j" "Socket"] 1`,
		},
		"rccl-2.21-dmabuf.log": { // https://github.com/ROCm/rccl/issues/1468
			`fallback["j"] 0`,
			`network_info["j" "IB"] 1`,
		},
		"rccl-2.22-vllm.log": { // https://github.com/ROCm/vllm/issues/390
			`warnings_total["settings"] 1`,
		},
		"rccl-2.26-ray-socket.log": { // https://github.com/ROCm/legacy-rocm-build/issues/5656
			`fallback["j"] 1`,
			`fallback_reason_info["j" "no_libibverbs"] 1`,
			`network_info["j" "Socket"] 1`,
		},
		"rccl-2.27-fatal.log": { // https://github.com/ROCm/rccl/issues/2188
			`fallback["j"] 1`,
			`fallback_reason_info["j" "no_device"] 1`,
			`network_info["j" "Socket"] 1`,
			`warnings_total["cuda"] 3`,
			`warnings_total["settings"] 1`,
		},
		"rccl-2.27-ionic.log": { // https://github.com/ROCm/rccl/pull/2078
			`fallback["j"] 0`,
			`network_info["j" "IB"] 1`,
		},
		"rccl-2.27-anp.log": {
			`channels["j" "NET/RCCL-ANP/GDRDMA"] 1`,
			`fallback["j"] 0`,
			`network_info["j" "RCCL-ANP"] 1`,
		},
		"rccl-2.30-roce-ray.log": { // https://github.com/kyuz0/amd-strix-halo-vllm-toolboxes/issues/80
			`channels["j" "NET/IB"] 1`,
			`fallback["j"] 0`,
		},
		"rccl-2.30-cumem.log": { // https://github.com/ROCm/legacy-rocm-build/issues/6074
			`warnings_total["other"] 1`,
		},
	}
}

// TestRCCLMessages: messages of RCCL that no transcript has (ROCm/rocm-systems, projects/rccl/src of July 2026), and
// similar ones of other programs.
func TestRCCLMessages(t *testing.T) {
	const path = "/b/rccl/hipify/src/"
	for line, want := range map[string]string{
		"h:1:1 [0] NCCL INFO Using network IB-CAST":                                                             `fallback["j"] 0`,
		"h:1:1 [0] NCCL INFO Using network ROCM-IB":                                                             `fallback["j"] 0`,
		"h:1:1 [0] [FATAL ERROR]: RCCL encountered a communication fatal error (detected in x)":                 `warnings_total["fatal"] 1`,
		"h:1:1 [0] [FATAL ERROR]: RCCL cannot recover from this network failure and now exiting.":               `warnings_total["fatal"] 1`,
		"h:1:1 [0] [FATAL ERROR]: HSA_NO_SCRATCH_RECLAIM=1 must be set":                                         `warnings_total["settings"] 1`,
		"h:1:1 [0] [FATAL ERROR]: torn h:2:2 [1] NCCL INFO Using network IB":                                    `network_info["j" "IB"] 1`,
		"h:1:1 [0] " + path + "init.cc:9 NCCL WARN NUMA auto balancing enabled which can lead to variability":   `warnings_total["settings"] 1`,
		"h:1:1 [0] " + path + "ras/ras.cc:9 NCCL WARN Call to bind failed: Address already in use":              `warnings_total["ras"] 1`,
		"h:1:1 [0] " + path + "net_ib.cc:9 NCCL WARN NET/IB : Got completion from peer a<1> with status=12":     `warnings_total["completion_error"] 1`,
		"h:1:1 [0] /amd-anp/src/net_ib.cc:9 NCCL WARN DMABUF Disabled":                                          `warnings_total["settings"] 1`,
		"h:1:1 [0] /amd-anp/src/net_ib.cc:9 NCCL WARN ANP plugin loaded successfully with telemetry on : /a.so": "",
		"[FATAL ERROR]: DATABASE_URL is missing":                                                                "",
	} {
		got := reported([]byte(line), true)
		if want == "" && len(got) > 0 || want != "" && !slices.Contains(got, want) {
			t.Errorf("%q: %q, want %s", line, got, want)
		}
	}
}

// TestRCCLRuns: RCCL's version begins a new run in a rotated log.
func TestRCCLRuns(t *testing.T) {
	all := newJobs(newTable())
	all.open("j").line([]byte("NCCL INFO Using network Socket"), true)
	next := all.open("j")
	next.line([]byte("NCCL INFO RCCL version : 2.27.7-HEAD:29e1567"), true)
	if got := series(all.emit); len(got) > 0 {
		t.Errorf("%q after the next run has begun", got)
	}
}
