package nccl

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/collector"
)

// series returns the lines of a source, sorted, without counters that are 0 and without the files, which are
// checked separately.
func series(read func(func(collector.Sample))) []string {
	var list []string
	read(func(s collector.Sample) {
		if s.Metric.Name == "nccl_files" || s.Value == 0 && s.Metric.Kind == collector.Counter {
			return
		}
		list = append(list, fmt.Sprintf("%s%q %v", strings.TrimPrefix(s.Metric.Name, "nccl_"), s.Labels, s.Value))
	})
	slices.Sort(list)
	return list
}

// reported returns the samples of one log.
func reported(log []byte, isNew bool) []string {
	all := newJobs(newTable())
	r := all.open("j")
	for line := range bytes.SplitSeq(log, []byte("\n")) {
		r.line(line, isNew)
	}
	return series(all.emit)
}

// transcripts returns the expected samples of the logs in testdata.
func transcripts() map[string][]string {
	return map[string][]string{
		"2.10-ib-gdr.log": {
			`channels["j" "NET/IB/GDRDMA"] 3`,
			`channels["j" "P2P"] 1`,
			`channels["j" "SHM"] 1`,
			`fallback["j"] 0`,
			`network_info["j" "IB"] 1`,
		},
		"2.18-error-12.log": {
			`channels["j" "NET/IB"] 2`,
			`completion_errors_total["retry_exc"] 1`,
			`fallback["j"] 0`,
			`gdr_enabled["j" "ibP111p0s0"] 0`,
			`gdr_enabled["j" "rdmaP1111p0s2"] 0`,
			`network_info["j" "IB"] 1`,
			`warnings_total["completion_error"] 1`,
		},
		"2.21-socket.log": {
			`channels["j" "NET/Socket"] 4`,
			`fallback["j"] 1`,
			`fallback_reason_info["j" "no_device"] 1`,
			`network_info["j" "Socket"] 1`,
		},
		"2.21-one-node.log": {
			`channels["j" "P2P"] 1`,
			`channels["j" "SHM"] 1`,
			`fallback["j"] 0`,
			`network_info["j" "Socket"] 1`,
		},
		"2.22-plugin.log": {
			`channels["j" "NET/AWS Libfabric/GDRDMA"] 2`,
			`channels["j" "P2P"] 1`,
			`fallback["j"] 0`,
			`gdr_enabled["j" "rdmap16s27-rdm"] 1`,
			`network_info["j" "AWS Libfabric"] 1`,
			`warnings_total["plugin"] 1`,
		},
		"2.27-roce-gid-change.log": {
			`channels["j" "NET/IB/GDRDMA"] 2`,
			`completion_errors_total["loc_prot"] 1`,
			`fallback["j"] 0`,
			`gdr_enabled["j" "mlx5_0"] 1`,
			`gdr_enabled["j" "mlx5_1"] 1`,
			`network_info["j" "IB"] 1`,
			`warnings_total["async_event"] 1`,
			`warnings_total["completion_error"] 1`,
			`warnings_total["gid_change"] 1`,
			`warnings_total["ras"] 1`,
		},
		"2.30-fused.log": {
			`channels["j" "COLLNET/SHARP/GDRDMA"] 1`,
			`channels["j" "NET/IB"] 2`,
			`completion_errors_total["retry_exc"] 1`,
			`fallback["j"] 0`,
			`gdr_enabled["j" "rocep1s0f0+roceP2p1s0f0"] 0`,
			`network_info["j" "IB"] 1`,
			`warnings_total["completion_error"] 2`,
		},
		"2.30-ib-disabled.log": {
			`fallback["j"] 1`,
			`fallback_reason_info["j" "ib_disabled"] 1`,
			`network_info["j" "Socket"] 1`,
		},
		"tutorial.log": {
			`fallback["j"] 0`,
			`gdr_enabled["j" ""] 1`,
			`network_info["j" "IB"] 1`,
			`warnings_total["no_device"] 1`,
			`warnings_total["topology"] 1`,
		},
		"ofi-tcp.log": {
			`channels["j" "NET/AWS Libfabric"] 1`,
			`fallback["j"] 1`,
			`fallback_reason_info["j" "libfabric"] 1`,
			`network_info["j" "AWS Libfabric"] 1`,
		},
		"no-libibverbs.log": {
			`channels["j" "NET/Socket"] 1`,
			`fallback["j"] 1`,
			`fallback_reason_info["j" "no_libibverbs"] 1`,
			`network_info["j" "Socket"] 1`,
		},
		"torn.log": {
			`channels["j" "NET/IB/GDRDMA"] 1`,
			`fallback["j"] 0`,
			`gdr_enabled["j" "mlx5_0"] 1`,
			`network_info["j" "IB"] 1`,
			`warnings_total["socket"] 1`,
		},
	}
}

