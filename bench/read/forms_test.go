package read

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// rows returns each row's tool, test, rail, size, rate in Gb/s and mean in µs, with ! if it failed and ? if it is only
// marked, and the errors without the name of the file.
func rows(text string) (list []string, errs string) {
	results, err := File("f", strings.NewReader(text))
	for _, r := range results {
		s := r.Tool + " " + r.Test
		if r.Rail != "" {
			s += " @" + r.Rail
		}
		if r.Bytes != nil {
			s += " " + strconv.FormatInt(*r.Bytes, 10)
		}
		if r.Rate != nil {
			s += fmt.Sprintf(" %.2f Gb/s", *r.Rate*8/1e9)
		}
		if r.Latency != nil && r.Latency.Avg != nil {
			s += fmt.Sprintf(" %.2f µs", *r.Latency.Avg*1e6)
		}
		switch {
		case r.Failed:
			s += " !"
		case len(r.Marks) > 0:
			s += " ?"
		}
		list = append(list, s)
	}
	if err != nil {
		errs = strings.ReplaceAll(err.Error(), "f:", "")
	}
	return list, errs
}

const (
	rule      = "---------------------------------------------------------------------------------------\n"
	bwHeader  = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
	latHeader = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]\n"
	ucxFrame  = "+--------------+--------------+------------------------------+---------------------+-----------------------+\n" +
		"|              |              |       %8s (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |\n" +
		"|    Stage     | # iterations | 50.0%%ile | average | overall |  average |  overall |  average  |  overall  |\n"
	ucxAPI = "| API:          protocol layer                                                                             |\n" +
		"| Test:         tag match bandwidth                                                                        |\n" +
		"| Send memory:  %-60s                               |\n| Recv memory:  %-60s                               |\n" +
		"| Message size: 1048576                                                                                    |\n"
	iperf2Client = "------------------------------------------------------------\nClient connecting to 10.0.0.2, %s port 5001\n"
)

func title(test, device string) string {
	return rule + "                    " + test + " Test\n Dual-port       : OFF\t\tDevice         : " + device +
		"\n Number of qps   : 1\t\tTransport type : IB\n Mtu             : 4096[B]\n Link type       : Ethernet\n" + rule +
		" local address: LID 0000 QPN 0x0130 PSN 0x7a6b1c\n remote address: LID 0000 QPN 0x0131 PSN 0x2d3f09\n" + rule
}

