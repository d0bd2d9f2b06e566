package read

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	rcclPlaces  = "#                                                              out-of-place                       in-place          \n"
	rcclColumns = "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
	rcclUnits   = "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
	rcclTable   = "#\n" + rcclPlaces + rcclColumns + rcclUnits
	rcclEnd     = "# Errors with asterisks indicate errors that have exceeded the maximum threshold.\n# Out of bounds values : 0 OK\n"
	rcclBegin   = "# nThread 1 nGpus 1 minBytes 8 maxBytes 17179869184 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n#\n" +
		"rccl-tests: Version develop:448c4c7\n# Using devices\n" +
		"#   Rank  0 Pid 2509534 on host device  0 [0000:0c:00.0] AMD Instinct MI300X\n#   Rank  1 Pid 2509535 on host device  1 [0000:22:00.0] AMD Instinct MI300X\n"
	rcclVersions = "RCCL version : 2.22.3-develop:f5b15f2\nHIP version  : 6.3.42131-fa1d09cbd\nROCm version : 6.3.0.0-39-ce2be3b\n" +
		"Hostname     : host\nLibrccl path : /home/user/rccl/build/release/librccl.so.1\n"
	rcclNew = "# rccl-tests version 2.17.9-develop:4a65e8d rccl-headers=22707 rccl-library=22707\n# Collective test starting: all_reduce_perf\n" +
		"# nThread 1 nGpus 1 minBytes 16 maxBytes 17179869184 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n" +
		"#  Rank  0 Group  0 Pid   3379 on     node-a device  0 [0000:05:00] AMD Radeon Graphics\n" +
		"#  Rank  8 Group  0 Pid   3315 on     node-b device  0 [0000:05:00] AMD Radeon Graphics\n"
	rcclNewEnd = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 129.28\n#\n# Collective test concluded: all_reduce_perf\n"

	rocmDevice = "Using ROCm Device with ID: 0, Name: AMD Instinct MI355X, PCI Bus ID: 0x5, GCN Arch: gfx950:sramecc+:xnack-\n"
	rocmBuffer = "allocated 16777216 bytes of GPU buffer at 0x7fe939600000\n"
	rocmDMABuf = "using DMA-BUF for GPU buffer address at 0x7f0b71000000 aligned at 0x7f0b71000000 with aligned size 33554432\n" +
		"dmabuf export addr 0x7f0b71000000 33554432 to dmabuf fd 8 offset 0\nallocated 33554432 bytes of GPU buffer at 0x7f0b71000000\n" +
		"Calling ibv_reg_dmabuf_mr(offset=0, size=33554432, addr=0x7f0b71000000, fd=8) for QP #0\n"
	rocmOn  = " rdma_cm QPs     : OFF\n Use ROCm memory : ON\n Data ex. method : Ethernet\n"
	rocmRow = " 8388608    5000             19044.44            19044.43                    0.002381\n"
)

// rocmTitle is [title] with the line of perftest built for ROCm.
func rocmTitle(test, device string) string {
	return strings.Replace(title(test, device), " Link type       : Ethernet\n", " Link type       : Ethernet\n"+rocmOn, 1)
}