// TestTranscripts reads whole logs, one for each version and kind of damage, and compares all samples.
func TestTranscripts(t *testing.T) {
	want := transcripts()
	maps.Copy(want, rcclTranscripts())
	files, err := filepath.Glob("testdata/*.log")
	if err != nil || len(files) != len(want) {
		t.Fatalf("%d transcripts (%v), %d expectations", len(files), err, len(want))
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			log, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want[filepath.Base(path)], reported(bytes.Clone(log), true)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			for _, s := range reported(log, false) {
				if strings.Contains(s, "_total") {
					t.Errorf("%s counts although it is not new", s)
				}
			}
		})
	}
}

// TestMessages parses single messages: each has the expected samples or none.
func TestMessages(t *testing.T) {
	for _, tc := range []struct {
		text string
		want []string
	}{
		{"Using network IBext_v8", []string{`fallback["j"] 0`, `network_info["j" "IBext_v8"] 1`}},
		{"Using network Libfabric", []string{`network_info["j" "Libfabric"] 1`}}, // a provider that is not known
		{"Using network GPUDirectTCPX_v7", []string{`network_info["j" "GPUDirectTCPX_v7"] 1`}},
		{"Using network FastSocket", []string{`fallback["j"] 1`, `fallback_reason_info["j" "unknown"] 1`,
			`network_info["j" "FastSocket"] 1`}},
		{"Using network Socket [repeated 7x across cluster]", []string{`fallback["j"] 1`,
			`fallback_reason_info["j" "unknown"] 1`, `network_info["j" "Socket"] 1`}},
		{"NET/IB : mlx5_0:1 speed change detected: 400000 -> 200000 Mbps", []string{`warnings_total["link_slower"] 1`}},
		{"NET/IB : mlx5_0:1 speed change detected: 200000 -> 400000 Mbps", nil},
		{"NET/OFI Selected provider is tcp, fabric is x (found 1 nics)", nil},
		{"Using network ", nil},
		{"Using network " + strings.Repeat("x", 65), nil},
		{"Using network a\x00b", nil},
		{"Using network Ünet", nil},
		{"Using non-device net plugin version 0", nil},
		{"NET/IB : Using [RO]; OOB eth0:10.0.4.51<0>", nil}, // without a device: no sample until a network is chosen
		{"NET/IB : GPU Direct RDMA (DMABUF) enabled for HCA 0 'mlx5_0", nil},
		{"NET/IB : GPU Direct RDMA Enabled for HCA 0 ''", nil},
		{"NET/IB/GDR disabled", []string{`gdr_enabled["j" ""] 0`}},
		{"GPU Direct RDMA Disabled for GPU 7 / HCA 1 (distance 7 > 5)", nil},
		{"Channel 00/16 : 0 1", nil},
		{"Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/", nil},
		{"Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/x", nil},
		{"Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDM", nil},
		{"Channel 00/0 : 0[0] -> 1[0] [send] via NET//0", nil},
		{"Channel 00 : 0 -> 1 via SHM", []string{`channels["j" "SHM"] 1`}},
		{"Channel 00 : 0 -> 1 via P2P/indirect/3[b000]", []string{`channels["j" "P2P"] 1`}},
		{"Channel 00 : 0 -> 1 via P2P/direct pointer", []string{`channels["j" "P2P"] 1`}},
		{"Channel 00 : 0 -> 1 via NVLS/what", []string{`channels["j" "other"] 1`}},
		{"Channel 00 : 0 -> 1 via NET/Socket/0", []string{`channels["j" "NET/Socket"] 1`, `fallback["j"] 1`,
			`fallback_reason_info["j" "unknown"] 1`}},
		{"comm 0x1 rank 0 nRanks 2 nNodes 99999999999999999999 localRanks 1", nil},
	} {
		if diff := cmp.Diff(tc.want, reported([]byte("host:1:1 [0] NCCL INFO "+tc.text), true)); diff != "" {
			t.Errorf("%q (-want +got)\n%s", tc.text, diff)
		}
	}
}

// TestReasons: the reason of a fallback to sockets is the user's choice if there is one, then missing software.
func TestReasons(t *testing.T) {
	const socket = "\nh NCCL INFO Using network Socket"
	for log, want := range map[string]string{
		"h NCCL INFO NET/IB : No device found.":                                                                   "no_device",
		"h NCCL INFO NET/OFI No eligible providers were found\nh NCCL INFO NET/IB : No device found.":             "libfabric",
		"h NCCL INFO Count not open libibverbs.so\nh NCCL INFO Count not open libibverbs.so.1":                    "no_libibverbs",
		"h NCCL INFO Count not open libibverbs.so":                                                                "unknown",
		"h:1:1 [0] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]":                                 "no_libibverbs",
		"h NCCL INFO NET/IB : Using [RO]; OOB eth0:10.0.4.51<0>":                                                  "no_device",
		"h NCCL INFO NET/IB : No device found.\nh NCCL INFO NCCL_IB_DISABLE set by environment to 1.":             "ib_disabled",
		"h NCCL INFO NCCL_IB_DISABLE set by environment to 0.\nh NCCL INFO Failed to initialize NET plugin IB":    "ib_failed",
		"h NCCL INFO NCCL_NET set by environment to Socket.\nh NCCL INFO NCCL_IB_DISABLE set by environment to 1": "net_forced",
		"h NCCL INFO NCCL_NET set by environment to IB":                                                           "unknown",
	} {
		if got := reported([]byte(log+socket), true); !slices.Contains(got,
			fmt.Sprintf(`fallback_reason_info["j" %q] 1`, want)) {
			t.Errorf("%q: got %q, want reason %s", log, got, want)
		}
	}
}