// TestTools reads the output of tools with each of their options. The figures are from public outputs.
func TestTools(t *testing.T) {
	const row = " 65536      5000             97.91              97.88\t\t   0.186691\n"
	for name, tc := range map[string]struct {
		text string
		want []string
		errs string // beginning of the errors
	}{
		"perftest, post list": {title("RDMA_Write Post List BW", "ib0") + bwHeader + row + rule,
			[]string{"perftest ib_write_bw @ib0 65536 97.88 Gb/s"}, ""},
		"perftest, CPU frequencies between": {title("RDMA_Write BW", "mlx5_0") + bwHeader +
			"Conflicting CPU frequency values detected: 800.140000 != 2105.420000. CPU Frequency is not max.\n" + row + rule,
			[]string{"perftest ib_write_bw @mlx5_0 65536 97.88 Gb/s"}, ""},
		"perftest, memory of a GPU": {"initializing CUDA\nListing all CUDA devices in system:\n" + title("RDMA_Write BW", "mlx5_0") +
			bwHeader + row + rule + "destroying current CUDA Ctx\n" + title("RDMA_Write BW", "mlx5_0") + bwHeader + row + rule,
			[]string{"perftest ib_write_bw, CUDA memory @mlx5_0 65536 97.88 Gb/s", "perftest ib_write_bw @mlx5_0 65536 97.88 Gb/s"}, ""},
		"perftest, ROCm": {"Using ROCm Device with ID: 0, Name: AMD Instinct MI300X\n" + title("RDMA_Write BW", "mlx5_0") + bwHeader + row + rule,
			[]string{"perftest ib_write_bw, ROCm memory @mlx5_0 65536 97.88 Gb/s"}, ""},
		"perftest, samples": {title("RDMA_Write Latency", "mlx5_0") + "#, usec\n1, 2.31\n2, 2.4\n3, 5.11\n" + rule + latHeader +
			" 2       1000          1.61           4.02         1.64     \t       1.66        \t0.07   \t\t1.90    \t\t4.02\n" + rule,
			[]string{"perftest ib_write_lat @mlx5_0 2 1.66 µs"}, ""},
		"perftest, cycles": {title("RDMA_Write Latency", "mlx5_0") + "#, cycles\n1, 4851\n" + rule + latHeader +
			" 2       1000          1.61           4.02         1.64     \t       1.66        \t0.07   \t\t1.90    \t\t4.02\n" + rule,
			[]string{"perftest ib_write_lat @mlx5_0 2 ?"}, ""},
		"perftest, by port": {strings.Replace(title("RDMA_Write BW", "mlx5_0"), "OFF", "ON", 1) +
			" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]   BW Port1[Gb/sec]   MsgRate Port1[Mpps]   BW Port2[Gb/sec]   MsgRate Port2[Mpps]\n" +
			" 65536      5000     190.00            180.00\t\t   0.343        95.00            0.181              85.00            0.162\n" + rule,
			[]string{"perftest ib_write_bw @mlx5_0 65536 180.00 Gb/s", "perftest ib_write_bw, port 1 @mlx5_0 65536 95.00 Gb/s",
				"perftest ib_write_bw, port 2 @mlx5_0 65536 85.00 Gb/s"}, ""},
		"perftest, validation": {title("RDMA_Write BW", "mlx5_0") + bwHeader + row + rule + "VALIDATION: FAILED - 12 error(s), 0 stale\n",
			[]string{"perftest ib_write_bw @mlx5_0 65536 97.88 Gb/s !"}, "14: perftest failed: VALIDATION: FAILED"},
		"perftest, below its limit": {title("RDMA_Write BW", "mlx5_0") + bwHeader + row + rule + "Error: BW result is below bw limit\n",
			[]string{"perftest ib_write_bw @mlx5_0 65536 97.88 Gb/s"}, "14: perftest failed: Error: BW result is below bw limit"},
		"perftest, no port": {" Port number 1 state is Down\n Couldn't set the link layer\n Couldn't get context for the device\n", nil,
			"3: perftest failed: Couldn't get context for the device"},
		"perftest, server of reads": {"* Waiting for client to connect... *\n" + title("RDMA_Read Latency", "mlx4_0") +
			title("RDMA_Read Latency", "mlx4_0") + latHeader +
			" 2       1000          1.61           4.02         1.64     \t       1.66        \t0.07   \t\t1.90    \t\t4.02\n" + rule,
			[]string{"perftest ib_read_lat @mlx4_0 2 1.66 µs"}, ""},
		"perftest, a row after its table": {title("RDMA_Write BW", "mlx5_0") + bwHeader + row + rule + row + rule,
			[]string{"perftest ib_write_bw @mlx5_0 65536 97.88 Gb/s"}, "14: perftest: a row after the end of its table"},
		"perftest, another begins before the end": {title("RDMA_Write BW", "mlx5_0") + bwHeader + row + title("RDMA_Write BW", "mlx5_1") +
			bwHeader + row + row + rule + row + rule,
			[]string{"perftest ib_write_bw @mlx5_0 65536 97.88 Gb/s", "perftest ib_write_bw 65536 97.88 Gb/s !",
				"perftest ib_write_bw 65536 97.88 Gb/s !", "perftest ib_write_bw 65536 97.88 Gb/s !"}, "14: perftest: this run begins before"},
		"perftest, one failed and one good": {title("RDMA_Write BW", "mlx5_0") + bwHeader + " Completion with error at client\n" +
			" Failed status 12: wr_id 0 syndrom 0x81\n" + title("RDMA_Write BW", "mlx5_1") + bwHeader + row + rule,
			[]string{"perftest ib_write_bw @mlx5_1 65536 97.88 Gb/s"}, "13: perftest failed: Completion with error at client, Failed status 12 (retry"},
		"perftest, a row below the next title": {title("RDMA_Write BW", "mlx5_0") + bwHeader + row + rule + "$\n" + title("RDMA_Write BW", "mlx5_1") +
			row + bwHeader + row + rule, []string{"perftest ib_write_bw @mlx5_0 65536 97.88 Gb/s", "perftest ib_write_bw @mlx5_1 65536 97.88 Gb/s"},
			"25: perftest: a row after the end of its table"},
		"perftest, two endless runs in a document": {title("RDMA_Write BW", "mlx5_0") + bwHeader + row + row + "```\n\nThen:\n```\n" +
			title("RDMA_Write BW", "mlx5_1") + bwHeader + row + row + "```\n",
			[]string{"perftest ib_write_bw @mlx5_0 65536 97.88 Gb/s", "perftest ib_write_bw @mlx5_0 65536 97.88 Gb/s",
				"perftest ib_write_bw @mlx5_1 65536 97.88 Gb/s", "perftest ib_write_bw @mlx5_1 65536 97.88 Gb/s"}, ""},
		"perftest, stopped before a second row": {title("RDMA_Write BW", "mlx5_0") + bwHeader + row + "^C\n",
			[]string{"perftest ib_write_bw @mlx5_0 65536 97.88 Gb/s ?"}, ""},
		"perftest JSON, unquoted, in one line": {`{ test_info: { test: RDMA_Write_Latency_Test, Device: "rxe0", TX_depth : 1, Use_ROCm_memory: ON, }, ` +
			`results: { MsgSize: 128, n_iterations: 5000, t_min: 2.37, t_avg: 2.42, percentile_99.9: 4.03, }, }` + "\n",
			[]string{"perftest ib_write_lat, ROCm memory @rxe0 128 2.42 µs"}, ""},
		"perftest JSON, both directions": {`{"test_info": {"test": "Send_Bidirectional_BW_Test", "Device": "mlx5_0"}, ` +
			`"results_local": {"MsgSize": 8388608, "BW_average": 390.5, "MsgRate": 0.005819}}`,
			[]string{"perftest ib_send_bw, local direction @mlx5_0 8388608 390.50 Gb/s"}, ""},

		"OSU": {"# OSU MPI-CUDA Bandwidth Test v7.5\n# Datatype: MPI_CHAR.\n# Size      Bandwidth (MB/s)        Validation\n" +
			"1                       0.90              Pass\n4194304             24007.69              Fail\n",
			[]string{"osu osu_bw, CUDA 1 0.01 Gb/s", "osu osu_bw, CUDA 4194304 192.06 Gb/s !"}, ""},
		"OSU, buffers": {"# OSU MPI-CUDA Bandwidth Test v5.6.2\n# Send Buffer on DEVICE (D) and Receive Buffer on HOST (H)\n" +
			"# Size      Bandwidth (MB/s)\n4194304             12000.00\n", []string{"osu osu_bw, device→host 4194304 96.00 Gb/s"}, ""},
		"OSU, three tests": {"# OSU MPI Bi-Directional Bandwidth Test v5.9\n# Size      Bandwidth (MB/s)\n1   2.41\n2   3.94\n" +
			"# OSU MPI Latency Test v5.0\n# Size          Latency (us)\n0                       1.84\n# OSU MPI Allreduce Latency Test v5.6.2\n" +
			"# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations\n4   53.34   24.80   158.96   1000\n",
			[]string{"osu osu_bibw 1 0.02 Gb/s", "osu osu_bibw 2 0.03 Gb/s", "osu osu_latency 0 1.84 µs", "osu MPI Allreduce Latency 4 53.34 µs"}, ""},
		"OSU, message rate": {"# OSU MPI Multiple Bandwidth / Message Rate Test v5.7.1\n# [ pairs: 48 ] [ window size: 64 ]\n" +
			"# Size                  MB/s        Messages/s\n4096               168173.26       41058000.1\n",
			[]string{"osu osu_mbw_mr 4096 1345.39 Gb/s"}, ""},
		"OSU, two at once": {"# OSU MPI Bandwidth Test v7.5\n# OSU MPI Latency Test v7.5\n# Size      Bandwidth (MB/s)\n# Size          Latency (us)\n" +
			"1   0.90\n", []string{"osu  1 0.90 µs !"}, "2: osu: this run begins before that of line 1 has a row"},
		"OSU, two of one kind": {"# OSU MPI Bandwidth Test v7.5\n# Size      Bandwidth (MB/s)\n1  0.90\n2  1.80\n1  0.70\n",
			[]string{"osu osu_bw 1 0.01 Gb/s", "osu osu_bw 2 0.01 Gb/s", "osu  1 0.01 Gb/s !"}, "5: osu: sizes do not rise"},
		"OSU, no rows": {"# OSU MPI Bandwidth Test v7.5\n# Size      Bandwidth (MB/s)\n", nil, "1: osu: no rows"},

		"ucx_perftest": {fmt.Sprintf(ucxAPI, "cuda", "cuda") + fmt.Sprintf(ucxFrame, "overhead") +
			"[thread 0]               622      0.240  1668.561  1668.561    46821.78   46821.78         599         599\n" +
			"Final:                  1000      0.240  1675.942  1671.351    46615.58   46743.62         597         598\n",
			[]string{"ucx_perftest tag match bandwidth, cuda→cuda 1048576 392.11 Gb/s"}, ""},
		"ucx_perftest, latency": {"$ ucx_perftest 172.23.155.50 -t ucp_am_lat -s 30000\n" + fmt.Sprintf(ucxFrame, "latency") +
			"Final:               1000000     15.993    16.106    16.405     1776.36    1744.03       62088       60958\n",
			[]string{"ucx_perftest ucp_am_lat 30000 14.63 Gb/s 16.41 µs"}, ""},
		"ucx_perftest, until 1.12": {"+ ucx_perftest -m cuda -t tag_bw -s 100 -n 1000 10.0.26.2\n| # iterations | typical | average | overall |  average |  overall |   average |   overall |\n" +
			"          1000     0.000     4.729     4.729      20.17      20.17      211460      211460\n",
			[]string{"ucx_perftest tag_bw, cuda→cuda 100 0.17 Gb/s"}, ""},
		"ucx_perftest, threads": {fmt.Sprintf(ucxFrame, "overhead") + "Final:              10000000                         0.126                 121.09                15871492\n",
			[]string{"ucx_perftest  1.02 Gb/s"}, ""},
		"ucx_perftest, CSV": {"ucx_perftest -v -t tag_lat 10.0.0.2\nmessage_size,iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n" +
			"8,1000000,1.261,1.300,1.310,6.05,5.82,793000,763000\n", []string{"ucx_perftest tag_lat 8 0.05 Gb/s 1.31 µs"}, ""},
		"ucx_perftest, CSV of threads": {"iterations,typical_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\nFinal:    10000000,0.126,121.09,15871492\n",
			[]string{"ucx_perftest  1.02 Gb/s"}, ""},
		"ucx_perftest, cut": {fmt.Sprintf(ucxFrame, "overhead") + "[thread 0]               622      0.240  1668.561  1668.561    46821.78   46821.78         599         599\n",
			[]string{"ucx_perftest  392.77 Gb/s !"}, "4: ucx_perftest: the output is cut"},
		"ucx_perftest, it failed": {fmt.Sprintf(ucxFrame, "overhead") + "[1763556204.104442] [a:27011:0]  select.c:641  UCX  ERROR   no active messages transport to b\n",
			nil, "4: ucx_perftest failed: "},
		"ucx_perftest, two at once": {strings.Repeat(fmt.Sprintf(ucxAPI, "host", "host"), 2) + strings.Repeat(fmt.Sprintf(ucxFrame, "overhead"), 2) +
			strings.Repeat("Final:                  1000      0.240  1675.942  1671.351    46615.58   46743.62         597         598\n", 2),
			[]string{"ucx_perftest  392.11 Gb/s !", "ucx_perftest  392.11 Gb/s !"}, "13: ucx_perftest: no results in the table"},

		"iperf2": {fmt.Sprintf(iperf2Client, "TCP") + "[  3] local 10.0.0.1 port 49597 connected with 10.0.0.2 port 5001\n[ ID] Interval       Transfer     Bandwidth\n" +
			"[  3]  0.0- 1.0 sec  28.6 MBytes   240 Mbits/sec\n[  3]  9.0-10.0 sec  26.4 MBytes   221 Mbits/sec\n[  3]  0.0-10.0 sec   265 MBytes   222 Mbits/sec\n",
			[]string{"iperf2 TCP 0.22 Gb/s"}, ""},
		"iperf2, streams": {fmt.Sprintf(iperf2Client, "TCP") + "[  1] local 10.0.0.1 port 1 connected with 10.0.0.2 port 5001 (icwnd/mss/irtt=13/1398/3532)\n" +
			"[  2] local 10.0.0.1 port 2 connected with 10.0.0.2 port 5001\n[  1] 0.0000-10.0428 sec  4.99 GBytes  4.27 Gbits/sec\n" +
			"[  2] 0.0000-10.0428 sec  4.99 GBytes  4.27 Gbits/sec\n[SUM] 0.0000-10.0428 sec  9.98 GBytes  8.54 Gbits/sec\n",
			[]string{"iperf2 TCP, 2 streams 8.54 Gb/s"}, ""},
		"iperf2, UDP": {fmt.Sprintf(iperf2Client, "UDP") + "[  1] 0.00-10.00 sec  2.50 GBytes  2.15 Gbits/sec\n[  1] Sent 1826091 datagrams\n[  1] Server Report:\n" +
			"[  1] 0.00-10.01 sec  2.40 GBytes  2.06 Gbits/sec   0.018 ms  100/1826091 (0.0055%)\n", []string{"iperf2 UDP 2.06 Gb/s !"}, ""},
		"iperf2, UDP without a report": {fmt.Sprintf(iperf2Client, "UDP") + "[  1] 0.0000-5.0003 sec  59.6 MBytes  100 Mbits/sec\n" +
			"[  3] WARNING: did not receive ack of last datagram after 10 tries.\n", []string{"iperf2 UDP 0.10 Gb/s !"}, "4: iperf2 failed: WARNING: did not"},
		"iperf2, cut": {fmt.Sprintf(iperf2Client, "TCP") + "[  3]  0.0- 1.0 sec  28.6 MBytes   240 Mbits/sec\n[  3]  1.0- 2.0 sec  26.4 MBytes   221 Mbits/sec\n",
			[]string{"iperf2 TCP 0.24 Gb/s !"}, "3: iperf2: the output is cut"},
		"iperf2, refused": {fmt.Sprintf(iperf2Client, "TCP") + "connect failed: Connection refused\n", nil, "2: iperf2: no result"},
		"iperf2, CSV":     {"20260701100000,10.0.0.1,40000,10.0.0.2,5001,3,0.0-10.0,11737235456,9389788364\n", []string{"iperf2 TCP 9.39 Gb/s"}, ""},

		"iperf3, lost datagrams": {"Connecting to host b, port 5201\n[  5]   0.00-10.00  sec   344 MBytes   288 Mbits/sec  0.000 ms  0/5555 (0%)  sender\n" +
			"[  5]   0.00-10.01  sec   342 MBytes   287 Mbits/sec  3.483 ms  51/5555 (0.92%)  receiver\n\niperf Done.\n", []string{"iperf3 TCP 0.29 Gb/s !"}, ""},
		"iperf3, nothing arrived": {"Connecting to host b, port 5201\n[  5]   0.00-10.00  sec   344 MBytes   288 Mbits/sec    0   sender\n" +
			"[  5]   0.00-10.01  sec   0.00 Bytes   0.00 bits/sec                  receiver\n\niperf Done.\n", []string{"iperf3 TCP 0.00 Gb/s !"}, ""},
		"iperf3, two clients": {"Connecting to host b, port 5201\nConnecting to host c, port 5201\n[  5]   0.00-10.00  sec  10 GBytes   9.0 Gbits/sec    0   sender\n" +
			"[  5]   0.00-10.01  sec   10 GBytes   8.0 Gbits/sec       receiver\n[  5]   0.00-10.01  sec   10 GBytes   1.0 Gbits/sec       receiver\niperf Done.\niperf Done.\n",
			[]string{"iperf3 TCP 8.00 Gb/s !", "iperf3 TCP 1.00 Gb/s !"}, "2: iperf3: this client begins before that of line 1 is done"},
		"iperf3 JSON stream, two clients": {strings.Repeat(`{"event":"start","data":{"test_start":{"protocol":"TCP","num_streams":1}}}`+"\n", 2) +
			strings.Repeat(`{"event":"end","data":{"sum_received":{"bits_per_second":8e9}}}`+"\n", 2),
			[]string{"iperf3 TCP 8.00 Gb/s !", "iperf3 TCP 8.00 Gb/s !"}, "1: iperf3: the output is cut"},
		"iperf3 JSON, an error with sums": {`{"start":{"test_start":{"protocol":"TCP","num_streams":1}},"end":{"sum_received":{"bits_per_second":8e9}},"error":"control socket has closed unexpectedly"}`,
			[]string{"iperf3 TCP 8.00 Gb/s !"}, "1: iperf3 failed: control socket has closed unexpectedly"},
		"iperf3 JSON, lost datagrams": {`{"start":{"test_start":{"protocol":"UDP","num_streams":1}},"end":{"sum":{"bits_per_second":8e9,"lost_packets":7,"packets":100}}}`,
			[]string{"iperf3 UDP 8.00 Gb/s !"}, ""},
		"iperf3 JSON, lines without indentation": {"{\n\"start\": {\n\"test_start\": {\n\"protocol\": \"TCP\", \"num_streams\": 1}},\n\"intervals\": [\n{\n\"sum\": {\"bits_per_second\": 1}\n},\n{\n\"sum\": {}}],\n\"end\":\n{\n\"sum_received\":\n{\"bits_per_second\":\n8e9\n}\n}\n}\n",
			[]string{"iperf3 TCP 8.00 Gb/s"}, ""},

		"nccl-tests, one rank": {"# nThread 1 nGpus 1 minBytes 8 maxBytes 8\n#  Rank  0 Group  0 Pid 2181762 on a device  0 [0x01] NVIDIA GeForce RTX 5090\n" +
			"#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n" +
			"    33554432       8388608     float    none      -1    19.56  1715.44    0.00      0     0.78  43046.10    0.00    N/A\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0 \n",
			[]string{"nccl-tests float 33554432 13723.52 Gb/s 19.56 µs ?"}, ""},
		"nccl-tests, started twice by mpirun": {strings.Repeat("# nThread 1 nGpus 1 minBytes 8 maxBytes 8\n#   Rank  0 Pid   1320 on a device  0 [0x00] Tesla V100\n", 2) +
			strings.Repeat("#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error\n", 2) +
			strings.Repeat("  1310720000     327680000     float     sum   1234.5   999.9     0.0  0e+00     1.0   1.0   0.0  0e+00\n# Avg bus bandwidth    : 0 \n", 2),
			[]string{"nccl-tests float sum 1310720000 7999.20 Gb/s 1234.50 µs !", "nccl-tests float sum 1310720000 7999.20 Gb/s 1234.50 µs ?"}, "3: nccl-tests: this run begins before that of line 1 has ended"},

		"nixlbench, storage": {"NIXLBench Configuration\nBackend (--backend=[UCX,GDS])                 : GDS\nDevice list (--device_list=dev1,dev2,...)    : mlx5_0\n" +
			"Op type (--op_type=[READ,WRITE])             : READ\nBlock Size (B)      Batch Size     B/W (GB/Sec)   Avg Lat. (us)  P99 Tx (us)\n65536               1              1.236753       53.0           64.0\n",
			[]string{"nixlbench GDS READ 65536 9.89 Gb/s 53.00 µs"}, ""},
		"nixlbench, wrong data": {"NIXLBench Configuration\nBackend (--backend=[UCX,GDS])                 : UCX\nDevice list (--device_list=dev1,dev2,...)    : mlx5_0\n" +
			"Block Size (B)      Batch Size     B/W (GB/Sec)   Avg Lat. (us)  P99 Tx (us)\n65536               1              1.236753       53.0           64.0\nConsistency check failed for iov 0\n",
			[]string{"nixlbench UCX @mlx5_0 65536 9.89 Gb/s 53.00 µs !"}, "6: nixlbench failed: Consistency check failed"},
		"nixlbench, two at once": {strings.Repeat("NIXLBench Configuration\nBackend (--backend=[UCX,GDS])                 : UCX\nDevice list (--device_list=dev1,dev2,...)    : mlx5_0\n", 2) +
			"Block Size (B)      Batch Size     B/W (GB/Sec)   Avg Lat. (us)  P99 Tx (us)\n65536               1              1.236753       53.0           64.0\n",
			[]string{"nixlbench  65536 9.89 Gb/s 53.00 µs !"}, "4: nixlbench: this run begins before that of line 1 has results"},
		"NCCL, a link that became slower": {"h:1:1 [0] NCCL INFO NET/IB : mlx5_0:1 speed change detected: 400000 -> 200000 Mbps\n",
			[]string{"nccl link slower @mlx5_0 ?"}, ""},
		"NCCL, a plugin that nobody knows": {"h:1:1 [0] NCCL INFO Using network GPUDirectTCPX_v7\n", []string{"nccl network GPUDirectTCPX_v7 ?"}, ""},
		"NCCL, the provider comes later": {"NCCL INFO Using network AWS Libfabric\nNCCL INFO NET/OFI Selected Provider is efa (found 4 nics)\n",
			[]string{"nccl network AWS Libfabric", "nccl libfabric provider efa"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, errs := rows(tc.text)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if !strings.HasPrefix(errs, tc.errs) || tc.errs == "" && errs != "" {
				t.Errorf("errors %q, want %q", errs, tc.errs)
			}
		})
	}
}