// TestROCm reads public outputs of rccl-tests, perftest, ucx_perftest and OSU on GPUs of AMD, shortened, with other
// names of hosts. Where the source is a file of a program, the figures are from another of these outputs.
func TestROCm(t *testing.T) {
	const miB = " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n"
	for name, tc := range map[string]struct {
		source, text string
		want         []string
		errs         string // beginning of the errors
	}{
		"rccl-tests of 2023, failed": {"https://github.com/ROCm/rccl-tests/issues/50",
			"# nThreads: 1 nGpus: 4 nRanks: 1 minBytes: 8 maxBytes: 134217728 step: 2(factor) warmupIters: 5 iters: 20 validation: 1 \n#\n# Using devices\n" +
				"#   Rank  0 Pid 117738 on node-a device  0 [0000:63:00.0] AMD Instinct MI210\n" +
				"node-a: Test NCCL failure common.cu:1285 'internal error - please report this issue to the NCCL developers'\n .. node-a pid 117738: Test failure common.cu:1161\n",
			nil, "5: nccl-tests failed: node-a: Test NCCL failure common.cu:1285"},
		"rccl-tests of 2023, hung": {"https://github.com/ROCm/rccl/issues/957",
			"# nThreads: 1 nGpus: 2 nRanks: 1 minBytes: 8 maxBytes: 134217728 step: 2(factor) warmupIters: 5 iters: 20 validation: 1 \n#\n# Using devices\n" +
				"#   Rank  0 Pid   9290 on   node-a device  0 [0000:12:00.0] Radeon RX 7900 XTX\n" +
				"node-a:9290:9290 [0] NCCL INFO Bootstrap : Using enp36s0:192.0.2.254<0>\n",
			nil, "1: nccl-tests: no table of results"},
		"rccl-tests, hung in the first size": {"https://github.com/ROCm/rccl/issues/1129",
			strings.Replace(rcclBegin, "448c4c7", "3f7f785", 1) + rcclTable, nil, "9: nccl-tests: the output is cut"},
		"rccl-tests, one node": {"https://rocm.blogs.amd.com/software-tools-optimization/mi300x-rccl-xgmi/README.html",
			rcclBegin + rcclVersions + rcclTable +
				"     4194304       1048576     float     sum      -1    51.72   81.09  141.91      0    129.0   32.52   56.92      0\n" +
				"17179869184    4294967296     float     sum      -1    94254  182.27  318.98      0    94328  182.13  318.73      0\n" +
				rcclEnd + "# Avg bus bandwidth    : 116.669\n",
			[]string{"nccl library RCCL 2.22.3-develop:f5b15f2", "nccl-tests float sum 4194304 648.72 Gb/s 51.72 µs",
				"nccl-tests float sum 17179869184 1458.16 Gb/s 94254.00 µs"}, ""},
		"rccl-tests of 2026, two nodes": {"https://github.com/prasad-nair-amd/rapido, test 11",
			"[1776961425.239146] [node-b:3318 :0]          parser.c:2033 UCX  WARN  unused environment variable: UCX_PREFIX\n" + rcclNew +
				"RCCL version : 2.27.7-HEAD:96a25b5\nHIP version  : 7.2.53211-671d39a71e\nROCm version : 7.2.2.0-86-671d39a71e\n" +
				"Hostname     : node-a\nLibrccl path : /opt/rocm/lib/librccl.so.1\n" + rcclTable +
				" 17179869184    4294967296     float     sum      -1  83456.7  205.85  385.98       0  83462.8  205.84  385.95       0\n" + rcclNewEnd,
			[]string{"nccl library RCCL 2.27.7-HEAD:96a25b5", "nccl-tests all_reduce_perf, float sum 17179869184 1646.80 Gb/s 83456.70 µs"}, ""},
		"rccl-tests, ionic": {"https://github.com/ROCm/rccl/pull/2078", rcclBegin + rcclTable +
			"  2147483648     536870912     float     sum      -1    11186  191.99  359.98      0    11199  191.75  359.53      0\n" +
			" 17179869184    4294967296     float     sum      -1    89235  192.52  360.98      0    89189  192.62  361.17      0\n" +
			rcclEnd + "# Avg bus bandwidth    : 142.652 \n#\n# Collective test concluded: all_reduce_perf\n",
			[]string{"nccl-tests float sum 2147483648 1535.92 Gb/s 11186.00 µs", "nccl-tests float sum 17179869184 1540.16 Gb/s 89235.00 µs"}, ""},
		"rccl-tests of 2021, with errors": {"https://github.com/ROCm/rccl/pull/929",
			"#                                                       out-of-place                       in-place\n" +
				"#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error\n" +
				"#        (B)    (elements)                       (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n" +
				"        1024           256     float     sum    31.25    0.03    0.06  4e-07    16.80    0.06    0.11  2e-07\n",
			[]string{"nccl-tests float sum 1024 0.24 Gb/s 31.25 µs"}, ""},
		"rccl-tests, broadcast": {"https://github.com/ROCm/rccl/pull/2075", rcclTable +
			"   134217728      33554432     float    none       0    18781    7.15    7.15      0    18756    7.16    7.16      0\n" +
			rcclEnd + "# Avg bus bandwidth    : 3.41227\n#\n# Collective test concluded: broadcast_perf\n",
			[]string{"nccl-tests float 134217728 57.20 Gb/s 18781.00 µs"}, ""},
		"rccl-tests -A 1": {"ROCm/rocm-systems, projects/rccl-tests/src/util.cu of July 2026", rcclNew + "#\n" + rcclPlaces +
			strings.TrimSuffix(rcclColumns, "\n") + "     algo      proto      nchannels \n" + rcclUnits +
			"  2147483648     536870912     float     sum      -1    11186  191.99  359.98      0    11199  191.75  359.53      0    RING    SIMPLE          64\n" +
			" 17179869184    4294967296     float     sum      -1    89235  192.52  360.98      0    89189  192.62  361.17      0     N/A       N/A         N/A\n" + rcclNewEnd,
			[]string{"nccl-tests all_reduce_perf, float sum, RING SIMPLE 2147483648 1535.92 Gb/s 11186.00 µs",
				"nccl-tests all_reduce_perf, float sum 17179869184 1540.16 Gb/s 89235.00 µs"}, ""},
		"rccl-tests -A 1 with timestamps": {"ROCm/rocm-systems, projects/rccl-tests/src/{util,common}.cu", rcclNew + rcclPlaces +
			strings.TrimSuffix(rcclColumns, "\n") + "     algo      proto      nchannels           timestamp\n" + rcclUnits +
			"  2147483648     536870912     float     sum      -1    11186  191.99  359.98      0    11199  191.75  359.53      0  2026-07-20 04:24:08    RING    SIMPLE          64\n" + rcclNewEnd,
			[]string{"nccl-tests all_reduce_perf, float sum, RING SIMPLE 2147483648 1535.92 Gb/s 11186.00 µs"}, ""},
		"rccl-tests, time of HIP's events": {"ROCm/rocm-systems, projects/rccl-tests/src/util.cu of July 2026", rcclNew + rcclPlaces +
			"#       size         count      type   redop    root     time   hipevt   algbw   busbw  #wrong     time   hipevt   algbw   busbw  #wrong  \n" + rcclUnits +
			"  2147483648     536870912     float     sum      -1    11186    11180  191.99  359.98       0    11199      N/A  191.75  359.53    N/A\n" + rcclNewEnd,
			[]string{"nccl-tests all_reduce_perf, float sum 2147483648 1535.92 Gb/s 11186.00 µs"}, ""},
		"rccl-tests, only in place": {"ROCm/rccl-tests ae3e635, src/common.cu", rcclBegin +
			"#                                                       in-place          \n" +
			"#       size         count      type   redop    root     time   algbw   busbw #wrong\n" +
			"#        (B)    (elements)                               (us)  (GB/s)  (GB/s)      \n" +
			"  2147483648     536870912     float     sum      -1    11199  191.75  359.53      3\n" + rcclEnd + "# Avg bus bandwidth    : 359.53 \n",
			[]string{"nccl-tests float sum, in place 2147483648 1534.00 Gb/s 11199.00 µs !"}, ""},
		"rccl-tests -J, only in place": {"ROCm/rocm-systems, projects/rccl-tests/src/util.cu of July 2026",
			`{"version":1,"args":["./build/all_reduce_perf"],"rccl_version":22707,"config":{"nthreads":1},"results":[{"size":2147483648,"count":536870912,` +
				`"type":"float","redop":"sum","root":"    -1","out_of_place":null,"in_place":{"time":11199.000000,"hip_event_time":11190.000000,"alg_bw":191.750000,` +
				`"bus_bw":359.530000,"nwrong":null},"actual_iterations":20,"experiment_name":"x"}],"out_of_bounds":{"count":0,"okay":"true"}}` + "\n",
			[]string{"nccl-tests all_reduce_perf, float sum, in place 2147483648 1534.00 Gb/s 11199.00 µs"}, ""},
		"rccl-tests, counters of ionic": {"ROCm/rocm-systems, projects/rccl-tests/src/collector.cu of July 2026",
			rcclNew + "# NIC type: IONIC\n# Counters (3): frames_rx_pripause tx_rdma_ack_timeout tx_rdma_ucast_bytes\n" + rcclTable +
				" 17179869184    4294967296     float     sum      -1  83456.7  205.85  385.98       0  83462.8  205.84  385.95       0\n" +
				"\nNET_COUNTER_TABLE: node=node-a  rank=0  duration_sec=18.250  nic_type=IONIC\n" +
				"----------------------------------------------------------------------------\n" +
				"Device                frames_rx_pripause  tx_rdma_ack_timeout  tx_rdma_ucast_bytes\n" +
				"                      count     rate/s  count      rate/s  count       rate/s\n" +
				"----------------------------------------------------------------------------\n" +
				"ionic_0(enp5s0)          12       0.66      0        0.00  983040     53865.21\n" +
				"ionic_1(enp6s0)           0       0.00      3        0.16  983040     53865.21\n" +
				"ionic_2(enp7s0)           0       0.00      0        0.00  983040     53865.21\n" +
				"ionic_3                   0       0.00  18446744073709551613  1.00  983040  53865.21\n" +
				"----------------------------------------------------------------------------\n\n" + rcclNewEnd,
			[]string{"nccl-tests all_reduce_perf, float sum 17179869184 1646.80 Gb/s 83456.70 µs",
				"nccl-tests counters of node-a: frames_rx_pripause 12 @ionic_0", "nccl-tests counters of node-a: tx_rdma_ack_timeout 3 @ionic_1 ?",
				"nccl-tests counters of node-a @ionic_3 ?"}, ""},
		"rccl-tests, counters of bnxt_re, no adapter, two nodes at once": {"ROCm/rocm-systems, projects/rccl-tests of April 2026",
			"NET_COUNTER_TABLE: node=node-c rank=16 status=NO_DATA\n" +
				"NET_COUNTER_TABLE: node=node-a  rank=0  duration_sec=18\nNET_COUNTER_TABLE: node=node-b  rank=8  duration_sec=18\n" +
				strings.Repeat("------------------------------------------------------------\nDevice              rx_cnp_pkts    tx_cnp_pkts\n"+
					"                    count  rate/s  count  rate/s\n------------------------------------------------------------\n", 2) +
				"bnxt_re0(benic7p1)      7    0.39      0    0.00\nbnxt_re1(benic8p1)      0    0.00      0    0.00\n" +
				strings.Repeat("------------------------------------------------------------\n", 2) + rcclNew,
			[]string{"nccl-tests counters: rx_cnp_pkts 7 @bnxt_re0"}, "16: nccl-tests: no table of results"},

		"perftest": {"https://github.com/prasad-nair-amd/rapido, test 9", "Using sampled CPU speed 3295 MHz over reported speed 5022 MHz\n" +
			"Connected: Tue Apr 21 08:12:52 2026\n\n" + rocmDevice + rocmBuffer + rocmTitle("RDMA_Write BW", "ionic_0") + miB +
			" 2          5000             6.82               6.76                 3.543784\n" + rocmRow + rule + "Completed: Tue Apr 21 08:12:57 2026\n\n" +
			"Total run time: 5.459s\ndeallocating GPU buffer 0x7fe939600000\n",
			[]string{"perftest ib_write_bw, ROCm memory @ionic_0 2 0.06 Gb/s", "perftest ib_write_bw, ROCm memory @ionic_0 8388608 159.76 Gb/s"}, ""},
		"perftest, both directions": {"https://github.com/prasad-nair-amd/rapido, test 9 with -b -q 4 --report_gbits", rocmDevice +
			"allocated 67108864 bytes of GPU buffer at 0x7f50a2e00000\n" + rocmTitle("RDMA_Write Bidirectional BW", "ionic_1") + bwHeader +
			" 2          20000           0.147580            0.146905            9.181552\n 8388608    20000            698.41             697.97               0.010401\n" + rule,
			[]string{"perftest ib_write_bw, bidirectional, ROCm memory @ionic_1 2 0.15 Gb/s",
				"perftest ib_write_bw, bidirectional, ROCm memory @ionic_1 8388608 697.97 Gb/s"}, ""},
		"perftest, dma-buf": {"https://github.com/linux-rdma/perftest/pull/309, the row of rapido",
			"* Waiting for client to connect... *\nUsing ROCm Device with ID: 0, Name: AMD Instinct MI300X, PCI Bus ID: 0x9, GCN Arch: gfx942:sramecc+:xnack-\n" +
				rocmDMABuf + title("RDMA_Write BW", "bnxt_re0") + miB + rocmRow + rule + title("RDMA_Write BW", "bnxt_re0") + miB + rocmRow + rule,
			[]string{"perftest ib_write_bw, ROCm memory @bnxt_re0 8388608 159.76 Gb/s", "perftest ib_write_bw @bnxt_re0 8388608 159.76 Gb/s"}, ""},
		"perftest, settings only": {"linux-rdma/perftest 00b55b6, src/perftest_parameters.c", rocmTitle("RDMA_Write BW", "ionic_0") + miB + rocmRow + rule +
			strings.Replace(rocmTitle("RDMA_Write BW", "ionic_0"), "memory : ON", "memory : OFF", 1) + miB + rocmRow + rule,
			[]string{"perftest ib_write_bw, ROCm memory @ionic_0 8388608 159.76 Gb/s", "perftest ib_write_bw @ionic_0 8388608 159.76 Gb/s"}, ""},
		"perftest, another GPU": {"linux-rdma/perftest 00b55b6, src/rocm_memory.c", "Requested ROCm device 8 but found only 8 device(s)\nCouldn't initialize ROCm device\n",
			nil, "1: perftest failed: Requested ROCm device 8 but found only 8 device(s)"},
		"perftest, no driver":      {"linux-rdma/perftest 00b55b6, src/rocm_memory.c", "hipDeviceGetCount() returned 100\nCouldn't initialize ROCm device\n", nil, "1: perftest failed: hipDeviceGetCount() returned 100"},
		"perftest, full memory":    {"linux-rdma/perftest 00b55b6, src/rocm_memory.c", rocmDevice + "hipMalloc error=2\n", nil, "2: perftest failed: hipMalloc error=2"},
		"perftest, no dma-buf":     {"linux-rdma/perftest 00b55b6, src/rocm_memory.c", rocmDevice + "could not verify dmabuf support from kernel config \nCouldn't initialize ROCm device\n", nil, "2: perftest failed: could not verify dmabuf support"},
		"perftest, not built in":   {"linux-rdma/perftest 00b55b6, src/perftest_parameters.c", " Unsupported memory type\n Parser function exited with Error\n", nil, "1: perftest failed: Unsupported memory type"},
		"perftest, export failed":  {"linux-rdma/perftest 00b55b6, src/rocm_memory.c", rocmDevice + "failed to export dmabuf handle for addr 0x7f0b71000000 / 33554432\n", nil, "2: perftest failed: failed to export dmabuf"},
		"perftest, GPU, not a MR":  {"https://github.com/ROCm/mori/issues/509, perftest's wording", rocmDevice + rocmBuffer + "Couldn't allocate MR with error=22\nFailed to create MR\n", nil, "3: perftest failed: Couldn't allocate MR"},
		"ucx_perftest of UCX 1.7":  {"https://github.com/openucx/ucx/pull/4587", "$ ./bin/ucx_perftest localhost -f -c 2 -t tag_lat -m rocm\n|              |       latency (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |\n| # iterations | typical | average | overall |  average |  overall |   average |   overall |\n       1000000     1.458     8.188     9.640       0.93       0.79      122133      103732\n", []string{"ucx_perftest tag_lat, rocm→rocm 0.01 Gb/s 9.64 µs"}, ""},
		"ucx_perftest of UCX 1.15": {"the frame of UCX 1.15 with -m rocm", strings.ReplaceAll("| Test:         tag match bandwidth  |\n| Send memory:  rocm  |\n| Recv memory:  rocm  |\n| Message size: 1048576  |\n", "  |", "                                   |") + "|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |\nFinal:                  1000      0.240  1675.942  1671.351    46615.58   46743.62         597         598\n", []string{"ucx_perftest tag match bandwidth, rocm→rocm 1048576 392.11 Gb/s"}, ""},
		"OSU 7.5": {"https://github.com/easybuilders/easybuild-easyconfigs/pull/25902",
			"=============== pair 0,1  run 1/1  17:17:30 ===============\n\n# OSU MPI-ROCM Bandwidth Test v7.5\n# Datatype: MPI_CHAR.\n# Size      Bandwidth (MB/s)\n1                       1.35\n134217728          139961.80\n\n" +
				"=============== pair 0,2  run 1/1  17:17:36 ===============\n\n# OSU MPI-ROCM Bandwidth Test v7.5\n# Datatype: MPI_CHAR.\n# Size      Bandwidth (MB/s)\n1                       1.43\n",
			[]string{"osu osu_bw, ROCM 1 0.01 Gb/s", "osu osu_bw, ROCM 134217728 1119.69 Gb/s", "osu osu_bw, ROCM 1 0.01 Gb/s"}, ""},
		"OSU 5.9": {"https://github.com/openucx/ucx/issues/9237", "# OSU MPI-ROCM Bandwidth Test v5.9\n# Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)\n" +
			"# Size      Bandwidth (MB/s)\n1                       0.60\n4194304             34328.98\n",
			[]string{"osu osu_bw, device→device 1 0.00 Gb/s", "osu osu_bw, device→device 4194304 274.63 Gb/s"}, ""},
		"OSU, registration failed": {"https://github.com/openucx/ucx/issues/9589", "# OSU MPI-ROCM Bandwidth Test v7.3\n# Send Buffer on HOST (H) and Receive Buffer on DEVICE (D)\n" +
			"# Size      Bandwidth (MB/s)\n# Datatype: MPI_CHAR.\n[1706257302.851919] [node-a:2038794:0]           ib_md.c:309  UCX  ERROR ibv_reg_mr(address=0x7fe35ea00000, length=16, access=0x10000f) failed: Invalid argument\n",
			nil, "1: osu: no rows"},
		"OSU, mpirun -prepend-rank": {"https://github.com/openucx/ucx/issues/7442", "[0] # OSU MPI-ROCM Latency Test v5.8\n" +
			"[0] # Send Buffer on HOST (H) and Receive Buffer on DEVICE (D)\n[0] # Size          Latency (us)\n[0] 0                       2.64\n[0] 2097152               202.88\n",
			[]string{"osu osu_latency, host→device 0 2.64 µs", "osu osu_latency, host→device 2097152 202.88 µs"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, errs := rows(tc.text)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.source, diff)
			}
			if !strings.HasPrefix(errs, tc.errs) || tc.errs == "" && errs != "" {
				t.Errorf("%s: errors %q, want %q", tc.source, errs, tc.errs)
			}
		})
	}
}