// TestWarnings: one warning of each kind, and the status of completions in all wordings.
func TestWarnings(t *testing.T) {
	for text, want := range map[string]string{
		"NET/IB : Got completion with error 5, opcode 0, len 0, vendor err 129":                    "completion_error wr_flush",
		"NET/IB: Got completion from peer a<1> with status=IBV_WC_REM_ACCESS_ERR(10)":              "completion_error rem_access",
		"NET/IB: Got completion from peer a<1> with status=12 opcode=0":                            "completion_error retry_exc",
		"NET/IB: Got completion from peer a<1> with status=99(99) opcode=0":                        "completion_error other",
		"NET/IB: Got completion from peer a<1> with status=0 opcode=0":                             "completion_error other",
		"NET/IB : mlx5_1:1 async fatal event on QP (0x7): local access violation work queue error": "async_event",
		"p2p_plugin NET/IB : Got async event : port error":                                         "async_event",
		"communicator encountered a fatal error (detected in ncclIbTest)":                          "fatal",
		"NET/Socket : no interface found":                                                          "no_device",
		"Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory":                        "registration",
		"Call to ibv_modify_qp failed with error Connection timed out":                             "verbs",
		"NET/IB : Remote IB device is incompatible with the local [0]mlx5_0:1/RoCE.":               "mismatch",
		"Timeout waiting for connect":                                                              "timeout",
		"Mismatched NCCL version detected : rank 0 2.10 rank 1 2.18":                               "mismatch",
		"Cuda failure 101 'invalid device ordinal'":                                                "cuda",
		"Error while attaching to shared memory segment /dev/shm/nccl-1 (size 0)":                  "shm",
		"socketProgress: Connection closed by remote peer gpu002<44189>":                           "socket",
		"Net : Call to recv from 10.0.0.2<4> failed : Connection reset by peer":                    "socket",
		"Bootstrap : no bootstrap root":                                                            "bootstrap",
		"Attribute busid of node nic not found":                                                    "topology",
		"NET/OFI aws-ofi-nccl initialization failed":                                               "plugin",
		"something new": "other",
		"something newh:2:2 [1] NCCL INFO timeout 30": "other", // a torn line
		"": "other",
	} {
		kind, status, _ := strings.Cut(want, " ")
		expect := []string{fmt.Sprintf(`warnings_total[%q] 1`, kind)}
		if status != "" {
			expect = append([]string{fmt.Sprintf(`completion_errors_total[%q] 1`, status)}, expect...)
		}
		if diff := cmp.Diff(expect, reported([]byte("[2026-01-01 00:00:00] h:1:1 [0] x.cc:1 NCCL WARN "+text),
			true)); diff != "" {
			t.Errorf("%q (-want +got)\n%s", text, diff)
		}
	}
}

// TestLibfabric: the provider decides, before and after the network is reported; GPUDirect shows that it is not
// sockets.
func TestLibfabric(t *testing.T) {
	const using, channel = "NCCL INFO Using network AWS Libfabric\n", "NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via "
	for log, want := range map[string]string{
		using: "absent",
		using + "NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)\n":                     "0",
		"NCCL INFO NET/OFI Selected provider is cxi, fabric is cxi (found 4 nics)\n" + using:      "0",
		using + "NCCL INFO NET/OFI Selected provider is sockets, fabric is x (found 1 nics)\n":    "1",
		using + "NCCL INFO NET/OFI Selected provider is new, fabric is x (found 1 nics)\n":        "absent",
		using + channel + "NET/AWS Libfabric/0/GDRDMA\n":                                          "0",
		using + channel + "NET/AWS Libfabric/0\n":                                                 "absent",
		using + "NCCL INFO comm 0x1 rank 0 nRanks 8 nNodes 1 localRanks 8\n":                      "0",
		"NCCL INFO Using network Other\n" + channel + "NET/Other/0/GDRDMA\n":                      "absent",
		"NCCL INFO Using network IB\nNCCL INFO Using network Other\n" + channel + "NET/Other/0\n": "absent",
	} {
		got := "absent"
		for _, s := range reported([]byte(log), true) {
			if value, ok := strings.CutPrefix(s, `fallback["j"] `); ok {
				got = value
			}
		}
		if got != want {
			t.Errorf("%q: fallback %s, want %s", log, got, want)
		}
	}
}