// TestCarriers: the result does not depend on how an output was transported.
func TestCarriers(t *testing.T) {
	whole, err := os.ReadFile("testdata/write_bw.txt")
	if err != nil {
		t.Fatal(err)
	}
	text := string(whole)
	object, err := os.ReadFile("testdata/iperf3.json")
	if err != nil {
		t.Fatal(err)
	}
	lines := func(text, before, after string) string {
		var b strings.Builder
		for line := range strings.Lines(text) {
			b.WriteString(before + strings.TrimSuffix(line, "\n") + after + "\n")
		}
		return b.String()
	}
	wide := func(order binary.AppendByteOrder, bom bool) func(string) string {
		return func(text string) string {
			var b []byte
			if bom {
				b = order.AppendUint16(b, 0xfeff)
			}
			for _, c := range utf16.Encode([]rune(text)) {
				b = order.AppendUint16(b, c)
			}
			return string(b)
		}
	}
	record := func(format string) func(string) string {
		return func(text string) string {
			var b strings.Builder
			for line := range strings.Lines(text) {
				fmt.Fprintf(&b, format+"\n", strconv.Quote(line))
			}
			return b.String()
		}
	}
	before := func(prefix string) func(string) string {
		return func(text string) string { return lines(text, prefix, "") }
	}
	wantText, _ := rows(text)
	wantObject, _ := rows(string(object))
	if len(wantText) != 1 || len(wantObject) != 1 {
		t.Fatalf("%q, %q", wantText, wantObject)
	}
	for name, carry := range map[string]func(string) string{
		"CRLF":                 func(text string) string { return lines(text, "", "\r") },
		"no-break spaces":      func(text string) string { return strings.ReplaceAll(text, " ", "\u00a0") },
		"UTF-16LE":             wide(binary.LittleEndian, true),
		"UTF-16BE":             wide(binary.BigEndian, true),
		"UTF-16LE without BOM": wide(binary.LittleEndian, false),
		"journald":             before("Jul 01 10:00:00 spark-01 bench[4711]: "),
		"journald, ISO":        before("2026-07-01T10:00:00+0000 spark-01 bench[4711]: "),
		"Ray":                  before("(RayWorkerWrapper pid=284, ip=192.168.31.49) "),
		"Ray in Ray":           before("(EngineCore_DP0 pid=1088) (RayWorkerWrapper pid=285, ip=192.168.177.12) "),
		"Ray, repeated": func(text string) string {
			return lines(text, "\x1b[36m(pid=284)\x1b[0m ", " [repeated 7x across cluster]")
		},
		"CloudWatch":         before("  | 2025-05-22T14:26:33.405-07:00 | "),
		"kubectl":            before("[pod/perf-0/main] 2026-07-01T10:00:00.123456789Z "),
		"CRI":                before("2026-07-01T10:00:00.123456789Z stdout F "),
		"mpirun 5":           before("[prterun-a-1@1,0]<stdout>: "),
		"mpirun with times":  before("Mon Mar 26 10:40:57 2018[1,0]<stdout>:"),
		"torchrun":           before("[rank0]: "),
		"docker compose":     before("node-1  | "),
		"quoted":             before("> > "),
		"docker's files":     record(`{"log":%s,"stream":"stdout","time":"2026-07-01T10:00:00Z"}`),
		"journalctl -o json": record(`{"__REALTIME_TIMESTAMP":"1","MESSAGE":%s,"_HOSTNAME":"a"}`),
		"aws logs": func(text string) string {
			return `{"events": [` + strings.TrimSuffix(record(`{"timestamp": 1, "message": %s},`)(text), ",\n") + "]}\n"
		},
		"a notebook": func(text string) string {
			return `{"cells": [{"cell_type": "code", "outputs": [{"output_type": "stream", "text": [` +
				strings.TrimSuffix(record("%s,")(text), ",\n") + "]}]}],\n \"nbformat\": 4}\n"
		},
	} {
		for kind, want := range map[string][]string{text: wantText, string(object): wantObject} {
			got, errs := rows(carry(kind))
			if diff := cmp.Diff(want, got); diff != "" || errs != "" {
				t.Errorf("%s: %s%s", name, diff, errs)
			}
		}
	}
}

// TestManyKeys: the time for a document is linear in its members: 16 times as many take less than 64 times as long.
func TestManyKeys(t *testing.T) {
	runtime.LockOSThread() // the time of this thread alone counts: others may run beside it
	defer runtime.UnlockOSThread()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	parse := func(n int) time.Duration {
		var b strings.Builder
		b.WriteString("{\n")
		for i := range n {
			fmt.Fprintf(&b, "\"k%d\": %d,\n", i, i)
		}
		b.WriteString("\"last\": 1}\n")
		best := time.Hour
		for range 3 {
			start := threadTime(t)
			d := newDocument(1, []byte(b.String()))
			best = min(best, threadTime(t)-start)
			if d.err != nil || d.members["last"].line != n+2 {
				t.Fatalf("%v, line %d", d.err, d.members["last"].line)
			}
		}
		return best
	}
	if few, many := parse(2000), parse(32_000); many > 64*few {
		t.Errorf("2,000 members take %v, 32,000 take %v", few, many)
	}
}

// threadTime is the processor time of the calling thread.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var spent unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &spent); err != nil {
		t.Fatal(err)
	}
	return time.Duration(spent.Nano())
}