// TestRCCLLogs reads the logs that the nccl source reads; their sources are there.
func TestRCCLLogs(t *testing.T) {
	for name, tc := range map[string]struct {
		want []string
		errs string
	}{
		"2.7-ib": {[]string{"network IB mlx5_3:1/IB @mlx5_3", "network IB mlx5_2:1/IB @mlx5_2", "network IB mlx5_1:1/IB @mlx5_1",
			"network IB mlx5_0:1/IB @mlx5_0", "network IB"}, ""},
		"2.7-no-gdr": {[]string{"network IB mlx5_0:1/RoCE @mlx5_0", "network IB", "GPUDirect RDMA disabled, IB @mlx5_0"}, ""},
		"2.16-socket": {[]string{`warning: Missing "amd_iommu=on" from kernel command line which can lead to system instablity or hang!`,
			`warning: Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!`,
			`warning: Missing "HSA_FORCE_FINE_GRAIN_PCIE=1" from environment which can lead to low RCCL performance, system instablity or hang!`,
			"channels via NET/Socket/1 ?", "channels via NET/Socket/2 ?"}, ""},
		"2.18-settings": {[]string{`warning: Missing "amd_iommu=on" from kernel command line which can lead to system instablity or hang!`,
			`warning: Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!`,
			`warning: Missing "HSA_FORCE_FINE_GRAIN_PCIE=1" from environment which can lead to low RCCL performance, system instablity or hang!`,
			"library RCCL 2.18.3+hip5.5 develop:6ecf771+", "warning: hipIpcGetMemHandle failed : invalid argument"}, ""},
		"2.20-torchrun": {[]string{`warning: Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!`,
			"DMA-BUF not available: Dmabuf feature disabled without NCCL_DMABUF_ENABLE=1", "library RCCL 2.20.5+hip6.2 Unknown"}, ""},
		"2.21-one-node": {[]string{"DMA-BUF not available: Dmabuf feature disabled without NCCL_DMABUF_ENABLE=1", "library RCCL 2.21.5-HEAD:9a0e6a1",
			"libibverbs is missing in the image", "network Socket eno2np1", "network Socket"}, ""},
		"2.21-dmabuf": {[]string{"DMA-BUF available", "library RCCL 2.21.5-Unknown", "network IB mlx5_0:1/RoCE @mlx5_0",
			"peer memory of the GPUs not available", "network IB"}, ""},
		"2.22-vllm": {[]string{`warning: Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!`,
			"library RCCL 2.22.3-HEAD:271856d", "libibverbs is missing in the image ?", "network Socket enp203s0", "network Socket br-03e037269530",
			"network Socket veth18cd3f2"}, ""},
		"2.26-ray-socket": {[]string{"libibverbs is missing in the image ?", "network Socket enp165s0f1np1", "network Socket ?"}, ""},
		"2.27-fatal": {[]string{`warning: Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!`,
			"DMA-BUF not available: Dmabuf feature disabled without NCCL_DMABUF_ENABLE=1", "library RCCL 2.27.7-HEAD:29e1567",
			"network IB: no device found ?", "network Socket eth0", "network Socket eth1", "network Socket ?",
			"warning: hipIpcGetMemHandle failed : invalid argument"}, "23: nccl failed: HIP failure: 'invalid argument'"},
		"2.27-ionic": {[]string{"network IB", "network IB ionic_0:1/RoCE @ionic_0", "network IB ionic_1:1/RoCE @ionic_1", "network IB ionic_2:1/RoCE @ionic_2",
			"network IB ionic_3:1/RoCE @ionic_3", "network IB ionic_4:1/RoCE @ionic_4", "network IB ionic_5:1/RoCE @ionic_5",
			"network IB ionic_6:1/RoCE @ionic_6", "network IB ionic_7:1/RoCE @ionic_7"}, ""},
		"2.27-anp": {[]string{"network IB ionic_0:1/RoCE @ionic_0", "network IB ionic_1:1/RoCE @ionic_1", "network RCCL-ANP",
			"channels via NET/RCCL-ANP/0/GDRDMA"}, ""},
		"2.30-roce-ray": {[]string{"network IB virtual device of 1 @rocep3s0f0", "channels via NET/IB/0"}, ""},
		"2.30-cumem":    {[]string{"warning: cuMem support requires VMM RDMA support", "DMA-BUF available", "library RCCL 2.30.4-HEAD:2b22ab0"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("../../collector/nccl/testdata", "rccl-"+name+".log"))
			if err != nil {
				t.Fatal(err)
			}
			for _, before := range []string{"", "2026-07-01T10:00:00.123Z ", "[1,0]<stdout>: ", "[pod/train-0/worker] ", " 12: ", "node-b: "} { // kubectl, mpirun, srun, pdsh
				var log strings.Builder
				for line := range strings.Lines(string(text)) {
					log.WriteString(before + line)
				}
				got, errs := rows(log.String())
				for i := range got {
					got[i] = strings.TrimPrefix(got[i], "nccl ")
				}
				if diff := cmp.Diff(tc.want, got); diff != "" || errs != tc.errs {
					t.Errorf("%q: errors %q, want %q (-want +got)\n%s", before, errs, tc.errs, diff)
				}
			}
		})
	}
}
